"""What can go wrong with a call, told in our own words: every fault of any provider becomes one kind of ModelError.

Tried again are 408, 409, 429 that is no spend limit, 5xx and 529, connections that fail or break, time-outs, and
replies that are no answer or only a part of one. Not tried again is what would end the same way: a spend limit, any
other 4xx, and an answer beyond the size that is read.

An answer is complete when it says why it ended. One that ended at its token limit (``length``) is complete: the caller
chose that limit, the same request would be cut again, and pydantic-ai deals with what is missing in it.
"""

import re
import time
from collections.abc import Iterator, Mapping

import httpx2
from pydantic_ai import ModelResponse
from pydantic_ai import exceptions as theirs
from pydantic_ai.models import Model

from mixseek.errors import (
    ModelError,
    ModelIncompleteError,
    ModelMalformedError,
    ModelRateLimitError,
    ModelRefusedError,
    ModelSpendLimitError,
    ModelTimeoutError,
    ModelTooLargeError,
    ModelUnavailableError,
)
from mixseek.llm.transport import AnswerTooLarge, HostNotAllowed
from mixseek.strangers import text_of
from mixseek.surrogates import whole_text

__all__ = ["costs_nothing", "fault_of", "is_remote", "refuse_incomplete"]

_RETRYABLE_STATUS = frozenset({408, 409})
_OVERLOADED = frozenset({503, 529})
_NEVER_LEFT = (HostNotAllowed, httpx2.ConnectError, httpx2.ConnectTimeout)
_SPENT = re.compile(
    r"spend(?:ing)?[ _]limit|insufficient[ _](?:quota|credits?|balance|funds)|billing[ _](?:hard[ _])?limit"
    r"|credit[ _]balance|out of credits",
    re.IGNORECASE,
)
_NOT_AN_END = frozenset({"in_progress", "queued", "incomplete"})
_OPENAI_ADAPTERS = "pydantic_ai.models.openai"
_LONGEST_WORDS = 500

_RESET_HEADER = re.compile(r"^(x-)?ratelimit-(.*-)?reset(-|$)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SURELY_A_DATE = 1e9
# Some mean the time until nothing of the limit is used, which nobody has to wait for.
_LONGEST_RESET = 60.0

_OF_THE_TRANSPORT: tuple[tuple[type[Exception], type[ModelError]], ...] = (
    (AnswerTooLarge, ModelTooLargeError),
    (HostNotAllowed, ModelRefusedError),
    (httpx2.RemoteProtocolError, ModelIncompleteError),
)
# The first that fits counts. An adapter that reads a reply of another shape than it expects stumbles over it with one
# of Python's own errors.
_OF_THE_ADAPTER: tuple[tuple[type[Exception], type[ModelError]], ...] = (
    (theirs.ModelTimeoutError, ModelTimeoutError),
    (theirs.ModelRequestTimeout, ModelTimeoutError),
    (TimeoutError, ModelTimeoutError),
    (httpx2.TimeoutException, ModelTimeoutError),
    (theirs.ModelQuotaExceededError, ModelSpendLimitError),
    (theirs.ModelRateLimitError, ModelRateLimitError),
    (theirs.ModelConnectionError, ModelUnavailableError),
    (theirs.ModelUnavailableError, ModelUnavailableError),
    (theirs.ModelServerError, ModelUnavailableError),
    (httpx2.TransportError, ModelUnavailableError),
    (OSError, ModelUnavailableError),
    (theirs.ModelRequestRejectedError, ModelRefusedError),
    (theirs.ContentFilterError, ModelRefusedError),
    (theirs.UserError, ModelRefusedError),
    (theirs.ModelAPIError, ModelMalformedError),
    (theirs.UnexpectedModelBehavior, ModelMalformedError),
    *((raised, ModelMalformedError) for raised in (LookupError, TypeError, ValueError, AttributeError, AssertionError)),
)


# What people can do about it, where a status says that they can.
_ADVICE = {
    401: " (is the key right?)",
    403: " (may this key use the model?)",
    404: " (is the name of the model right?)",
}


def fault_of(error: Exception, model: str) -> ModelError:
    """The fault as one of ours."""
    kind = _kind(error)
    status = getattr(error, "status_code", None)
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None and kind is ModelRateLimitError:
        retry_after = _reset_in(getattr(error, "headers", None) or {})
    return kind(_words(error), model=model, status=status, retry_after=retry_after)


def costs_nothing(fault: ModelError) -> bool:
    """Whether it is certain that nothing was billed: nobody was reached, or whoever was refused to begin.

    A server that fails, a gateway that gives up and an answer that breaks off may all be billed.
    """
    if any(isinstance(cause, _NEVER_LEFT) for cause in _causes(fault)):
        return True
    status = fault.status
    return status is not None and (status in _OVERLOADED or (400 <= status < 500 and status not in _RETRYABLE_STATUS))


def _kind(error: Exception) -> type[ModelError]:
    # The transport's word first: SDKs wrap it in errors that only say "connection".
    for cause in _causes(error):
        for raised, kind in _OF_THE_TRANSPORT:
            if isinstance(cause, raised):
                return kind
    if isinstance(error, theirs.ModelHTTPError) and not isinstance(error, theirs.ModelQuotaExceededError):
        return _kind_of_status(error)
    return next((kind for raised, kind in _OF_THE_ADAPTER if isinstance(error, raised)), ModelRefusedError)


def _kind_of_status(error: theirs.ModelHTTPError) -> type[ModelError]:
    if error.status_code == 429:
        return ModelSpendLimitError if _SPENT.search(str(error.body)) else ModelRateLimitError
    if error.status_code >= 500 or error.status_code in _RETRYABLE_STATUS:
        return ModelUnavailableError
    return ModelRefusedError


def _reset_in(headers: Mapping[str, str]) -> float | None:
    """When a refused request may come back, by the headers of a server that sends no Retry-After."""
    waits = [
        seconds
        for name, value in headers.items()
        if _RESET_HEADER.search(name.lower())
        # Several limits may be told of; those that have something left did not refuse it.
        and headers.get(name.replace("reset", "remaining"), "0").strip() in ("0", "0.0")
        and (seconds := _seconds(value)) is not None
    ]
    return min(max(waits), _LONGEST_RESET) if waits else None


def _seconds(value: str) -> float | None:
    """A span as servers write it.

    >>> _seconds("1.5"), _seconds("20ms"), _seconds("6m0s"), _seconds("soon")
    (1.5, 0.02, 360.0, None)
    """
    value = value.strip().lower()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        seconds = float(value)
        return max(0.0, seconds - time.time()) if seconds > _SURELY_A_DATE else seconds
    if not re.fullmatch(r"(\d+(\.\d+)?(ms|[dhms]))+", value):
        return None
    return sum(float(number) * _UNITS[unit] for number, _, unit in re.findall(r"(\d+(\.\d+)?)(ms|[dhms])", value))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and those it was raised from; SDKs wrap what the transport raises."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _words(error: Exception) -> str:
    if isinstance(error, theirs.ModelHTTPError):
        text = f"HTTP {error.status_code}: {whole_text(_said(error.body))}{_ADVICE.get(error.status_code, '')}"
    else:
        # SDKs say "Connection error." where the transport says what happened.
        told = next((cause for cause in _causes(error) if isinstance(cause, httpx2.TransportError)), error)
        text = text_of(told) or type(told).__name__
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]}..."


def _said(body: object) -> str:
    """The provider's own message, wherever it usually stands."""
    if isinstance(body, dict):
        inner = body.get("error", body)
        message = inner.get("message") if isinstance(inner, dict) else inner
        return str(message or body)
    return str(body) if body else "no reason given"


def is_remote(model: Model) -> bool:
    """Whether answers of the model come from elsewhere; one that does not know its address has one nevertheless."""
    try:
        return model.base_url is not None
    except (AttributeError, theirs.UserError):
        return True


def refuse_incomplete(answer: ModelResponse, served_by: Model, model: str) -> None:
    """Raise unless an answer that came from elsewhere is whole."""
    if answer.state == "suspended" and answer.provider_response_id:
        return  # whole as far as it goes, and pydantic-ai continues it by its id
    if answer.state != "complete" or answer.finish_reason == "error":
        raise ModelIncompleteError("the answer broke off", model=model)
    if answer.finish_reason == "content_filter":
        _refuse_withheld(answer, model)
    elif not _says_why_it_ended(answer, served_by):
        raise ModelIncompleteError("the answer does not say why it ended, so it may be only a part", model=model)


def _refuse_withheld(answer: ModelResponse, model: str) -> None:
    if not answer.parts:
        words = (answer.provider_details or {}).get("refusal") or "the provider's content filter withheld the answer"
        raise ModelRefusedError(str(words), model=model)


def _says_why_it_ended(answer: ModelResponse, served_by: Model) -> bool:
    own_word = (answer.provider_details or {}).get("finish_reason")
    if answer.finish_reason is None:
        return bool(own_word) and own_word not in _NOT_AN_END
    # pydantic-ai's OpenAI adapters make a missing reason a "stop", but keep the provider's own word beside a real one.
    return bool(own_word) or not any(cls.__module__ == _OPENAI_ADAPTERS for cls in type(served_by).__mro__)
