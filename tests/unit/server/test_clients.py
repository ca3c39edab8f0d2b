"""Our own commands on our own server: what they say, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.faults.process import StartFaultProxy
from tests.kit.relay import relay
from tests.kit.serving import Serve, Serving, held, waiting
from tests.kit.support import Cli
from tests.kit.waits import eventually


@pytest.fixture
def client(shared: Serving, tmp_path: Path) -> Iterator[Cli]:
    """A command line on another machine, as it were, that uses the shared server."""
    cli = Cli(tmp_path / "client", tmp_path)
    cli.env["LEASE_PROXY_SERVER_URL"] = shared.url
    yield cli
    cli.close()


class TestTheContract:
    def test_a_release_ends_the_later_of_two_reacquires_that_wait(
        self, shared: Serving, client: Cli, single: str
    ) -> None:
        handle = client("acquire", "-t", single).handle
        client.ok("release", "--handle", handle)
        shared.cli.hold(single)
        earlier = client.start("reacquire", "-q", "--handle", handle)
        eventually(lambda: waiting(shared.cli, single) == 1)
        later = client.start("reacquire", "-q", "--handle", handle)
        assert earlier.finish().code == 75
        # The server may still have the request of the earlier one.
        asks = "SELECT 1 FROM handle WHERE acquisition = 3 AND state = 'acquiring'"
        eventually(lambda: client.query(asks), "the later one asks")
        client.ok("release", "--handle", handle)
        assert later.finish().code == 75
        eventually(lambda: waiting(shared.cli, single) == 0)

    def test_names_from_elsewhere(
        self, shared: Serving, client: Cli, pool: str, tmp_path: Path
    ) -> None:
        client.ok("acquire", "-t", pool, "-c", "2")
        names = ("--names", f"{pool}--00,{pool}--01")
        elsewhere = str(tmp_path / "elsewhere")
        released = client.ok("release", *names, LEASECTL_STATE_DIR=elsewhere)
        assert released == f"{pool}--00\n{pool}--01\n"
        assert held(shared.cli, pool) == []

    def test_a_later_step_releases_what_an_earlier_one_has_left(
        self, shared: Serving, client: Cli, single: str, tmp_path: Path
    ) -> None:
        step = client.spawn(["sleep", "60"])
        handle = client.ok("acquire", "-t", single, "--step-pid", str(step.pid)).rstrip("\n")
        copy = tmp_path / "copy"
        copy.write_bytes(Path(handle).read_bytes())
        step.kill()
        client.ok("status", "--backend", "local:")  # releases what the dead have left
        assert held(shared.cli, single) == [f"{single}--00"]
        elsewhere = str(tmp_path / "elsewhere")
        client.ok("release", "--handle", str(copy), LEASECTL_STATE_DIR=elsewhere)
        assert held(shared.cli, single) == []


def test_read_timeouts_of_a_reverse_proxy_do_not_end_a_wait(
    shared: Serving, client: Cli, single: str
) -> None:
    handle = shared.cli.hold(single)
    with relay(shared.url) as reverse_proxy:
        client.env["LEASE_PROXY_SERVER_URL"] = reverse_proxy.endpoint
        waiter = client.start("acquire", "-t", single, "-w", "5m")
        for _ in range(5):
            eventually(lambda: reverse_proxy.end(lambda path: "count=1" in path))
        shared.cli.ok("release", "--handle", handle.id)
        finished = waiter.finish()
    assert finished.code == 0
    assert "may have been granted" not in finished.err


class TestLostReplies:
    @pytest.fixture
    def relayed(
        self, shared: Serving, client: Cli, pool: str, fault_proxy: StartFaultProxy
    ) -> Iterator[Cli]:
        """A client whose requests go through a relay that loses what it is told to lose."""
        self.relay = fault_proxy(upstream=shared.url)
        client.env["LEASE_PROXY_SERVER_URL"] = self.relay.url
        yield client

    def test_one_is_found_again(self, shared: Serving, relayed: Cli, pool: str) -> None:
        self.relay.faults("reset-after path=acquire nth=1,2")
        handle = relayed("acquire", "-t", pool).handle
        assert relayed.ok("cat", "--handle", handle).split() == held(shared.cli, pool)

    def test_a_request_that_comes_after_the_release_gets_nothing(
        self, shared: Serving, relayed: Cli, pool: str
    ) -> None:
        self.relay.faults("reset-after path=acquire nth=1")
        handle = relayed("acquire", "-t", pool).handle
        assert relayed.ok("release", "--handle", handle) == f"{pool}--00\n"
        key = self.relay.history().of("request")[0]["idempotency_key"]
        with shared.connect() as late:
            assert "given this request up" in late.acquire(pool, Idempotency_Key=key).text
        assert held(shared.cli, pool) == []

    def test_what_went_back_is_told_where_its_key_could_not_be_withdrawn(
        self, shared: Serving, relayed: Cli, pool: str
    ) -> None:
        self.relay.faults("reset-after path=acquire nth=1")
        handle = relayed("acquire", "-t", pool).handle
        self.relay.faults(*[f"reset-before path=release nth={nth}" for nth in range(2, 60)])
        first = relayed("release", "--handle", handle, LEASECTL_RELEASE_TIMEOUT="2s")
        assert (first.code, first.out) == (69, f"{pool}--00\n")
        assert held(shared.cli, pool) == []
        self.relay.faults()
        second = relayed("release", "--handle", handle)
        assert (second.code, second.out) == (0, "")

    def test_the_keeper_undoes_them_once_the_server_can_be_reached(
        self, shared: Serving, relayed: Cli, pool: str
    ) -> None:
        self.relay.faults("reset-after path=acquire", "reset-before path=release times=4")
        assert relayed("acquire", "-t", pool).code == 69
        eventually(lambda: held(shared.cli, pool) == [])

    def test_a_lost_answer_to_a_release_does_not_free_what_came_after(
        self, shared: Serving, relayed: Cli, single: str
    ) -> None:
        handle = relayed("acquire", "-q", "-t", single).handle
        # As soon as it is free somebody else has it, before the release is repeated.
        next_ = shared.waiter(single)
        eventually(lambda: waiting(shared.cli, single) == 1)
        self.relay.faults("reset-after path=release nth=1")
        assert relayed("release", "--handle", handle).code == 0
        assert next_.read_answer().names == held(shared.cli, single) == [f"{single}--00"]
        next_.close()


def test_server_and_clients_may_share_a_state_directory(cli: Cli, serve: Serve) -> None:
    cli.pool("T")
    backend = {"LEASE_PROXY_SERVER_URL": serve().url}
    first = cli("acquire", "-t", "T", **backend).handle
    second = cli("acquire", "-t", "T", "--scope", "step", **backend).handle
    assert cli.ok("cat", "--handle", first) == "T--00\n"
    assert cli.ok("release", "--handle", first) == "T--00\n"
    assert cli.ok("release", "--names", "T--01", **backend) == "T--01\n"
    assert cli.ok("release", "--handle", second) == ""
    assert held(cli, "T") == []
    cli.ok("acquire", "-t", "T", "-c", "2", **backend)
    cli.ok("release", "--all", **backend)
    assert held(cli, "T") == []
