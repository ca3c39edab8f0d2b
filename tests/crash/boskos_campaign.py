"""Many who lease from a Boskos that goes wrong, while runs are killed and it is restarted.

Some want two at a time, or one by its name. Once it is silent for longer than the reaper waits, and
with `--forgets` one of its restarts is as of one that has all in memory.

usage: python -m tests.crash.boskos_campaign [--seconds 60] [--processes 40] [--pool 4] [--seed 1]
    [--forgets] [--serve]

With --serve they all lease by way of one `serve`, which is killed as well, and started again. A
client of that can't be told of a loss, so there is no silence then.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.crash.boskos_judge import Use, changed_ids, out_of_order, overlaps, read_uses
from tests.kit.boskos.history import BoskosHistory
from tests.kit.boskos.process import Boskos
from tests.kit.serving import Serving
from tests.kit.support import Cli, Started
from tests.kit.waits import PATIENCE_SECONDS

_USER = Path(__file__).with_name("boskos_user.py")
EXPIRE_SECONDS = 5.0
QUEUE_SECONDS = 5.0
# That long after the last use nothing may be leased.
FREE_WITHIN_SECONDS = 6.0
_FAULTS = (
    "reset-before|reset-after|500|503|half|close-keepalive rate=0.035",
    "delay|delay-after|late rate=0.015 seconds=1.5",
)
_HOSTS = 8
_SILENT_SECONDS = 14.0
# From when it has forgotten all until the last has heard of that: a renewal, tried again once, and
# a command that ends.
_UNTIL_HEARD_SECONDS = 4.0
# What a machine that has other things to do may take in addition.
_LONGEST_SECONDS = 120.0
# Between two kills of `serve`: with one, the places of all who wait there are lost, and stay.
_QUIET_SECONDS = QUEUE_SECONDS + 1.0


class Outcome(NamedTuple):
    """What came of a campaign.

    Args:
        problems: What can't be true, a line each.
        figures: What happened how often, and how long what took.
    """

    problems: list[str]
    figures: dict[str, float]


class _Served:
    """A `serve` at one address, which is killed and started again."""

    def __init__(self, folder: Path, backend: str) -> None:
        (folder / "served").mkdir()
        self.kills = 0
        self._backend = backend
        self._cli = Cli(folder / "served" / "state", folder / "served")
        self._serving = Serving(self._cli, "--backend", backend)
        self.url = self._serving.url

    def restart(self) -> None:
        self._serving.kill()
        self.kills += 1
        address = self.url.rpartition("//")[2]
        self._serving = Serving(self._cli, "--backend", self._backend, "--listen", address)

    def close(self) -> None:
        self._cli.close()


class Campaign:
    """One of them.

    Args:
        folder: Where all is written.
        processes: How many want a lease at a time.
        pool: How many resources there are.
        seed: What chance is drawn from.
        forgets: Once it is restarted without knowing who has what.
        serve: They lease by way of a `serve`.
        free_within: How long after the last use something may be leased, in seconds.
    """

    def __init__(
        self,
        folder: Path,
        *,
        processes: int,
        pool: int,
        seed: int = 1,
        forgets: bool = False,
        serve: bool = False,
        free_within: float = FREE_WITHIN_SECONDS,
    ) -> None:
        self._uses = folder / "uses"
        self._free_within = free_within
        self._processes, self._pool, self._forgets = processes, pool, forgets
        self._forgotten_at: list[int] = []
        self._chance = random.Random(seed)
        self._server = Boskos(
            folder / "boskos",
            [f"T={pool}"],
            rules=_FAULTS,
            options=[
                f"--seed={seed}",
                f"--expire={EXPIRE_SECONDS}",
                "--reaper-interval=0.5",
                "--target-state=free",
                f"--request-ttl={QUEUE_SECONDS}",
                "--request-clearing=0.1",
            ],
        )
        self._backend = (
            f"{self._server.backend}?expire={EXPIRE_SECONDS:g}s&queue-ttl={QUEUE_SECONDS:g}s"
        )
        self._serving = _Served(folder, self._backend) if serve else None
        self._hosts: list[Cli] = []
        for number in range(min(_HOSTS, processes)):
            (folder / f"host-{number}").mkdir()
            self._hosts.append(Cli(folder / f"host-{number}" / "state", folder / f"host-{number}"))
        self._running: dict[int, Started] = {}
        self._is_over = threading.Event()
        self._codes: list[int] = []
        self._kills = 0
        self._said: list[str] = []

    def run(self, seconds: float, *, uses: int = 0) -> Outcome:
        """Do it for so long, and until there were so many uses, and judge it."""
        threads = [
            threading.Thread(target=self._lease, args=(number,))
            for number in range(self._processes)
        ]
        try:
            for each in threads:
                each.start()
            self._do_harm(time.monotonic() + seconds, uses)
            self._is_over.set()
            for each in threads:
                while each.is_alive():
                    self._end_all()
                    each.join(0.2)
            self._wait_until_free()
            return self._judge()
        finally:
            self._is_over.set()
            for host in self._hosts:
                host.close()
            if self._serving:
                self._serving.close()
            self._server.close()

    def _lease(self, number: int) -> None:
        host = self._hosts[number % len(self._hosts)]
        chance = random.Random(f"{number} {self._chance.random()}")
        while not self._is_over.is_set():
            # Now and then it is used for longer than the reaper leaves alone what isn't renewed.
            seconds = 7.0 if chance.random() < 0.1 else chance.uniform(0.1, 1.5)
            user = [sys.executable, "-SE", str(_USER), str(self._uses), f"{seconds:.2f}"]
            wanted = self._wanted(chance)
            backend = self._serving.url if self._serving else self._backend
            run = host.start("run", "-q", "--backend", backend, "T", *wanted, "--", *user)
            self._running[number] = run
            finished = run.finish()
            self._codes.append(finished.code)
            self._said += finished.err.splitlines()

    def _wanted(self, chance: random.Random) -> list[str]:
        if chance.random() < 0.1:
            return ["--count", "2"]
        if chance.random() < 0.1 and self._serving is None:
            return ["--name", f"T--{chance.randrange(self._pool):02d}"]
        return []

    def _do_harm(self, until: float, uses: int) -> None:
        """KILL some run now and then, `serve` less often, and seldom the server."""
        next_restart = time.monotonic() + 10.0
        next_kill = time.monotonic() + 2.0
        silent_at = (time.monotonic() + until) / 2 if self._serving is None else until
        at_last = until + _LONGEST_SECONDS
        while time.monotonic() < until or self._is_quiet(uses):
            assert time.monotonic() < at_last, f"not {uses} uses in time"
            if silent_at <= time.monotonic() < until - 2 * _SILENT_SECONDS:
                silent_at = until
                self._server.pause()
                self._is_over.wait(_SILENT_SECONDS)
                self._server.go_on()
            self._is_over.wait(self._chance.uniform(0.1, 0.9))
            with contextlib.suppress(ProcessLookupError, IndexError):
                self._chance.choice(list(self._running.values())).process.kill()
                self._kills += 1
            if self._serving and time.monotonic() >= next_kill:
                self._serving.restart()
                next_kill = time.monotonic() + _QUIET_SECONDS
            if time.monotonic() >= next_restart:
                next_restart += 10.0
                self._restart()

    def _is_quiet(self, uses: int) -> bool:
        """Whether there were too few uses so far, or no kill."""
        is_unharmed = not self._kills or (self._serving is not None and not self._serving.kills)
        return is_unharmed or len(read_uses(self._uses)) < uses

    def _restart(self) -> None:
        seed = self._chance.randrange(1 << 30)  # or each time the same requests would go wrong
        if not self._forgets or self._forgotten_at:
            self._server.restart(seed=seed)
            return
        self._forgotten_at.append(time.clock_gettime_ns(time.CLOCK_BOOTTIME))
        self._server.restart(remembers="nothing", seed=seed)

    def _end_all(self) -> None:
        for run in list(self._running.values()):
            with contextlib.suppress(ProcessLookupError):
                run.signal(15)

    def _wait_until_free(self) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._server.owners and time.monotonic() < deadline:
            time.sleep(0.05)

    def _judge(self) -> Outcome:
        history, uses = self._server.history(), read_uses(self._uses)
        owners = [each.owner for each in history.tenures]
        free_after = _free_after(history, uses)
        problems = [
            *history.problems(),
            *overlaps(uses, forgotten_at=self._forgotten_at, within=_UNTIL_HEARD_SECONDS),
            *out_of_order(history, ttl_seconds=QUEUE_SECONDS),
            *changed_ids(history),
        ]
        problems += [f"{name} is leased to {who}" for name, who in self._server.owners.items()]
        # By way of a server that was away, who gives back may have to try again.
        if free_after > self._free_within and self._serving is None:
            problems.append(f"something was leased {free_after:.1f} s after the last use")
        ends = [each.end for each in history.tenures]
        figures = {
            "runs": len(self._codes),
            "uses": len(uses),
            "longest use": max(((use.until - use.since) / 1e9 for use in uses), default=0.0),
            "kills": self._kills,
            "kills of serve": self._serving.kills if self._serving else 0,
            "restarts": len(history.of("start")) - 1,
            "requests": len(history.of("request")),
            "faults": sum(each["fault"] is not None for each in history.of("request")),
            "grants": len(owners),
            "released": ends.count("release"),
            "reaped": ends.count("reap"),
            "told of lost grants": sum("an answer was lost: " in line for line in self._said),
            "told of lost leases": sum(code == 79 for code in self._codes),
            "free after": free_after,
        }
        return Outcome(problems, figures)


def _free_after(history: BoskosHistory, uses: Sequence[Use]) -> float:
    """How many seconds after the last use something was leased."""
    freed = max((each.until or each.since for each in history.tenures), default=0)
    return (freed - max((use.until for use in uses), default=freed)) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=40)
    parser.add_argument("--pool", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--forgets", action="store_true")
    parser.add_argument("--serve", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        campaign = Campaign(
            Path(folder),
            processes=given.processes,
            pool=given.pool,
            seed=given.seed,
            forgets=given.forgets,
            serve=given.serve,
        )
        outcome = campaign.run(given.seconds)
    for name, figure in outcome.figures.items():
        print(f"{name:20} {figure:g}")
    print("\n".join(outcome.problems))
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
