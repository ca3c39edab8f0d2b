"""A controller and its replica, killed at random, while many nodes are asked for and cancelled.

``python -m tests.crash.maintenance_campaign --seconds 120`` does it in full size.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from leasectl.maintenance.objects import REQUEST, REQUEST_WORD, parse_lease, parse_node
from leasectl.system.clock import rfc3339
from tests.crash.maintenance_history import MaintenanceHistory
from tests.crash.maintenance_judge import (
    THEM,
    US,
    Eviction,
    judge_evictions,
    judge_node,
)
from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.nodes import (
    NODES,
    end_pods,
    make_budget,
    make_node,
    make_pod,
    set_allowed,
)
from tests.kit.kubernetes.servers import own_servers
from tests.kit.relay import Relay
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

_MERGE = "application/merge-patch+json"
_WISHES = ("1s", "2s", "3s", "5s", "8s", None, None, "soon")
# Longer than the lead of one that was killed goes on.
_AT_MOST_SECONDS = 60.0


class Size(NamedTuple):
    """How much of it there is.

    Args:
        nodes: How many; each fifth is cordoned by somebody else.
        seconds: For how long at least.
        at_least: So many windows are to have begun by then; else it goes on for a while.
        killed_every_seconds: One of the two controllers, at least and at most.
        lost: The share of answers that don't arrive.
        away_seconds: For how long the server can't be reached, once, in the middle of it.
    """

    nodes: int = 20
    seconds: float = 120.0
    at_least: int = 0
    killed_every_seconds: tuple[float, float] = (1.0, 8.0)
    lost: float = 0.02
    away_seconds: float = 45.0


class Report(NamedTuple):
    """What came of it."""

    violations: list[str]
    counts: dict[str, float]


def campaign(namespace: Namespace, folder: Path, size: Size, seed: int = 0) -> Report:
    """Have all that go on for a while, then end in peace, and judge what the server told of it."""
    with contextlib.ExitStack() as ends:
        relays = [ends.enter_context(namespace.relay()) for _ in range(2)]
        run = _Campaign(namespace, folder, size, relays, random.Random(seed))
        ends.callback(run.close)
        return run.run()


class _Campaign:
    def __init__(
        self,
        namespace: Namespace,
        folder: Path,
        size: Size,
        relays: list[Relay],
        chance: random.Random,
    ) -> None:
        self._namespace = namespace
        self._api = namespace.administrator
        self._size = size
        self._relays = relays
        self._chance = chance
        self._nodes = [f"{namespace.name}-{number}" for number in range(size.nodes)]
        self._by_hand = set(self._nodes[::5])
        self._clis = [Cli(folder / f"state-{n}", folder) for n in range(len(relays))]
        namespace.account.permit_everywhere(MAINTENANCE_RULES)
        for number, (cli, relay) in enumerate(zip(self._clis, relays)):
            path = folder / f"kubeconfig-{number}"
            namespace.account.kubeconfig(path, server=relay.endpoint)
            cli.env.update(LEASECTL_KUBECONFIG=str(path), LEASECTL_BACKEND="kubernetes://")
        self._running: dict[int, Started] = {}
        self._ran: dict[int, list[tuple[float, int]]] = {0: [], 1: []}  # from when, which process
        self._stop = threading.Event()
        self._counts: dict[str, float] = {"killed": 0, "wishes": 0, "taken by another": 0}

    def run(self) -> Report:
        for name in self._nodes:
            self._make(name)
        self._history = MaintenanceHistory(self._namespace)
        threading.Thread(target=self._keep_house, daemon=True).start()
        self._lose_answers(self._size.lost)
        for number in range(len(self._relays)):
            self._start(number)
        self._trouble()
        self._settle()
        self._stop.set()
        self._history.close()
        return self._judge()

    def close(self) -> None:
        self._stop.set()
        for started in self._running.values():
            started.kill()
        for name in self._nodes:
            self._api("DELETE", f"{NODES}/{name}")

    # --- what there is

    def _make(self, name: str) -> None:
        make_node(self._api, name)
        if name in self._by_hand:
            self._patch(name, {"spec": {"unschedulable": True}})
        make_budget(self._namespace, name, {"node": name}, allowed=0)
        self._make_pods(name)

    def _make_pods(self, name: str) -> None:
        for each in ("a", "b"):
            make_pod(self._namespace, f"{name}-{each}", name, labels={"node": name})

    def _keep_house(self) -> None:
        """What kubelets and controllers do: end pods, make others, allow evictions for a while."""
        chance = random.Random(1)
        while not self._stop.wait(0.3):
            end_pods(self._namespace)
            there = {each["spec"]["nodeName"] for each in self._api.items(self._namespace.pods)}
            for name in self._nodes:
                node = parse_node(self._api.ok("GET", f"{NODES}/{name}"))
                if name not in there and not node.is_unschedulable:
                    self._make_pods(name)
                if chance.random() < 0.1:
                    set_allowed(self._namespace, name, chance.choice((0, 0, 1, 2)))

    # --- what goes on

    def _trouble(self) -> None:
        end = time.monotonic() + self._size.seconds
        away_at = end - self._size.seconds / 2
        kill_at = time.monotonic() + self._pause()
        while time.monotonic() < end or self._goes_on(end):
            if self._size.away_seconds and time.monotonic() >= away_at:
                self._go_away()
                away_at = math.inf
            self._wish(self._chance.choice(self._nodes))
            if self._chance.random() < 0.1:
                self._take(self._chance.choice(self._nodes))
            if kill_at <= time.monotonic() and (
                time.monotonic() < end or not self._counts["killed"]
            ):
                self._kill(self._chance.randrange(len(self._relays)))
                kill_at = time.monotonic() + self._pause()
            time.sleep(self._chance.uniform(0.05, 0.4))

    def _goes_on(self, end: float) -> bool:
        """Whether too little has happened so far, perhaps as a leader was killed at once."""
        begun = {
            (each.name, each.said["spec"].get("acquireTime"))
            for each in self._history.so_far()
            if each.kind == "Lease" and each.said["spec"].get("holderIdentity") == US
        }
        is_little = len(begun) < self._size.at_least or not self._counts["killed"]
        return is_little and time.monotonic() < end + _AT_MOST_SECONDS

    def _go_away(self) -> None:
        """Have the controllers reach no server for a while, but everybody else."""
        for relay in self._relays:
            relay.cut()
        until = time.monotonic() + self._size.away_seconds
        while time.monotonic() < until:
            self._take(self._chance.choice(self._nodes))
            time.sleep(0.2)
        for relay in self._relays:
            relay.mend()

    def _pause(self) -> float:
        return self._chance.uniform(*self._size.killed_every_seconds)

    def _wish(self, name: str) -> None:
        wish: dict[str, str | None] = {REQUEST: self._chance.choice(_WISHES)}
        if self._chance.random() < 0.7:
            # As leasectl does; another tool leaves the word of the last request.
            wish[REQUEST_WORD] = None if wish[REQUEST] is None else self._chance.choice("abcdef")
        self._patch(name, {"metadata": {"annotations": wish}})
        self._counts["wishes"] += 1

    def _take(self, name: str) -> None:
        """Have another take a node's lease, if it is free, as a good neighbour does."""
        path = f"{self._namespace.leases}/{name}"
        found = self._api("GET", path)
        if found.status_code == 404:
            return
        said: Object = found.json()
        lease = parse_lease(said)
        wall = time.time()
        if lease.duration_seconds and lease.holder == US and wall <= (lease.ends_at or 0) + 2:
            return
        now = rfc3339(wall)
        spec = {"holderIdentity": THEM, "leaseDurationSeconds": 3, "acquireTime": now}
        spec.update(renewTime=now, leaseTransitions=lease.transitions + 1)
        taken = self._api("PUT", path, {**said, "spec": spec})
        self._counts["taken by another"] += taken.status_code == 200

    def _kill(self, number: int) -> None:
        """End one of them, this way or that, or have it stand still; another takes its place."""
        started = self._running.pop(number)
        way = self._chance.random()
        if way < 0.6:
            started.kill()
        elif way < 0.8:
            started.signal(signal.SIGTERM)
            started.finish()
        else:
            started.signal(signal.SIGSTOP)
            time.sleep(self._chance.uniform(0.5, 3.0))
            started.signal(signal.SIGCONT)
            self._running[number] = started
            return
        self._counts["killed"] += 1
        self._start(number)

    def _start(self, number: int) -> None:
        cli = self._clis[number]
        settings = ("--lease-namespace", self._namespace.name, "--quiet")
        started = cli.start("maintenance", "reconcile", *settings)
        self._running[number] = started
        self._ran[number].append((time.time(), started.pid))

    def _lose_answers(self, share: float) -> None:
        for number, relay in enumerate(self._relays):
            chance = random.Random(number)
            lost: set[int] = set()

            def loses(
                request: int, path: str, chance: random.Random = chance, lost: set[int] = lost
            ) -> bool:
                if "watch=1" in path or request in lost:
                    return request in lost
                if chance.random() < share:
                    lost.add(request)
                return request in lost

            relay.listen(after=loses if share else None)

    def _settle(self) -> None:
        """Let nothing be lost any more and everything be cancelled, and wait until it has ended."""
        self._lose_answers(0.0)
        for name in self._nodes:
            self._patch(name, {"metadata": {"annotations": {REQUEST: None}}})
        began = time.monotonic()
        eventually(self._is_settled, what="all of it ends")
        self._counts["seconds to settle"] = round(time.monotonic() - began, 1)

    def _is_settled(self) -> bool:
        time.sleep(0.2)
        leases = {
            each["metadata"]["name"]: each for each in self._api.items(self._namespace.leases)
        }
        for name in self._nodes:
            node = parse_node(self._api.ok("GET", f"{NODES}/{name}"))
            lease = parse_lease(leases[name]) if name in leases else None
            if node.marked_by or node.status not in ("", "ended"):
                return False
            if node.is_unschedulable is not (name in self._by_hand) and not self._is_theirs(name):
                return False
            if lease is not None and lease.holder == US and lease.duration_seconds:
                return False
        return True

    def _is_theirs(self, name: str) -> bool:
        by_hand = name in self._by_hand
        return judge_node(name, self._history.so_far(), by_hand=by_hand).is_theirs

    def _patch(self, name: str, patch: Object) -> None:
        self._api.ok("PATCH", f"{NODES}/{name}", patch, content_type=_MERGE)

    # --- what came of it

    def _judge(self) -> Report:
        nodes = [self._api.ok("GET", f"{NODES}/{name}") for name in self._nodes]
        history = self._history.upto(nodes)
        violations: list[str] = []
        counts = dict(self._counts, windows=0, cordons=0, late=0.0, theirs=0)
        for name in self._nodes:
            seen = judge_node(name, history, by_hand=name in self._by_hand)
            violations += seen.violations
            counts["windows"] += seen.windows
            counts["cordons"] += seen.cordons
            counts["theirs"] += seen.is_theirs
            counts["late"] = max(counts["late"], round(seen.late_seconds, 1))
        evictions = list(self._evictions())
        violations += judge_evictions(evictions, history)
        counts["evictions asked for"] = len(evictions)
        counts["changes seen"] = len(history)
        return Report(violations, counts)

    def _evictions(self) -> Iterator[Eviction]:
        offset = time.time() - time.monotonic()
        for number, relay in enumerate(self._relays):
            for path, at in zip(list(relay.paths), list(relay.times)):
                if path.endswith("/eviction"):
                    wall = at + offset
                    process = [pid for since, pid in self._ran[number] if since <= wall][-1]
                    yield Eviction(wall, process, path)


def main() -> None:
    """The campaign by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=Size().seconds)
    parser.add_argument("--nodes", type=int, default=Size().nodes)
    parser.add_argument("--away", type=float, default=Size().away_seconds)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    size = Size(nodes=asked.nodes, seconds=asked.seconds, away_seconds=asked.away)
    with contextlib.ExitStack() as ends:
        namespace = ends.enter_context(new_namespace(ends.enter_context(own_servers(1))))
        folder = Path(ends.enter_context(tempfile.TemporaryDirectory()))
        report = campaign(namespace, folder, size, asked.seed)
    print(f"seed {asked.seed}", *report.violations, report.counts, sep="\n")


if __name__ == "__main__":
    main()
