"""The server's controls over HTTP, for a test in another process.

| request                    | body or query                                                    |
| -------------------------- | ---------------------------------------------------------------- |
| `POST /control/script`     | `{"model": …, "answers": […]}`, and the fields of `Match`        |
| `POST /control/fault`      | `{"kind": …, "model": …, "count": …}`: the arguments of `fault`  |
| `DELETE /control/fault`    |                                                                  |
| `POST /control/latency`    | `{"seconds": …, "jitter": …, "model": …}`                        |
| `POST /control/rate_limit` | `{"per_second": … or null, "burst": …, "retry_after": …}`        |
| `POST /control/reset`      |                                                                  |
| `GET /control/bill`        |                                                                  |
| `GET /control/requests`    | `?model=…`                                                       |

An answer is a string (text), null (the default answer), or an object with `text`, `value`, `finish_reason`,
`input_tokens`, `output_tokens` and `tool_calls` as `[{"name": …, "arguments": …}]`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web
from pydantic_core import from_json

from mixseek.testing.answers import Answer, ToolCall
from mixseek.testing.server.bill import Bill, LoggedRequest
from mixseek.testing.server.wire import Usage

if TYPE_CHECKING:
    from mixseek.testing.server.model_server import ModelServer

__all__ = [
    "answer_from_json",
    "answer_to_json",
    "bill_to_json",
    "control",
    "request_from_json",
    "request_to_json",
]


async def control(server: "ModelServer", request: web.BaseRequest) -> web.Response:
    """Do what a request to ``/control/…`` asks."""
    act = _ACTS.get(f"{request.method} {request.path}")
    if act is None:
        return web.json_response({"error": {"message": f"known are: {', '.join(_ACTS)}"}}, status=404)
    raw = await request.content.read()
    try:
        given = {**request.query, **(from_json(raw) if raw else {})}
        return web.json_response(act(server, given))
    except (TypeError, ValueError, KeyError) as error:
        return web.json_response({"error": {"message": f"{type(error).__name__}: {error}"}}, status=400)


def _script(server: "ModelServer", given: dict[str, Any]) -> Any:
    answers = [answer_from_json(answer) for answer in given.pop("answers")]
    server.on(given.pop("model", "*"), answers, **given)
    return {}


def _fault(server: "ModelServer", given: dict[str, Any]) -> Any:
    server.fault(given.pop("kind"), **given)
    return {}


def _clear_faults(server: "ModelServer", _given: dict[str, Any]) -> Any:
    server.clear_faults()
    return {}


def _latency(server: "ModelServer", given: dict[str, Any]) -> Any:
    server.set_latency(given.pop("seconds"), **given)
    return {}


def _rate_limit(server: "ModelServer", given: dict[str, Any]) -> Any:
    server.set_rate_limit(given.pop("per_second"), **given)
    return {}


def _reset(server: "ModelServer", _given: dict[str, Any]) -> Any:
    server.reset()
    return {}


def _bill(server: "ModelServer", _given: dict[str, Any]) -> Any:
    return bill_to_json(server.bill)


def _requests(server: "ModelServer", given: dict[str, Any]) -> Any:
    asked = given.get("model")
    return [request_to_json(request) for request in server.requests if asked in (None, request.model)]


_ACTS: Mapping[str, Callable[["ModelServer", dict[str, Any]], Any]] = {
    "POST /control/script": _script,
    "POST /control/fault": _fault,
    "DELETE /control/fault": _clear_faults,
    "POST /control/latency": _latency,
    "POST /control/rate_limit": _rate_limit,
    "POST /control/reset": _reset,
    "GET /control/bill": _bill,
    "GET /control/requests": _requests,
}


def bill_to_json(bill: Bill) -> dict[str, Any]:
    """The bill as an object of ``models`` and ``total``."""
    return {"models": {model: asdict(books) for model, books in bill.models.items()}, "total": asdict(bill.total)}


def answer_from_json(given: Any) -> Answer | None:
    """An answer as the controls take it."""
    if given is None:
        return None
    if isinstance(given, str):
        return Answer(text=given)
    calls: Sequence[Mapping[str, Any]] = given.get("tool_calls", ())
    return Answer(**{**given, "tool_calls": tuple(ToolCall(**call) for call in calls)})


def answer_to_json(answer: Answer | None) -> Any:
    """What :func:`answer_from_json` reads."""
    return None if answer is None else asdict(answer)


def request_to_json(request: LoggedRequest) -> dict[str, Any]:
    """A request of the log, with its body in place of the bytes."""
    told = asdict(request)
    del told["raw"]
    return {**told, "body": request.body}


def request_from_json(told: Mapping[str, Any]) -> LoggedRequest:
    """What :func:`request_to_json` tells."""
    given = {**told, "usage": told["usage"] and Usage(**told["usage"])}
    body = given.pop("body")
    return LoggedRequest(**given, raw=None if body is None else json.dumps(body).encode())
