"""The body of a request, as long as its client is there to send it."""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from leasectl.server.connection import SCOPE_KEY, ClientConnection


async def read_body(request: Request, *, longest_bytes: int) -> bytes:
    """The whole body.

    Raises:
        ValueError: It is too long, or its client went away before it was there.
    """
    connection: ClientConnection = request.scope[SCOPE_KEY]
    reading = asyncio.ensure_future(_read(request, longest_bytes))
    await asyncio.wait((reading, connection.gone), return_when=asyncio.FIRST_COMPLETED)
    if not reading.done():
        reading.cancel()
        raise ValueError("unexpected EOF")
    return reading.result()


async def _read(request: Request, longest_bytes: int) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > longest_bytes:
            raise ValueError(f"more than {longest_bytes} bytes")
    return body
