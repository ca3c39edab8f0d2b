"""What stands between a client and an API server, or etcd: it passes on, loses, cuts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.kit.kubernetes.api import Api
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay


@pytest.fixture
def api(namespace: Namespace, between_api: Relay) -> Iterator[Api]:
    """The client's access through the relay."""
    api = namespace.account.api(server=between_api.endpoint)
    yield api
    api.close()


def test_an_answer_is_lost_though_the_write_was_done(
    namespace: Namespace, between_api: Relay, api: Api
) -> None:
    assert api("GET", namespace.leases).status_code == 200
    between_api.listen(after=lambda number, _path: between_api.methods[number - 1] == "POST")
    with pytest.raises(httpx.HTTPError):
        api("POST", namespace.leases, {"metadata": {"name": "a"}})
    assert between_api.methods == ["GET", "POST"]
    assert namespace.lease_names() == ["a"]


def test_a_watch_is_a_stream_until_it_is_cut(
    namespace: Namespace, between_api: Relay, api: Api
) -> None:
    began, events = threading.Event(), []

    def watch() -> None:
        for event in api.watch(namespace.leases):
            events.append((event["type"], event["object"]["metadata"]["name"]))
            began.set()

    watcher = threading.Thread(target=watch)
    watcher.start()
    for name in ("a", "b"):
        namespace.administrator.ok("POST", namespace.leases, {"metadata": {"name": name}})
        assert began.wait(10)
    assert between_api.end(lambda path: "watch=" in path) == 1
    watcher.join(10)
    assert events[0] == ("ADDED", "a")
    assert api("GET", namespace.leases).status_code == 200


def test_all_is_cut_until_it_is_mended(namespace: Namespace, between_api: Relay, api: Api) -> None:
    assert api("GET", namespace.leases).status_code == 200
    between_api.cut()
    with pytest.raises(httpx.HTTPError):
        api("GET", namespace.leases)
    between_api.mend()
    assert api("GET", namespace.leases).status_code == 200
