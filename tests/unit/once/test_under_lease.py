"""What whoever holds the lease of a work does, where others have been quicker."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import pytest

from leasectl.errors import LeaseLost, NotFound
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
