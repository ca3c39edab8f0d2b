"""A repeated `Idempotency-Key` gets the same grant, and can be given up."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from leasectl.server.waits import WithdrawnKeys
from leasectl.system.clock import Clock
from tests.kit.faults.raw_client import RawClient
from tests.kit.serving import Serve, Serving, first_line, held, waiting
from tests.kit.support import Cli, ManualClock
from tests.kit.waits import eventually


@pytest.fixture
def key(pool: str) -> str:
    """As our own client makes them: handle, acquisition, index."""
    return f"{pool}-abcdef/1/0"


def test_a_repeated_key_gets_the_same_grant(shared: Serving, pool: str, key: str) -> None:
    with shared.connect() as first, shared.connect() as second:
        got = first.acquire(pool, Idempotency_Key=key)
        assert got.headers["idempotency-key"] == key
        assert second.acquire(pool, Idempotency_Key=key).names == got.names
        assert first.acquire(pool, Idempotency_Key=key).names == got.names
        assert second.acquire(pool, Idempotency_Key=f"{key}0").names != got.names


def test_a_repeated_key_survives_the_server(cli: Cli, serve: Serve) -> None:
    cli.pool("T")
    first = serve()
    with first.connect() as client:
        got = client.acquire("T", Idempotency_Key="h/1/0")
    first.kill()
    with serve().connect() as client:
        assert client.acquire("T", Idempotency_Key="h/1/0").names == got.names
    assert held(cli, "T") == got.names


def test_a_wait_that_its_server_did_not_survive_can_be_asked_for_again(
    cli: Cli, serve: Serve
) -> None:
    cli.pool("T", "only")
    handle = cli.hold("T")
    first = serve()
    with first.waiter("T", Idempotency_Key="h/1/0"):
        eventually(lambda: waiting(cli, "T") == 1)
        first.kill()
    second = serve()
    with second.waiter("T", Idempotency_Key="h/1/0") as client:
        eventually(lambda: cli.waiting() and len(cli.waiting()) == 1)
        cli.ok("release", "--handle", handle.id)
        assert client.read_answer().names == ["only"]


def test_a_repeat_shares_the_wait(shared: Serving, single: str, key: str) -> None:
    with shared.connect() as client:
        (name,) = client.acquire(single).names
    first = shared.waiter(single, Idempotency_Key=key)
    eventually(lambda: waiting(shared.cli, single) == 1)
    with shared.waiter(single), shared.waiter(single, Idempotency_Key=key) as repeat:
        eventually(lambda: waiting(shared.cli, single) == 2)
        with shared.connect() as client:
            assert client.release(name).status == 204
        assert repeat.read_answer().names == first.read_answer().names == [name]
    first.close()


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
def test_repeat_after_its_connection_ended_keeps_queue_position(
    cli: Cli, serve: Serve, how: str
) -> None:
    cli.ok("pool", "create", "T", "--count", "1")
    server = serve()
    with server.connect() as client:
        (name,) = client.acquire("T").names
    first = server.waiter("T", Idempotency_Key="T-1/1/0")
    eventually(lambda: waiting(cli, "T") == 1)
    ticket = cli.query("SELECT number FROM ticket WHERE type = 'T'")
    server.pause()  # so that it hears of the end and of the repeat at once
    getattr(first, how)()
    repeat = server.waiter("T", Idempotency_Key="T-1/1/0")
    server.go_on()
    assert "ok" in server.get("/healthz")
    assert cli.query("SELECT number FROM ticket WHERE type = 'T'") == ticket
    with server.connect() as client:
        client.release(name)
    assert repeat.read_answer().names == [name]
    repeat.close()


# A server that waits for so long for the next round of a request.
_WAITS_FOR_ROUND = """
import sys
from leasectl.server import served_leases
served_leases.RETURN_SECONDS = float(sys.argv.pop(1))
from leasectl.cli.app import main
main()
"""


@pytest.mark.parametrize("seconds", ["0.05", "3600"])
def test_request_in_rounds_keeps_queue_position_if_it_is_repeated(cli: Cli, seconds: str) -> None:
    cli.pool("T", "T--00")
    server = cli.spawn([sys.executable, "-c", _WAITS_FOR_ROUND, seconds, "serve", "-q"])
    url = first_line(server)
    asked = {
        "claim_key": "h/1",
        "holder_identity": "c/1/h/h",
        "request": {"is": "Request", "type": "T", "ttl_seconds": 60.0},
    }

    def wait_a_round() -> Any:
        with RawClient(url) as client:
            body = json.dumps(asked)
            told = client.ask("POST", "/leasectl/v2/acquire", body, Leasectl_Round="1")
            return json.loads(told.text)["result"]

    with RawClient(url) as client:
        client.acquire("T")
    assert wait_a_round() is None
    if seconds == "3600":
        with RawClient(url) as other:
            other.start_acquire("T")
            eventually(lambda: waiting(cli, "T") == 2)
            assert wait_a_round() is None
            with RawClient(url) as client:
                client.release("T--00")
            assert wait_a_round()["leases"][0]["name"] == "T--00"
    else:
        eventually(lambda: waiting(cli, "T") == 0)
    server.kill()


def test_request_that_is_not_repeated_leaves_queue_or_gives_back(cli: Cli, serve: Serve) -> None:
    for pool_type in ("T", "U"):
        cli.pool(pool_type, f"{pool_type}--00")
    server = serve()
    with server.connect() as client:
        for pool_type in ("T", "U"):
            client.acquire(pool_type)
        with (
            server.waiter("T", Idempotency_Key="T-1/1/0"),
            server.waiter("U", Idempotency_Key="U-1/1/0"),
        ):
            eventually(lambda: waiting(cli, "T") == waiting(cli, "U") == 1)
        client.release("U--00")
        eventually(lambda: waiting(cli, "T") == 0)
        eventually(lambda: held(cli, "U") == [])
        assert client.acquire("U").names == ["U--00"]


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
def test_a_repeat_takes_over_the_place_of_a_request_that_goes_away(
    shared: Serving, single: str, key: str, how: str
) -> None:
    with shared.connect() as client:
        (name,) = client.acquire(single).names
    first = shared.waiter(single, Idempotency_Key=key)
    eventually(lambda: waiting(shared.cli, single) == 1)
    ticket = shared.cli.query("SELECT number FROM ticket WHERE type = ?", single)
    repeat = shared.waiter(single, Idempotency_Key=key)
    # What is asked last is answered when the repeat has been read.
    assert "ok" in shared.get("/healthz")
    getattr(first, how)()
    if how == "half_close":
        assert "context canceled" in first.read_answer().text
    assert "ok" in shared.get("/healthz")
    assert shared.cli.query("SELECT number FROM ticket WHERE type = ?", single) == ticket
    with shared.connect() as client:
        client.release(name)
    assert repeat.read_answer().names == [name]
    repeat.close()


def test_a_key_means_one_request(shared: Serving, pool: str, key: str) -> None:
    with shared.connect() as client:
        client.acquire(pool, Idempotency_Key=key)
        got = client.acquire(pool, 2, Idempotency_Key=key)
    assert (got.status, "used with count=1 before" in got.text) == (400, True)
    assert len(held(shared.cli, pool)) == 1


@pytest.mark.parametrize("bad", ["", "x" * 401, "\xe9"])
def test_what_can_be_no_key_is_refused(shared: Serving, pool: str, bad: str) -> None:
    with shared.connect() as client:
        client.socket.sendall(
            f"POST /lease/acquire?type={pool} HTTP/1.1\r\nHost: x\r\n"
            f"Idempotency-Key: {bad}\r\n\r\n".encode("latin-1")
        )
        assert client.read_answer().status == 400
    assert held(shared.cli, pool) == []


class TestRelease:
    def test_its_key_is_the_acquisitions(self, shared: Serving, pool: str, key: str) -> None:
        with shared.connect() as client:
            (name,) = client.acquire(pool, Idempotency_Key=key).names
            for other in ("x", key[:-5], f"{key}/0", f"{pool}-abcdef/2"):
                got = client.release(name, Idempotency_Key=other)
                assert (got.status, f"no resource name {name}" in got.text) == (500, True)
            assert held(shared.cli, pool) == [name]
            assert client.release(name, Idempotency_Key=f"{pool}-abcdef/1").status == 204
        assert held(shared.cli, pool) == []

    def test_of_no_names_it_undoes_what_was_granted(
        self, shared: Serving, pool: str, key: str
    ) -> None:
        with shared.connect() as client:
            client.acquire(pool, Idempotency_Key=key)
            client.acquire(pool, Idempotency_Key="another")
            got = client.release(Idempotency_Key=f"{pool}-abcdef/1")
            assert (got.status, got.headers["idempotency-key"]) == (204, f"{pool}-abcdef/1")
            assert len(held(shared.cli, pool)) == 1

    def test_of_no_names_it_ends_what_waits(self, shared: Serving, single: str, key: str) -> None:
        with shared.connect() as client:
            client.acquire(single)
            waiter = shared.waiter(single, Idempotency_Key=key)
            eventually(lambda: waiting(shared.cli, single) == 1)
            client.release(Idempotency_Key=key)
            assert "context canceled" in waiter.read_answer().text
            eventually(lambda: waiting(shared.cli, single) == 0)

    def test_what_was_undone_is_not_granted_to_a_late_request(
        self, shared: Serving, pool: str, key: str
    ) -> None:
        with shared.connect() as client:
            client.release(Idempotency_Key=f"{pool}-abcdef/1")
            got = client.acquire(pool, Idempotency_Key=key)
            assert (got.status, "given this request up" in got.text) == (500, True)
            assert client.acquire(pool, Idempotency_Key=f"{pool}-abcdef/2/0").status == 200

    def test_without_a_key_one_of_no_names_means_nothing(self, shared: Serving, pool: str) -> None:
        with shared.connect() as client:
            names = client.acquire(pool).names
            assert client.release().status == 204
        assert held(shared.cli, pool) == names


def test_a_withdrawn_key_is_forgotten_in_time() -> None:
    time = ManualClock()
    withdrawn = WithdrawnKeys(clock=Clock(*time.clock))
    withdrawn.add("a/1")
    assert withdrawn.covers("a/1")
    assert withdrawn.covers("a/1/0")
    assert not withdrawn.covers("a")
    assert not withdrawn.covers("a/10")
    time.advance(601)
    assert not withdrawn.covers("a/1/0")


class TestKeysAreSecrets:
    def test_nothing_that_is_shown_has_them(self, shared: Serving, single: str, key: str) -> None:
        with shared.connect() as client:
            client.acquire(single, Idempotency_Key=key)
            waiter = shared.waiter(single, Idempotency_Key=f"{key}-2")
            eventually(lambda: waiting(shared.cli, single) == 1)
            told = client.ask("GET", f"/leasectl/v1/status?type={single}").text
            beside = [shared.cli.ok("status", single, *more) for more in ((), ("--json",))]
            waiter.close()
        shown = json.loads(told)["pools"][0]
        labels = [shown["resources"][0]["labels"], shown["queue"][0]["labels"]]
        assert all(re.fullmatch("[0-9a-f]{16}", each["serve:key"]) for each in labels)
        assert labels[0]["serve:key"] != labels[1]["serve:key"]
        handle = shared.cli.state_dir / "handles" / shown["resources"][0]["handle"]
        (lease,) = json.loads(shared.cli.ok("cat", "--json", "--handle", str(handle)))["leases"]
        assert lease["labels"] == labels[0]
        assert key not in "".join((told, *beside))

    def test_one_belongs_to_the_token_that_used_it_first(
        self, cli: Cli, serve: Serve, tmp_path: Path
    ) -> None:
        cli.pool("T", "a", "b")
        granted, withdrawn = [], []
        for name in ("one", "two"):
            (tmp_path / name).write_text(name)
            shown = {"Authorization": f"Bearer {name}"}
            with serve("--token-file", str(tmp_path / name)).connect() as client:
                for _ in range(2):
                    granted += client.acquire("T", 1, Idempotency_Key="k/1/0", **shown).names
            with serve("--token-file", str(tmp_path / name)).connect() as client:
                granted += client.acquire("T", 1, Idempotency_Key="k/1/0", **shown).names
                if name == "two":
                    withdrawn.append(client.release(Idempotency_Key="k/1", **shown))
        assert granted == ["a", "a", "a", "b", "b", "b"]
        assert (withdrawn[0].status, held(cli, "T")[:1]) == (500, ["a"])
        assert "belongs to another token" in withdrawn[0].text
