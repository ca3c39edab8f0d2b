"""The plan of faults."""

from __future__ import annotations

import pytest

from tests.cluster.schedule import OF_MEMBERS, OF_PARTICIPANTS, plan

SEEDS = range(50)


def test_a_seed_determines_it() -> None:
    assert plan(7, 600) == plan(7, 600) != plan(8, 600)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_of_fault_comes_up_within_a_minute(seed: int) -> None:
    assert {each.fault for each in plan(seed, 60)} == {*OF_MEMBERS, *OF_PARTICIPANTS}


@pytest.mark.parametrize("seed", SEEDS)
def test_members_recover_from_one_fault_before_the_next(seed: int) -> None:
    lasting = [each for each in plan(seed, 600) if each.fault in OF_MEMBERS and each.lasts]
    for before, after in zip(lasting, lasting[1:]):
        assert before.at + before.lasts + 2 <= after.at


@pytest.mark.parametrize("seed", SEEDS)
def test_all_is_well_at_its_end(seed: int) -> None:
    assert max(each.at + each.lasts for each in plan(seed, 60)) <= 60
