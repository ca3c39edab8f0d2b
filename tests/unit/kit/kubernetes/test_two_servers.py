"""Two API servers on one etcd: they agree, one may lag, one may be away."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import httpx
import pytest

from tests.kit.kubernetes.api import Api
from tests.kit.kubernetes.namespaces import Namespace, new_namespace
from tests.kit.kubernetes.servers import Kubernetes, own_servers
from tests.kit.support import eventually


@pytest.fixture(scope="module")
def two() -> Iterator[Kubernetes]:
    with own_servers(2, wired=(1,)) as servers:
        yield servers


@pytest.fixture
def namespace(two: Kubernetes) -> Iterator[Namespace]:
    with new_namespace(two) as namespace:
        yield namespace


@pytest.fixture
def apis(two: Kubernetes, namespace: Namespace) -> Iterator[list[Api]]:
    """The client's access to each of them, with one token."""
    token = namespace.account.token()
    apis = [namespace.account.api(token, server=endpoint) for endpoint in two.own.endpoints]
    yield apis
    for api in apis:
        api.close()


def names(api: Api, namespace: Namespace, **query: str) -> list[str]:
    return [each["metadata"]["name"] for each in api.items(namespace.leases, query)]


def test_what_one_has_written_the_other_reads(namespace: Namespace, apis: list[Api]) -> None:
    for number, name in enumerate(["a", "b", "c"]):
        apis[number % 2].ok("POST", namespace.leases, {"metadata": {"name": name}})
        assert name in names(apis[1 - number % 2], namespace)


def test_the_cache_of_one_lags_and_its_consistent_reads_do_not(
    two: Kubernetes, namespace: Namespace, apis: list[Api]
) -> None:
    assert names(apis[1], namespace, resourceVersion="0") == []
    two.own.wires[1].late_seconds = 1.5
    apis[0].ok("POST", namespace.leases, {"metadata": {"name": "a"}})
    assert names(apis[1], namespace, resourceVersion="0") == []
    assert names(apis[1], namespace) == ["a"]
    two.own.wires[1].late_seconds = 0.0
    eventually(lambda: names(apis[1], namespace, resourceVersion="0") == ["a"])


def test_one_is_stopped_and_the_other_goes_on(
    two: Kubernetes, namespace: Namespace, apis: list[Api]
) -> None:
    two.own.signal(1, signal.SIGSTOP)
    apis[0].ok("POST", namespace.leases, {"metadata": {"name": "a"}})
    two.own.signal(1, signal.SIGCONT)
    assert names(apis[1], namespace) == ["a"]


def test_one_is_killed_and_has_forgotten_what_etcd_has_compacted(
    two: Kubernetes, namespace: Namespace, apis: list[Api]
) -> None:
    for name in ("a", "b"):
        apis[0].ok("POST", namespace.leases, {"metadata": {"name": name}})
    first = apis[1].ok("GET", namespace.leases, query={"limit": 1})["metadata"]
    rest = {"limit": 1, "continue": first["continue"]}
    assert apis[1]("GET", namespace.leases, query=rest).status_code == 200
    two.own.kill(1)
    with pytest.raises(httpx.HTTPError):
        apis[1]("GET", namespace.leases)
    apis[0].ok("POST", namespace.leases, {"metadata": {"name": "c"}})
    two.own.etcd.compact()
    two.own.start(1)
    two.own.wait()
    assert names(apis[1], namespace) == ["a", "b", "c"]
    assert apis[1]("GET", namespace.leases, query=rest).status_code == 410
    events = apis[1].watch(namespace.leases, {"resourceVersion": first["resourceVersion"]})
    assert [(each["type"], each["object"]["code"]) for each in events] == [("ERROR", 410)]
