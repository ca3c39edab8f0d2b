"""In which pools names are, and where somebody has said that they belong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from leasectl.doctor.findings import OK, WARN, Finding
from leasectl.engines.local import member_audit
from leasectl.engines.membership import Member, Pools, belongs_to
from leasectl.leases.service import Service
from leasectl.state.snapshot import snapshot
from leasectl.text.wording import counted, listed
from leasectl.typed.hints import Callable


def misplaced(service: Service, facts: Callable[[], Iterable[Member]]) -> Finding:
    """Is every name where it belongs, and is there every pool that one belongs to?

    Args:
        service: On the backend that is looked at.
        facts: Gives at least the names of which somebody has said where they belong.
    """
    with snapshot(service.state):  # only looked at: what is over stays for who changes something
        pools, belonging = service.pools.pools(), service.members.belonging()
        known = tuple(facts())
    there = [each.member or Member(each.name, p.type) for p in pools for each in p.resources]
    return agreement_of(there, belonging, known, number=len(there))


def misplaced_here(service: Service) -> Finding:
    """The same of the embedded pools, without reading names of which nobody has said anything."""
    state = service.state
    with snapshot(state):
        belonging, number = service.members.belonging(), member_audit.count_in_pools(state)
        # A pattern may say it of any name.
        known = service.members.members() if belonging.patterns else member_audit.said_of(state)
    there = [each for each in known if each.pool is not None]
    return agreement_of(there, belonging, known, number=number)


def agreement_of(
    there: Sequence[Member], belonging: Pools, known: Iterable[Member], *, number: int
) -> Finding:
    """Compare where names are by where they belong.

    Args:
        there: Those in pools, at least if somebody has said where they belong.
        belonging: What is said of where names belong.
        known: At least those of which somebody has said where they belong, there or not.
        number: How many are in pools.
    """
    expected = [(each, to) for each in there if (to := belongs_to(each, belonging)) is not None]
    astray = [(each, to) for each, to in expected if to != each.pool]
    if astray:
        return _astray(astray)
    exact = {each.name: each.expected for each in known if each.expected is not None}
    missing = sorted({*exact.values(), *belonging.patterns.values()} - belonging.types)
    if missing:
        return _nowhere_to_be(missing, exact, belonging.patterns)
    return Finding(OK, f"{counted(number, 'name')} in pools, none that belongs elsewhere")


def _nowhere_to_be(
    missing: Sequence[str], exact: Mapping[str, str], patterns: Mapping[str, str]
) -> Finding:
    subjects = sorted(name for name, to in exact.items() if to in missing)
    subjects += sorted(pattern for pattern, to in patterns.items() if to in missing)
    first = subjects[0]
    to = exact.get(first) or patterns[first]
    which = f"--names {first}" if first in exact else f"--match '{first}'"
    return Finding(
        WARN,
        f"names are expected in {listed(missing)}, and there is no such pool: {listed(subjects)}",
        f"say so no more with: leasectl pool expect {to} {which} --drop; or if they are to come "
        f"there, make it with: leasectl pool create {to} --names NAMES",
    )


def _astray(found: list[tuple[Member, str]]) -> Finding:
    texts = [f"{each.name} is in {each.pool} and belongs to {to}" for each, to in found]
    first, to = found[0]
    return Finding(
        WARN,
        f"{counted(len(found), 'name')} in another pool than expected: {listed(texts)}",
        f"move it with: leasectl pool move --names {first.name} --to {to} --when-free, or see: "
        "leasectl pool expect --list",
    )
