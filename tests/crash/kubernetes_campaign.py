"""Two API servers on one etcd that go wrong, and many who take and give back leases meanwhile.

``python -m tests.crash.kubernetes_campaign --minutes 10`` does it in full size. Only what they have
written down themselves is judged.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.errors import LeaseError
from leasectl.model import Claimant, Request
from leasectl.system.clock import Clock, boottime_seconds
from tests.crash.kubernetes_crew import Crew
from tests.crash.kubernetes_faults import Faults
from tests.crash.kubernetes_judge import Counts, all_violations, count, gaps_in
from tests.crash.kubernetes_participants import POOL, Habits, Place
from tests.crash.kubernetes_picture import explain, taking
from tests.kit.fork_server import load_everything
from tests.kit.forking import end_all
from tests.kit.history import Recorder, read_history
from tests.kit.invariants import broken_invariants
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.servers import own_servers
from tests.kit.recorded import NoJournal
from tests.kit.support import Cli
from tests.kit.waits import eventually

_PLACES = 4
_MOST_EXPLAINED = 8


class Size(NamedTuple):
    """How much of it there is.

    Args:
        seconds: For how long.
        participants: How many ask the engine itself.
        runs: How many commands there are at a time.
        resources: How many there are to have.
        servers: How many there are; only where there are two, something happens to them.
        lost: The share of answers that don't arrive.
        every: So long after each fault that isn't of a server comes another, in seconds.
        habits: Of the participants.
        slack: What a machine may add to two ttls without a grant for each process that waits for a
            core of it.
        grants, faults: It goes on until there were so many.
    """

    seconds: float = 600.0
    participants: int = 9
    runs: int = 2
    resources: int = 5
    servers: int = 2
    lost: float = 0.01
    every: tuple[float, float] = (0.5, 2.5)
    habits: Habits = Habits()
    slack: float = 0.0
    grants: int = 1
    faults: int = 1


class Report(NamedTuple):
    """What came of it; ``violations`` are to be none."""

    violations: list[str]
    counts: Counts
    faults: Counter[str]
    lost: Counter[str]
    answers: Counter[str]


def campaign(namespace: Namespace, folder: Path, size: Size, seed: int = 0) -> Report:
    """Have all that go on for a while, then end in peace, and judge what was written down."""
    load_everything()
    with contextlib.ExitStack() as ends:
        relays = [ends.enter_context(namespace.relay(n % size.servers)) for n in range(_PLACES)]
        token_file = folder / "token"
        token_file.write_text(namespace.account.token())
        history = folder / "history"
        places = []
        for number, relay in enumerate(relays):
            here = folder / f"host-{number}"
            here.mkdir()
            path = namespace.account.kubeconfig(
                here / "kubeconfig", server=relay.endpoint, tokenFile=str(token_file)
            )
            places.append(Place(f"host-{number}", here, path, history, size.habits))
        names = [f"{POOL}--{number}" for number in range(size.resources)]
        places[0].open().pools.create_pool(POOL, names)
        ends.callback(end_all)
        crew = Crew(
            places,
            size.servers,
            names,
            size=size.participants,
            runs=size.runs,
            token_file=token_file,
            seed=seed,
        )
        servers = namespace.servers if size.servers > 1 else None
        faults = Faults(
            crew, relays, servers, namespace.account, Recorder(history), random.Random(seed)
        )

        def is_enough() -> bool:
            grants = sum(event.kind == "granted" for event in read_history(history))
            has_faults = sum(faults.counts.values()) >= size.faults and bool(faults.lost)
            return has_faults and grants >= size.grants

        crew.start()
        picture = folder / "picture"
        with taking(namespace.administrators, namespace.leases, picture):
            faults.lose_answers(size.lost)
            faults.go_on(size.seconds, every=size.every, is_enough=is_enough)
            faults.lose_answers(0.0)
            crew.finish(killed=size.participants // 4)
        left = _left(namespace, places, names, size.habits.ttl)
        events = read_history(history)
        most, paths = size.habits.most, [path for relay in relays for path in relay.paths]
        gaps = sorted(gaps_in(events, names, most, since_death=True), reverse=True)
        (folder / "gaps").write_text("\n".join(explain(gaps[:_MOST_EXPLAINED], events, picture)))
        waiting = max(1.0, max(os.getloadavg()) / (os.cpu_count() or 1))
        asked, longest = namespace.asked(), 2 * size.habits.ttl + size.slack * waiting
        found = all_violations(events, asked, paths, names=names, most=most, longest_gap=longest)
        return Report(
            left + found,
            count(events, names=names, most=most),
            faults.counts,
            faults.lost,
            Counter(f"{each.verb} {each.code}" for each in asked),
        )


def _left(namespace: Namespace, places: list[Place], names: list[str], ttl: float) -> list[str]:
    """What is left two ttls after the last process: nothing may be."""
    auditor = places[0]._replace(name="auditor").open()
    time.sleep(_until_gone(places[0].history, ttl / 2))
    auditor.pools.pools()
    time.sleep(_until_gone(places[0].history, 2 * ttl))
    found = []
    request = Request(POOL, count=len(names), ttl_seconds=60.0)
    backend = PoolBackend("test:", auditor.engine, auditor, clock=Clock())
    try:
        patience = Patience(wait_seconds=0.0)
        backend.acquire(Claimant("all", "auditor", request), NoJournal(), patience)
        auditor.engine.free("all")
    except LeaseError as error:
        found.append(f"not all can be had again: {error}")
    for name in namespace.lease_names():
        spec = namespace.lease(name).get("spec", {})
        if name.startswith("leasectl-ticket-") or spec.get("holderIdentity"):
            found.append(f"{name} of {spec.get('holderIdentity')} is left")
    for place in places:
        if place.state_dir.exists():
            cli = Cli(place.state_dir, place.folder)
            env = {"LEASECTL_BACKEND": "kubernetes://", "LEASECTL_KUBECONFIG": place.kubeconfig}
            said = cli("status", **{name: str(value) for name, value in env.items()})
            found += [f"{place.name}: {said}"] * (said.code != 0)
            with contextlib.suppress(AssertionError):  # servers take their time
                eventually(partial(_is_sound, place))
            found += [f"{place.name}: {each}" for each in broken_invariants(place.state_dir)]
            cli.close()
    return found


def _is_sound(place: Place) -> bool:
    return not broken_invariants(place.state_dir)


def _until_gone(history: Path, seconds: float) -> float:
    """How long it takes until somebody has been gone for so long, in seconds."""
    last = max(event.at for event in read_history(history))
    return max(0.0, last / 1e9 + seconds - boottime_seconds())


def main() -> int:
    """The campaign by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="kubernetes-campaign-"))
    print(f"seed {asked.seed}, history in {folder}", flush=True)
    with contextlib.ExitStack() as ends:
        servers = ends.enter_context(own_servers(2, wired=(0, 1)))
        namespace = ends.enter_context(new_namespace(servers))
        report = campaign(namespace, folder, Size(seconds=60 * asked.minutes), asked.seed)
    for name, number in report.counts._asdict().items():
        print(f"{name}: {number}")
    for what in ("faults", "lost", "answers"):
        print(f"{what}: {dict(sorted(getattr(report, what).items()))}")
    print(f"violations: {len(report.violations)}", *report.violations, sep="\n  ")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
