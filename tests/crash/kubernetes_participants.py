"""Those who want leases on Kubernetes, over and over, and write down what they saw.

Some ask the engine itself and renew by themselves; others are whole commands, `run` with a child
that says it is there all the time that it uses what it was given, and a keeper beside them.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Callable, NamedTuple

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.errors import LeaseError
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.kit.forking import leasectl
from tests.kit.history import Recorder
from tests.kit.recorded import NoJournal
from tests.kit.use import Use, give_back

POOL = "T"
_CLOCK = Clock()

# What `run` runs: it appends to the history that it uses what it holds, all the time that it does.
_USER = """
import os, sys, time
history, who, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
out = os.open(history, os.O_WRONLY | os.O_APPEND)
names, fences = (os.environ["LEASECTL_" + each].split(",") for each in ("NAMES", "FENCE"))
def write(kind):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    # In no order with the others: its ticket isn't told to a command.
    lines = ("%d %s %s %s %s %d %d %d %d" % (now, kind, who, name, fence, LAST + int(fences[0]),
        LAST + int(fences[0]), len(names), now) for name, fence in zip(names, fences))
    os.write(out, "".join(line + "\\n" for line in lines).encode())
LAST = 10**17
write("granted")
end = time.monotonic() + seconds
while time.monotonic() < end:
    time.sleep(0.05)
    write("renewed")
write("releasing")
"""


class Habits(NamedTuple):
    """How participants behave; all ranges are from least to most, in seconds.

    Args:
        ttl: Of what they ask for, seconds.
        most: How many resources they want at most.
        holds: For how long they use what they got.
        long_holds: The same, once in a while; longer than a ttl, so that renewals count.
        rests: What they rest in between.
        waits: How long they wait, when they don't wait for as long as it takes.
    """

    ttl: float = 5.0
    most: int = 2
    holds: tuple[float, float] = (0.05, 0.8)
    long_holds: tuple[float, float] = (6.0, 9.0)
    rests: tuple[float, float] = (0.0, 0.5)
    waits: tuple[float, float] = (1.0, 12.0)


class Place(NamedTuple):
    """Where participants are: a host with one way to the cluster.

    Args:
        name: Of the host, and of its state directory.
        folder: Where its files are.
        kubeconfig: Which cluster, by which way, and as whom.
        history: The file that everybody writes to.
        habits: How participants behave there.
    """

    name: str
    folder: Path
    kubeconfig: Path
    history: Path
    habits: Habits

    @property
    def state_dir(self) -> Path:
        """Of the commands there."""
        return self.folder / "state"

    def open(
        self,
        lost: Callable[[str, Sequence[str]], None] = lambda key, names: None,
        *,
        deadline_seconds: float = 5.0,
        attempt_seconds: float = 2.0,
    ) -> Opened:
        """What a process has of the pools."""
        choice = choose(KubernetesAddress(kubeconfig=str(self.kubeconfig)), {})
        api = Api(
            choice,
            clock=_CLOCK,
            deadline_seconds=deadline_seconds,
            attempt_seconds=attempt_seconds,
        )
        return open_kubernetes(
            api,
            choice.namespace,
            state_id=self.name,
            observed_path=str(self.folder / "observed"),
            lost=lost,
            clock=_CLOCK,
        )


class Participant:
    """One who asks the engine, over and over.

    Args:
        place: Where it is.
        name: Unique there.
        names: The pool's resources.
        seed: Of its choices.
    """

    def __init__(self, place: Place, name: str, names: Sequence[str], *, seed: int) -> None:
        self._place, self._name, self._names = place, name, names
        self._rng = random.Random(seed)
        self._recorder = Recorder(place.history)
        self._opened = place.open(self._note_expired)
        ttl = place.habits.ttl
        self._renewing = place.open(
            self._note_expired, deadline_seconds=ttl / 3, attempt_seconds=ttl / 6
        )
        self._turn = 0

    def take_turns(self, is_over: Callable[[], bool]) -> None:
        """Acquire, use and release until it is over."""
        while not is_over():
            self.take_turn()
            time.sleep(self._rng.uniform(*self._place.habits.rests))

    def take_turn(self) -> None:
        """Do so once. What the cluster can't do now is written down, and that is that."""
        rng, habits = self._rng, self._place.habits
        self._turn += 1
        claim_key = f"{self._name}.{self._turn}"
        handle = f"{self._place.name}/{claim_key}"
        request = self._choose()
        patience = Patience(wait_seconds=rng.uniform(*habits.waits) if rng.random() < 0.3 else None)
        seconds = rng.uniform(*(habits.long_holds if rng.random() < 0.1 else habits.holds))
        callers = 2 if rng.random() < 0.2 else 1
        self._recorder.note("asked", handle, request.name or "-", wanted=request.count)
        journal = NoJournal()
        backend = PoolBackend("test:", self._opened.engine, self._opened, clock=_CLOCK)
        try:
            backend.acquire(Claimant(claim_key, handle, request, this_process()), journal, patience)
        except LeaseError as error:
            self._recorder.note("gave-up", handle, type(error).__name__)
            self._recover(claim_key)
            return
        leases = journal.leases or ()
        use = Use(self._recorder, handle, leases)
        use.last(seconds, lambda: self._renewing.engine.renew(claim_key))
        self._release(claim_key, handle, leases, callers)

    def _choose(self) -> Request:
        rng, habits = self._rng, self._place.habits
        if rng.random() < 0.2:
            return Request(POOL, name=rng.choice(self._names), ttl_seconds=habits.ttl)
        return Request(POOL, count=rng.randint(1, habits.most), ttl_seconds=habits.ttl)

    def _recover(self, claim_key: str) -> None:
        """Give back what may have come of it, as whoever finds its record does."""
        try:
            self._opened.engine.withdraw(claim_key)
            self._opened.engine.free(claim_key)
        except LeaseError:
            return  # its time is over some time

    def _release(self, claim_key: str, handle: str, leases: Sequence[Lease], callers: int) -> None:
        places = [self._opened, *(self._place.open(self._note_expired) for _ in range(callers - 1))]
        frees = [partial(each.engine.free, claim_key) for each in places]
        give_back(self._recorder, handle, leases, frees, unsure=LeaseError)
        for opened in places[1:]:
            opened.objects.api.close()

    def _note_expired(self, claim_key: str, names: Sequence[str]) -> None:
        written = self._opened.context.with_state_id(claim_key)
        for name in names:
            self._recorder.note("expired", written, name)


def run_once(place: Place, who: str, *, seed: int) -> None:
    """Become a `run` whose child uses what it is given for a while; in a forked process.

    Args:
        place: Where.
        who: A name for what it gets.
        seed: Of its choices.
    """
    rng, habits = random.Random(seed), place.habits
    seconds = rng.uniform(*(habits.long_holds if rng.random() < 0.2 else habits.holds))
    os.environ["LEASECTL_KUBECONFIG"] = str(place.kubeconfig)
    asked = ["-t", POOL, "-c", str(rng.randint(1, habits.most)), "--ttl", f"{habits.ttl:g}s"]
    child = [sys.executable, "-I", "-S", "-c", _USER, str(place.history), who, f"{seconds:g}"]
    options = ["--backend", "kubernetes://", "-q", "-w", "20s", *asked]
    leasectl(place.state_dir, place.folder / who.replace("/", "-"), "run", *options, "--", *child)
