"""The work: its key, its inputs, and work that asks for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from leasectl.engines.pool_admin import PoolAdmin
from leasectl.errors import InvalidRequest, LeaseError, NotFound
from leasectl.leases.service import handles_around
from leasectl.text.naming import reserved_type


class Work(NamedTuple):
    """A piece of work, of which there is to be one result.

    Args:
        key: What people call it.
        digest: Of the key and its inputs, in hexadecimal.
    """

    key: str
    digest: str

    @property
    def pool_type(self) -> str:
        """Of the pool that is made for it, and the name of its one resource."""
        return reserved_type(self.digest)


def work_of(key: str, inputs: Iterable[bytes]) -> Work:
    """The work of a key with these inputs, in their order.

    Each has its length before it, so that no two lists of inputs are the same bytes.
    """
    sha256 = hashlib.sha256()
    for each in (key.encode(), *inputs):
        sha256.update(len(each).to_bytes(8, "big"))
        sha256.update(each)
    return Work(key, sha256.hexdigest())


class TooLarge(LeaseError):
    """A result is larger than what can be kept."""

    exit_code = 65


def refuse_waiting_for_itself(pools: PoolAdmin, work: Work, environ: Mapping[str, str]) -> None:
    """Refuse a work that is under way by a command that waits for us.

    Args:
        pools: Where works are under way.
        work: Which is asked for.
        environ: Of whoever asks.

    Raises:
        InvalidRequest: Whoever asks would wait for itself.
    """
    around = handles_around(environ)
    if not around:
        return
    try:
        (pool,) = pools.pools(work.pool_type)
    except NotFound:
        return
    holders = {(each.claim_key or "").partition("/")[0] for each in pool.resources}
    if not holders.isdisjoint(around):
        raise InvalidRequest(
            f"work {work.key} is asked for by the command that does it, or by one that this waits "
            "for; it would wait for itself: give one of them another KEY or --input, or ask for it "
            "outside"
        )
