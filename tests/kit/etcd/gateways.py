"""Gateways that are let in by servers or not, and what they say about that."""

from __future__ import annotations

import contextlib
import json
from typing import Callable

import pytest

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import encode, put, read
from leasectl.errors import (
    BackendUnreachable,
    LeaseError,
)
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from tests.kit.etcd.server import EtcdServer

PREFIX = "/ci"
# Long enough to show that nobody waited for it.
LONG = 1000.0  # longer than pytest waits for a test

# Opens a gateway to a server, or to a URL, with settings.
LetIn = Callable[..., Gateway]
# Writes the file that holds a user and password; returns its path.
WriteUserFile = Callable[[tuple[str, str]], str]


def address(server: EtcdServer) -> str:
    """The URL of all members of a server."""
    scheme = "etcds" if server.endpoints[0].startswith("https") else "etcd"
    members = ",".join(endpoint.partition("://")[2] for endpoint in server.endpoints)
    return f"{scheme}://{members}{PREFIX}"


def write_something(gateway: Gateway) -> None:
    assert gateway.commit((), [put(f"{PREFIX}/key", "value")]).succeeded


def read_something(gateway: Gateway) -> None:
    assert gateway.read(read(f"{PREFIX}/key")).succeeded


def refusal(gateway: Gateway, kind: type[LeaseError]) -> str:
    """What is said by a request that is refused at once, with the code of such an error."""
    with pytest.raises(BackendUnreachable) as raised:
        write_something(gateway)
    assert raised.value.exit_code == kind.exit_code
    assert str(raised.value).isprintable()
    return str(raised.value)


def tokens(gateway: Gateway) -> list[str]:
    """What a stream would show now."""
    with gateway.client() as client:
        return list(gateway.headers(client, 0, 5).values())


def first_lines(
    gateway: Gateway, headers: dict[str, str], client: Client | None = None
) -> dict[str, object]:
    """What etcd says first when a key is to be watched, by a new client unless one is given."""
    body = json.dumps({"create_request": {"key": encode(f"{PREFIX}/key")}})
    call = Call(gateway.endpoints[0] + "/v3/watch", body.encode(), headers)
    with contextlib.ExitStack() as end:
        client = client or end.enter_context(gateway.client())
        lines = end.enter_context(client.stream(call))
        said: dict[str, object] = json.loads(next(lines))["result"]
        return said
