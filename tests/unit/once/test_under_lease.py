"""What whoever holds the lease of a work does, where others have been quicker."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from leasectl.errors import LeaseLost, NotFound
from leasectl.once.results import Kept, Round, Terms
from leasectl.once.under_lease import UnderLease
from leasectl.once.work import work_of


def test_a_lease_was_lost_with_its_pool() -> None:
    def gone(pool_type: str) -> None:
        raise NotFound(f'no pool "{pool_type}"')

    pools = SimpleNamespace(pools=gone)
    service: Any = SimpleNamespace(pools=pools, atomic=contextlib.nullcontext)
    asked: Any = SimpleNamespace(work=work_of("k", []))
    handle: Any = SimpleNamespace(leases=(SimpleNamespace(ticket=1),))
    results: Any = None
    pool: Any = None
    ours = UnderLease(service, asked, handle, results=results, pool=pool, over=None, warn=print)
    with pytest.raises(LeaseLost, match="the lease of work k was lost"):
        ours.share_failure()


@pytest.mark.parametrize(("version", "is_lost"), [(1, True), (2, False)])
def test_who_begins_beside_a_result_that_came_late_looks_again(version: int, is_lost: bool) -> None:
    work = work_of("k", [])
    refusing = SimpleNamespace(change=lambda *changes, **options: False)
    service: Any = SimpleNamespace(
        pools=SimpleNamespace(pools=lambda pool_type: (SimpleNamespace(queue=()),)),
        atomic=contextlib.nullcontext,
        values=refusing,
        clock=SimpleNamespace(wall=lambda: 0.0),
    )
    asked: Any = SimpleNamespace(work=work, terms=Terms(1.0, 1, False, None))
    lease = SimpleNamespace(ticket=1, fence=2, name="n")
    handle: Any = SimpleNamespace(
        leases=(lease,), id="h", acquisition=1, backend="local:", holder_identity="me"
    )
    bad = Kept(work, 1, "another", 1.0, 1, version=1)
    results: Any = SimpleNamespace(
        round=lambda work: Round(), kept=lambda work: bad._replace(version=version)
    )
    pool: Any = None
    ours = UnderLease(service, asked, handle, results=results, pool=pool, over=None, warn=print)
    with pytest.raises(LeaseLost) if is_lost else contextlib.nullcontext():
        assert ours.begin(bad) is None
