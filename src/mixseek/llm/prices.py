"""What a call costs: the settings' own prices first, then the price list that comes with genai-prices, offline."""

from collections.abc import Mapping

from genai_prices import calc_price
from pydantic_ai import ModelResponse
from pydantic_ai.usage import RequestUsage

from mixseek.config.schema import PriceSettings
from mixseek.embedded import PREFIX
from mixseek.providers import find_provider

__all__ = ["PriceList"]


class PriceList:
    """Prices of models, by the names they have in the settings."""

    def __init__(self, own: Mapping[str, PriceSettings] | None = None) -> None:
        self._own = dict(own or {})
        # Looking a stranger up costs as much as a tenth of a call, and it stays a stranger.
        self._unknown: set[tuple[str | None, ...]] = set()

    def knows(self, model: str) -> bool:
        """Whether calls of ``model`` have a price; those of a server of one's own are the settings' alone."""
        prefix, _, name = model.partition(":")
        provider = find_provider(prefix)
        if model in self._own or prefix == PREFIX:
            return True
        if provider is None:
            return False
        return any(_is_listed(name, known) for known in (provider.prefix, prefix.partition("-")[0]))

    def cost(self, model: str, answer: ModelResponse) -> float | None:
        """US dollars for one answer of ``model``; None if no price is known."""
        if model in self._own:
            return _own_cost(self._own[model], answer)
        if answer.provider_name == PREFIX and answer.provider_url is None:
            return 0.0  # computed in this process
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


def _is_listed(name: str, provider: str) -> bool:
    try:
        calc_price(RequestUsage(), name, provider_id=provider)
    except LookupError:
        return False
    return True


def _listed_cost(answer: ModelResponse) -> float:
    """By the address, which tells resellers of one model apart; then by the provider's name."""
    name = answer.model_name or ""
    try:
        found = calc_price(answer.usage, name, provider_api_url=answer.provider_url or "")
    except LookupError:
        found = calc_price(answer.usage, name, provider_id=answer.provider_name or "")
    return float(found.total_price)


def _own_cost(price: PriceSettings, answer: ModelResponse) -> float:
    usage = answer.usage
    dollars = usage.input_tokens * price.input_usd_per_million + usage.output_tokens * price.output_usd_per_million
    return dollars / 1_000_000
