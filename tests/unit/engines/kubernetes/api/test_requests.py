"""Requests to a real API server, as a service account."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.collection import Collection, leases
from leasectl.engines.kubernetes.api.login import open_api
from leasectl.engines.kubernetes.api.refusals import Absent, AlreadyExists, Conflict
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import WatchEvent
from leasectl.errors import AccessRefused, InvalidRequest
from leasectl.http.no_answer import WatchEnded
from leasectl.system.clock import Clock
from tests.kit.kubernetes.namespaces import Namespace


def open_at(kubeconfig: Path, **options: Any) -> Api:
    choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
    return open_api(choice, clock=Clock(), **options)


@pytest.fixture
def api(namespace: Namespace, tmp_path: Path) -> Iterator[Api]:
    api = open_at(namespace.account.kubeconfig(tmp_path / "kubeconfig"))
    yield api
    api.close()


@pytest.fixture
def here(namespace: Namespace) -> Collection:
    return leases(namespace.name)


def a_lease(name: str, **annotations: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"holderIdentity": "me"},
    }


def with_holder(lease: Any, holder: str) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(lease)
    changed["spec"]["holderIdentity"] = holder
    return changed


class TestObjects:
    def test_they_are_made_read_written_listed_and_taken_away(
        self, api: Api, here: Collection
    ) -> None:
        made = api.create(here, a_lease("a"))
        assert api.get(here, "a") == made
        written = api.replace(here, "a", with_holder(made, "you"))
        assert written["metadata"]["resourceVersion"] > made["metadata"]["resourceVersion"]
        listed = api.list(here)
        assert [each["spec"] for each in listed.items] == [{"holderIdentity": "you"}]
        assert int(listed.resource_version) >= int(written["metadata"]["resourceVersion"])
        uid = made["metadata"]["uid"]
        api.delete(here, "a", uid=uid)
        assert api.list(here).items == ()

    def test_a_name_is_taken_once(self, api: Api, here: Collection) -> None:
        api.create(here, a_lease("a"))
        with pytest.raises(AlreadyExists):
            api.create(here, a_lease("a"))

    def test_what_was_changed_is_not_written_over(self, api: Api, here: Collection) -> None:
        made = api.create(here, a_lease("a"))
        api.replace(here, "a", with_holder(made, "you"))
        with pytest.raises(Conflict):
            api.replace(here, "a", with_holder(made, "me again"))
        with pytest.raises(Conflict):
            api.delete(here, "a", resource_version=made["metadata"]["resourceVersion"])

    def test_what_was_deleted_does_not_come_back(self, api: Api, here: Collection) -> None:
        made = api.create(here, a_lease("a"))
        api.delete(here, "a")
        with pytest.raises((Conflict, Absent)):
            api.replace(here, "a", made)
        with pytest.raises(ValueError, match="uid"):
            api.replace(here, "a", a_lease("a"))
        with pytest.raises(Absent):
            api.get(here, "a")

    def test_another_of_the_same_name_is_not_meant(self, api: Api, here: Collection) -> None:
        first = api.create(here, a_lease("a"))
        api.delete(here, "a")
        second = api.create(here, a_lease("a"))
        with pytest.raises(Conflict):
            api.delete(here, "a", uid=first["metadata"]["uid"])
        assert api.get(here, "a") == second

    def test_pages_make_one_list(
        self, api: Api, here: Collection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("leasectl.engines.kubernetes.api.requests._PAGE", 3)
        names = [f"a{n}" for n in range(7)]
        for name in names:
            api.create(here, a_lease(name))
        assert [each["metadata"]["name"] for each in api.list(here).items] == names


class TestRefusals:
    def test_what_is_too_long_is_said_in_the_servers_words(
        self, api: Api, here: Collection
    ) -> None:
        with pytest.raises(InvalidRequest) as refused:
            api.create(here, a_lease("a", note="x" * (1 << 18)))
        assert "may not be more than 262144 bytes" in str(refused.value)

    def test_a_right_that_is_missing_is_named(self, api: Api, namespace: Namespace) -> None:
        namespace.account.forbid()
        with pytest.raises(AccessRefused) as refused:
            api.list(leases(namespace.name))
        assert refused.value.exit_code == 77
        assert (
            f'"{namespace.account.user}" is not allowed to list leases.coordination.k8s.io'
            in str(refused.value)
        )


class TestWatches:
    def test_events_come_as_they_happen(self, api: Api, here: Collection) -> None:
        since = api.list(here).resource_version
        seen: list[WatchEvent] = []
        watch = api.watch(here, resource_version=since, name="a")
        with watch as events:
            made = api.create(here, a_lease("a"))
            api.create(here, a_lease("b"))
            api.replace(here, "a", with_holder(made, "you"))
            api.delete(here, "a")
            for event in events:
                seen.append(event)
                if event.type == "DELETED":
                    break
        assert [each.type for each in seen] == ["ADDED", "MODIFIED", "DELETED"]
        assert seen[1].resource_version > made["metadata"]["resourceVersion"]

    def test_one_can_be_cut_by_another_thread(self, api: Api, here: Collection) -> None:
        watch = api.watch(here, resource_version=api.list(here).resource_version)
        with watch as events:
            threading.Timer(0.1, watch.cut).start()
            with pytest.raises(WatchEnded):
                next(events)
        with pytest.raises(WatchEnded), watch:
            pass
