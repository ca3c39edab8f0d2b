"""Pools that an earlier leasectl made below the same prefix, in keys of another layout."""

from __future__ import annotations

import pytest

from leasectl.engines.etcd.requests import put
from tests.kit.etcd.access import revisions
from tests.kit.hosts import Hosts

CORRUPT = 65


@pytest.mark.parametrize("words", [("pool", "list"), ("acquire", "-t", "T", "-w", "0")])
def test_they_are_refused_with_how_to_move_and_nothing_is_changed(
    hosts: Hosts, words: tuple[str, ...]
) -> None:
    access = hosts.access
    access.gateway.commit((), [put(f"{access.keys.prefix}pool/T", "")])
    before = revisions(access)
    refused = hosts.new()(*words)
    assert refused.code == CORRUPT
    assert refused.err.count("\n") == 1
    assert "leasectl status --json" in refused.err
    assert "leasectl pool create POOL --names A,B" in refused.err
    assert revisions(access) == before
