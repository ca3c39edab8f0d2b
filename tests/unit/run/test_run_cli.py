"""`leasectl run` with real commands, real signals and a real terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.model import parse_process
from leasectl.run.tree import is_keeper
from tests.kit.killing import FULL_SIZE
from tests.kit.pool_changes import remove_resources
from tests.kit.support import Cli, Started
from tests.kit.terminal import CTRL_BACKSLASH, CTRL_C, terminal
from tests.kit.waits import eventually

TYPE = "T"


@pytest.fixture
def pool(cli: Cli) -> str:
    cli.pool(TYPE, "T--00")
    return TYPE


class Script:
    """A command for `run` that writes down what it goes through.

    Args:
        folder: Where it and what it wrote are.
        body: Bash; ``say WORD`` appends a line to what it `said`.
    """

    def __init__(self, folder: Path, body: str) -> None:
        self.path = folder / "script"
        self._log = folder / "said"
        self.path.write_text(f'#!/bin/bash\nsay() {{ echo "$*" >>{self._log}; }}\n{body}\n')
        self.path.chmod(0o755)

    @property
    def said(self) -> list[str]:
        return self._log.read_text().splitlines() if self._log.exists() else []

    def has_said(self, word: str) -> bool:
        return any(line.split()[:1] == [word] for line in self.said)


def start(cli: Cli, script: Script, *options: str) -> Started:
    """Start a script under a lease, and see it begin."""
    run = cli.start("run", "-t", TYPE, *options, "--", str(script.path))
    eventually(lambda: script.has_said("begin"), what="the command has begun")
    return run


def nothing_is_left(cli: Cli) -> bool:
    """Whether all is free, nobody waits, and no handle is there for it."""
    return (
        cli.held() == {}
        and cli.waiting() == []
        and cli.query("SELECT id FROM handle") == []
        and list((cli.state_dir / "waiters").iterdir()) == []
    )


def guard_pid(cli: Cli) -> int | None:
    for (process,) in cli.query("SELECT guard FROM handle WHERE guard IS NOT NULL"):
        return parse_process(str(process)).pid
    return None


def lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def stopped_lock_holder(cli: Cli) -> Iterator[None]:
    """Have state.lock held, as by a process that is stopped in the middle of a transaction."""
    fd = os.open(cli.state_dir / "state.lock", os.O_RDWR | os.O_CLOEXEC)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(fd)


def waits_for_the_lock(pid: int) -> bool:
    """Whether a process sits in flock(2)."""
    with contextlib.suppress(OSError):
        return "flock" in Path(f"/proc/{pid}/wchan").read_text() or (
            Path(f"/proc/{pid}/syscall").read_text().split()[0] == "73"
        )
    return False


# How it ends


@pytest.mark.parametrize("code", [0, 4, 255])
def test_the_commands_exit_code_is_passed_through(cli: Cli, pool: str, code: int) -> None:
    assert cli("run", "-t", pool, "--", "sh", "-c", f"exit {code}").code == code
    assert nothing_is_left(cli)


@pytest.mark.parametrize(
    "signum",
    [signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM],
)
def test_the_commands_death_by_a_signal_is_its_own_death(
    cli: Cli, pool: str, signum: signal.Signals
) -> None:
    finished = cli("run", "-t", pool, "--", "sh", "-c", f"ulimit -c 0; kill -{signum} $$")
    assert finished.code == -signum
    assert nothing_is_left(cli)


@pytest.mark.parametrize(("command", "code"), [("absent", 127), ("./plain", 126)])
def test_a_command_that_cannot_run_takes_no_lease(
    cli: Cli, pool: str, command: str, code: int
) -> None:
    (cli.cwd / "plain").write_text("not executable")
    finished = cli("run", "-t", pool, "--", command)
    assert finished.code == code
    assert len(finished.err.splitlines()) == 1
    assert cli.query("SELECT last_grant FROM pool") == [(0,)]


def test_stdin_stdout_and_stderr_are_the_commands(cli: Cli, pool: str) -> None:
    argv = cli.command("run", "-t", pool, "--", "sh", "-c", "cat; echo err >&2")
    finished = subprocess.run(
        argv, env=cli.env, cwd=cli.cwd, input="in", capture_output=True, text=True, check=True
    )
    assert (finished.stdout, finished.stderr) == ("in", "err\n")


def test_it_ends_with_the_command_whatever_the_command_leaves_running(cli: Cli, pool: str) -> None:
    body = "say begin\nsleep 1000 &\necho $! >daemon\nexit 3"
    script = Script(cli.cwd, f"cd {cli.cwd}\n{body}")
    run = start(cli, script)
    assert eventually(lambda: run.process.poll() is not None, what="run ends")
    assert run.process.returncode == 3
    assert nothing_is_left(cli)
    daemon = int((cli.cwd / "daemon").read_text())
    assert lives(daemon)
    # It holds no lock of ours, so others go on.
    assert cli("run", "-t", pool, "--", "true").code == 0
    os.kill(daemon, signal.SIGKILL)


# What the command gets


def test_the_command_finds_its_lease_in_the_environment(cli: Cli, pool: str) -> None:
    show = 'echo "$LEASECTL_NAMES $LEASECTL_FENCE $LEASECTL_HANDLE" && cat "$LEASECTL_HANDLE"'
    names, fence, handle, content = cli.ok("run", "-t", pool, "--", "sh", "-c", show).split()
    assert (names, fence, content) == ("T--00", "1", "T--00")
    assert handle.startswith(f"{cli.state_dir}/handles/{TYPE}-")


def test_the_command_inherits_nothing_of_ours(cli: Cli, pool: str) -> None:
    read, write = os.pipe()
    argv = cli.command("run", "-t", pool, "--", "ls", "-l", "/proc/self/fd")
    finished = subprocess.run(
        argv, env=cli.env, cwd=cli.cwd, pass_fds=[write], capture_output=True, text=True, check=True
    )
    os.close(read)
    os.close(write)
    opened = [line.rpartition(" -> ")[2] for line in finished.stdout.splitlines() if "->" in line]
    # 0 to 2, the caller's own, and the folder that ls reads.
    assert len(opened) == 5, opened
    assert not any("leasectl" in path or str(cli.state_dir) in path for path in opened)


STATUS = "grep -E 'Sig(Blk|Ign)' /proc/self/status"


def signal_masks(output: str) -> dict[str, int]:
    return {line.split(":")[0]: int(line.split()[1], 16) for line in output.splitlines()}


def test_the_command_starts_with_the_signals_as_they_were(cli: Cli, pool: str) -> None:
    masks = signal_masks(cli.ok("run", "-t", pool, "--", "sh", "-c", f"exec {STATUS}"))
    assert masks == {"SigBlk": 0, "SigIgn": 0}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_ignored_on_entry_stays_ignored(
    cli: Cli, pool: str, signum: signal.Signals
) -> None:
    run = " ".join(cli.command("run", "-t", pool, "--", "sh", "-c", f'"exec {STATUS}"'))
    started = cli.spawn(["bash", "-c", f"trap '' {signum.name}; exec {run}"])
    masks = signal_masks(started.finish().out)
    assert masks == {"SigBlk": 0, "SigIgn": 1 << (signum - 1)}


def test_nohup_protects_the_command(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "say begin\nkill -HUP $$\nsay on")
    argv = ["nohup", *cli.command("run", "-t", pool, "--", str(script.path))]
    run = cli.spawn(argv)
    eventually(lambda: script.has_said("begin"), what="the command has begun")
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGHUP)
    assert run.finish().code == 0
    assert script.said == ["begin", "on"]


# Attempts


def attempts(cli: Cli, *codes: int) -> Script:
    """A script that ends with these codes, one after the other, and tells what it holds."""
    numbered = " ".join(map(str, codes))
    return Script(
        cli.cwd,
        f"""say begin $LEASECTL_ATTEMPT $LEASECTL_NAMES $LEASECTL_FENCE
        codes=({numbered}); exit ${{codes[LEASECTL_ATTEMPT - 1]}}""",
    )


def test_the_last_attempt_counts(cli: Cli, pool: str) -> None:
    script = attempts(cli, 4, 75, 4, 0)
    options = ("--attempts", "3", "--retry-on", "4,75")
    finished = cli("run", "-t", pool, *options, "--", str(script.path))
    assert finished.code == 4
    assert len(script.said) == 3
    told = re.findall(r"exited with (\d+); attempt (\d) of 3 follows", finished.err)
    assert told == [("4", "2"), ("75", "3")]


def test_a_signal_between_two_attempts_ends_run_by_it(cli: Cli, pool: str) -> None:
    """Not as the attempt before ended, by which a loop around it would go on."""
    script = attempts(cli, 4, 0)
    before = f"trap 'exit 0' TERM; : >{cli.cwd}/between; while :; do sleep 0.02; done"
    options = ("--attempts", "5", "--retry-on", "4", "--before-retry", before)
    run = cli.start("run", "-t", pool, *options, "--", str(script.path))
    eventually((cli.cwd / "between").exists)
    run.signal(signal.SIGTERM)
    assert run.finish().code == -signal.SIGTERM
    assert len(script.said) == 1


@pytest.mark.parametrize("command", ["run T", "once work"])
def test_a_command_has_the_locale_of_its_script(cli: Cli, pool: str, command: str) -> None:
    """Python takes one for itself where there is none."""
    unset = {"LANG": None, "LC_ALL": None, "LC_CTYPE": None}
    argv = [*cli.command(*command.split(), "-q"), "--", "sh", "-c", "echo ${LC_CTYPE-none}"]
    assert cli.spawn(argv, **unset).finish().out == "none\n"
    if command.startswith("once"):
        cli.ok("once", "--forget", "work")
    given = cli.spawn([*argv[:-1], "echo $LC_CTYPE"], **{**unset, "LC_CTYPE": "C.UTF-8"}).finish()
    assert given.out == "C.UTF-8\n"


def test_no_attempt_follows_a_signal(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "trap 'exit 4' TERM\nsay begin\nwhile :; do sleep 0.05; done")
    run = start(cli, script, "--attempts", "5", "--retry-on", "4")
    run.signal(signal.SIGTERM)
    assert run.finish().code == 4
    assert script.said == ["begin"]
    assert nothing_is_left(cli)


# Release while the command runs


def test_release_after_frees_while_the_command_runs(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, f"say begin\nuntil [[ -e {cli.cwd}/end ]]; do sleep 0.05; done")
    run = start(cli, script, "--release-after", "0.3")
    other = cli.start("run", "-t", pool, "--", "true")
    assert other.finish().code == 0
    assert run.process.poll() is None
    (cli.cwd / "end").touch()
    assert run.finish().code == 0
    assert nothing_is_left(cli)


# Signals


def test_a_signal_sent_to_run_reaches_the_command_once(cli: Cli, pool: str) -> None:
    script = Script(
        cli.cwd,
        "trap 'say term' TERM; trap 'say usr1' USR1; trap 'say hup; exit 9' HUP\n"
        "say begin\nwhile :; do sleep 0.02; done",
    )
    run = start(cli, script)
    run.signal(signal.SIGUSR1)
    eventually(lambda: script.has_said("usr1"), what="USR1 is passed on")
    run.signal(signal.SIGTERM)
    eventually(lambda: script.has_said("term"), what="TERM is passed on")
    run.signal(signal.SIGHUP)
    assert run.finish().code == 9
    assert script.said == ["begin", "usr1", "term", "hup"]


# Takes signals one by one and tells who sent each, 0 for the terminal; ends with SIGUSR1.
LISTENER = """
import signal

heard = {signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1}
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
print("begin", flush=True)
while True:
    info = signal.sigwaitinfo(heard)
    print(signal.Signals(info.si_signo).name, "of", info.si_pid, flush=True)
    if info.si_signo == signal.SIGUSR1:
        raise SystemExit(6)
"""


@pytest.mark.parametrize(("key", "name"), [(CTRL_C, "SIGINT"), (CTRL_BACKSLASH, "SIGQUIT")])
def test_what_the_terminal_sends_to_all_is_not_sent_twice(
    cli: Cli, pool: str, key: bytes, name: str
) -> None:
    script = Script(cli.cwd, f"exec {sys.executable} -c '{LISTENER}' >>{cli.cwd}/said")
    argv = cli.command("run", "-t", pool, "--", str(script.path))
    with terminal(argv, cli.env, cli.cwd) as opened:
        eventually(lambda: script.has_said("begin"), what="the command has begun")
        opened.type(key)
        eventually(lambda: script.has_said(name), what="the terminal's signal arrives")
        # Signals go through run's hands in their order: the first would be passed on first.
        os.kill(opened.pid, signal.SIGUSR1)
        assert opened.ending() == 6
    assert script.said == ["begin", f"{name} of 0", f"SIGUSR1 of {opened.pid}"]
    assert nothing_is_left(cli)


def test_a_terminal_that_goes_away_is_told_to_the_command(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "trap 'say hup; exit 9' HUP; say begin; sleep 60 & wait")
    with terminal(
        cli.command("run", "-t", pool, "--", str(script.path)), cli.env, cli.cwd
    ) as shown:
        eventually(lambda: script.has_said("begin"), what="the command has begun")
        shown.close()  # the kernel tells only the leader of the session
        assert shown.ending() == 9
    assert script.said == ["begin", "hup"]
    assert nothing_is_left(cli)


def test_a_signal_ends_the_wait_for_a_lease(cli: Cli, pool: str) -> None:
    handle = cli.ok("acquire", "-t", pool).strip()
    script = Script(cli.cwd, "say begin")
    run = cli.start("run", "-q", "-t", pool, "--", str(script.path))
    eventually(lambda: len(cli.waiting()) == 1, what="run waits")
    run.signal(signal.SIGINT)
    assert run.finish().code == -signal.SIGINT
    assert script.said == []
    cli.ok("release", "--handle", handle)
    assert cli.held() == {}
    assert cli.waiting() == []
    assert len(cli.query("SELECT id FROM handle")) == 1, "only the released one"


def test_a_signal_ends_the_jitter(cli: Cli, pool: str) -> None:
    run = cli.start("run", "-t", pool, "--jitter", "1h", "--", "true")
    eventually(lambda: blocks_signals(run.pid), what="run holds signals")
    run.signal(signal.SIGTERM)
    assert run.finish().code == -signal.SIGTERM
    assert nothing_is_left(cli)


def blocks_signals(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(
        signal_masks("\n".join(x for x in status.splitlines() if x[:6] == "SigBlk")).get("SigBlk")
    )


def test_a_signal_ends_run_though_somebody_stopped_holds_the_lock(cli: Cli, pool: str) -> None:
    with stopped_lock_holder(cli):
        run = cli.start("run", "-t", pool, "--", "true")
        eventually(lambda: waits_for_the_lock(run.pid), what="run waits for the lock")
        run.signal(signal.SIGTERM)
        assert run.finish().code == -signal.SIGTERM
    cli.ok("status")
    assert nothing_is_left(cli)


def test_signals_reach_the_command_though_somebody_stopped_holds_the_lock(
    cli: Cli, pool: str
) -> None:
    script = Script(
        cli.cwd, "trap 'say term; exit 5' TERM\nsay begin\nwhile :; do sleep 0.02; done"
    )
    run = start(cli, script)
    (keeper,) = cli.keepers()
    with stopped_lock_holder(cli):
        os.kill(keeper, signal.SIGKILL)  # run wants to start another, and can't
        run.signal(signal.SIGTERM)
        eventually(lambda: script.has_said("term"), what="TERM is passed on")
    assert run.finish().code == 5


# Like `leasectl`, but `run` pauses when it has forked the command, until a named pipe is closed:
# before it calls a function, which is to be found as its module's, or its class's.
PAUSING = """
import importlib, sys
from leasectl.__main__ import main

gate, module, *owners, name = sys.argv.pop(1), *sys.argv.pop(1).split(":")
owner = importlib.import_module(module)
for each in owners:
    owner = getattr(owner, each)
function = getattr(owner, name)

def later(*args, **kwargs):
    with open(gate) as file:
        file.read()
    return function(*args, **kwargs)

setattr(owner, name, later)
main()
"""
ANNOUNCE = "leasectl.run.leased_command:announce"


class PausingRun:
    """A `run` that has forked its command and has not recorded it yet."""

    def __init__(self, cli: Cli, *args: str, before: str = ANNOUNCE) -> None:
        gate = cli.cwd / "gate"
        os.mkfifo(gate)
        self.run = cli.spawn([sys.executable, "-c", PAUSING, str(gate), before, "run", *args])
        self._fd = eventually(lambda: self._open(gate), what="run pauses") or -1
        # A keeper that is about to start is still a fork of `run`.
        self.command = eventually(self._only_child, what="the command is its only child")

    def _only_child(self) -> int:
        found = children(self.run.pid)
        return found[0] if len(found) == 1 else 0

    def _open(self, gate: Path) -> int | None:
        with contextlib.suppress(OSError):
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        return None

    def go_on(self) -> None:
        os.close(self._fd)


def test_int_for_a_command_that_has_not_started_yet_ends_it(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "say begin")
    pausing = PausingRun(cli, "-t", pool, "--", str(script.path))
    os.kill(pausing.command, signal.SIGINT)  # as the terminal would
    pausing.go_on()
    assert pausing.run.finish().code == -signal.SIGINT
    assert script.said == []
    assert nothing_is_left(cli)


def test_term_before_the_command_has_started_reaches_it(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "say begin\nexec sleep 1000")
    pausing = PausingRun(cli, "-t", pool, "--", str(script.path))
    pausing.run.signal(signal.SIGTERM)
    pausing.go_on()
    assert pausing.run.finish().code == -signal.SIGTERM
    assert nothing_is_left(cli)


@pytest.mark.parametrize("before", ["leasectl.run.leased_command:identify", ANNOUNCE])
def test_kill_before_the_command_has_started_is_how_it_ended(
    cli: Cli, pool: str, before: str
) -> None:
    script = Script(cli.cwd, "say begin")
    pausing = PausingRun(cli, "-t", pool, "--", str(script.path), before=before)
    os.kill(pausing.command, signal.SIGKILL)
    eventually(lambda: not lives(pausing.command), what="it is dead")
    pausing.go_on()
    finished = pausing.run.finish()
    assert (finished.code, finished.err) == (-signal.SIGKILL, "")
    assert nothing_is_left(cli)


def test_a_command_is_not_started_by_a_run_that_is_killed_first(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, "say begin")
    pausing = PausingRun(cli, "-t", pool, "--", str(script.path))
    pausing.run.kill()
    eventually(lambda: cli.held() == {}, what="the keeper frees it")
    eventually(lambda: not lives(pausing.command), what="nobody is left to become it")
    assert script.said == []


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(child) for child in text.split() if not is_keeper(int(child))]
    return []


# Death of run and of the keeper


def test_the_lease_of_a_killed_run_follows_the_command(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, f"say begin\nuntil [[ -e {cli.cwd}/end ]]; do sleep 0.05; done")
    run = start(cli, script)
    child = guard_pid(cli)
    run.kill()
    cli.ok("status")
    assert list(cli.held()) == ["T--00"]
    assert guard_pid(cli) == child
    (cli.cwd / "end").touch()
    eventually(lambda: cli.held() == {}, what="the keeper frees it")
    assert list((cli.state_dir / "waiters").iterdir()) == []


def test_the_lease_of_a_killed_run_still_goes_back_when_its_time_has_come(
    cli: Cli, pool: str
) -> None:
    script = Script(cli.cwd, f"say begin\nuntil [[ -e {cli.cwd}/end ]]; do sleep 0.05; done")
    run = start(cli, script, "--release-after", "1s")
    child = guard_pid(cli)
    assert child is not None
    run.kill()
    assert list(cli.held()) == ["T--00"]
    eventually(lambda: cli.held() == {}, what="the keeper frees it")
    assert lives(child)
    (cli.cwd / "end").touch()


def test_run_starts_a_killed_keeper_again(cli: Cli, pool: str) -> None:
    script = Script(cli.cwd, f"say begin\nuntil [[ -e {cli.cwd}/end ]]; do sleep 0.05; done")
    run = start(cli, script, "--release-after", "1h")
    for _ in range(3):
        (keeper,) = eventually(cli.keepers)
        os.kill(keeper, signal.SIGKILL)
        eventually(lambda: set(cli.keepers()) - {keeper}, what="another keeper")  # noqa: B023
    (cli.cwd / "end").touch()
    assert run.finish().code == 0


@pytest.mark.once
def test_a_killed_run_leaves_nothing_that_nobody_frees(cli: Cli, pool: str) -> None:
    """KILL at instants all over its life: before, around and after the start of the command."""
    longest = time_of_a_run(cli)
    kills = 70 if FULL_SIZE else 40
    for number in range(kills):
        script = Script(cli.cwd, "say begin $$ $LEASECTL_FENCE\nsleep 0.02")
        run = cli.start("run", "-t", pool, "--", str(script.path))
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.process.wait(longest * number / kills)
        run.kill()
        # Nobody runs a command: the keeper alone.
        eventually(lambda: cli.held() == {}, what=f"it is free after kill {number}")
        for line in script.said:
            assert line.split()[2] != "", "a command ran without a lease"
    cli.ok("status")
    assert cli.waiting() == []


def time_of_a_run(cli: Cli) -> float:
    start_time = time.monotonic()
    cli.ok("run", "-t", TYPE, "--", "sleep", "0.02")
    return time.monotonic() - start_time


# Loss


def take_away(cli: Cli) -> None:
    with cli.service() as service:
        remove_resources(service.members, TYPE, ["T--00"], force=True)


@pytest.mark.parametrize(
    ("action", "said", "told"),
    [
        ("term", ["begin", "term"], "sending TERM to {}"),
        ("ignore", ["begin"], "{} continues without it"),
    ],
)
def test_a_lease_taken_by_force_is_lost_at_once(
    cli: Cli, pool: str, action: str, said: list[str], told: str
) -> None:
    script = Script(
        cli.cwd,
        "trap 'say term; exit 5' TERM\nsay begin\n"
        f"until [[ -e {cli.cwd}/end ]]; do sleep 0.02; done",
    )
    run = start(cli, script, "--on-lost", action)
    eventually(lambda: list((cli.state_dir / "waiters").iterdir()), what="run listens")
    take_away(cli)
    if action == "ignore":
        eventually(lambda: is_quiet(run.pid), what="run sleeps beside the lost lease")
        (cli.cwd / "end").touch()
        finished = run.finish()
        assert finished.code == 0
    else:
        finished = run.finish()
        assert finished.code == 79, finished
        assert "was lost" in finished.err
    assert f"lost the lease of T--00; {told.format(script.path)}\n" in finished.err
    assert script.said == said


def is_quiet(pid: int) -> bool:
    def ticks() -> list[str]:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = ticks()
    time.sleep(0.5)
    return ticks() == before


@pytest.mark.once
def test_the_command_is_gone_before_a_lease_that_cannot_be_renewed_expires(
    cli: Cli, pool: str
) -> None:
    script = Script(
        cli.cwd,
        "note() { read -r now _ </proc/uptime; say $1 $now; }\n"
        "trap 'note term' TERM\nsay begin\nwhile :; do sleep 0.02; note lives; done",
    )
    # Killed a twentieth of that before it expires: by so much a busy machine may be late.
    run = start(cli, script, "--ttl", "15s")
    child = guard_pid(cli)
    assert child is not None
    with stopped_lock_holder(cli):
        ((expires_at,),) = cli.query("SELECT expires_at FROM resource")
        assert isinstance(expires_at, float)
        eventually(lambda: script.has_said("term"), what="the command gets TERM")
        eventually(lambda: not lives(child), what="the command is gone")
    assert float(script.said[-1].split()[1]) < expires_at
    assert run.finish().code == 79


# Optional leases


def test_a_command_is_not_run_without_its_lease(cli: Cli, pool: str) -> None:
    cli.ok("acquire", "-t", pool)
    script = Script(cli.cwd, "say begin")
    assert cli("run", "-t", pool, "-w", "0", "--", str(script.path)).code == 75
    assert cli("run", "-t", pool, "-w", "0", "-E", "9", "--", str(script.path)).code == 9
    assert script.said == []


def test_a_command_that_reacquires_its_own_lease_leaves_nothing(cli: Cli, pool: str) -> None:
    reacquire = " ".join(cli.command("reacquire", "--handle", '"$LEASECTL_HANDLE"'))
    status = " ".join(cli.command("status", "--json"))
    out = cli.ok("run", "-t", pool, "--", "sh", "-c", f"{reacquire} >/dev/null && {status}")
    (shown,) = json.loads(out)["pools"]
    assert shown["held"] == 1
    eventually(lambda: cli.held() == {}, what="the lease follows the command")


def test_an_optional_lease_fails_no_job_whatever_its_state_directory_is(
    cli: Cli, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("no folder")
    script = 'printf x >>"$0"; [ "$LEASECTL_ATTEMPT" = 2 ] || exit 4'
    marks = tmp_path / "marks"
    command = ("--attempts", "3", "--retry-on", "4", "--", "sh", "-c", script, str(marks))
    finished = cli("run", "-t", "T", "--optional", *command, LEASECTL_STATE_DIR=str(broken))
    assert finished.code == 0, finished
    assert marks.read_text() == "xx"
    assert "is not a directory" in finished.err
    assert cli("run", "-t", "T", "--", "true", LEASECTL_STATE_DIR=str(broken)).code == 73
