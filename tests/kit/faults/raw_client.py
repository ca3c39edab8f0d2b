"""A client that does to its connection what no HTTP library would."""

from __future__ import annotations

import http.client
import json
import socket
import struct
from types import TracebackType
from typing import NamedTuple
from urllib.parse import urlsplit

_TIMEOUT_SECONDS = 10


class Got(NamedTuple):
    """An answer. ``headers`` have their names in lower case."""

    status: int
    text: str
    headers: dict[str, str]

    @property
    def names(self) -> list[str]:
        """What an acquire was granted."""
        assert self.status == 200, self
        names = json.loads(self.text)["names"]
        assert isinstance(names, list)
        return names


class RawClient:
    """One connection to a server."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        where = (address.hostname, address.port or 80)
        self.socket = socket.create_connection(where, _TIMEOUT_SECONDS)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, method: str, target: str, body: str = "", **headers: str) -> None:
        """Send a request; ``_`` in a header's keyword stands for ``-``."""
        lines = [f"{method} {target} HTTP/1.1", "Host: lease-proxy"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if "Transfer_Encoding" not in headers:
            lines.append(f"Content-Length: {len(body.encode())}")
        self.socket.sendall("\r\n".join([*lines, "", body]).encode())

    def ask(self, method: str, target: str, body: str = "", **headers: str) -> Got:
        self.send(method, target, body, **headers)
        return self.read_answer()

    def acquire(self, pool_type: str = "T", count: int = 1, **headers: str) -> Got:
        return self.ask("POST", f"/lease/acquire?type={pool_type}&count={count}", **headers)

    def start_acquire(self, pool_type: str = "T", count: int = 1, **headers: str) -> None:
        """Send an acquire, and leave its answer for `read_answer`."""
        self.send("POST", f"/lease/acquire?type={pool_type}&count={count}", **headers)

    def release(self, *names: str, **headers: str) -> Got:
        return self.ask("POST", "/lease/release", json.dumps({"names": names}), **headers)

    def read_answer(self) -> Got:
        response = http.client.HTTPResponse(self.socket, method="POST")
        response.begin()
        text = response.read().decode()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Got(response.status, text, headers)

    def read_to_end(self) -> bytes:
        """All that comes until the server ends the connection in good order."""
        received = b""
        while True:
            data = self.socket.recv(65536)
            if not data:
                return received
            received += data

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()
