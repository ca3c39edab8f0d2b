"""leasectl.run.plan: what a command finds in its environment."""

from __future__ import annotations

import pytest

from leasectl.model import Handle, Lease, Request
from leasectl.run.plan import Plan

OUTER = {
    "HOME": "/root",
    "LEASECTL_BACKEND": "local:",
    "LEASECTL_HANDLE": "/outer",
    "LEASECTL_NAMES": "U--00",
    "LEASECTL_TYPE": "U",
    "LEASECTL_FENCE": "7",
    "LEASECTL_ATTEMPT": "9",
    "LEASECTL_PROPERTIES": "{}",
    "LEASECTL_PROPERTY_ZONE": "b",
}
PLAN = Plan(("job", "--fast"), Request("T"), environ=OUTER)
KEPT = {"HOME": "/root", "LEASECTL_BACKEND": "local:"}


def test_messages_call_a_command_by_its_first_word() -> None:
    assert PLAN.name == "job"


def test_without_a_lease_nothing_is_left_of_an_outer_one() -> None:
    assert PLAN.environ_of(2) == {**KEPT, "LEASECTL_ATTEMPT": "2"}


@pytest.mark.parametrize(
    ("wanted", "granted", "said"),
    [
        (Request("T", count=2), None, "T"),
        (Request("T", count=2, other_types=("V",)), "V", "V"),
        (Request("T", count=2, other_types=("V",)), None, ""),
        (Request("T", other_types=("V",), needs_all=True), None, "T,V"),
    ],
)
def test_under_a_lease_it_is_that_one(wanted: Request, granted: str | None, said: str) -> None:
    leases = tuple(
        Lease(name, fence, 1, 1, "me", 0.0, 0.0, None, 1) for name, fence in (("a", 3), ("b", 4))
    )
    handle = Handle(
        "T-1", "local:", wanted, "me", "me", "held", 1, leases=leases, granted_type=granted
    )
    own = {"LEASECTL_PROPERTIES": '{"a": {}, "b": {}}'}
    assert PLAN.environ_under(handle, "/handles/T-1", 2, own) == {
        **KEPT,
        "LEASECTL_ATTEMPT": "2",
        "LEASECTL_HANDLE": "/handles/T-1",
        "LEASECTL_NAMES": "a,b",
        "LEASECTL_TYPE": said,
        "LEASECTL_FENCE": "3,4",
        "LEASECTL_AROUND": "T-1",
        "LEASECTL_PROPERTIES": '{"a": {}, "b": {}}',
    }
