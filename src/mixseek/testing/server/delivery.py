"""Writing a response to a connection, whole or broken in the way a fault asks for."""

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TypeAlias

from aiohttp import web

from mixseek.testing.server.faults import FaultKind
from mixseek.testing.server.wire import Payload

__all__ = ["deliver"]

Respond: TypeAlias = Callable[[], None]

# Long enough for what was written to reach the client before the break does, short enough not to be waited for.
_MOMENT = 0.02
_DRIP_SECONDS = 0.05


async def deliver(
    request: web.BaseRequest, payload: Payload, manner: FaultKind | None, sent: Respond
) -> web.StreamResponse:
    """Send ``payload`` in the given manner; ``sent`` is called just before its last byte leaves, if it is sent whole.

    Before, not after: a client may look at the bill as soon as it has its answer.
    """
    match manner:
        case "reset_before_headers" | "reset_after_headers" | "reset_in_body":
            return await _reset(request, payload, manner)
        case "hang_before_headers":
            return await _for_ever()
        case "hang_in_body":
            await _half(request, payload)
            return await _for_ever()
        case "drip":
            return await _drip(request, payload)
        case _:
            return await _whole(request, payload, sent)


async def _whole(request: web.BaseRequest, payload: Payload, sent: Respond) -> web.StreamResponse:
    if len(payload.pieces) == 1:
        return await _at_once(request, payload, sent)
    response = await _begin(request, payload)
    for piece in payload.pieces[:-1]:
        await response.write(piece)
    sent()
    await response.write_eof(payload.pieces[-1])
    return response


async def _at_once(request: web.BaseRequest, payload: Payload, sent: Respond) -> web.Response:
    headers = {"Content-Type": payload.content_type, **payload.headers}
    response = web.Response(body=payload.pieces[0], status=payload.status, headers=headers)
    sent()
    await response.prepare(request)
    await response.write_eof()
    return response


async def _begin(request: web.BaseRequest, payload: Payload) -> web.StreamResponse:
    headers = {"Content-Type": payload.content_type, **payload.headers}
    response = web.StreamResponse(status=payload.status, headers=headers)
    await response.prepare(request)
    return response


async def _half(request: web.BaseRequest, payload: Payload) -> web.StreamResponse:
    """Headers that promise the whole body, and the first half of it."""
    whole = b"".join(payload.pieces)
    response = web.StreamResponse(status=payload.status, headers={"Content-Type": payload.content_type})
    if len(payload.pieces) == 1:
        response.content_length = len(whole)
    await response.prepare(request)
    await response.write(whole[: len(whole) // 2])
    return response


async def _reset(request: web.BaseRequest, payload: Payload, manner: FaultKind) -> web.StreamResponse:
    if manner == "reset_after_headers":
        await _begin(request, payload)
    elif manner == "reset_in_body":
        await _half(request, payload)
    if manner != "reset_before_headers":
        await asyncio.sleep(_MOMENT)
    _abort(request.transport)
    # As the lost connection would in a moment, but before the client can look at the bill. Any other exception would be
    # logged, with its traceback, as a bug of the server.
    raise asyncio.CancelledError


def _abort(transport: asyncio.Transport | None) -> None:
    """End the connection with a reset instead of a goodbye."""
    if transport is not None:
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


async def _for_ever() -> web.StreamResponse:
    """Wait until the client leaves or the server closes; both cancel this task."""
    never: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
    return await never


async def _drip(request: web.BaseRequest, payload: Payload) -> web.StreamResponse:
    """A byte now and then that means nothing, for ever: never so long apart that a read time-out would see it."""
    response = await _begin(request, payload)
    drop = b" " if len(payload.pieces) == 1 else b": wait\n\n"
    while True:
        await response.write(drop)
        await asyncio.sleep(_DRIP_SECONDS)
