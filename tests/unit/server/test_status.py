"""How things are behind a server: the path that tells it, and ``leasectl status`` by its URL."""

from __future__ import annotations

import json
import select
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.kit.doctor_reports import doctor
from tests.kit.faults.process import StartFaultProxy
from tests.kit.serving import Serve, Serving, resources
from tests.kit.support import Cli
from tests.kit.waits import eventually

STATUS = "/leasectl/v1/status"


@pytest.fixture
def client(tmp_path: Path) -> Cli:
    """Somebody with another state directory."""
    return Cli(tmp_path / "elsewhere", tmp_path)


def timeless(shown: str) -> object:
    """What ``status --json`` says, without what passes."""
    found = json.loads(shown)
    for pool in found["pools"]:
        for resource in pool["resources"]:
            resource.pop("release_time")
            resource.pop("release_at")
    return {**found, "at": None, "backend": None}


class TestStatus:
    def test_it_shows_what_is_shown_beside_the_server(
        self, cli: Cli, serve: Serve, client: Cli
    ) -> None:
        cli.pool("T", "a", "b", "c")
        cli.pool("U", "only")
        cli.ok("acquire", "-t", "U", "--release-after", "20m", "--label", "why=test")
        server = serve()
        client.ok("acquire", "-t", "T", "--backend", server.url)
        with server.waiter("U"):
            eventually(lambda: '"waiting": 1' in cli.ok("status", "--json"))
            beside = cli.ok("status", "--json")
            from_afar = client.ok("status", "--json", "--backend", server.url)
            assert timeless(from_afar) == timeless(beside)
            assert json.loads(from_afar)["backend"] == server.url
            one = client.ok("status", "-t", "U", "--backend", server.url)
            assert "only" in one
            assert "T" not in one.split("\n")[1]

    def test_of_another_lease_proxy_it_is_what_is_held_there_from_here(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        url = cli.env["LEASECTL_BACKEND"] = fault_proxy("T=3").url
        finished = cli("status")
        told = f"{url} doesn't report its pools, and this state directory has no handles there"
        assert (finished.code, finished.out, finished.err) == (0, "", f"leasectl: {told}\n")
        guard = cli.spawn(["sleep", "60"]).process
        one = Path(cli.ok("acquire", "-q", "-t", "T", "--release-after", "1h").strip()).name
        guarded = ("--guard-pid", str(guard.pid))
        two = Path(cli.ok("acquire", "-q", "-t", "T", "-c", "2", *guarded).strip()).name
        waiting = cli.start("acquire", "-q", "-t", "T")
        eventually(lambda: " waiting " in cli.ok("status"))
        lines = [each.split() for each in cli.ok("status").splitlines()]
        assert lines[1] == ["HANDLE", "NAMES", "HELD", "FOR", "ENDS", "GUARD"]
        assert [one, "T--00"] in [each[:2] for each in lines]
        assert [two, "T--01", "T--02"] in [each[:3] for each in lines]
        assert str(guard.pid) in cli.ok("status", "T")
        watching = cli.start("status", "--watch")
        assert watching.process.stdout is not None
        seen = [watching.process.stdout.readline() for _ in range(2)]
        assert "doesn't report its pools" in seen[1]
        watching.signal(2)
        watching.finish()
        waiting.kill()
        shown = json.loads(cli.ok("status", "T", "--json"))["handles"]
        found = [each for each in shown if each["state"] == "held"]
        assert {each["handle"]: each["names"] for each in found} == {
            one: ["T--00"],
            two: ["T--01", "T--02"],
        }
        assert [each["release_time"] is None for each in found if each["handle"] == one] == [False]
        cli.ok("release", "--all")
        eventually(lambda: json.loads(cli.ok("status", "--json"))["handles"] == [])

    def test_watching_another_lease_proxy_prints_only_changes(
        self, cli: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        cli.env["LEASECTL_BACKEND"] = fault_proxy("T=1").url
        cli.ok("acquire", "-q", "-t", "T", "--release-after", "1h")
        watching = cli.start("status", "--watch", "--json")
        assert watching.process.stdout is not None
        assert json.loads(watching.process.stdout.readline())["handles"][0]["names"] == ["T--00"]
        # Longer than two looks take.
        assert not select.select([watching.process.stdout], [], [], 4.5)[0]
        watching.kill()

    @pytest.mark.parametrize(
        "text",
        ["[]", "{", '{"at": 7, "pools": []}', pytest.param("[" * 100_000, id="deep")],
    )
    def test_what_cant_be_read_is_one_line(
        self, cli: Cli, fault_proxy: StartFaultProxy, text: str, tmp_path: Path
    ) -> None:
        proxy = fault_proxy("T=1", faults=({"fault": "not-json", "text": text},))
        finished = cli("status", "--backend", proxy.url)
        assert finished.code in (65, 69)
        assert finished.err.count("\n") == 1
        assert "unexpected failure" not in finished.err


class TestThePath:
    def test_it_wants_the_token(self, cli: Cli, serve: Serve, tmp_path: Path) -> None:
        token = tmp_path / "token"
        token.write_text("s3cret")
        with serve("--token-file", str(token)).connect() as client:
            assert client.ask("GET", STATUS).status == 401
            assert client.ask("GET", STATUS, Authorization="Bearer s3cret").status == 200

    @pytest.mark.parametrize("pool_type", ["nope", "../x", "\ud800", ""])
    def test_of_what_isnt_a_pool_it_says_so(self, shared: Serving, pool_type: str) -> None:
        with shared.connect() as client:
            target = f"{STATUS}?type={quote(pool_type, errors='surrogatepass')}"
            got = client.ask("GET", target)
        assert got.status == 404
        assert list(json.loads(got.text)) == ["error"]


class TestGuards:
    def test_of_those_of_our_clients_their_own_records_know(
        self, cli: Cli, serve: Serve, client: Cli
    ) -> None:
        cli.pool("T")
        server = serve()
        with server.connect() as other:  # as curl asks, without a key
            assert other.acquire("T").status == 200
            assert client("acquire", "-t", "T", "--backend", server.url).code == 0
            guards = [each["guard"] for each in resources(cli, "T")]
            assert sorted(guards) == ["none", "unknown"]
            told = doctor(cli)["unguarded"]
            assert (told["status"], told["what"].startswith("1 handle held until")) == (
                "warn",
                True,
            )
            assert "1 handle granted through leasectl serve" in told["what"]
            (theirs,) = (r["handle"] for r in resources(cli, "T") if r["guard"] == "unknown")
            assert theirs not in told["advice"]
        assert doctor(client)["unguarded"]["what"].startswith("1 handle held until released")


class TestAsManyAsThereAre:
    def test_more_than_the_pool_has_is_refused_at_once(
        self, cli: Cli, serve: Serve, client: Cli
    ) -> None:
        cli.pool("T")
        server = serve()
        asked = ("acquire", "-t", "T", "-w", "1h", "--backend", server.url)
        for is_full in (False, True):
            finished = client(*asked, "-c", "3")
            assert finished.code == 64
            assert finished.err == (
                f'leasectl: {server.url} answered 400: Failed to acquire lease "T": pool "T" has 2 '
                "resources, so a request for 3 can never be met; see: leasectl status -t T\n"
            )
            if not is_full:
                assert cli.held() == {}
                assert client(*asked, "-c", "2").code == 0
        assert len(cli.held()) == 2
