"""What the pool algorithm takes back on a store that undoes nothing, and says of what is closed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.pool.closed import closed_in, why_closed
from leasectl.engines.contract import Engine, PoolWaiter
from leasectl.engines.facts import Pool, Resource
from leasectl.engines.local.waiter import LocalWaiter
from leasectl.engines.pool_admin import Sides
from leasectl.engines.rules.membership import Member, cordon
from leasectl.errors import Cancelled, StateUnwritable
from leasectl.model import Claimant, Lease, ReleasedBy, Request
from leasectl.system.clock import Clock
from tests.kit.made_up_backend import MadeUpBackend
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock


class FullDisk(NoJournal):
    """A journal that can't record a grant."""

    def __init__(self) -> None:
        self.given_up = 0

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        raise StateUnwritable("no space left")

    def gave_up(self) -> None:
        self.given_up += 1


@pytest.fixture
def store(manual_clock: ManualClock) -> MadeUpStore:
    store = MadeUpStore(manual_clock.clock)
    store.pools.create_pool("T", ["T--00"])
    return store


def backend_on(
    store: MadeUpStore, clock: ManualClock, engine: MadeUpEngine | None = None
) -> PoolBackend:
    engine = engine or MadeUpEngine(store)
    return PoolBackend(
        "contract:",
        engine,
        store.sides,
        clock=clock.clock,
    )


def held_and_waiting(store: MadeUpStore) -> tuple[int, int]:
    (pool,) = store.pools.pools("T")
    return pool.held, len(pool.queue)


def test_a_grant_that_can_not_be_recorded_is_given_back(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_on(store, manual_clock)
    with pytest.raises(StateUnwritable):
        backend.acquire(Claimant("me", "me", Request("T")), journal, Patience())
    assert held_and_waiting(store) == (0, 0)
    assert journal.given_up == 1


def test_a_grant_after_a_wait_that_can_not_be_recorded_is_given_back(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    backend = backend_on(store, manual_clock)
    backend.acquire(Claimant("holder", "holder", Request("T")), NoJournal(), Patience())
    steps = backend.turn(Claimant("me", "me", Request("T")), journal, Patience())
    wanted = next(steps)
    backend.release("holder", ["T--00"])
    with pytest.raises(StateUnwritable):
        steps.send(set(wanted.fds))
    assert held_and_waiting(store) == (0, 0)
    assert journal.given_up == 1


class WithdrawnAtOnce(MadeUpEngine):
    """A store on which a ticket can be taken away before its owner has looked."""

    def waiter(self, claimant: Claimant, *, until: float | None) -> LocalWaiter:
        waiter = super().waiter(claimant, until=until)
        put = waiter.enqueue

        def put_for_a_moment(*, again: bool = False, beside: PoolWaiter | None = None) -> None:
            put(again=again, beside=beside)
            self.withdraw(claimant.claim_key)

        waiter.enqueue = put_for_a_moment  # type: ignore[method-assign]
        return waiter


def test_a_request_that_is_withdrawn_before_its_first_look_was_cancelled(
    store: MadeUpStore, manual_clock: ManualClock
) -> None:
    journal = FullDisk()
    with pytest.raises(Cancelled, match="released while it waited"):
        backend_on(store, manual_clock, WithdrawnAtOnce(store)).acquire(
            Claimant("me", "me", Request("T")), journal, Patience()
        )
    assert journal.given_up == 1


class _Engine:
    """One that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self.told.append(("withdraw", claim_key, why))

    def free(self, claim_key: str, names: Sequence[str] | None = None, **more: Any) -> tuple[str]:
        self.told.append(("free", claim_key, *(names or ()), more["by"]))
        return ("a",)


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("guard", "its process ended"),
        ("run", "its process ended"),
        ("delay", "its server didn't answer"),
        ("command", "its server didn't answer"),
    ],
)
def test_on_a_server_tickets_go_first_and_say_why(by: ReleasedBy, why: str) -> None:
    engine = _Engine()
    backend = MadeUpBackend("x:", cast(Engine, engine), cast(Sides, None), clock=Clock())
    assert backend.release("k/1", (), by=by) == ("a",)
    assert engine.told == [("withdraw", "k/1", why), ("free", "k/1", by)]
    engine.told.clear()
    backend.release("k/1", ("a",), by=by)
    assert engine.told == [("free", "k/1", "a", by)]


OPEN = Member("n", "T")
CORDONED = OPEN._replace(cordoned=True)
LEAVING = OPEN._replace(leaves=True)
MOVING = OPEN._replace(moves_to="U")


def pool(*resources: Resource) -> Pool:
    return Pool("T", resources=resources, queue=())


def free(member: Member | None = None, held_back: float | None = None) -> Resource:
    return Resource("n", member=member, held_back_seconds=held_back)


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ((), ""),
        ((free(), free(OPEN)), ""),
        ((free(CORDONED), free(), free(CORDONED)), "2 cordoned"),
        ((free(LEAVING), free(MOVING)), "2 leaving"),
        ((free(held_back=60.2),), "1 held back for 1m1s"),
        ((free(OPEN, 60.0), free(held_back=90.0)), "2 held back for 1m"),
        # Nobody gets it when that time is over either.
        ((free(CORDONED, 5.0), free(held_back=90.0)), "1 cordoned, 1 held back for 1m30s"),
        ((free(CORDONED, 5.0),), "1 cordoned"),
        (
            (free(held_back=30.0), free(LEAVING), free(CORDONED)),
            "1 cordoned, 1 leaving, 1 held back for 30s",
        ),
    ],
)
def test_each_reason_is_told_with_how_many_it_keeps(
    resources: tuple[Resource, ...], said: str
) -> None:
    assert closed_in([pool(*resources)]) == said


def test_what_is_held_is_not_closed() -> None:
    lease = Lease("n", 1, 1, 1, "somebody", 0.0, 0.0, None, 0)
    assert closed_in([pool(free(CORDONED)._replace(lease=lease))]) == ""


def test_all_pools_count_that_were_waited_for(manual_clock: ManualClock) -> None:
    store = MadeUpStore(manual_clock.clock)
    pools, members = store.pools, store.members
    for pool_type in "ABC":
        pools.create_pool(pool_type, [f"{pool_type}--00"])
        members.update([f"{pool_type}--00"], lambda each, _: cordon(each, is_cordoned=True))
    assert why_closed(pools, ["A", "B"]) == "2 cordoned"
    assert why_closed(pools, ["A", "gone"]) == ""
