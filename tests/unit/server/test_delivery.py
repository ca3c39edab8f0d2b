"""An answer that can't be delivered gives its lease back, or can be found."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import sys

import pytest

from leasectl.errors import StateUnwritable
from leasectl.model import Handle, Request
from leasectl.server import served_leases
from leasectl.server.connection import TcpState, has_arrived
from leasectl.server.metrics import KeeperWatch
from leasectl.server.waits import Wanted
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.kit.faults.raw_client import RawClient
from tests.kit.serving import Serve, Serving, first_line, held, resources, states
from tests.kit.support import Cli
from tests.kit.waits import eventually

# What a client sees of a server that is killed.
GONE = (OSError, http.client.HTTPException)


@pytest.mark.parametrize(
    ("tcp", "buffered", "verdict"),
    [
        (TcpState(closed=False, pending=160), 0, None),
        (TcpState(closed=False, pending=0), 61, None),
        (TcpState(closed=False, pending=0), 0, True),
        (TcpState(closed=True, pending=160), 0, False),
        (TcpState(closed=True, pending=0), 61, False),
        (TcpState(closed=True, pending=0), 0, False),
    ],
)
def test_what_the_kernel_knows(tcp: TcpState, buffered: int, verdict: bool | None) -> None:
    assert has_arrived(tcp, buffered=buffered) is verdict


def ask_and_leave(server: Serving, pool_type: str, how: str, **headers: str) -> None:
    """Have the server find a request whose client is gone by the time it can answer."""
    server.pause()
    client = server.waiter(pool_type, **headers)
    getattr(client, how)()
    server.go_on()


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_answer_that_cannot_be_delivered_gives_its_lease_back(
    shared: Serving, pool: str, how: str
) -> None:
    ask_and_leave(shared, pool, how)
    grants = f'leasectl_grants_total{{type="{pool}"}} 1'
    # A request that has come is served, also where its connection was reset behind it.
    eventually(lambda: grants in shared.get("/metrics"))
    eventually(lambda: shared.cli.query("SELECT id FROM handle WHERE type = ?", pool) == [])
    assert held(shared.cli, pool) == []


def test_with_a_key_it_can_be_asked_for_again(shared: Serving, pool: str) -> None:
    key = f"{pool}/1/0"
    ask_and_leave(shared, pool, "close", Idempotency_Key=key)
    eventually(lambda: "unconfirmed" in states(shared.cli, pool))
    table = shared.cli.ok("status", "-t", pool, "--backend", "local:")
    assert "unconfirmed" in table
    assert key not in table  # whoever reads the status could repeat it
    with shared.connect() as client:
        assert client.acquire(pool, Idempotency_Key=key).names == held(shared.cli, pool)
        eventually(lambda: states(shared.cli, pool) == ["held", "free"])
    assert shared.cli.query("SELECT due FROM timer") == []


def test_so_can_what_a_client_of_leasectl_asked_for(shared: Serving, pool: str) -> None:
    body = {
        "claim_key": f"{pool}-h/1",
        "holder_identity": "a/1/h/h",
        "request": {"is": "Request", "type": pool, "ttl_seconds": 600.0},
    }
    shared.pause()
    sent = http.client.HTTPConnection(shared.url[len("http://") :])
    sent.request("POST", "/leasectl/v2/acquire", json.dumps(body))
    sent.close()
    shared.go_on()
    eventually(lambda: "unconfirmed" in states(shared.cli, pool))
    again = http.client.HTTPConnection(shared.url[len("http://") :])
    again.request("POST", "/leasectl/v2/acquire", json.dumps(body))
    (lease,) = json.loads(again.getresponse().read())["result"]["leases"]
    again.close()
    assert [lease["name"]] == held(shared.cli, pool)


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_late_repetition_takes_nothing_from_who_was_answered(
    shared: Serving, pool: str, how: str
) -> None:
    key = f"{pool}/1/0"
    with shared.connect() as client:
        names = client.acquire(pool, Idempotency_Key=key).names
        eventually(lambda: states(shared.cli, pool) == ["held", "free"])
    ask_and_leave(shared, pool, how, Idempotency_Key=key)
    with shared.connect() as other:  # it is answered after that one
        other.acquire(pool, Idempotency_Key=f"{pool}/2/0")
        eventually(lambda: states(shared.cli, pool) == ["held", "held"])
    assert shared.cli.query("SELECT due FROM timer") == []
    assert names[0] in held(shared.cli, pool)


def test_a_delivered_answer_is_confirmed_with_nothing_further_said(
    shared: Serving, pool: str
) -> None:
    with shared.connect() as client:
        client.acquire(pool)
        eventually(lambda: states(shared.cli, pool) == ["held", "free"])
    with shared.connect() as client:
        client.acquire(pool, Idempotency_Key=f"{pool}/1/0")
        eventually(lambda: states(shared.cli, pool) == ["held", "held"])
    assert [each["guard_pid"] for each in resources(shared.cli, pool)] == [None, None]


# A server that kills itself at a certain point.
_DIES_AT = """
import os, signal, sys
from leasectl.server import responses, served_leases
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv.pop(1) == "granted":
    served_leases.note_answer = die
else:
    responses.GrantResponse.__call__ = die
from leasectl.cli.app import main
main()
"""


@pytest.mark.parametrize("key", [{}, {"Idempotency_Key": "T-abc/1/0"}], ids=["no key", "key"])
def test_a_grant_that_a_killed_server_told_nobody_of_is_undone(
    cli: Cli, key: dict[str, str]
) -> None:
    cli.pool("T")
    server = cli.spawn([sys.executable, "-c", _DIES_AT, "granted", "serve", "-q"])
    address = first_line(server)
    with pytest.raises(GONE), RawClient(address) as client:
        client.acquire("T", 1, **key)
    assert server.finish().code == -signal.SIGKILL
    assert held(cli, "T") == ["T--00"]
    assert states(cli, "T") == ["free", "free"]


# A server whose disk is full for a moment, right after a grant.
_HAS_NO_SPACE = """
import sys
from leasectl.errors import StateUnwritable
from leasectl.server import served_leases
note, failures = served_leases.note_answer, [1]
def note_answer(*args, **more):
    if failures:
        failures.pop()
        raise StateUnwritable("database or disk is full")
    return note(*args, **more)
served_leases.note_answer = note_answer
from leasectl.cli.app import main
main()
"""


@pytest.mark.parametrize("key", [{}, {"Idempotency_Key": "T-abc/1/0"}], ids=["no key", "key"])
def test_a_grant_that_could_not_be_told_of_goes_back(cli: Cli, key: dict[str, str]) -> None:
    cli.pool("T")
    server = cli.spawn([sys.executable, "-c", _HAS_NO_SPACE, "serve", "-q"])
    with RawClient(first_line(server)) as client:
        assert client.acquire("T", 1, **key).status == 500
        eventually(lambda: held(cli, "T") == [])
        assert client.acquire("T", 1, **key).status == 200
        eventually(lambda: states(cli, "T").count("held") == 1)
    server.kill()


def test_a_grant_of_which_nobody_knows_whether_it_was_told_can_be_found(
    cli: Cli, serve: Serve
) -> None:
    cli.pool("T")
    for keys in ({}, {"Idempotency_Key": "T-abc/1/0"}):
        server = cli.spawn([sys.executable, "-c", _DIES_AT, "answered", "serve", "-q"])
        address = first_line(server)
        with pytest.raises(GONE), RawClient(address) as client:
            client.acquire("T", 1, **keys)
        server.finish()
    assert states(cli, "T") == ["unconfirmed", "unconfirmed"]
    with serve().connect() as client:
        assert client.acquire("T", Idempotency_Key="T-abc/1/0").names == ["T--01"]
        eventually(lambda: states(cli, "T") == ["unconfirmed", "held"])
        assert client.release("T--00", "T--01").status == 204
    assert held(cli, "T") == []


@pytest.mark.parametrize("delivered", [True, False])
def test_what_could_not_be_recorded_just_then_is_settled_a_moment_later(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, delivered: bool
) -> None:
    monkeypatch.setattr(served_leases, "_TRY_AGAIN_SECONDS", 0.01)
    desk.pool(1)
    told: list[str] = []
    monkeypatch.setattr(KeeperWatch, "look", lambda _: None)
    served = served_leases.ServedLeases(desk.service, rules=served_leases.Rules(1.0))
    monkeypatch.setattr(served.notices, "tell", lambda _, line: told.append(line))

    def no_space() -> None:
        monkeypatch.setattr(desk.state, "transaction", transaction)
        raise StateUnwritable("no space")

    async def settled() -> Handle | None:
        gone = asyncio.get_running_loop().create_future()
        handle = await served.get(Wanted("T-1", Request("T"), None, wait_seconds=1.0), gone=gone)
        monkeypatch.setattr(desk.state, "transaction", no_space)
        served.answered(handle, delivered)
        while (found := desk.service.handles.load(handle.id)) is not None and found.unconfirmed:
            await asyncio.sleep(0.01)
        return found

    transaction = desk.state.transaction
    found = asyncio.run(settled())
    assert [line.rpartition(": ")[2] for line in told] == ["no space"]
    assert (found is not None) == delivered
    assert len(desk.held()) == delivered
