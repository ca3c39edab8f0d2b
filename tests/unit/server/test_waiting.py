"""Who waits, in which order, and what a client that goes away leaves behind: nothing."""

from __future__ import annotations

import re
import resource
import select
from pathlib import Path

import pytest

from tests.kit.faults.raw_client import RawClient
from tests.kit.killing import FULL_SIZE
from tests.kit.serving import Serve, Serving, held, states, waiting
from tests.kit.support import Cli
from tests.kit.waits import eventually


def fill(shared: Serving, single: str) -> str:
    """Have a client hold the one resource of a pool."""
    with shared.connect() as client:
        (name,) = client.acquire(single).names
    return name


def waiters(shared: Serving, pool_type: str, count: int) -> list[RawClient]:
    """So many clients, in the queue in this order."""
    clients = []
    for number in range(count):
        clients.append(shared.waiter(pool_type))
        eventually(lambda n=number: waiting(shared.cli, pool_type) == n + 1)  # type: ignore[misc]
    return clients


def give_back(shared: Serving, name: str) -> None:
    with shared.connect() as client:
        assert client.release(name).status == 204


@pytest.mark.parametrize(("how", "place"), [("close", 0), ("half_close", 1), ("reset", 0)])
def test_a_client_that_goes_away_gives_up_its_place(
    shared: Serving, single: str, how: str, place: int
) -> None:
    name = fill(shared, single)
    clients = waiters(shared, single, 3)
    leaver = clients.pop(place)
    getattr(leaver, how)()
    eventually(lambda: waiting(shared.cli, single) == 2)
    if how == "half_close":
        got = leaver.read_answer()
        assert got.status == 500
        assert got.text == f'Failed to acquire lease "{single}": context canceled\n'
        assert leaver.read_to_end() == b""
    for client in clients:
        give_back(shared, name)
        assert client.read_answer().names == [name]
    give_back(shared, name)
    assert held(shared.cli, single) == []
    # Its record went with it.
    assert shared.cli.query("SELECT id FROM handle WHERE type = ?", single) == []


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
def test_a_grant_that_races_the_going_away_is_not_lost(cli: Cli, serve: Serve, how: str) -> None:
    cli.pool("T", "only")
    handle = cli.hold("T")
    server = serve()
    client = server.waiter("T")
    eventually(lambda: waiting(cli, "T") == 1)
    server.pause()
    getattr(client, how)()
    cli.ok("release", "--handle", handle.id)
    server.go_on()
    # It gets to know of both at once, and may heed either first.
    names = []
    if how == "half_close":
        got = client.read_answer()
        names = got.names if got.status == 200 else []
        assert client.read_to_end() == b""
    eventually(lambda: waiting(cli, "T") == 0 and held(cli, "T") == names)


def test_what_is_free_is_had_by_who_asks_and_half_closes_at_once(
    shared: Serving, pool: str
) -> None:
    shared.pause()
    client = shared.waiter(pool)
    client.half_close()
    shared.go_on()
    names = client.read_answer().names
    assert client.read_to_end() == b""
    eventually(lambda: states(shared.cli, pool) == ["held", "free"])
    assert held(shared.cli, pool) == names
    client.close()


def test_more_clients_than_it_may_have_open_files_come_later(cli: Cli, serve: Serve) -> None:
    cli.pool("T")
    server = serve()
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (30, 30))
    clients = [server.connect() for _ in range(40)]
    for client in clients:
        client.close()
    with server.connect() as client:
        assert client.acquire("T").names == ["T--00"]
    finished = server.end()
    assert finished.code == 0
    assert finished.err.count("\n") <= 1
    assert "Too many open files" in (finished.err or "Too many open files")


def test_waiting_ends_with_the_proxys_words_when_its_time_is_over(cli: Cli, serve: Serve) -> None:
    cli.pool("T", "only")
    cli.hold("T")
    with serve("--acquire-timeout", "0.1s").connect() as client:
        got = client.acquire("T")
    assert got.status == 500
    assert got.text.startswith('Failed to acquire lease "T": context deadline exceeded')
    eventually(lambda: waiting(cli, "T") == 0)


def test_a_wait_that_is_released_here_ends(shared: Serving, single: str) -> None:
    fill(shared, single)
    (client,) = waiters(shared, single, 1)
    ((owner,),) = shared.cli.query("SELECT owner FROM ticket WHERE type = ?", single)
    shared.cli.ok("release", "--handle", str(owner))
    got = client.read_answer()
    assert (got.status, "released while it waited" in got.text) == (500, True)


def test_many_waiting_clients_cost_coroutines(cli: Cli, serve: Serve) -> None:
    count = 2000 if FULL_SIZE else 600
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard < 3 * count:
        pytest.skip(f"needs {3 * count} open files, and {hard} are allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    cli.pool("T", "only")
    handle = cli.hold("T")
    server = serve(max_files=hard)
    before = _status(server.pid)
    clients = [server.waiter("T") for _ in range(count)]
    eventually(lambda: waiting(cli, "T") == count)
    after = _status(server.pid)
    each = (after["VmRSS"] - before["VmRSS"]) / count
    print(f"{each:.1f} KiB per waiter, {after['VmRSS']} KiB in all, {after['Threads']} threads")
    assert after["Threads"] <= 4
    assert each < 100
    # The others leave, and those at both ends are served in their order.
    first, second, *leavers, last = clients
    for client in leavers:
        client.close()
    eventually(lambda: waiting(cli, "T") == 3)
    cli.ok("release", "--handle", handle.id)
    for client in (first, second, last):
        assert client.read_answer().names == ["only"]
        assert client.release("only").status == 204
        client.close()
    eventually(lambda: _open_files(server.pid) < 100)
    assert held(cli, "T") == []
    assert server.end().code == 0
    assert list((cli.state_dir / "waiters").iterdir()) == []


def _status(pid: int) -> dict[str, int]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return {name: int(value) for name, value in re.findall(r"^(\w+):\s+(\d+)", text, re.M)}


def _open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_idle_connections_do_not_starve_waiters(cli: Cli, serve: Serve) -> None:
    cli.pool("T", "only")
    handle = cli.hold("T")
    server = serve(max_files=160)
    waiter = server.waiter("T")
    eventually(lambda: waiting(cli, "T") == 1)
    idle = [server.connect() for _ in range(250)]
    try:
        assert server.get("/healthz") == "ok\n"
        cli.ok("release", "--handle", handle.id)
        assert waiter.read_answer().names == ["only"]
        with server.connect() as client:
            assert client.release("only").status == 204
            assert client.acquire("T").names == ["only"]
    finally:
        for each in (waiter, *idle):
            each.close()
    assert server.end().err == ""


def test_requests_at_once_are_served_as_far_as_there_is_room(cli: Cli, serve: Serve) -> None:
    cli.pool("T", "only")
    cli.hold("T")
    server = serve(max_files=160)  # 64 for the server, 12 for silent clients, 2 for each that waits
    clients = [server.connect() for _ in range(60)]
    refused = []
    try:
        server.pause()
        late = [server.waiter("T") for _ in range(60)]
        server.go_on()
        clients += late
        eventually(lambda: waiting(cli, "T") == 42)
        assert server.get("/healthz") == "ok\n"
        refused = [each for each in late if select.select([each.socket], [], [], 0)[0]]
        assert {each.read_answer().status for each in refused} == {503}
    finally:
        for each in clients:
            each.close()
    assert len(refused) == 18
