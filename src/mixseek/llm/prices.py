"""What a call costs: the settings' own prices first, then the price list that comes with genai-prices, offline."""

import logging
from collections.abc import Mapping

from genai_prices import calc_price
from pydantic_ai import ModelResponse
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model
from pydantic_ai.usage import RequestUsage

from mixseek.config.schema import PriceSettings
from mixseek.embedded import PREFIX
from mixseek.providers import find_provider

__all__ = ["PriceList", "no_price"]

logger = logging.getLogger(__name__)


class PriceList:
    """Prices of models, by the names they have in the settings."""

    def __init__(self, own: Mapping[str, PriceSettings] | None = None) -> None:
        self._own = dict(own or {})
        # Looking a stranger up costs as much as a tenth of a call, and it stays a stranger.
        self._unknown: set[tuple[str | None, ...]] = set()
        self._silent: set[str] = set()
        """Models whose server does not say how many tokens an answer took."""

    def knows(self, model: str) -> bool:
        """Whether calls of ``model`` have a price; those of a server of one's own are the settings' alone."""
        return self.estimate(model, 0, 0) is not None

    def estimate(self, model: str, input_tokens: int, output_tokens: int) -> float | None:
        """US dollars for so many tokens of ``model`` by its name; None if no price is known."""
        if model in self._own:
            return _by_price(self._own[model], input_tokens, output_tokens)
        prefix, _, name = model.partition(":")
        provider = find_provider(prefix)
        if prefix == PREFIX:
            return 0.0
        usage = RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens)
        for known in () if provider is None else (provider.prefix, prefix.partition("-")[0]):
            try:
                return float(calc_price(usage, name, provider_id=known).total_price)
            except LookupError:
                continue
        return None

    def most(self, model: str, served_by: Model, input_tokens: int, output_tokens: int) -> float | None:
        """US dollars that a call of ``model`` with at most so many tokens can cost; None if no price is known."""
        if model in self._own:
            return _by_price(self._own[model], input_tokens, output_tokens)
        if not self.knows(model):
            return None
        if served_by.system == PREFIX:
            return 0.0
        # What is put into a cache may cost more than what is only read.
        usages = [
            RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens, cache_write_tokens=written)
            for written in (0, input_tokens)
        ]
        try:
            return max(
                _listed_price(usage, served_by.model_name, _address(served_by), served_by.system) for usage in usages
            )
        except LookupError:
            return None

    def cost(self, model: str, answer: ModelResponse) -> float | None:
        """US dollars for one answer of ``model``; None if its price, or how many tokens it took, is not known."""
        read, written = answer.usage.input_tokens, answer.usage.output_tokens
        if model in self._own and (read or written or _is_free(self._own[model])):
            return _by_price(self._own[model], read, written)
        if answer.provider_name == PREFIX and answer.provider_url is None:
            return 0.0  # computed in this process
        if not read and not written:
            self._tell_of_silence(model)
            return None
        named = (answer.provider_url, answer.provider_name, answer.model_name)
        if named in self._unknown:
            return None
        try:
            return _listed_cost(answer)
        except LookupError:
            self._unknown.add(named)
            return None
        except ValueError:  # counts that contradict each other cannot be priced
            return None

    def _tell_of_silence(self, model: str) -> None:
        if model not in self._silent:
            self._silent.add(model)
            logger.warning("%s does not say how many tokens an answer took: what it cost is not known", model)


def no_price(model: str, *, has_file: bool = False) -> str:
    """What to say of a model without a price, where money is counted; ``has_file``: there is an orchestrator file."""
    place = f'in the orchestrator file, [prices."{model}"]'
    if not has_file:
        place = f'by prices={{"{model}": {{...}}}} of mixseek.run, or {place},'
    return (
        f"model {model!r} has no known price, and the budget counts money: give it one {place} "
        "with input_usd_per_million and output_usd_per_million"
    )


def _listed_cost(answer: ModelResponse) -> float:
    return _listed_price(answer.usage, answer.model_name, answer.provider_url, answer.provider_name)


def _listed_price(usage: RequestUsage, name: str | None, address: str | None, provider: str | None) -> float:
    """By the address, which tells resellers of one model apart; then by the provider's name."""
    try:
        found = calc_price(usage, name or "", provider_api_url=address or "")
    except LookupError:
        found = calc_price(usage, name or "", provider_id=provider or "")
    return float(found.total_price)


def _address(model: Model) -> str | None:
    try:
        return model.base_url
    except (AttributeError, UserError):
        return None


def _is_free(price: PriceSettings) -> bool:
    return price.input_usd_per_million == 0 and price.output_usd_per_million == 0


def _by_price(price: PriceSettings, input_tokens: int, output_tokens: int) -> float:
    dollars = input_tokens * price.input_usd_per_million + output_tokens * price.output_usd_per_million
    return dollars / 1_000_000
