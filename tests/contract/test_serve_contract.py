"""The contract of every pool, kept towards clients of the server as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Callable

import pytest

from tests.contract import test_pool_contract as contract
from tests.contract.serve_world import ServeWorld
from tests.kit.serving import Serving

# As for the other tests of the server.
pytestmark = pytest.mark.once

CLASSES: tuple[type, ...] = (
    contract.TestExclusion,
    contract.TestAllOrNothing,
    contract.TestFirstComeFirstServed,
    contract.TestTheDead,
    contract.TestRelease,
)
NOT_SAID_BY_THE_PROTOCOL = (
    "test_the_queue_shows_who_waits_for_how_many_since_when",
    "test_the_queue_shows_which_process_waits_for_which_resource_with_what_labels",
    "test_what_a_dead_holder_held_is_free_after_its_ttl",
    "test_a_stale_owner_frees_nothing",
    "test_an_expired_lease_is_lost_not_released",
)
CLAIMS = [
    getattr(each(), name)
    for each in CLASSES
    for name in vars(each)
    if name.startswith("test_") and name not in NOT_SAID_BY_THE_PROTOCOL
]


@pytest.fixture
def world(shared: Serving) -> Iterator[ServeWorld]:
    with shared.cli.service() as service:
        world = ServeWorld(shared, service)
        yield world
        world.close()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_of_its_clients_it_holds_that(
    world: ServeWorld, claim: Callable[[ServeWorld], None]
) -> None:
    claim(world)


def test_whatever_clients_do_the_store_stays_sound(world: ServeWorld) -> None:
    contract.test_whatever_clients_do_the_store_stays_sound(world)  # type: ignore[arg-type]
