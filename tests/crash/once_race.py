"""Many runs that want the same works done, with runners killed at random, in several ways.

As a program it prints one table of all ways::

    python -m tests.crash.once_race --keys 200 --runs 10 [--etcd 127.0.0.1:2379] [--kubernetes]

A run asks for one key after the other; if it is killed at one it asks again. Each work's command
holds a lock of the kernel's as long as it lives, so that two at once are found out, and prints a
word that no other prints, so that two results are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from leasectl.once.results import MOST_DEATHS
from tests.kit.kubernetes.namespaces import new_namespace
from tests.kit.kubernetes.servers import own_servers
from tests.kit.support import Cli, Started

Way = Literal["once", "nothing", "markers", "do and done"]
WAYS: tuple[Way, ...] = get_args(Way)
# How long those who have a limit of time wait for a marker that never comes.
MARKER_LIMIT_SECONDS = 5.0

WORK = """
import fcntl, os, sys, time
key, run, folder, seconds = sys.argv[1:]
log = os.open(folder + "/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def say(what):
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    os.write(log, f"{now} {what} {key} {run} {os.getpid()}\\n".encode())
lock = os.open(f"{folder}/{key}.alone", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    say("beside")
say("begins")
while not os.path.exists(folder + "/harmed"):
    time.sleep(0.01)
time.sleep(float(seconds))
say("ends")
print(os.urandom(8).hex())
"""
# Who makes the lock marker does the work; the others wait for the done marker, for a time.
MARKERS = """
key=$1 folder=$2 limit=$3; shift 3
if mkdir "$folder/$key.lock" 2>/dev/null; then
  "$@" >"$folder/$key.result" && : >"$folder/$key.done"
fi
tries=0
until [ -e "$folder/$key.done" ]; do
  tries=$((tries + 1)); [ "$tries" -le "$limit" ] || exit 75
  sleep 0.05
done
cat "$folder/$key.result"
"""
# As `buildkite-agent lock do` and `lock done`: who reads "do" does it and says so afterwards, all
# others wait; it stays "doing" for ever if the doer dies.
DO_AND_DONE = """
key=$1 folder=$2 limit=$3; shift 3
tries=0
while :; do
  state=$(flock "$folder/states" sh -c '
    [ -e "$1" ] || { echo doing >"$1"; echo do; exit; }; cat "$1"' - "$folder/$key.state")
  case $state in
    do)
      "$@" >"$folder/$key.result" &&
        flock "$folder/states" sh -c 'echo done >"$1"' - "$folder/$key.state"
      ;;
    done) cat "$folder/$key.result"; exit ;;
  esac
  tries=$((tries + 1)); [ "$tries" -le "$limit" ] || exit 75
  sleep 0.05
done
"""


class Asked(NamedTuple):
    """One time that a run asked for a key.

    Args:
        id: Of this time.
        key: Which.
        began, ended: CLOCK_BOOTTIME.
        killed_at: When it was killed; None if it wasn't.
        code: How it ended.
        out: What it printed.
        err: Likewise, to stderr.
    """

    id: str
    key: str
    began: float
    ended: float
    killed_at: float | None
    code: int
    out: str
    err: str


class Said(NamedTuple):
    """A line of a work's command."""

    at: float
    what: str
    key: str
    asked: str
    pid: int


@dataclass
class Found:
    """What came of all runs.

    Args:
        asked: Each time that a run asked.
        said: What the commands said, in order.
    """

    asked: list[Asked] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)

    def keys(self) -> dict[str, list[Asked]]:
        found = defaultdict(list)
        for each in self.asked:
            found[each.key].append(each)
        return found

    def results(self) -> int:
        """How many results there were."""
        return len({(each.key, each.out) for each in self.asked if each.out})

    def unequal(self) -> list[str]:
        """Keys of which not all got the same, but for those that were given up."""
        given_up = self.given_up()
        return [
            key for key, got in self._answers().items() if len(got) != 1 and key not in given_up
        ]

    def without(self) -> list[Asked]:
        """Who wasn't killed, and got nothing."""
        refused = self._refused_rightly()
        without = [each for each in self.asked if each.killed_at is None and not each.out]
        return [each for each in without if each.id not in refused]

    def given_up(self) -> set[str]:
        """Keys of which nobody got anything, as so many had died that a work is given up."""
        refused = self._refused_rightly()
        keys = {each.key for each in self.asked if each.id in refused}
        answers = self._answers()
        return {key for key in keys if not answers[key]}

    def _answers(self) -> dict[str, set[str]]:
        """What those got, by key, who weren't killed, nor refused rightly."""
        refused = self._refused_rightly()
        return {
            key: {each.out for each in asked if each.killed_at is None and each.id not in refused}
            for key, asked in self.keys().items()
        }

    def _refused_rightly(self) -> set[str]:
        """Who was told of deaths, of a key of which so many runners were killed at the command."""
        killed = {each.id for each in self.asked if each.killed_at is not None}
        deaths = Counter(
            each.key for each in self.said if each.what == "begins" and each.asked in killed
        )
        return {
            each.id
            for each in self.asked
            if deaths[each.key] >= MOST_DEATHS
            and each.code == 1
            and "callers in a row died while they ran it" in each.err
        }

    def beside(self) -> int:
        """How often a command ran beside another of its work."""
        return sum(each.what == "beside" for each in self.said)

    def ran(self) -> int:
        """How many commands ran."""
        return sum(each.what == "begins" for each in self.said)

    def ran_in_vain(self) -> list[Said]:
        """Commands that ran although an earlier one's runner hadn't been killed."""
        killed = {each.id for each in self.asked if each.killed_at is not None}
        found, done = [], set()
        for each in self.said:
            if each.what == "begins":
                if each.key in done:
                    found.append(each)
                if each.asked not in killed:
                    done.add(each.key)
        return found

    def takeovers(self) -> list[float]:
        """How long those who waited did so after a runner was killed at its command, in seconds.

        Until the next command begins; its runner had been waiting by then for it.
        """
        killed = {each.id: each.killed_at for each in self.asked if each.killed_at is not None}
        began = {each.id: each.began for each in self.asked}
        last: dict[str, Said] = {}
        found = []
        for each in self.said:
            if each.what != "begins":
                continue
            before = last.get(each.key)
            at = killed.get(before.asked) if before is not None else None
            if at is not None and began[each.asked] < at - 0.05:
                found.append(each.at - at)
            last[each.key] = each
        return found

    def deaths(self) -> int:
        """How many runners were killed at their command."""
        killed = {each.id for each in self.asked if each.killed_at is not None}
        return sum(each.what == "begins" and each.asked in killed for each in self.said)

    def longest_wait(self) -> float:
        """How long the longest took who wasn't killed."""
        return max(each.ended - each.began for each in self.asked if each.killed_at is None)


class Race:
    """Runs that ask for the same keys at once.

    Args:
        cli: What they run; of several state directories, if there are several.
        folder: Where they write what happens.
        way: How they get along.
        keys: How many keys.
        seed: What chance begins with.
        kills: How likely each is to be killed that runs a command; any other a fifth of that.
        work_seconds: How long a command takes.
        options: Further ones for `once`.
    """

    def __init__(
        self,
        clis: Sequence[Cli],
        folder: Path,
        way: Way,
        *,
        keys: int,
        seed: int,
        kills: float = 0.2,
        work_seconds: float = 0.15,
        options: Sequence[str] = (),
    ) -> None:
        self._clis = clis
        self._folder = folder
        self._way: Way = way
        self._keys = [f"key-{number}" for number in range(keys)]
        self._kills = kills
        self._work_seconds = work_seconds
        self._options = options
        self._chance = random.Random(seed)
        self._starting = threading.Lock()
        self._found = Found()
        self._numbers = iter(range(10**9))
        self._started: dict[str, Started] = {}
        self._killed: dict[str, float] = {}
        self._is_over = threading.Event()
        self._harmed = folder / "harmed"

    def go(self, runs: int) -> Found:
        """Let so many go at once; returns what came of it.

        The first command goes on until its runner has been killed.
        """
        if not self._kills:
            self._harmed.touch()
        threads = [threading.Thread(target=self._run, args=(n,)) for n in range(runs)]
        killer = threading.Thread(target=self._kill_runners)
        for each in (killer, *threads):
            each.start()
        for each in threads:
            each.join()
        self._is_over.set()
        killer.join()
        time.sleep(0.2)
        self._found.said = sorted(self._lines())
        return self._found

    def _run(self, number: int) -> None:
        cli = self._clis[number % len(self._clis)]
        for key in self._keys:
            while self._ask(cli, key).killed_at is not None:
                pass

    def _ask(self, cli: Cli, key: str) -> Asked:
        with self._starting:
            asked_id = f"{next(self._numbers)}"
            is_killed = self._chance.random() < self._kills / 5
            kill_after = self._chance.uniform(0, 0.4)
            began = now()
            self._started[asked_id] = started = self._start(cli, key, asked_id)
        if is_killed:
            time.sleep(kill_after)
            self._kill(asked_id)
        finished = started.finish()
        was_killed = finished.code == -signal.SIGKILL
        asked = Asked(
            asked_id,
            key,
            began,
            now(),
            self._killed.get(asked_id) if was_killed else None,
            finished.code,
            "" if was_killed else finished.out,
            finished.err,
        )
        self._found.asked.append(asked)
        return asked

    def _kill_runners(self) -> None:
        """Kill some whose commands run."""
        seen, path = 0, self._folder / "log"
        while not self._is_over.wait(0.01):
            lines = path.read_text().splitlines() if path.exists() else []
            for line in lines[seen:]:
                _, what, _, asked_id, _ = line.split()
                is_first = not self._harmed.exists()
                if what == "begins" and (is_first or self._chance.random() < self._kills):
                    time.sleep(self._chance.uniform(0, self._work_seconds * 0.7))
                    self._kill(asked_id)
                    self._harmed.touch()
            seen = len(lines)

    def _kill(self, asked_id: str) -> None:
        with self._starting:  # its command may be faster than who started it
            process = self._started[asked_id].process
        whole_group = self._chance.random() < 0.5
        if process.returncode is None:
            self._killed[asked_id] = now()
            with suppress(ProcessLookupError):
                (os.killpg if whole_group else os.kill)(process.pid, signal.SIGKILL)

    def _start(self, cli: Cli, key: str, asked_id: str) -> Started:
        work = [sys.executable, "-SE", "-c", WORK, key, asked_id]
        work += [str(self._folder), str(self._work_seconds)]
        if self._way == "once":
            return cli.start("once", "-q", *self._options, key, "--", *work)
        if self._way == "nothing":
            return cli.spawn(work)
        script = MARKERS if self._way == "markers" else DO_AND_DONE
        limit = str(int(MARKER_LIMIT_SECONDS / 0.05))
        return cli.spawn(["sh", "-c", script, "-", key, str(self._folder), limit, *work])

    def _lines(self) -> Iterator[Said]:
        for line in (self._folder / "log").read_text().splitlines():
            at, what, key, asked, pid = line.split()
            yield Said(float(at), what, key, asked, int(pid))


def now() -> float:
    """CLOCK_BOOTTIME, in seconds."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


HEADINGS = (
    *("way", "keys", "asked", "killed", "commands", "results", "beside another", "again in vain"),
    *("got nothing", "longest wait", "longest takeover"),
)


def row_of(way: str, found: Found, keys: int) -> list[str]:
    """What came of one way, for the table."""
    return [
        way,
        str(keys),
        str(len(found.asked)),
        str(sum(each.killed_at is not None for each in found.asked)),
        str(found.ran()),
        str(found.results()),
        str(found.beside()),
        str(len(found.ran_in_vain())),
        str(len(found.without())),
        f"{found.longest_wait():.2f}s",
        f"{max(found.takeovers(), default=0.0):.2f}s of {len(found.takeovers())}",
    ]


def main() -> None:
    """Race in all ways, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--way", choices=WAYS, action="append")
    parser.add_argument("--etcd", help="host:port; once runs on it as well, from 3 directories")
    parser.add_argument("--kubernetes", action="store_true", help="likewise, on one of our own")
    parser.add_argument("--ttl", type=int, default=5)
    given = parser.parse_args()
    print("| " + " | ".join(HEADINGS) + " |", flush=True)

    def race(name: str, way: Way, env: dict[str, str], options: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            count = 3 if env else 1
            clis = []
            for number in range(count):
                (Path(folder) / str(number)).mkdir()
                clis.append(Cli(Path(folder) / str(number) / "state", Path(folder)))
                clis[-1].env.update(env)
            try:
                found = Race(
                    clis, Path(folder), way, keys=given.keys, seed=given.seed, options=options
                ).go(given.runs)
            finally:
                for cli in clis:
                    cli.close()
        print("| " + " | ".join(row_of(name, found, given.keys)) + " |", flush=True)
        if way == "once":
            print("  not the same for all:", found.unequal(), flush=True)

    for way in WAYS if given.way is None else given.way:
        race(way, way, {}, ())
    if given.etcd:
        url = f"etcd://{given.etcd}/race-{os.getpid()}"
        race("once, etcd", "once", {"LEASECTL_BACKEND": url}, ("--ttl", f"{given.ttl}s"))
    if given.kubernetes:
        with contextlib.ExitStack() as ends:
            folder = ends.enter_context(tempfile.TemporaryDirectory())
            namespace = ends.enter_context(new_namespace(ends.enter_context(own_servers(1))))
            kubeconfig = namespace.account.kubeconfig(Path(folder) / "kubeconfig")
            env = {"LEASECTL_BACKEND": "kubernetes://", "LEASECTL_KUBECONFIG": str(kubeconfig)}
            race("once, Kubernetes", "once", env, ("--ttl", f"{given.ttl}s"))
            print("  left:", len(namespace.lease_names()), "Leases", flush=True)


if __name__ == "__main__":
    main()
