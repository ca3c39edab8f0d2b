"""Several hosts take turns: ``acquire``, ``release``, ``reacquire`` and ``cat`` on etcd."""

from __future__ import annotations

from pathlib import Path

from tests.kit.hosts import Hosts, catted, fence
from tests.kit.relay import Relay
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

NO_LEASE, LOST = 75, 79


def _sleeps(pid: int) -> bool:
    """Whether a process sits in poll(2), which none does while it still gets ready."""
    return "poll" in Path(f"/proc/{pid}/wchan").read_text()


def test_what_one_host_holds_no_other_is_granted(hosts: Hosts) -> None:
    hosts.pool("a")
    here, there = hosts.new(), hosts.new()
    held = here("acquire", "-t", "T").handle
    refused = there("acquire", "-t", "T", "-w", "0")
    assert (refused.code, refused.out) == (NO_LEASE, "")
    assert "1 of 1 held, nobody else waiting" in refused.err
    assert here.ok("cat", "--handle", held) == "a\n"
    before = fence(here, held)
    assert here.ok("release", "--handle", held) == "a\n"
    assert fence(there, there("acquire", "-t", "T", "-w", "0").handle) > before


def test_of_releases_by_many_processes_at_once_exactly_one_prints_the_names(hosts: Hosts) -> None:
    hosts.pool("a", "b")
    here = hosts.new()
    held = here("acquire", "-t", "T", "-c", "2").handle
    releases = [here.start("release", "--handle", held) for _ in range(8)]
    finished = [release.finish() for release in releases]
    assert {each.code for each in finished} == {0}, finished
    printed = "".join(each.out for each in finished).split()
    assert sorted(printed) == ["a", "b"]
    assert hosts.is_free()
    assert catted(here, held)["state"] == "released"


class TestReacquire:
    def test_the_later_of_two_that_wait_goes_on_alone(self, hosts: Hosts) -> None:
        hosts.pool("a")
        here, there = hosts.new(), hosts.new()
        held = here("acquire", "-t", "T").handle
        here.ok("release", "--handle", held)
        other = there("acquire", "-t", "T").handle
        earlier = hosts.start_waiting(here, "reacquire", "--handle", held)
        later = here.start("reacquire", "--handle", held)
        assert earlier.finish().code == NO_LEASE
        eventually(lambda: hosts.waiting() == 1)
        there.ok("release", "--handle", other)
        assert later.finish().handle == held
        assert here.ok("cat", "--handle", held) == "a\n"
        assert hosts.held() == ["a"]

    def test_a_release_ends_the_later_of_two_that_wait(self, hosts: Hosts) -> None:
        hosts.pool("a")
        here, there = hosts.new(), hosts.new()
        held = here("acquire", "-t", "T").handle
        here.ok("release", "--handle", held)
        there.ok("acquire", "-t", "T")
        earlier = hosts.start_waiting(here, "reacquire", "--handle", held)
        later = here.start("reacquire", "--handle", held)
        assert earlier.finish().code == NO_LEASE
        eventually(lambda: hosts.waiting() == 1)
        here.ok("release", "--handle", held)
        assert later.finish().code == NO_LEASE
        assert hosts.waiting() == 0

    def test_a_lost_lease_can_be_had_again(self, hosts: Hosts) -> None:
        hosts.pool("a")
        here = hosts.new()
        held = here("acquire", "-t", "T").handle
        before = fence(here, held)
        hosts.revoke_all()
        assert here("renew", "--handle", held).code == LOST
        assert here("reacquire", "--handle", held).handle == held
        assert fence(here, held) > before
        assert here("renew", "--handle", held).code == 0

    def test_a_late_delayed_release_does_not_free_the_reacquired_lease(self, hosts: Hosts) -> None:
        hosts.pool("a")
        here = hosts.new()
        held = here("acquire", "-t", "T").handle
        late = here.start("release", "--handle", held, "--delay", "2s")
        eventually(lambda: _sleeps(late.pid), what="it knows what it is to release, and sleeps")
        here.ok("reacquire", "--handle", held)
        before = fence(here, held)
        finished = late.finish()
        assert (finished.code, finished.out) == (0, "")
        assert fence(here, held) == before
        assert hosts.held() == ["a"]


class TestReleaseOfWhatWaits:
    def test_it_ends_the_waiter_and_takes_its_ticket_away(self, hosts: Hosts) -> None:
        hosts.pool("a")
        here, there = hosts.new(), hosts.new()
        there.ok("acquire", "-t", "T")
        waiter = hosts.start_waiting(here, "acquire", "-t", "T")
        (row,) = here.query("SELECT id FROM handle WHERE state = 'acquiring'")
        released = here("release", "--handle", str(row[0]))
        assert (released.code, released.out) == (0, "")
        finished = waiter.finish()
        assert (finished.code, finished.out) == (NO_LEASE, "")
        assert "released while it waited" in finished.err
        assert hosts.waiting() == 0
        assert here.query("SELECT id FROM handle") == []

    def test_it_ends_a_run_that_has_just_been_granted_its_lease(
        self, hosts: Hosts, network: Relay
    ) -> None:
        hosts.pool("a")
        here = hosts.new(through=network.endpoint)
        releases: list[Finished] = []

        def release_before_the_first_heartbeat(_number: int, path: str) -> None:
            if path.endswith("/keepalive") and not releases:
                releases.append(here("release", "--all"))

        network.listen(before=release_before_the_first_heartbeat)
        finished = here("run", "-q", "-t", "T", "--", "echo", "x")
        assert [(each.code, each.out) for each in releases] == [(0, "a\n")]
        assert (finished.code, finished.out) == (NO_LEASE, "")
        assert "was released before it could be used" in finished.err
        assert hosts.is_free()


def test_a_handle_keeps_its_backend_whatever_the_environment_says_later(
    hosts: Hosts, cli: Cli
) -> None:
    hosts.pool("a")
    here = hosts.new()
    held = here("acquire", "-t", "T").handle
    assert here("renew", "--handle", held, LEASECTL_BACKEND="local:").code == 0
    assert here.ok("release", "--handle", held, LEASECTL_BACKEND="none:") == "a\n"
    assert hosts.is_free()
