"""What was written of marks at the claims of a namespace, and what of it may not be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leasectl.engines.cluster.objects import Claim, ResourceObject
from leasectl.engines.kubernetes.encoding import parse_object
from leasectl.leases.marks import Mark, parse_mark
from leasectl.reclaim.plan import LeaseId
from tests.kit.kubernetes.memberships import Write

# What one mark may become: see `leasectl.leases.marks`.
_STEPS = {("marked", "ready"), ("marked", "keep"), ("ready", "keep")}


class Handshakes:
    """What was noted at the claims of resources, and what became of those.

    Args:
        claims: As each write has left the claim of a resource, in their order; None for no claim.

    Attributes:
        violations: What was never to be so.
        ends: Of each lease that has ended what its mark said then; empty where there was none.
    """

    def __init__(self, claims: Iterable[tuple[str, Claim | None]]) -> None:
        self.violations: list[str] = []
        self.ends: dict[LeaseId, str] = {}
        there: dict[str, Claim | None] = {}
        for name, claim in claims:
            self._take(name, there.get(name), claim)
            there[name] = claim

    def _take(self, name: str, before: Claim | None, after: Claim | None) -> None:
        is_same = before is not None and after is not None and before.fence == after.fence
        mark = _mark_of(after)
        if before is not None and not is_same:
            was = _mark_of(before)
            self._must((name, before.fence) not in self.ends, f"{name} has ended twice")
            self.ends[name, before.fence] = "" if was is None else was.state
        was = _mark_of(before) if is_same else None
        if mark is None or mark == was:
            return
        if was is None:
            self._must(mark.state == "marked", f"{name} was {mark.state} before it was marked")
        else:
            is_step = was.id == mark.id and (was.state, mark.state) in _STEPS
            self._must(is_step, f"{name} was {was}, and then {mark}")

    def _must(self, holds: bool, what: str) -> None:
        if not holds:
            self.violations.append(what)


def _mark_of(claim: Claim | None) -> Mark | None:
    return None if claim is None or claim.note is None else parse_mark(claim.note)


def claims_in(writes: Iterable[Write]) -> Iterator[tuple[str, Claim | None]]:
    """What these writes say of claims."""
    names: dict[str, str] = {}  # by those of the objects
    for name, raw in writes:
        found = None if raw is None else parse_object(raw)
        if isinstance(found, ResourceObject):
            names[name] = found.name
            yield found.name, found.claim
        elif name in names:
            yield names.pop(name), None
