"""What an API server, or what stands before it, may say instead of an answer, at each request."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasectl.engines.contract import Outlook
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.model import Claimant, Request
from leasectl.system.afterwards import finish
from leasectl.system.clock import Clock
from tests.kit.killing import EVERY_KILL
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay

REQUEST = Request("T", count=2, ttl_seconds=60.0)
STRIDE = 1 if EVERY_KILL else 4
_LONGEST_STORY = 60


def answer(status: str, body: str, kind: str = "application/json", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *headers, "", body]).encode()


def refusal(status: str, reason: str) -> bytes:
    code = int(status.partition(" ")[0])
    body = {"kind": "Status", "message": "by a test", "reason": reason, "code": code}
    return answer(status, json.dumps(body))


ODD = {
    "busy": answer("429 Too Many Requests", "Too many requests\n", "text/plain", "Retry-After: 1"),
    "busy without a time": answer("429 Too Many Requests", "Too many\n", "text/plain"),
    "failed": refusal("500 Internal Server Error", "InternalError"),
    "not there yet": answer(
        "503 Service Unavailable", "<html>no</html>", "text/html", "Retry-After: 1"
    ),
    "too late": refusal("504 Gateway Timeout", "Timeout"),
    "a page to log in": answer("200 OK", "<html>Please log in</html>", "text/html"),
    "nothing": answer("200 OK", ""),
    "no object": answer("200 OK", "[1]"),
    "garbage": b"\x00\x16\x03\x01 nothing that is HTTP\r\n\r\n",
    "too old": refusal("410 Gone", "Expired"),
    "a conflict": refusal("409 Conflict", "Conflict"),
}


@pytest.mark.parametrize("name", ODD)
def test_whichever_request_is_answered_so_the_story_is_the_same(
    namespace: Namespace, between_api: Relay, tmp_path: Path, name: str
) -> None:
    straight = opened_by(namespace.account.kubeconfig(tmp_path / "straight"))
    through = namespace.account.kubeconfig(tmp_path / "through", server=between_api.endpoint)
    for number in range(1 + list(ODD).index(name) % STRIDE, _LONGEST_STORY, STRIDE):
        names = [f"{number}--{n}" for n in range(2)]
        request = REQUEST._replace(type=f"T{number}")
        straight.pools.create_pool(request.type, names)
        first = len(between_api.paths)
        between_api.instead = (
            lambda at, _, odd=first + number: ODD[name] if at == odd else None  # type: ignore[misc]
        )
        story(straight, opened_by(through), request, number)
        finish()
        between_api.instead = lambda at, _: None
        if len(between_api.paths) < first + number:
            break
    assert number > 8


def story(straight: Opened, through: Opened, request: Request, number: int) -> None:
    """Wait behind another, have two, renew them and give them back, one and then all."""
    holder = straight.engine.waiter(Claimant("holder", "holder", request), until=None)
    holder.enqueue()
    assert holder.claim().leases is not None
    waiter = through.engine.waiter(Claimant("me", "me", request), until=None)
    waiter.enqueue()
    assert waiter.claim() == Outlook(is_head=True), number
    straight.engine.free("holder")
    leases = waiter.claim().leases
    assert leases is not None, number
    waiter.close()
    names = tuple(lease.name for lease in leases)
    assert through.engine.renew("me") == names, number
    assert through.engine.free("me", names[:1]) == names[:1], number
    assert through.engine.free("me") == names[1:], number
    (pool,) = straight.pools.pools(request.type)
    assert (pool.held, len(pool.queue)) == (0, 0), number


def opened_by(kubeconfig: Path) -> Opened:
    choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
    return open_kubernetes(
        Api(choice, clock=Clock(), pause=lambda seconds: None),
        choice.namespace,
        state_id="state",
        clock=Clock(),
    )
