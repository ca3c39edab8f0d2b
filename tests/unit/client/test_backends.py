"""The library on each backend: holding, and losses that are told before the deadline."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

import leasectl
from tests.kit.boskos.process import StartBoskos
from tests.kit.descriptors import open_descriptors
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
from tests.kit.serving import Serving
from tests.kit.serving import shared as shared
from tests.kit.support import Cli
from tests.kit.waits import eventually, wait_set
from tests.unit.client.test_client import elapsed

pytestmark = pytest.mark.once
_numbers = itertools.count()
TTL = "8s"


class Place(NamedTuple):
    """A pool of two resources on some backend.

    Args:
        url: Of the backend.
        pool: Its name.
        outage: Lets no request through inside; None where no lease expires.
        has_pools: It has leasectl's pools.
        ttl: A ttl that its leases may have; None for the backend's own, or none.
    """

    url: str
    pool: str
    outage: Callable[[], AbstractContextManager[object]] | None
    has_pools: bool = True
    ttl: str | None = TTL


def library_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("leasectl")]


@contextlib.contextmanager
def cut(relay: Relay) -> Iterator[None]:
    relay.cut()
    try:
        yield
    finally:
        relay.mend()


@pytest.fixture
def embedded(cli: Cli) -> Place:
    @contextlib.contextmanager
    def locked() -> Iterator[None]:
        with open(cli.state_dir / "state.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    cli.pool("T")
    return Place("local:", "T", locked)


@pytest.fixture
def on_etcd(cli: Cli, between: Relay, prefix: str) -> Place:
    url = f"{between.endpoint.replace('http', 'etcd')}{prefix}"
    cli.ok("pool", "create", "T", "--count", "2", "--backend", url)
    return Place(url, "T", lambda: cut(between))


@pytest.fixture
def on_kubernetes(
    cli: Cli,
    namespace: Namespace,
    between_api: Relay,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Place:
    kubeconfig = namespace.account.kubeconfig(tmp_path / "through", server=between_api.endpoint)
    monkeypatch.setenv("LEASECTL_KUBECONFIG", str(kubeconfig))
    url = f"kubernetes://{namespace.name}"
    cli.env.update(LEASECTL_KUBECONFIG=str(kubeconfig), LEASECTL_BACKEND=url)
    cli.ok("pool", "create", "T", "--count", "2")
    return Place(url, "T", lambda: cut(between_api))


@pytest.fixture
def on_boskos(boskos: StartBoskos) -> Place:
    server = boskos("T=2", expire=8, reaper_interval=1, request_ttl=5)

    @contextlib.contextmanager
    def killed() -> Iterator[None]:
        server.kill()
        yield

    return Place(f"{server.backend}?expire=8s&queue-ttl=5s", "T", killed, has_pools=False, ttl=None)


@pytest.fixture
def on_proxy(shared: Serving) -> Place:
    pool = f"T{next(_numbers)}"
    shared.cli.pool(pool)
    return Place(shared.url, pool, None, has_pools=False, ttl=None)


PLACES = ("embedded", "on_etcd", "on_kubernetes", "on_boskos", "on_proxy")


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, environment: None) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def there(place: Place) -> Iterator[leasectl.Client]:
    """A client of the place's backend."""
    with leasectl.Client(place.url) as client:
        yield client


def test_it_is_held_renewed_and_given_back(place: Place, there: leasectl.Client) -> None:
    with there.acquire(place.pool, count=2, wait="5m", ttl=place.ttl) as lease:
        assert len(lease.names) == 2
        assert lease.is_held
        if lease.deadline is not None:
            first = lease.deadline
            eventually(lambda: (lease.deadline or 0) > first)
            lease.renew()
        assert not lease.is_lost
        if place.has_pools:
            with pytest.raises(leasectl.NoLease):
                there.acquire(place.pool, wait=0)
    with there.acquire(place.pool, wait="5m") as lease:
        before = lease.handle
        lease.reacquire(wait="5m")
        assert lease.is_held
        assert lease.handle == before


def test_it_leaves_no_thread_and_no_descriptor(
    cli: Cli, place: Place, there: leasectl.Client
) -> None:
    def hold() -> None:
        with there.acquire(place.pool, wait="5m", ttl=place.ttl):
            pass

    def left() -> tuple[int, int]:
        gc.collect()  # a connection that an event was just sent over is part of a cycle
        return len(library_threads()), len(open_descriptors())

    before = left()  # of the test's own clients
    hold()
    there.close()
    eventually(lambda: left()[0] <= before[0])
    before = left()
    for _ in range(20):
        hold()
    # Those of connections that are kept, and for events, stay; the others end soon.
    eventually(lambda: len(library_threads()) <= before[0] + 5)
    there.close()
    # What earlier tests left open may close meanwhile.
    eventually(lambda: all(now <= then for now, then in zip(left(), before)))
    assert cli.query("SELECT id FROM handle") == []


def test_threads_share_a_client(place: Place, there: leasectl.Client) -> None:
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with there.acquire(place.pool, wait="5m") as lease:
                assert lease.is_held
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failed == []


def test_a_wait_can_be_cancelled(place: Place, there: leasectl.Client) -> None:
    cancel, waits, ended = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        with pytest.raises(leasectl.Cancelled):
            there.acquire(place.pool, cancel=cancel, progress=lambda _: waits.set())
        ended.set()

    with there.acquire(place.pool, count=2, wait="5m"):
        waiter = threading.Thread(target=wait)
        waiter.start()
        wait_set(waits)
        cancel.set()
        wait_set(ended)
        waiter.join()
    with there.acquire(place.pool, count=2, wait="5m"):
        pass


def test_force_is_told_before_the_deadline(place: Place, there: leasectl.Client) -> None:
    if not place.has_pools:
        pytest.skip("has no release by force")
    lost_at: list[float] = []
    lease = there.acquire(place.pool, ttl=place.ttl, wait="5m")
    lease.lost.call(lambda: lost_at.append(elapsed()))
    there.release(names=lease.names, force=True, reason="maintenance")
    assert lease.lost.wait()
    assert lease.deadline is not None
    assert eventually(lambda: lost_at)[0] < lease.deadline
    assert "maintenance" in lease.lost.reason
    assert lease.release() == ()


def test_an_outage_longer_than_the_ttl_is_told_before_the_deadline(
    place: Place, there: leasectl.Client
) -> None:
    if place.outage is None:
        pytest.skip("has leases that don't expire")
    lost_at: list[float] = []
    lease = there.acquire(place.pool, ttl=place.ttl, wait="5m")
    lease.lost.call(lambda: lost_at.append(elapsed()))
    with place.outage():
        assert lease.lost.wait()
        assert lease.deadline is not None
        assert eventually(lambda: lost_at)[0] < lease.deadline
        assert "not renewed: " in lease.lost.reason
        assert not lease.is_held
    if place.has_pools:
        with contextlib.suppress(leasectl.LeaseError):
            lease.release()
