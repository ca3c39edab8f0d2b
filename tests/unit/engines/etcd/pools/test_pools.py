"""Pools in etcd that are only being made, or larger than one transaction; on a real server."""

from __future__ import annotations

from typing import Callable

import pytest

from leasectl.engines.etcd.gateway.requests import put
from leasectl.engines.etcd.records import MOST_AT_ONCE
from leasectl.errors import (
    InvalidRequest,
    NotFound,
)
from leasectl.model import Request
from tests.kit.etcd.access import Access, keys_left


class TestSizes:
    def test_more_than_a_transaction_can_do_is_refused(self, store: Access) -> None:
        store.pools.add_resources("T", [f"U--{n:03d}" for n in range(100)])
        with pytest.raises(
            InvalidRequest, match=f"--count 61: etcd grants at most {MOST_AT_ONCE} "
        ):
            store.acquire("me", Request("T", count=61))
        assert len(store.acquire("me", Request("T", count=MOST_AT_ONCE))) == MOST_AT_ONCE
        assert len(store.engine.free("me")) == MOST_AT_ONCE

    def test_many_that_are_held_one_by_one_are_taken_away_at_once(self, store: Access) -> None:
        names = [f"U--{n:03d}" for n in range(40)]
        store.pools.create_pool("U", names)
        for name in names:
            store.acquire(name, Request("U", name=name, ttl_seconds=60))
        store.pools.remove_resources("U", names, force=True)
        assert sorted(store.lost) == [(name, (name,)) for name in names]
        assert keys_left(store) == []

    def test_a_large_pool_is_made_and_deleted_whole(self, store: Access) -> None:
        store.pools.create_pool("U", [f"U--{n:03d}" for n in range(300)])
        assert store.pool("U").capacity == 300
        with pytest.raises(InvalidRequest, match="U--299"):
            store.pools.create_pool("V", [*(f"V--{n:03d}" for n in range(100)), "U--299"])
        with pytest.raises(NotFound):
            store.pools.pools("V")
        store.pools.delete_pool("U", force=False)
        store.pools.create_pool("V", [f"U--{n:03d}" for n in range(300)])


@pytest.mark.parametrize(
    "ask",
    [
        lambda access: access.acquire("me", Request("U")),
        lambda access: access.pools.pools("U"),
        lambda access: access.backend.notes.of_pool("U"),
        lambda access: access.pools.add_resources("U", ["U--1"]),
    ],
    ids=["acquire", "show", "notes", "add"],
)
def test_a_pool_that_is_being_made_is_not_there_yet(
    store: Access, ask: Callable[[Access], object]
) -> None:
    store.gateway.commit([], [put(store.keys.pool("U"), "being made under 7")])
    with pytest.raises(NotFound, match='no pool "U"'):
        ask(store)
