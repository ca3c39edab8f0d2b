"""Users of a real etcd, and gateways that are let in or refused."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Callable

import httpx
import pytest

from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import encode, end_of, put, read
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


ROOT = ("root", "pass:word")
READER = ("reader", "look")


def demand_users(server: EtcdServer, prefix: str) -> None:
    """Let root in, who may do everything, and the reader, who may read below a prefix."""
    for name, password in (ROOT, READER):
        _post(server, "user/add", name=name, password=password)
        _post(server, "role/add", name=name)
        _post(server, "user/grant", user=name, role=name)
    span = {"key": encode(prefix + "/"), "range_end": encode(end_of(prefix + "/"))}
    _post(server, "role/grant", name=READER[0], perm={"permType": "READ", **span})
    _post(server, "enable")


def demand_no_users(server: EtcdServer) -> None:
    """Let in who comes, again."""
    name, password = ROOT
    said = _post(server, "authenticate", name=name, password=password)
    _post(server, "disable", token=said["token"])


def _post(server: EtcdServer, path: str, *, token: str = "", **body: object) -> dict[str, Any]:
    url = f"{server.endpoints[0]}/v3/auth/{path}"
    headers = {"Authorization": token} if token else {}
    response = httpx.post(url, json=body, headers=headers, verify=server.verify, trust_env=False)
    said: dict[str, Any] = response.raise_for_status().json()
    return said
