"""A claim as it is at one revision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.engines.etcd.gateway.requests import Found, Json, KeyValue, read, read_all
from leasectl.engines.etcd.keys import ClaimId, Keys


class ClaimView(NamedTuple):
    """A claim as it stands in etcd at one revision.

    Args:
        held: The claim, if it is written down.
        is_alive: Whether it is still good.
        renewed: The date of its last renewal.
        gone: What has been written down since it has gone, if that was too early.
    """

    held: KeyValue | None
    is_alive: bool
    renewed: KeyValue | None
    gone: Found


def claim_reads(keys: Keys, claim_id: ClaimId) -> tuple[Json, ...]:
    """What a request has to read of a claim; `parse_claim_view` takes the answers."""
    return (
        read(keys.held(*claim_id)),
        read(keys.alive(*claim_id)),
        read(keys.renewed(*claim_id)),
        read_all(keys.gone(*claim_id)),
    )


def parse_claim_view(answers: Sequence[Found]) -> ClaimView:
    """What came of `claim_reads`."""
    held, alive, renewed, gone = answers
    return ClaimView(held.first, alive.first is not None, renewed.first, gone)
