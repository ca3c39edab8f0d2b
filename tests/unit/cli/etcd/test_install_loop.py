"""The loop that installs: leases given back early, anew for each attempt, and after a death."""

from __future__ import annotations

from tests.kit.hosts import Hosts, Script, fence
from tests.kit.support import kill
from tests.kit.waits import eventually

INSTALLER = """
say attempt "$LEASECTL_ATTEMPT" "$LEASECTL_NAMES" "$LEASECTL_FENCE"
await "end-$LEASECTL_ATTEMPT"
((LEASECTL_ATTEMPT == 3)) || exit 4
"""


def _renewed_at(hosts: Hosts) -> float:
    (resource,) = hosts.access.pool().resources
    assert resource.lease is not None
    return resource.lease.renew_time


def test_a_lease_is_given_back_while_the_installer_runs_and_had_anew_for_each_attempt(
    hosts: Hosts,
) -> None:
    hosts.pool("a")
    here, there = hosts.new(), hosts.new()
    script = Script(here.cwd, INSTALLER)
    run = here.start(
        *("run", "-q", "-t", "T", "--release-after", "1s", "--attempts", "3", "--retry-on", "4"),
        *("--", str(script.path)),
    )
    script.wait_for("attempt")
    eventually(hosts.is_free, what="given back while the installer runs")
    assert run.process.poll() is None
    other = there("acquire", "-t", "T", "-w", "0").handle
    script.tell("end-1")
    eventually(lambda: hosts.waiting() == 1, what="the second attempt needs a lease of its own")
    between = fence(there, other)
    there.ok("release", "--handle", other)
    for attempt in (2, 3):
        script.wait_for("attempt", times=attempt)
        script.tell(f"end-{attempt}")
    assert run.finish().code == 0
    fences = [int(line.words[3]) for line in script.said]
    assert [line.words[1:3] for line in script.said] == [("1", "a"), ("2", "a"), ("3", "a")]
    assert fences[0] < between < fences[1] < fences[2]
    assert hosts.is_free()
    assert here.query("SELECT id FROM handle") == []


def test_what_a_killed_run_had_follows_its_command(hosts: Hosts) -> None:
    hosts.pool("a")
    here = hosts.new()
    script = Script(here.cwd, "say begin $$; await end")
    run = here.start("run", "-q", "-t", "T", "--ttl", "6s", "--", str(script.path))
    script.wait_for("begin")
    eventually(lambda: here.query("SELECT 1 FROM handle WHERE guard IS NOT NULL"))
    granted = _renewed_at(hosts)
    kill(run.pid)
    eventually(lambda: _renewed_at(hosts) > granted + 6, what="the keeper renews it")
    script.tell("end")
    eventually(hosts.is_free, what="the command's end frees it")
