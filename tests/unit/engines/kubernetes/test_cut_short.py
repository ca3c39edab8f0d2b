"""Something between closes the connection in the midst of a request; against a real API server."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.model import Request
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay

TWO = Request("T", count=2, ttl_seconds=60)


@pytest.mark.parametrize("part", [0.05, 0.95], ids=["in its head", "in its body"])
def test_whichever_request_comes_only_in_part_the_story_is_the_same(
    namespace: Namespace, kubeconfig: Path, between_api: Relay, tmp_path: Path, part: float
) -> None:
    relayed = namespace.account.kubeconfig(tmp_path / "relayed", server=between_api.endpoint)
    Access(kubeconfig).pools.create_pool("T", ["a", "b"])
    number = asked = 0
    while number <= asked:
        number += 1
        first, cut = len(between_api.paths), len(between_api.paths) + number
        between_api.part = lambda at, path, cut=cut: part if at == cut else 1  # type: ignore[misc]
        through = Access(relayed)
        leases = through.acquire("k/1", TWO)
        assert [each.name for each in leases] == ["a", "b"], number
        assert through.engine.renew("k/1") == ("a", "b"), number
        assert through.engine.free("k/1") == ("a", "b"), number
        asked = len(between_api.paths) - first
        (pool,) = Access(kubeconfig).pools.pools()
        assert (pool.held, pool.queue) == (0, ()), number
    assert asked > 5
