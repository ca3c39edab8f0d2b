"""Many processes that want the same few resources, all at once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from leasectl.model import Lease, Request
from leasectl.pools import admin
from tests.crash.contenders import Choose, Participant
from tests.kit.forking import ending, fork
from tests.kit.history import Recorder, read_history, violations
from tests.kit.invariants import broken_invariants
from tests.kit.killing import FULL_SIZE
from tests.kit.support import Cli
from tests.kit.waits import eventually

RESOURCES = [f"T--{number}" for number in range(4)]


def take_turns(cli: Cli, history: Path, choices: Sequence[Choose], rounds: int) -> None:
    """Have one process for each choice take a lease so many times, and wait for all."""
    cli.pool("T", *RESOURCES)

    def take(number: int, choose: Choose) -> None:
        rng = random.Random(number)
        participant = Participant(cli.state_dir, history)
        for _ in range(rounds):
            participant.hold(choose(rng), seconds=rng.random() / 1000)
        participant.close()

    pids = [fork(lambda n=n, c=c: take(n, c)) for n, c in enumerate(choices)]  # type: ignore[misc]
    assert [ending(pid) for pid in pids] == [0] * len(choices)
    assert broken_invariants(cli.state_dir) == []
    assert cli.held() == {}


def grants(history: Path) -> int:
    return len({event.ticket for event in read_history(history) if event.kind == "granted"})


def one(_rng: random.Random) -> Request:
    return Request("T")


def three(_rng: random.Random) -> Request:
    return Request("T", count=3)


def some(rng: random.Random) -> Request:
    return Request("T", count=rng.randint(1, 4))


def named(rng: random.Random) -> Request:
    return Request("T", name=rng.choice(RESOURCES))


def test_64_processes_share_4_resources(cli: Cli, tmp_path: Path) -> None:
    take_turns(cli, tmp_path / "history", [one] * 64, rounds=10)
    assert grants(tmp_path / "history") == 640
    assert violations(read_history(tmp_path / "history"), capacity=4) == []


def test_groups_that_cannot_hold_at_the_same_time_all_finish(cli: Cli, tmp_path: Path) -> None:
    take_turns(cli, tmp_path / "history", [three] * 16, rounds=10)
    assert grants(tmp_path / "history") == 160
    assert violations(read_history(tmp_path / "history"), capacity=4) == []


def test_singles_groups_and_names_share_a_queue(cli: Cli, tmp_path: Path) -> None:
    take_turns(cli, tmp_path / "history", [one, three, some, named] * 8, rounds=10)
    assert grants(tmp_path / "history") == 320
    assert violations(read_history(tmp_path / "history"), capacity=4) == []


def test_killed_holders_and_waiters_do_not_stop_the_others(cli: Cli, tmp_path: Path) -> None:
    history = tmp_path / "history"
    cli.pool("T", *RESOURCES)
    rng = random.Random(64)

    def take(seed: int) -> None:
        own = random.Random(seed)
        participant = Participant(cli.state_dir, history, guarded=True)
        while True:
            participant.hold(own.choice([one, some, named])(own), seconds=own.random() / 500)

    pids = [fork(lambda n=n: take(n)) for n in range(12)]  # type: ignore[misc]
    try:
        for number in range(100, 250 if FULL_SIZE else 160):
            before = grants(history) if history.exists() else 0
            victim = pids.pop(rng.randrange(len(pids)))
            os.kill(victim, signal.SIGKILL)
            assert ending(victim) == -signal.SIGKILL
            pids.append(fork(lambda n=number: take(n)))  # type: ignore[misc]
            eventually(lambda b=before: grants(history) > b, what="a further grant")  # type: ignore[misc]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            ending(pid)
    eventually(lambda: cli.held() == {}, what="the keeper frees what the killed held")
    with cli.service() as service:
        admin.show(service)
    assert broken_invariants(cli.state_dir) == []
    assert violations(read_history(history), capacity=4) == []


def test_whole_commands_share_a_resource(cli: Cli, tmp_path: Path) -> None:
    history = tmp_path / "history"
    cli.pool("T", *RESOURCES[:2])

    def output(*args: str) -> str:
        command = cli.command(*args)
        return subprocess.check_output(command, env=cli.env, cwd=cli.cwd, text=True)

    def take() -> None:
        recorder = Recorder(history)
        for _ in range(2):
            guard = str(os.getpid())
            held = json.loads(
                output("acquire", "-q", "-t", "T", "--guard-pid", guard, "--output", "json")
            )
            leases = [
                Lease(x["name"], x["fence"], x["ticket"], x["grant"], "", 0.0, 0.0, None, 0)
                for x in held["leases"]
            ]
            recorder.write("granted", held["handle"], leases)
            recorder.write("releasing", held["handle"], leases)
            assert output("release", "--handle", held["handle"]).split() == [leases[0].name]

    pids = [fork(take) for _ in range(6)]
    assert [ending(pid) for pid in pids] == [0] * 6
    assert grants(history) == 12
    assert violations(read_history(history), capacity=2) == []
    assert broken_invariants(cli.state_dir) == []


def test_pipes_of_killed_waiters_do_not_pile_up(cli: Cli, tmp_path: Path) -> None:
    cli.pool("T", "only")
    handle = cli.ok("acquire", "-t", "T")

    def wait() -> None:
        Participant(cli.state_dir, tmp_path / "history").hold(Request("T"))

    pipes = cli.state_dir / "waiters"
    for _ in range(150 if FULL_SIZE else 80):  # more than are kept
        pid = fork(wait)
        eventually(lambda p=pid: is_waiting(cli, p), what="it waits")  # type: ignore[misc]
        os.kill(pid, signal.SIGKILL)
        assert ending(pid) == -signal.SIGKILL
    assert len(list(pipes.iterdir())) <= 64
    cli.ok("status")
    assert list(pipes.iterdir()) == []
    cli.ok("release", "--handle", handle.strip())


def test_whoever_waits_behind_a_killed_waiter_is_next(cli: Cli, tmp_path: Path) -> None:
    history = tmp_path / "history"
    cli.pool("T", "only")
    handle = cli.ok("acquire", "-t", "T").strip()

    def wait() -> None:
        Participant(cli.state_dir, history).hold(Request("T"))

    pids = []
    for _ in range(3):
        pids.append(fork(wait))
        eventually(lambda: is_waiting(cli, pids[-1]), what="it waits")
    for pid in pids[:2]:
        os.kill(pid, signal.SIGKILL)
        assert ending(pid) == -signal.SIGKILL
    # Nobody runs a command any more but this one, which wakes the head of the queue.
    eventually(lambda: len(cli.waiting()) == 1, what="the last waiter takes note of the deaths")
    assert cli.ok("release", "--handle", handle) == "only\n"
    assert ending(pids[2]) == 0
    assert grants(history) == 1


def is_waiting(cli: Cli, pid: int) -> bool:
    processes = [str(process) for (process,) in cli.query("SELECT process FROM ticket")]
    return any(process.split(":")[2] == str(pid) for process in processes)
