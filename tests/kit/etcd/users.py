"""Users of a real etcd: who may do what, and that everybody has to say who they are."""

from __future__ import annotations

from typing import Any

import httpx

from leasectl.engines.etcd.gateway.requests import encode, end_of
from tests.kit.etcd.server import EtcdServer

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
