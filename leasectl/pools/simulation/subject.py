"""Read what `simulate` is to run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from leasectl.engines.facts import Pool
from leasectl.errors import CorruptState, InvalidRequest, NotFound
from leasectl.leases.opening import open_service
from leasectl.leases.service import Service
from leasectl.pools.history import parse_event
from leasectl.pools.simulation.jobs import parse_arrivals, parse_holds
from leasectl.pools.simulation.policies import (
    NO_POLICY,
    Policy,
    of_settings,
    parse_policies,
)
from leasectl.pools.simulation.replay import Recorded, recorded, without_vain_jobs
from leasectl.pools.simulation.running import Simulated
from leasectl.pools.simulation.scenario import (
    Scenario,
    advised_policy,
    made_up,
    pool_of,
    replayed,
    with_capacity,
)
from leasectl.pools.simulation.search import Sought
from leasectl.state.event import EventFilter
from leasectl.text.input_file import read_text, shown_name
from leasectl.text.wording import counted, printable

# What a pool is called that isn't any.
_NO_TYPE = "pool"


class Wanted(NamedTuple):
    """What is to be simulated, as the options of ``leasectl simulate`` say it.

    Args:
        replay: None: not; empty: the events of the pool; else those of a file.
        warn: Called with a line for people, about what isn't simulated as it was.
    """

    pool_type: str | None
    replay: str | None
    capacity: int | None
    arrivals: str | None
    hold: str | None
    count: int | None  # type: ignore[assignment]  # as in Request
    policies: tuple[str, ...]
    seed: int
    backend: str | None
    warn: Callable[[str], None]

    def open(self) -> Service:
        """Open the backend of the pool."""
        return open_service(self.backend, to_show=True, warn=self.warn)


class Subject(NamedTuple):
    """What is tried, and under which policies.

    Args:
        scenario: What is tried.
        policies: Under which.
        checked: Of these, the one that the recorded grants came by, as far as anybody knows.
    """

    scenario: Scenario
    policies: tuple[Policy, ...]
    checked: Policy | None = None


def subject_of(wanted: Wanted, sought: Sought | None) -> Subject:
    """Put together what is to be tried.

    Args:
        wanted: What the options say.
        sought: What a search varies of one policy or one pool; None where nothing is varied.

    Raises:
        LeaseError: The options don't say enough, or what can't be, or name what isn't there.
    """
    chosen = parse_policies(wanted.policies)
    if sought == "capacity" and wanted.capacity is not None:
        raise InvalidRequest("use either --capacity or --find capacity")
    if sought is not None and len(chosen) > 1:
        raise InvalidRequest("--find varies one policy; give --policy at most once")
    of_pool: tuple[Policy, ...] = ()
    if wanted.replay is not None:
        scenario, pool = _replayed(wanted, sought)
    else:
        scenario, pool = _made_up(wanted, sought)
    if pool is not None:
        of_pool = (of_settings(pool.settings),)
    if sought is not None:
        return Subject(scenario, chosen or of_pool or (NO_POLICY,))
    policies = chosen or of_pool or _usual(scenario)
    is_as_recorded = scenario.recorded is not None and wanted.capacity is None
    return Subject(scenario, policies, _own(policies, of_pool) if is_as_recorded else None)


def _own(policies: tuple[Policy, ...], of_pool: tuple[Policy, ...]) -> Policy | None:
    """The pool's own policy if it is among the simulated ones, else the first one."""
    if not of_pool:
        return policies[0]
    wanted = of_pool[0]._replace(text="")
    return next((each for each in policies if each._replace(text="") == wanted), None)


def _usual(scenario: Scenario) -> tuple[Policy, ...]:
    if scenario.recorded is not None:
        return (NO_POLICY,)
    advised = advised_policy(scenario.jobs, len(scenario.pool.names))
    return (NO_POLICY,) if advised is None else (NO_POLICY, advised)


def _made_up(wanted: Wanted, sought: Sought | None) -> tuple[Scenario, Pool | None]:
    if wanted.arrivals is None:
        raise InvalidRequest(
            "which jobs? Give --arrivals, like 500, or --replay to take those of a pool's events"
        )
    if "-" in (wanted.arrivals, wanted.hold) and wanted.arrivals == wanted.hold:
        raise InvalidRequest("stdin can't be both --arrivals and --hold")
    arrivals = parse_arrivals(wanted.arrivals, partial(read_text, option="--arrivals"))
    read_holds = partial(read_text, option="--hold")
    holds = None if wanted.hold is None else parse_holds(wanted.hold, read_holds)
    pool = None if wanted.pool_type is None else _pool(wanted.open(), wanted.pool_type)
    if pool is not None and wanted.capacity is None:
        simulated = Simulated(pool.type, tuple(each.name for each in pool.resources))
        if not simulated.names:
            raise InvalidRequest(f'pool "{pool.type}" is empty: give --capacity')
    else:
        capacity = wanted.capacity
        if capacity is None and sought != "capacity":
            raise InvalidRequest("how many resources are there? Give --capacity N, or -t POOL")
        simulated = pool_of(wanted.pool_type or _NO_TYPE, capacity or wanted.count or 1)
    scenario = made_up(arrivals, holds, simulated, count=wanted.count or 1, seed=wanted.seed)
    return scenario, pool


def _replayed(wanted: Wanted, sought: Sought | None) -> tuple[Scenario, Pool | None]:
    said = (("--arrivals", wanted.arrivals), ("--hold", wanted.hold), ("--count", wanted.count))
    for option, value in said:
        if value is not None:
            raise InvalidRequest(
                f"{option} can't be combined with --replay, which takes it from the events"
            )
    if not wanted.replay and wanted.pool_type is None:
        raise InvalidRequest("--replay needs a pool (-t POOL) or a file of events")
    pool: Pool | None = None
    if wanted.replay:
        found = _recorded_in(wanted.replay, wanted.pool_type)
    else:
        assert wanted.pool_type is not None
        pool, found = _recorded_of(wanted.open(), wanted.pool_type)
    names = found.names if pool is None else tuple(each.name for each in pool.resources)
    if not names:
        raise InvalidRequest(f'pool "{found.type}" is empty: there is nothing to simulate')
    is_another = sought == "capacity" or wanted.capacity is not None
    if pool is None and not is_another and not found.tells_capacity:
        wanted.warn(f"capacity {len(names)} is taken from the events; change it with --capacity")
    capacity = wanted.capacity or len(names)
    kept = without_vain_jobs(found, capacity)
    left_out = len(found.jobs) - len(kept.jobs)
    if left_out:
        wanted.warn(
            f"left out {counted(left_out, 'job')} that asked for more than the "
            f"capacity of {capacity}, and so got no lease"
        )
    found = kept
    for line in _differences(found, () if wanted.capacity is not None else names):
        wanted.warn(line)
    scenario = replayed(found, names, seed=wanted.seed)
    if wanted.capacity is None or pool is not None or found.tells_capacity:
        scenario = scenario._replace(recorded_pool=scenario.pool)
    if wanted.capacity is not None:
        jobs = tuple(job._replace(name=None) for job in scenario.jobs)
        scenario = with_capacity(scenario._replace(jobs=jobs), wanted.capacity)
    return scenario, pool


def _differences(found: Recorded, names: Sequence[str]) -> Iterator[str]:
    """What the events tell of and isn't tried in the same way, a line each."""
    elsewhere, unnamed = found.went_elsewhere, found.asked_by_other_names(names)
    if elsewhere:
        yield (
            f"{counted(elsewhere, 'job')} waited in several pools and got a lease of another one; "
            "the simulation has them give up at the time when they left this queue"
        )
    if unnamed:
        yield (
            f"{counted(unnamed, 'job')} asked for a resource that isn't in the pool; "
            "in the simulation they take any resource"
        )
    if found.changes:
        yield (
            f"the pool was changed {counted(found.changes, 'time')} since the first "
            "job; the simulation uses the pool as it is now"
        )


def _pool(service: Service, pool_type: str) -> Pool:
    (pool,) = service.pools.pools(pool_type)
    return pool


def _recorded_of(service: Service, pool_type: str) -> tuple[Pool | None, Recorded]:
    """What a backend tells of a pool, and the pool if it has it."""
    pool: Pool | None = None
    if service.kind.has_pools:
        try:
            pool = _pool(service, pool_type)
        except NotFound:
            if not any(True for _ in service.events.read(EventFilter(type=pool_type))):
                raise
    return pool, recorded(service.events.read(EventFilter(type=pool_type)), pool_type)


def _recorded_in(filename: str, pool_type: str | None) -> Recorded:
    """What a file of events tells, JSON Lines as ``leasectl events --json`` prints them."""
    where = shown_name(filename)
    events = []
    for number, line in enumerate(read_text(filename, "--replay").splitlines(), 1):
        if not line.strip():
            continue
        try:
            events.append(parse_event(line))
        except CorruptState as error:
            raise InvalidRequest(f"{where}:{number}: {error}") from None
    types = sorted({event.type for event in events})
    if pool_type is None and len(types) > 1:
        some = ", ".join(map(printable, types[:5]))
        raise InvalidRequest(f"{where}: events of several pools; choose one with -t: {some}")
    return recorded(events, pool_type)
