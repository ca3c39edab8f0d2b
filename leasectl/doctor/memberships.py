"""In which pools names are, and where somebody has said that they belong."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.membership import Member, Pools, belongs_to
from leasectl.leases.service import Service
from leasectl.state.snapshot import snapshot
from leasectl.text.wording import counted, listed


def misplaced(service: Service) -> Finding:
    """Is every name where it belongs, and is there every pool that one belongs to?"""
    with snapshot(service.state):  # only looked at: what is over stays for who changes something
        pools, belonging = service.pools.pools(), service.members.belonging()
    there = [each.member or Member(each.name, p.type) for p in pools for each in p.resources]
    return agreement_of(there, belonging)


def agreement_of(there: Sequence[Member], belonging: Pools) -> Finding:
    """Compare where names are by where they belong.

    Args:
        there: All that are in pools.
        belonging: What is said of where names belong.
    """
    expected = [(each, to) for each in there if (to := belongs_to(each, belonging)) is not None]
    astray = [(each, to) for each, to in expected if to != each.pool]
    if astray:
        return _astray(astray)
    missing = sorted(set(belonging.patterns.values()) - belonging.types)
    if missing:
        return Finding(
            WARN,
            f"names are expected in {listed(missing)}, and there is no such pool",
            f"make it with: leasectl pool create {missing[0]}, or see: leasectl pool expect --list",
        )
    return Finding(OK, f"{counted(len(there), 'name')} in pools, none that belongs elsewhere")


def _astray(found: list[tuple[Member, str]]) -> Finding:
    texts = [f"{each.name} is in {each.pool} and belongs to {to}" for each, to in found]
    first, to = found[0]
    return Finding(
        WARN,
        f"{counted(len(found), 'name')} in another pool than expected: {listed(texts)}",
        f"move it with: leasectl pool move --names {first.name} --to {to} --when-free, or see: "
        "leasectl pool expect --list",
    )
