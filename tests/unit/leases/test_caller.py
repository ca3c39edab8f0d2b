"""leasectl.leases.service: by which words others know who asks, and what is its own."""

from __future__ import annotations

import pytest

from leasectl.backends.contract import Caller
from leasectl.errors import InvalidRequest

JOB = Caller("job/1", "host", "/shared")
PERSON = Caller("me@host", "host")


def test_others_know_it_by_its_job_and_its_machine() -> None:
    assert JOB.identity == "job/1/host"
    assert JOB.identity_of("T-x") == "job/1/host/T-x"


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


def test_scope_test_needs_a_folder_that_steps_share() -> None:
    assert JOB.require_shared_dir() == "/shared"
    for shared_dir in (None, ""):
        with pytest.raises(InvalidRequest, match="needs SHARED_DIR"):
            PERSON._replace(shared_dir=shared_dir).require_shared_dir()
