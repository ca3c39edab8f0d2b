"""Every kind of backend with pools of its own is under the contract."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.backends.kinds import Kind, all_kinds
from tests.contract.conftest import WORLDS
from tests.kit.made_up_backend import MadeUpBackend


def without_world(kinds: Iterable[Kind]) -> list[str]:
    """The kinds with pools whose engine has no row in `WORLDS`."""
    return [
        kind.title
        for kind in kinds
        if kind.has_pools and kind.prefix.partition(":")[0] not in WORLDS
    ]


def test_every_kind_with_pools_has_a_world() -> None:
    assert without_world(all_kinds()) == []


def test_one_that_has_none_would_be_noticed() -> None:
    assert without_world([*all_kinds(), MadeUpBackend]) == [MadeUpBackend.title]
