"""The keeper: one background process, there as long as something needs it, quiet, and no longer."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import StateUnwritable
from leasectl.keeper import loop
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import finish
from leasectl.model import Request, parse_process
from leasectl.state import keeper_process
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.process import identify
from leasectl.system.process_watch import ProcessEnds
from tests.kit.support import Cli, Started, kill
from tests.kit.waits import eventually


@pytest.fixture
def pool(cli: Cli) -> str:
    cli.pool("T", "T--00", "T--01")
    return "T"


def guard(cli: Cli) -> Started:
    """A process that lives until it is killed."""
    return cli.spawn(["sleep", "1000"])


def acquired(cli: Cli, *options: str) -> str:
    """Take a lease of T, at once; returns the handle's path."""
    return cli("acquire", "-q", "-w", "0", "-t", "T", *options).handle


def acquire_guarded(cli: Cli, guard: Started) -> str:
    return acquired(cli, "--guard-pid", str(guard.pid))


def the_keeper(cli: Cli) -> int:
    """The pid of the one keeper, once it has begun to keep."""
    (pid,) = eventually(cli.keepers, what="there is a keeper")
    eventually(lambda: f"[{pid}] started" in log(cli), what="the keeper has started")
    return pid


def log(cli: Cli) -> str:
    path = cli.state_dir / "keeper.log"
    return path.read_text() if path.exists() else ""


def free(cli: Cli) -> bool:
    return cli.held() == {}


def ended(cli: Cli) -> bool:
    return cli.keepers() == []


def sleeps(pid: int) -> int:
    """How often a process has gone to sleep of its own accord."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("voluntary_ctxt_switches"):
            return int(line.split()[1])
    raise AssertionError(f"no context switches in the status of {pid}")


def is_quiet(pid: int) -> bool:
    """Whether a process sleeps through 0.3 s, and uses no time of a CPU."""
    before = sleeps(pid), cpu_ticks(pid)
    time.sleep(0.3)
    return (sleeps(pid), cpu_ticks(pid)) == before


def cpu_ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def nudge(cli: Cli) -> None:
    """Have the keeper look now, and not within a minute, whether it is still needed."""
    with contextlib.suppress(OSError):
        pipe = cli.state_dir / f"keeper.{os.stat('/proc/self/ns/pid').st_ino}"
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


# How it lives


def test_a_command_substitution_that_starts_it_ends_at_once(cli: Cli, pool: str) -> None:
    leasectl = " ".join(cli.command())
    script = f'h=$({leasectl} acquire -t T --guard-pid $$ 2>&1) && echo "$h" && exec sleep 1000'
    started = cli.spawn(["bash", "-c", script])
    assert started.process.stdout is not None
    assert started.process.stdout.readline().startswith(str(cli.state_dir))
    assert cli.keepers() != []


def test_many_who_start_it_at_once_get_one(cli: Cli, pool: str) -> None:
    with cli.service() as service:
        service.pools.create_pool("many", [f"many--{number}" for number in range(12)])
    holder = guard(cli)
    argv = ("acquire", "-t", "many", "--guard-pid", str(holder.pid))
    commands = [cli.start(*argv) for _ in range(12)]
    for command in commands:
        assert command.finish().code == 0
    keeper = the_keeper(cli)
    eventually(lambda: keepers_of(cli.state_dir) == [keeper], what="the other candidates give up")
    assert log(cli).count("started") == 1


def keepers_of(directory: Path) -> list[int]:
    """The pids of all processes that run as the keeper of a state directory."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if process.name.isdecimal() and words[-2:-1] == [os.fsencode(directory)]:
                found.append(int(process.name))
    return found


@pytest.mark.once
def test_what_is_registered_while_it_ends_is_kept(cli: Cli, pool: str) -> None:
    with cli.service() as service:
        request = Request(pool, release_after_seconds=3600.0)
        for round_ in range(60):
            # The release lets the keeper end, and the next round registers while it does.
            handle = acquire(service, request, patience=Patience())
            announce(service, handle)
            keeper = keeper_process.running(service.state)
            assert keeper is not None, f"nobody keeps the handle of round {round_}"
            finish(service, handle)
            nudge(cli)
            time.sleep(0.0005 * (round_ % 20))
    eventually(lambda: ended(cli), what="the last keeper ends")


def test_a_killed_run_costs_it_no_time_while_the_command_lives(cli: Cli, pool: str) -> None:
    run = cli.start("run", "-t", pool, "--", "sleep", "1000")
    child = eventually(lambda: guard_of_the_handle(cli), what="the command is the guard") or 0
    eventually(lambda: name_of(child) == "sleep", what="the command runs")
    keeper = the_keeper(cli)
    run.signal(signal.SIGKILL)
    try:
        run.process.wait()
        eventually(lambda: is_quiet(keeper), what="the keeper sleeps")
        kill(keeper)
        cli.ok("status")
        keeper = the_keeper(cli)
        eventually(lambda: is_quiet(keeper), what="the next keeper sleeps")
        assert cli.held() != {}
    finally:
        os.kill(child, signal.SIGKILL)
    eventually(lambda: free(cli), what="the lease follows the command")


def name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def guard_of_the_handle(cli: Cli) -> int | None:
    for (process,) in cli.query("SELECT guard FROM handle WHERE guard IS NOT NULL"):
        return parse_process(str(process)).pid
    return None


@pytest.mark.once
def test_hundreds_of_handles_need_one_small_keeper(cli: Cli) -> None:
    with cli.service() as service:
        service.pools.create_pool("many", [f"many--{number}" for number in range(300)])
        holder = identify(guard(cli).pid)
        for _ in range(300):
            handle = acquire(service, Request("many"), patience=Patience(), guard=holder)
            announce(service, handle)
    keeper = the_keeper(cli)
    eventually(lambda: is_quiet(keeper), what="the keeper sleeps")
    assert keepers_of(cli.state_dir) == [keeper]
    (resident,) = (
        int(line.split()[1])
        for line in Path(f"/proc/{keeper}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    )
    assert resident <= 40 * 1024


# What it does


def test_the_death_of_a_guard_frees_at_once_and_wakes_a_waiter(cli: Cli, pool: str) -> None:
    holder = guard(cli)
    acquired(cli, "-c", "2", "--guard-pid", str(holder.pid))
    the_keeper(cli)
    waiter = cli.start("acquire", "-q", "-t", pool)
    eventually(lambda: len(cli.waiting()) == 1, what="somebody waits")
    holder.kill()
    assert waiter.finish().code == 0


def test_term_while_it_starts_is_heeded_once_it_can(cli: Cli, pool: str) -> None:
    with cli.service() as service:
        request = Request(pool, release_after_seconds=3600.0)
        announce(service, acquire(service, request, patience=Patience()))
        keeper = keeper_process.running(service.state)
        assert keeper is not None
        os.kill(keeper.pid, signal.SIGTERM)
    eventually(lambda: ended(cli), what="the keeper ends")
    assert free(cli)


def test_what_a_terminal_sends_to_all_is_not_meant_for_it(cli: Cli, pool: str) -> None:
    holder = guard(cli)
    acquire_guarded(cli, holder)
    keeper = the_keeper(cli)
    os.kill(keeper, signal.SIGINT)
    holder.kill()
    eventually(lambda: free(cli), what="it sees the guard die")
    eventually(lambda: f"[{keeper}] ended: no lease needs" in log(cli), what="it ends as ever")


class NoSignals:
    fd = -1

    def arrived(self) -> set[int]:
        return set()


def test_one_whose_code_is_replaced_under_it_becomes_the_version_that_is_there(
    cli: Cli, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.ok("acquire", "-t", pool)
    state = State.open(str(cli.state_dir))
    monkeypatch.setattr(loop, "_Signals", NoSignals)  # those are this process's, for all tests
    keeper = loop._Loop(state, loop._Signals(), ProcessEnds(10), Clock())
    monkeypatch.setattr(keeper_process, "begin", lambda state, process: True)

    def replaced() -> float | None:
        raise ModuleNotFoundError("No module named 'leasectl.leases.release'")

    def become(path: str, argv: list[str], env: dict[str, str]) -> None:
        raise KeyboardInterrupt(*argv[1:])

    monkeypatch.setattr(keeper._rounds, "go", replaced)
    monkeypatch.setattr(os, "execve", become)
    with pytest.raises(KeyboardInterrupt) as exec_:
        keeper.run()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, keeper_process.KEEPER_SIGNALS)  # as the new one does
    state.close()
    assert exec_.value.args == ("-m", "leasectl.keeper", str(cli.state_dir))


def test_one_that_can_not_end_can_be_woken_as_before(
    cli: Cli, pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(wake: object) -> None:
        raise StateUnwritable("no space left")

    monkeypatch.setattr(loop, "_Signals", NoSignals)
    with contextlib.closing(State.open(str(cli.state_dir))) as state:
        keeper = loop._Loop(state, loop._Signals(), ProcessEnds(10), Clock())
        with monkeypatch.context() as patch, pytest.raises(StateUnwritable):
            patch.setattr(state.events, "write", refuse)  # right before the commit
            keeper._has_retired()
        assert keeper._pipe.is_in_place()
        assert keeper._has_retired()
        assert not keeper._pipe.is_in_place()


def test_the_next_command_starts_a_killed_one_again(cli: Cli, pool: str) -> None:
    holder = guard(cli)
    acquire_guarded(cli, holder)
    acquired(cli, "--release-after", "1h")
    first = the_keeper(cli)
    kill(first)
    holder.kill()
    make_overdue(cli)
    cli.ok("status")
    eventually(lambda: free(cli), what="what is overdue is released")
    assert first not in cli.keepers()


def make_overdue(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db", timeout=10)) as db, db:
        db.execute("UPDATE timer SET due = 0")


def test_a_waiter_starts_a_killed_one_again(cli: Cli, pool: str) -> None:
    first = acquired(cli, "-c", "2")
    waiter = cli.start("acquire", "-q", "-t", pool)
    eventually(lambda: len(cli.waiting()) == 1, what="somebody waits")
    # The keeper is younger than the wait: the waiter has to learn of it too.
    cli.ok("release", "--handle", first, "--delay", "1h", "--detach")
    keeper = the_keeper(cli)
    make_overdue(cli)
    kill(keeper)
    assert waiter.finish().code == 0


# When something fails


def test_it_goes_on_when_the_disk_is_full_for_a_while(cli: Cli, pool: str) -> None:
    holder = guard(cli)
    acquire_guarded(cli, holder)
    keeper = the_keeper(cli)
    limits = resource.prlimit(keeper, resource.RLIMIT_FSIZE)
    # No file may grow beyond that: all but as good as a full disk.
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, (1, limits[1]))
    before = sleeps(keeper)
    holder.kill()
    eventually(lambda: sleeps(keeper) > before, what="the keeper has looked")
    assert not free(cli)
    assert cli.keepers() == [keeper]
    eventually(lambda: is_quiet(keeper), what="between two tries the keeper sleeps")
    resource.prlimit(keeper, resource.RLIMIT_FSIZE, limits)
    eventually(lambda: free(cli), what="the keeper tries again")
