"""In front of Boskos: what ci-operator's proxy does there, and what that can't."""

from __future__ import annotations

import json
import select
import signal
import time

import pytest

from tests.kit.boskos.history import Tenure
from tests.kit.boskos.process import Boskos, StartBoskos
from tests.kit.faults.raw_client import RawClient
from tests.kit.killing import FULL_SIZE
from tests.kit.serving import Serve, Serving, first_line
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS, eventually

# Of a reaper that looks each second; a lease lasts for a second less.
EXPIRE = 4
# For so long Boskos keeps the place of who asks no more.
QUEUE = 3
SILENT = "can't reach http://127.0.0.1"


@pytest.fixture
def behind(boskos: StartBoskos) -> Boskos:
    """Three of type T, one of type S, and nothing that goes wrong."""
    return boskos("T=3", "S=1", expire=EXPIRE, reaper_interval=1, request_ttl=QUEUE)


@pytest.fixture
def server(cli: Cli, behind: Boskos, serve: Serve) -> Serving:
    return serve_it(cli, behind, serve)


def serve_it(cli: Cli, behind: Boskos, serve: Serve, *options: str, **more: int) -> Serving:
    cli.env["LEASECTL_BACKEND"] = f"{behind.backend}?expire={EXPIRE}s&queue-ttl={QUEUE}s"
    return serve(*options, **more)


def waiting(cli: Cli) -> int:
    """How many requests wait."""
    return len(cli.query("SELECT 1 FROM handle WHERE state = 'acquiring'"))


def waiter(server: Serving, number: int = 1, pool_type: str = "S", key: str = "") -> RawClient:
    """One that is the so-manieth to wait."""
    client = server.waiter(pool_type, **({"Idempotency_Key": key} if key else {}))
    eventually(lambda: waiting(server.cli) == number)
    return client


def tenures(behind: Boskos, name: str = "S--00") -> list[Tenure]:
    """Who had a resource, but for other jobs."""
    found = behind.history().tenures
    return [each for each in found if each.name == name and "/" in each.owner]


def asked(behind: Boskos) -> dict[str, int]:
    """How often was asked under each request id."""
    found: dict[str, int] = {}
    for each in behind.history().of("ask"):
        found[each["request_id"]] = found.get(each["request_id"], 0) + 1
    return found


def metric(server: Serving, name: str, pool_type: str) -> int:
    line = f'leasectl_{name}{{type="{pool_type}"}} '
    (found,) = [each for each in server.get("/metrics").splitlines() if each.startswith(line)]
    return int(found[len(line) :])


def has_ended(behind: Boskos, end: str = "release") -> bool:
    """Whether nobody has the one resource any more, and what ended it last."""
    return "S--00" not in behind.owners and [each.end for each in tenures(behind)][-1:] == [end]


class TestAcquireAndRelease:
    def test_what_is_granted_is_leased_until_it_is_released(
        self, server: Serving, behind: Boskos
    ) -> None:
        with server.connect() as client:
            (name,) = client.acquire("T").names
            (owner,) = behind.owners.values()
            assert behind.owners == {name: owner}
            assert "/T-" in owner
            assert client.release(name).status == 204
            assert behind.owners == {}
            got = client.release(name)
        assert (got.status, f"no resource name {name}" in got.text) == (500, True)

    def test_a_part_goes_back_when_its_client_goes_away(
        self, server: Serving, behind: Boskos
    ) -> None:
        behind.occupy("T", 1)
        client = server.connect()
        client.start_acquire("T", 3)
        eventually(lambda: len(behind.owners) == 3)
        client.close()
        eventually(lambda: len(behind.owners) == 1)
        eventually(lambda: waiting(server.cli) == 0)
        ends = [each.end for each in behind.history().tenures if "/" in each.owner]
        assert ends == ["release", "release"]

    def test_leases_are_renewed_and_go_on_when_the_server_has_ended(
        self, cli: Cli, server: Serving, behind: Boskos, serve: Serve
    ) -> None:
        with server.connect() as client:
            assert client.acquire("S").names == ["S--00"]
        assert server.end().code == 0
        since = tenures(behind)[0].since
        until = since + (EXPIRE + 2) * 10**9  # the reaper has looked since it would have ended
        eventually(lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) > until)
        assert [each.end for each in tenures(behind)] == [""]
        with serve().connect() as client:
            assert client.release("S--00").status == 204
        assert has_ended(behind)


class TestKeys:
    def test_who_repeats_one_gets_one_lease(self, server: Serving, behind: Boskos) -> None:
        behind.occupy("S")
        first, second = waiter(server, key="k"), server.waiter("S", Idempotency_Key="k")
        assert "ok" in server.get("/healthz")
        behind.vacate()
        assert first.read_answer().names == second.read_answer().names == ["S--00"]
        with server.connect() as third:
            assert third.acquire("S", Idempotency_Key="k").names == ["S--00"]
            assert third.acquire("S", 2, Idempotency_Key="k").status == 400
        assert len(tenures(behind)) == 1
        first.close()
        second.close()

    def test_it_survives_the_server(
        self, cli: Cli, server: Serving, behind: Boskos, serve: Serve
    ) -> None:
        with server.connect() as client:
            assert client.acquire("S", Idempotency_Key="h/1/0").names == ["S--00"]
        server.kill()
        with serve().connect() as client:
            assert client.acquire("S", Idempotency_Key="h/1/0").names == ["S--00"]
            assert client.release("S--00", Idempotency_Key="h/2").status == 500
            assert client.release("S--00", Idempotency_Key="h/1").status == 204
        assert [each.end for each in tenures(behind)] == ["release"]

    def test_one_that_could_not_be_given_up_is_served_once_it_could(
        self, cli: Cli, behind: Boskos, serve: Serve
    ) -> None:
        cli.env["LEASECTL_RELEASE_TIMEOUT"] = "0.5s"
        server = serve_it(cli, behind, serve)
        behind.occupy("T", 2)
        client = server.connect()
        client.start_acquire("T", 2, Idempotency_Key="k")
        eventually(lambda: len(behind.owners) == 3)
        eventually(lambda: cli.query("SELECT 1 FROM lease"))
        behind.kill()
        client.close()
        eventually(lambda: cli.query("SELECT 1 FROM giving_back"))  # it wasn't repeated soon
        with server.connect() as again:
            got = again.acquire("T", 2, Idempotency_Key="k")
            assert (got.status, "not released within" in got.text) == (500, True)
            behind.start("--remembers=resources")
            behind.vacate()

            def granted() -> list[str]:
                got = again.acquire("T", 2, Idempotency_Key="k")
                return got.names if got.status == 200 else []

            names = eventually(granted)
            assert sorted(names) == sorted(behind.owners)
            assert again.release(*names).status == 204
        assert len({each.owner for each in behind.history().tenures if "/" in each.owner}) == 2


class TestWaiting:
    def test_who_goes_away_asks_no_more(self, server: Serving, behind: Boskos) -> None:
        behind.occupy("S")
        client = waiter(server)
        eventually(lambda: behind.history().of("ask"))
        client.half_close()
        eventually(lambda: waiting(server.cli) == 0)
        before = asked(behind)
        behind.vacate()
        with server.connect() as other:
            # As soon as Boskos has forgotten the place of who went away.
            assert other.acquire("S").names == ["S--00"]
        ((leaver, number),) = before.items()
        assert asked(behind)[leaver] == number
        assert "context canceled" in client.read_answer().text
        client.close()

    def test_what_comes_while_its_client_goes_is_given_back(
        self, cli: Cli, boskos: StartBoskos, serve: Serve
    ) -> None:
        behind = boskos("S=1", faults=("delay-after path=acquire nth=1 seconds=0.3",))
        server = serve_it(cli, behind, serve)
        client = server.waiter("S")
        eventually(lambda: "S--00" in behind.owners)
        client.close()
        eventually(lambda: has_ended(behind))
        eventually(lambda: waiting(cli) == 0)

    @pytest.mark.parametrize("key", ["", "a/1/0"], ids=["no key", "key"])
    def test_an_answer_that_nobody_gets_is_given_back_or_kept_for_its_key(
        self, server: Serving, behind: Boskos, key: str
    ) -> None:
        behind.occupy("S")
        client = waiter(server, key=key)
        server.pause()
        client.reset()
        behind.vacate()
        server.go_on()
        # It gets to know of both at once, and may heed either first.
        eventually(lambda: waiting(server.cli) == 0)
        with server.connect() as other:
            headers = {"Idempotency_Key": key} if key else {}
            assert other.acquire("S", 1, **headers).names == ["S--00"]
        assert len(behind.owners) == 1

    def test_all_have_a_place_of_their_own_and_are_served_in_boskos_order(
        self, server: Serving, behind: Boskos
    ) -> None:
        behind.occupy("S")
        number = 64 if FULL_SIZE else 8
        clients = {}
        for place in range(1, number + 1):
            client = waiter(server, place)
            clients[client.socket] = client
        eventually(lambda: len(asked(behind)) == number)
        order = list(asked(behind))
        behind.vacate()
        while clients:
            (answered,), _, _ = select.select(list(clients), [], [], PATIENCE_SECONDS)
            client = clients.pop(answered)
            assert client.read_answer().names == ["S--00"]
            assert client.release("S--00").status == 204
            client.close()
        grants = [each["request_id"] for each in behind.history().of("grant") if each["rank"]]
        assert grants == order  # and the history has no problems

    def test_more_than_there_may_be_threads_for_come_later(
        self, cli: Cli, behind: Boskos, serve: Serve
    ) -> None:
        behind.occupy("S")
        server = serve_it(cli, behind, serve, max_files=64 + 10 * 2)
        clients = [waiter(server, place) for place in (1, 2)]
        with server.connect() as client:
            got = client.acquire("T")
            assert (got.status, "2 requests wait already" in got.text) == (503, True)
            clients.pop().close()
            eventually(lambda: client.acquire("T").status == 200)
        clients.pop().close()


class TestLosses:
    def test_one_is_told_and_its_release_is_done(self, server: Serving, behind: Boskos) -> None:
        with server.connect() as client:
            assert client.acquire("S").names == ["S--00"]
            owner = behind.owners["S--00"].rpartition("/")[0]
            behind.reap("S--00")
            assert f"{owner} has lost S--00" in server.complaint()
            assert metric(server, "leases_lost_total", "S") == 1
            told = json.loads(server.get("/leasectl/v1/status?type=S"))
            (lost,) = told["pools"][0]["lost"]
            assert (lost["name"], lost["holder_identity"]) == ("S--00", owner)
            assert client.release("S--00").status == 204
            assert "S--00 was released, but" in server.complaint()

    def test_a_release_that_finds_it_first_is_done_too(
        self, cli: Cli, boskos: StartBoskos, serve: Serve
    ) -> None:
        behind = boskos("S=1", target_state="free")  # whose leases are renewed each 30 s
        cli.env["LEASECTL_BACKEND"] = behind.backend
        server = serve()
        with server.connect() as client:
            assert client.acquire("S").names == ["S--00"]
            eventually(lambda: behind.history().asked("/update"))
            behind.reap("S--00")
            behind.occupy("S")
            assert client.release("S--00").status == 204
        assert "S--00 was no longer leased to us" in server.complaint()
        assert len(behind.owners) == 1  # that is another job's

    def test_what_an_answer_carried_that_was_lost_is_told(
        self, cli: Cli, boskos: StartBoskos, serve: Serve
    ) -> None:
        behind = boskos(
            "T=2",
            faults=("reset-after path=acquire nth=1",),
            expire=EXPIRE,
            reaper_interval=1,
            target_state="free",
        )
        server = serve_it(cli, behind, serve)
        with server.connect() as client:
            (name,) = client.acquire("T").names
            assert "trying again" in server.complaint()
            assert "1 resource of T is leased to" in server.complaint()
            eventually(lambda: list(behind.owners) == [name])
            assert client.release(name).status == 204


class TestOutages:
    def test_a_silent_boskos_holds_up_nobody_else(
        self, cli: Cli, boskos: StartBoskos, serve: Serve
    ) -> None:
        behind = boskos("T=2", faults=("hang path=release",))
        server = serve_it(cli, behind, serve)
        with server.connect() as client, server.connect() as other:
            (name,) = client.acquire("T").names
            client.send("POST", "/lease/release", json.dumps({"names": [name]}))
            eventually(lambda: behind.hanging)
            assert other.ask("GET", "/healthz").status == 200
            assert other.acquire("T").status == 200
            behind.faults()
            behind.resume()
            assert client.read_answer().status == 204

    def test_while_it_is_away_that_is_said_and_waiters_wait_on(
        self, server: Serving, behind: Boskos
    ) -> None:
        with server.connect() as client:
            (name,) = client.acquire("T").names
            behind.occupy("S")
            waits = waiter(server)
            behind.kill()
            assert SILENT in client.ask("GET", "/healthz").text
            assert client.ask("GET", "/metrics").status == 503
            got = client.release(name)
            assert (got.status, "Released: " in got.text, SILENT in got.text) == (500, True, True)
            behind.start("--remembers=resources")
            assert client.release(name).status == 204
            behind.vacate("S--00")
            assert waits.read_answer().names == ["S--00"]
        assert behind.url in server.complaint()  # of who waits, or of another: whoever is first
        waits.close()


class TestShown:
    def test_metrics_count_what_boskos_and_this_server_know(
        self, server: Serving, behind: Boskos
    ) -> None:
        with server.connect() as client:
            assert client.acquire("T").status == 200
        behind.occupy("T", 2)
        waits = waiter(server, pool_type="T")
        assert metric(server, "resources_held", "T") == 3
        assert metric(server, "resources_free", "T") == 0
        assert metric(server, "requests_waiting", "T") == 1
        assert metric(server, "grants_total", "T") == 1
        assert metric(server, "leases_lost_total", "T") == 0
        waits.close()

    def test_our_status_shows_what_is_counted(
        self, cli: Cli, server: Serving, behind: Boskos
    ) -> None:
        with server.connect() as client:
            (name,) = client.acquire("T").names
        at = ("--backend", server.url)
        for words in (["T"], []):
            shown = cli.ok("status", *words, *at)
            assert shown.startswith("T: 3 resources, 2 free, 1 leased\n")
            assert behind.owners[name] in shown
            assert name in shown
        there = json.loads(cli.ok("status", "T", "--json", *at))
        here = json.loads(cli.ok("status", "T", "--json"))
        assert {**there, "at": "", "backend": ""} == {**here, "at": "", "backend": ""}
        refused = cli("status", "nope", *at)
        assert (refused.code, refused.err.count("\n")) == (66, 1)
        watching = cli.start("status", "T", "--watch", "--json", *at)
        assert json.loads(first_line(watching))["pools"] == there["pools"]
        watching.signal(signal.SIGTERM)
        assert watching.finish().code == -signal.SIGTERM
