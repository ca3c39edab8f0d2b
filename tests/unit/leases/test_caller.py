"""leasectl.leases.service: by which words others know who asks, and what is its own."""

from __future__ import annotations

import pytest

from leasectl.backends.contract import Caller

JOB = Caller("job/1", "host", "/shared")
PERSON = Caller("me@host", "host")


@pytest.mark.parametrize(
    ("caller", "owner", "is_its_own"),
    [
        (JOB, "job/1", True),
        (JOB, "job/2", False),
        (JOB, "me@host", False),
        (PERSON, "me@host", True),
        (PERSON, "1000@host", True),  # the same directory, before there was an entry in passwd
        (PERSON, "me@another", False),
        (PERSON, "job/1", False),
    ],
)
def test_what_its_job_or_its_directory_has_is_its_own(
    caller: Caller, owner: str, is_its_own: bool
) -> None:
    assert caller.is_owner(owner) is is_its_own
