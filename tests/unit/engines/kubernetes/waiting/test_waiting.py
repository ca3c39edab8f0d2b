"""Waiting on a real API server: the dead before one, servers that stop, edits by hand."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.cluster.objects import Selection
from leasectl.engines.kubernetes.api.address import KubernetesAddress
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.opening import Opened, open_kubernetes
from leasectl.errors import AccessRefused, NotAllowed
from leasectl.model import Claimant, Lease, Request
from leasectl.system.clock import Clock
from leasectl.system.process import this_process
from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.recorded import NoJournal
from tests.kit.waits import eventually

TTL = 1.5
ONE = Request("T")
# For those who are to fail at a renewal: somebody may be about to look once more before it waits.
LOOKING_RULES = ({**LEAST_RULES[0], "verbs": ["get", "list", "watch"]}, LEAST_RULES[1])


class Processes:
    """What would be processes, each on its own."""

    def __init__(self, kubeconfig: Path) -> None:
        self._choice = choose(KubernetesAddress(kubeconfig=str(kubeconfig)), {})
        self.first = self.open()
        self.warnings: list[str] = []

    def open(self) -> Opened:
        return open_kubernetes(
            Api(self._choice, clock=Clock()),
            self._choice.namespace,
            state_id="state",
            clock=Clock(),
        )

    def acquire(self, key: str, request: Request = ONE) -> tuple[Lease, ...]:
        opened = self.open()
        journal = NoJournal()
        backend = PoolBackend("test:", opened.engine, opened, clock=Clock())
        claimant = Claimant(key, key, request, this_process())
        backend.acquire(claimant, journal, Patience(warn=self.warnings.append))
        return journal.leases or ()

    def begin(self, key: str, request: Request = ONE) -> list[object]:
        """Acquire in a thread; what came of it is put into what is returned."""
        ends: list[object] = []

        def run() -> None:
            try:
                ends.append(self.acquire(key, request))
            except Exception as error:
                ends.append(error)

        threading.Thread(target=run, daemon=True).start()
        eventually(lambda: ends or self.is_waiting(key))  # it may have gone by then
        return ends

    def put_dead(self, key: str) -> None:
        """A ticket of somebody who is killed right after it."""
        request = Request("T", ttl_seconds=TTL)
        dead = self.open().engine.waiter(Claimant(key, key, request), until=None)
        dead.enqueue()
        assert dead.claim().leases is None

    def is_waiting(self, key: str) -> bool:
        return bool(self.first.context.tickets(key))

    def waiting(self) -> int:
        return len(self.first.objects.list(Selection(kinds=("ticket",))).items)


@pytest.fixture
def processes(kubeconfig: Path) -> Processes:
    processes = Processes(kubeconfig)
    processes.first.pools.create_pool("T", ["T--00"])
    return processes


def test_who_listens_to_a_connection_that_is_dead_notices_by_its_own_renewals(
    processes: Processes, namespace: Namespace, tmp_path: Path
) -> None:
    """Nothing ends such a watch for 75 s: the last who had a turn would be long gone by then."""
    is_over, watches = threading.Event(), list[str]()

    def be_dead(_number: int, path: str) -> None:
        if "watch=1" in path:
            watches.append(path)
            if len(watches) == 1:
                is_over.wait()

    (held,) = processes.acquire("holder")
    with namespace.relay() as between:
        path = tmp_path / "by-relay"
        by_relay = Processes(namespace.account.kubeconfig(path, server=between.endpoint))
        between.listen(before=be_dead)
        try:
            ends = by_relay.begin("waiter", Request("T", ttl_seconds=TTL))
            eventually(lambda: watches)
            processes.first.engine.free("holder")
            eventually(lambda: ends)
        finally:
            is_over.set()
    assert isinstance(ends[0], tuple), ends
    (granted,) = ends[0]
    assert (granted.name, granted.fence > held.fence) == (held.name, True)
    assert between.methods.count("GET") < 20


def test_who_may_not_renew_any_more_is_told_and_gives_up_with_its_place(
    processes: Processes, namespace: Namespace
) -> None:
    processes.acquire("holder")
    ends = processes.begin("waiter", Request("T", ttl_seconds=2 * TTL))
    namespace.account.permit(LOOKING_RULES)
    eventually(lambda: ends)
    assert isinstance(ends[0], AccessRefused)
    assert ends[0].exit_code == 77, ends
    assert "is not allowed to update leases" in str(ends[0])
    (warning,) = processes.warnings
    assert warning.startswith("still waiting, most likely at the same queue position: ")


def test_who_may_not_watch_is_told_at_once_what_is_missing(
    processes: Processes, namespace: Namespace
) -> None:
    processes.acquire("holder")
    leases, events = LEAST_RULES
    verbs = [verb for verb in leases["verbs"] if verb != "watch"]
    namespace.account.permit(({**leases, "verbs": verbs}, events))
    processes.put_dead("before")
    ends = processes.begin("waiter")
    eventually(lambda: ends)
    assert isinstance(ends[0], NotAllowed)
    said = str(ends[0])
    assert (
        f'is not allowed to watch leases.coordination.k8s.io in namespace "{namespace.name}"'
        in said
    )
    assert "leasectl kubernetes manifest" in said
    assert processes.warnings == []
    eventually(lambda: processes.waiting() == 1, what="only the dead one still waits")


def test_who_may_again_in_time_has_lost_nothing(processes: Processes, namespace: Namespace) -> None:
    processes.acquire("holder")
    first = processes.begin("first", Request("T", ttl_seconds=12.0))
    second = processes.begin("second", Request("T", ttl_seconds=60.0))
    namespace.account.permit(LOOKING_RULES)
    eventually(lambda: processes.warnings)
    namespace.account.permit(LEAST_RULES)
    processes.first.engine.free("holder")
    eventually(lambda: first)
    assert isinstance(first[0], tuple), first
    assert not second


def test_no_managed_fields_are_kept(processes: Processes, namespace: Namespace) -> None:
    processes.acquire("holder", Request("T", ttl_seconds=30.0))
    processes.first.engine.renew("holder")
    (name,) = [each for each in namespace.lease_names() if each.startswith("t-00")]
    assert "managedFields" not in namespace.lease(name)["metadata"]
