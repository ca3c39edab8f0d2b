"""The contract with backends whose pools aren't their own: how they lease, and what they refuse.

What of the contract is about pools of ours is marked in `test_pool_contract.py`. Which backends
have none, and so refuse whatever is about them, their rows say.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.backends.kinds import Backend, Context, Kind, all_kinds, prefixes
from leasectl.errors import NotSupported
from leasectl.model import Request
from leasectl.state.directory import State
from tests.contract import test_pool_contract as contract
from tests.contract.conftest import WORLDS_WITHOUT_POOLS
from tests.contract.world import claims_without_pools

# As for the other tests of servers.
pytestmark = pytest.mark.once

CLAIMS = claims_without_pools(contract)
WITHOUT_POOLS = [kind for kind in all_kinds() if not kind.has_pools]
# What of a backend is about pools of its own.
ABOUT_POOLS: dict[str, Callable[[Backend], object]] = {
    "pools": lambda backend: backend.pools,
    "members": lambda backend: backend.members,
    "notes": lambda backend: backend.notes,
    "values": lambda backend: backend.values,
}


@pytest.fixture(params=WORLDS_WITHOUT_POOLS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    world = WORLDS_WITHOUT_POOLS[request.param](request, tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.__name__)
def test_it_holds_that(world: Any, claim: Callable[[Any], None]) -> None:
    claim(world)


# ---- what they refuse


def by_title(kind: Kind) -> str:
    return kind.title


def url_of(kind: Kind) -> str:
    address = "namespace" if kind.is_cluster else "127.0.0.1:9"
    return kind.prefix + (address if kind.takes_address else "")


@pytest.mark.parametrize("kind", WITHOUT_POOLS, ids=by_title)
@pytest.mark.parametrize("what", ABOUT_POOLS)
def test_without_pools_of_its_own_it_refuses_what_is_about_them(
    tmp_path: Path, kind: Kind, what: str
) -> None:
    with contextlib.closing(State.open(str(tmp_path / "state"))) as state:
        backend = kind.open(Context(url_of(kind)), state, lambda claim_key, names: None)
        with pytest.raises(NotSupported, match="choose ") as refused:
            ABOUT_POOLS[what](backend)
    assert (kind.pools_are or "has no pools") in str(refused.value)
    assert refused.value.exit_code == 64


@pytest.mark.parametrize("kind", all_kinds(), ids=by_title)
def test_what_needs_pools_of_its_own_only_those_take(kind: Kind) -> None:
    by_what_it_is = Request("T", where=(("region", "eu", True),))
    if kind.has_pools:
        kind.check_request(by_what_it_is, None)
        return
    with pytest.raises(NotSupported, match=re.escape(prefixes("and"))):
        kind.check_request(by_what_it_is, None)
