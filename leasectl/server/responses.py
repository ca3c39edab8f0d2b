"""The forms that the lease proxy's answers have, and the one that has to arrive."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leasectl.server.connection import ClientConnection
from leasectl.text.printable import printable
from leasectl.typed.hints import Callable


class LeaseResponse(Response):
    """An answer of the protocol."""

    def with_header(self, name: str, value: str) -> LeaseResponse:
        """The same, with one header more."""
        self.headers[name] = value
        return self


def refusal(status: int, text: str, headers: Mapping[str, str] | None = None) -> LeaseResponse:
    """An answer that says why not; as of Go's `http.Error`, its text ends a line."""
    lines = "\n".join(printable(line, longest=4000) for line in text.split("\n"))
    more = {"X-Content-Type-Options": "nosniff", **(headers or {})}
    return LeaseResponse(f"{lines}\n", status, more, media_type="text/plain")


def names_response(names: Sequence[str]) -> LeaseResponse:
    """An answer that lists names."""
    return LeaseResponse(_names_body(names), media_type="application/json")


def quoted(text: str) -> str:
    """Text in double quotes, as Go's ``%q`` has it for what types consist of."""
    return json.dumps(printable(text, longest=200), ensure_ascii=False)


class GrantResponse(LeaseResponse):
    """An answer that tells of a grant, and finds out whether it has arrived.

    The client has all of it before this knows; only what the client sends next has to wait.

    Args:
        names: What was granted.
        connection: Where it is sent.
        settle: Told whether it has arrived; not called when the server is ended meanwhile.
    """

    def __init__(
        self,
        names: Sequence[str],
        connection: ClientConnection,
        settle: Callable[[bool], None],
    ) -> None:
        super().__init__(_names_body(names), media_type="application/json")
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


def _names_body(names: Sequence[str]) -> bytes:
    return json.dumps({"names": list(names)}, separators=(",", ":")).encode()
