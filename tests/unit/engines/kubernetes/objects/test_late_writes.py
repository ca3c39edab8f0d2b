"""A renewal that reaches the server long after it was sent, as its way there hung: in vain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.collection import Collection
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import BackendUnreachable
from leasectl.model import Request
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.namespaces import Namespace

ONE = Request("T", ttl_seconds=1.5)


class Late:
    """A holder whose renewal is on its way to the API server, until it arrives."""

    def __init__(
        self, namespace: Namespace, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._namespace = namespace
        self._sent: dict[str, Any] = {}
        holder = Access(kubeconfig, state_id="late")
        holder.acquire("k/1", ONE)

        def hang(api: Api, collection: Collection, name: str, body: Any, **options: Any) -> None:
            self._sent = body
            raise BackendUnreachable("no answer")

        with monkeypatch.context() as patched:
            patched.setattr(Api, "replace", hang)
            with pytest.raises(BackendUnreachable):
                holder.engine.renew("k/1")

    def arrive(self) -> int:
        """Have it be carried out by the server; returns what that says to it."""
        body = {**self._sent, "metadata": {**self._sent["metadata"]}}
        client = self._namespace.account.api()
        try:
            return client("PUT", f"{self._namespace.leases}/a", body).status_code
        finally:
            client.close()


@pytest.fixture
def others(kubeconfig: Path) -> Access:
    others = Access(kubeconfig)
    others.pools.create_pool("T", ["a"])
    return others


@pytest.fixture
def late(
    others: Access, namespace: Namespace, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> Late:
    return Late(namespace, kubeconfig, monkeypatch)


def test_who_was_taken_over_takes_nothing_back(
    others: Access, late: Late, namespace: Namespace
) -> None:
    others.acquire("k/2", ONE._replace(ttl_seconds=60.0))
    before = namespace.lease("a")
    assert late.arrive() == 409
    assert namespace.lease("a") == before
    assert others.engine.renew("k/2") == ("a",)


def test_what_was_deleted_stays_so(others: Access, late: Late, namespace: Namespace) -> None:
    others.pools.delete_pool("T", force=True)
    assert late.arrive() in (404, 409)
    assert namespace.lease_names() == []


def test_what_was_made_again_has_no_holder(
    others: Access, late: Late, namespace: Namespace
) -> None:
    others.pools.delete_pool("T", force=True)
    others.pools.create_pool("T", ["a"])
    before = namespace.lease("a")
    assert late.arrive() == 409
    assert namespace.lease("a") == before
