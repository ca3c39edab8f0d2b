"""``leasectl once`` on etcd: on several machines, and with a runner that is stopped."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from leasectl.once.results import Kept, Round
from leasectl.once.under_lease import UnderLease
from tests.kit.forking import ending, fork, leasectl
from tests.kit.hosts import Hosts
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

TTL_SECONDS = 3
# Writes a line as it begins, a line a moment as long as it runs, and one at its end: after its
# time, or once it may end.
WORKS = """
import os, sys, time
name, seconds, log = sys.argv[1], float(sys.argv[2]), open(sys.argv[3], "a", buffering=1)
until = time.monotonic() + seconds
while True:
    log.write(f"{name} {time.clock_gettime(time.CLOCK_BOOTTIME)}\\n")
    if time.monotonic() >= until or os.path.exists(f"{sys.argv[3]}.may"):
        break
    time.sleep(0.02)
print(name)
"""


def works(name: str, seconds: float, log: str) -> tuple[str, ...]:
    return (sys.executable, "-c", WORKS, name, str(seconds), log)


def lines_of(log: str, name: str) -> list[float]:
    """When that command was seen to run."""
    if not os.path.exists(log):
        return []
    with open(log) as file:
        return [float(line.split()[1]) for line in file if line.startswith(f"{name} ")]


def begun(cli: Cli, name: str, seconds: float, log: str) -> Started:
    ttl = ("--ttl", f"{TTL_SECONDS}s")
    started = cli.spawn(cli.command("once", "k", *ttl, "--", *works(name, seconds, log)))
    eventually(lambda: lines_of(log, name), what=f"{name} runs")
    return started


def test_a_failure_is_the_next_ones_to_try_and_its_result_is_for_both(hosts: Hosts) -> None:
    one, other = hosts.new(), hosts.new()
    may = one.cwd / "may"
    first = one.start(
        "once", "k", "--", "sh", "-c", f"until [ -e {may} ]; do sleep 0.02; done; exit 7"
    )
    eventually(lambda: "k" in one.ok("status"))
    second = other.start("once", "k", "--", "echo", "result")
    eventually(lambda: "POSITION" in one.ok("status", "--wide"))
    may.touch()
    assert first.finish().out == "result\n"
    assert second.finish().out == "result\n"


def test_what_a_stopped_runner_runs_is_ended_before_the_next_begins(hosts: Hosts) -> None:
    one, other = hosts.new(), hosts.new()
    log = str(one.cwd / "log")
    first = begun(one, "first", 60, log)
    stopped_at = time.clock_gettime(time.CLOCK_BOOTTIME)
    first.signal(signal.SIGSTOP)
    second = begun(other, "second", 1, log)
    first.signal(signal.SIGCONT)
    finished = first.finish()
    assert (finished.code, finished.out) == (79, ""), finished
    assert second.finish().out == "second\n"
    assert max(lines_of(log, "first")) < min(lines_of(log, "second"))
    assert max(lines_of(log, "first")) <= stopped_at + TTL_SECONDS
    assert hosts.new().ok("once", "k", "--", "false") == "second\n"


def test_the_result_of_a_runner_that_was_stopped_is_refused(hosts: Hosts) -> None:
    one, other = hosts.new(), hosts.new()
    log = str(one.cwd / "log")
    first = begun(one, "first", 60, log)
    first.signal(signal.SIGSTOP)
    (one.cwd / "log.may").touch()  # its command ends well meanwhile
    second = begun(other, "second", 0.1, log)
    assert second.finish().out == "second\n"
    first.signal(signal.SIGCONT)
    finished = first.finish()
    assert (finished.code, finished.out) == (79, ""), finished
    assert hosts.new().ok("once", "k", "--", "false") == "second\n"


def test_a_runner_that_lost_its_lease_before_its_command_waits_for_the_next(hosts: Hosts) -> None:
    one, other = hosts.new(), hosts.new()
    log, output = str(other.cwd / "log"), one.cwd / "output"
    has_lease, may_begin = one.cwd / "has-lease", one.cwd / "may-begin"

    def work() -> None:
        begin = UnderLease.begin

        def begin_late(self: UnderLease, bad: Kept | None) -> Round | None:
            UnderLease.begin = begin  # type: ignore[method-assign]
            has_lease.touch()
            eventually(may_begin.exists)
            return begin(self, bad)

        UnderLease.begin = begin_late  # type: ignore[method-assign]
        words = ("--backend", hosts.url, "--ttl", f"{TTL_SECONDS}s", "--", "echo", "first")
        leasectl(one.state_dir, output, "once", "k", *words)

    first = fork(work)
    eventually(has_lease.exists)
    second = begun(other, "second", 60, log)
    may_begin.touch()
    eventually(lambda: "POSITION" in other.ok("status", "--wide"), what="the first waits again")
    (other.cwd / "log.may").touch()
    assert ending(first) == 0
    assert output.read_text() == second.finish().out == "second\n"
    said = Path(f"{output}.err").read_text()
    assert "work k: lost its lease before the command began; waiting again" in said


def test_the_next_machine_takes_over_from_one_that_was_killed(hosts: Hosts) -> None:
    one, other = hosts.new(), hosts.new()
    log = str(one.cwd / "log")
    first = begun(one, "first", 60, log)
    waits = other.start("once", "k", "--", *works("second", 0.1, log))
    eventually(lambda: "POSITION" in one.ok("status", "--wide"))
    first.kill()
    assert waits.finish().out == "second\n"
    assert max(lines_of(log, "first")) < min(lines_of(log, "second"))
