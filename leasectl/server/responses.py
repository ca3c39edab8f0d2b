"""Read requests, check tokens, write responses; ``/healthz``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
from collections.abc import Callable, Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leasectl.errors import StateUnwritable
from leasectl.server.connection import ClientConnection, connection_of
from leasectl.state.directory import State
from leasectl.state.reads import check_readable
from leasectl.system.own_files import open_own, write_new
from leasectl.text.wording import printable


async def read_body(request: Request, *, longest_bytes: int) -> bytes:
    """The whole body.

    Raises:
        ValueError: It is too long, or its client went away before it was there.
    """
    connection = connection_of(request)
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


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that says why not; as of Go's `http.Error`, its text ends a line."""
    lines = "\n".join(printable(line, longest=4000) for line in text.split("\n"))
    more = {"X-Content-Type-Options": "nosniff", **(headers or {})}
    return Response(f"{lines}\n", status, more, media_type="text/plain")


def quoted(text: str) -> str:
    """Text in double quotes, as Go's ``%q`` has it for what types consist of."""
    return json.dumps(printable(text, longest=200), ensure_ascii=False)


class GrantResponse(Response):
    """An answer that tells of a grant, and finds out whether it has arrived.

    The client has all of it before this knows; only what the client sends next has to wait.

    Args:
        body: What it says.
        connection: Where it is sent.
        settle: Told whether it has arrived; not called when the server is ended meanwhile.
    """

    def __init__(
        self,
        body: bytes,
        connection: ClientConnection,
        settle: Callable[[bool], None],
    ) -> None:
        super().__init__(body, media_type="application/json")
        self._connection = connection
        self._settle = settle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        # Its length is in the head: for the client this is the end already.
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        self._settle(await self._connection.has_delivered())
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def names_body(names: Sequence[str]) -> bytes:
    """Return the body of an answer that lists names."""
    return json.dumps({"names": list(names)}, separators=(",", ":")).encode()


TOKEN_FILE = "serve.token"


def make_token_file(directory: str) -> str:
    """Make the token file of a state directory, unless it is there; return its path.

    Servers on one state directory share it: a new one accepts the clients of the one before.

    Raises:
        StateUnwritable: It can't be made, or isn't a regular file of this user.
    """
    path = os.path.join(os.path.abspath(directory), TOKEN_FILE)
    temporary = f"{TOKEN_FILE}.{os.getpid()}"
    try:
        dir_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            write_new(temporary, f"{secrets.token_urlsafe(32)}\n".encode(), dir_fd=dir_fd)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(temporary, TOKEN_FILE, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
            finally:
                os.unlink(temporary, dir_fd=dir_fd)
            os.close(open_own(TOKEN_FILE, os.O_RDONLY, dir_fd=dir_fd))
        finally:
            os.close(dir_fd)
    except OSError as error:
        raise StateUnwritable(
            f"can't make {path}: {error.strerror}; name a token file with --token-file"
        ) from error
    return path


class Health:
    """The server's health, to be asked for in its event loop.

    Args:
        state: The state directory.
        probe: As `open_probe` makes it. It runs in a thread, as it takes long just when others
            are to be served meanwhile.
    """

    def __init__(self, state: State, probe: Callable[[], None] | None) -> None:
        self._state = state
        self._probe = probe
        self._probing: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Check the server's health; concurrent callers share a probe.

        Raises:
            LeaseError: It doesn't work.
        """
        check_readable(self._state)
        if self._probe is None:
            return
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(asyncio.to_thread(self._probe))
        await asyncio.wait((self._probing,))
        self._probing.result()
