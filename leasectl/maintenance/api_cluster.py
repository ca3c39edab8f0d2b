"""The Kubernetes API for the controller: nodes, Leases, pods, evictions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, Protocol

from leasectl.engines.kubernetes.api.address import (
    EVICTION,
    Collection,
    is_namespace,
    leases,
    parse_kubernetes_url,
)
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.refusals import (
    Absent,
    Busy,
    Conflict,
    LostAnswer,
    Refused,
)
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import AccessRefused, BackendUnreachable, CorruptState, InvalidRequest
from leasectl.maintenance.facts import Lease, NodeWrite
from leasectl.maintenance.objects import Json, Pod, lease_body, node_patch, parse_pod, request_patch
from leasectl.system.clock import Clock
from leasectl.text.wording import printable


class Evicted(NamedTuple):
    """What became of an eviction.

    Args:
        outcome: It is ``going``; is ``gone``, as it had gone before; is ``held``, for now; or the
            server ``failed`` at it.
        reason: Why it is still there.
        again_seconds: Not to be tried again before.
    """

    outcome: Literal["going", "gone", "held", "failed"]
    reason: str = ""
    again_seconds: float = 0.0


class Cluster(Protocol):
    """A cluster with nodes, as maintenance sees it. Used by one thread."""

    def node(self, name: str) -> Json | None:
        """A Node as it is now; None if there is none."""
        ...

    def write_node(self, read: Json, write: NodeWrite) -> bool:
        """Change a Node, in one write, if it is still as it was read; returns whether it was."""
        ...

    def lease(self, name: str) -> Json | None:
        """A Lease as it is now, of those that we look after; None if there is none."""
        ...

    def write_lease(
        self, name: str, read: Json | None, lease: Lease, *, node: str = ""
    ) -> Json | None:
        """Write a Lease, if it is still as it was read, or still isn't there.

        Args:
            name: Of the Lease.
            read: As it was read; None if there was none.
            lease: What it is to say.
            node: The Node that it goes with; empty for none.

        Returns:
            It as it was written; None if it wasn't.
        """
        ...

    def pods(self, node: str) -> list[Pod]:
        """The pods on a node, as they are now."""
        ...

    def evict(self, pod: Pod, *, grace_seconds: int | None) -> Evicted:
        """Ask for the eviction of one pod; a disruption budget may forbid it.

        Args:
            pod: As it was just listed: a pod of another uid is another pod.
            grace_seconds: How long it may take to end; None for the pod's own time.
        """
        ...


NODES = Collection("v1", "nodes")
_PODS = Collection("v1", "pods")
_SECONDS = 4.0
# That changes only when somebody changes budgets.
_COVERED_AGAIN_SECONDS = 30.0
_MORE_THAN_ONE = "more than one disruption budget covers it, so the API can't evict it"


class ApiCluster:
    """A `Cluster` on a real API server, with the requests that people make of nodes.

    Args:
        api: Of the cluster.
        namespace: Where the leases are.
        identity: Ours, for cordon marks.
        clock: Where times come from.

    Attributes:
        api: Its API.
        lease_collection: The collection of the nodes' Leases.
    """

    def __init__(self, api: Api, *, namespace: str, identity: str, clock: Clock) -> None:
        self.api = api
        self.lease_collection = leases(namespace)
        self._identity = identity
        self._clock = clock

    def node(self, name: str) -> Json | None:
        """Implements `Cluster`."""
        return self._get(NODES, name)

    def nodes(self) -> tuple[Json, ...]:
        """All Nodes, by name."""
        with self._asking():
            return self.api.list(NODES).items

    def write_node(self, read: Json, write: NodeWrite) -> bool:
        """Implements `Cluster`."""
        name = read["metadata"]["name"]
        with self._asking():
            try:
                self.api.patch(NODES, name, node_patch(read, write, self._identity))
            except (Absent, Conflict):
                return False
        return True

    def ask_for(self, name: str, text: str | None, word: str = "") -> bool:
        """Write the request of a Node, or remove it; return whether the Node exists.

        Args:
            name: The name of the Node.
            text: The requested duration; None removes the request.
            word: The word of the request.
        """
        with self._asking():
            try:
                self.api.patch(NODES, name, request_patch(text, word), is_repeatable=True)
            except Absent:
                return False
        return True

    def lease(self, name: str) -> Json | None:
        """Implements `Cluster`."""
        return self._get(self.lease_collection, name)

    def leases(self) -> tuple[Json, ...]:
        """All Leases where those of nodes are."""
        with self._asking():
            return self.api.list(self.lease_collection).items

    def write_lease(
        self, name: str, read: Json | None, lease: Lease, *, node: str = ""
    ) -> Json | None:
        """Implements `Cluster`."""
        body = lease_body(read, name, lease, node=node)
        with self._asking():
            try:
                if read is None:
                    return self.api.create(self.lease_collection, body)
                return self.api.replace(self.lease_collection, name, body)
            except (Absent, Conflict):
                return None

    def pods(self, node: str) -> list[Pod]:
        """Implements `Cluster`."""
        with self._asking():
            listed = self.api.list(_PODS, fields=f"spec.nodeName={node}")
        return [parse_pod(each) for each in listed.items]

    def evict(self, pod: Pod, *, grace_seconds: int | None) -> Evicted:
        """See `Cluster.evict`, and Eviction in policy/v1.

        An error that the server answers is reported with the pod: the other pods are evicted all
        the same.
        """
        options: dict[str, object] = {"preconditions": {"uid": pod.uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": options,
        }
        collection = _PODS._replace(namespace=pod.namespace)
        try:
            with self.api.limited(self._clock.elapsed() + _SECONDS):
                self.api.create(collection, eviction, name=pod.name, subresource=EVICTION)
        except Absent:
            return Evicted("gone")
        except Conflict as error:
            # It is another by now, which the next look shows; or something is against it.
            return Evicted("held", f"the pod has just changed: {error}")
        except Busy as busy:
            return _held(busy)
        except LostAnswer as error:
            if _covered_twice(error):
                return Evicted("failed", _MORE_THAN_ONE, _COVERED_AGAIN_SECONDS)
            return Evicted("failed", str(error))
        except (Refused, AccessRefused, InvalidRequest, CorruptState) as error:
            return Evicted("failed", str(error))
        return Evicted("going")

    def _get(self, collection: Collection, name: str) -> Json | None:
        with self._asking():
            try:
                return self.api.get(collection, name)
            except Absent:
                return None

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask inside for a few seconds; whatever refuses it is no reason to end."""
        try:
            with self.api.limited(self._clock.elapsed() + _SECONDS):
                yield
        except (InvalidRequest, CorruptState) as error:
            raise AccessRefused(error) from error
        except Refused as error:
            raise BackendUnreachable(str(error)) from error


def _held(busy: Busy) -> Evicted:
    """What a 429 says: of a budget, of a webhook that moves it away first, of a server in need."""
    seconds = busy.retry_after_seconds or 0.0
    if not busy.is_budget:
        return Evicted("held", f"the server delays its eviction: {busy}", seconds)
    which = "new disruption budget" if seconds else "disruption budget"
    return Evicted("held", f"a {which} forbids it now", seconds)


def _covered_twice(error: LostAnswer) -> bool:
    """Whether an eviction has failed as it always will, as long as two budgets cover the pod."""
    return error.status == 500 and "PodDisruptionBudget" in error.words


_OPENING_SECONDS = 10.0


def open_cluster(
    url: str,
    environment: Mapping[str, str],
    *,
    namespace: str,
    identity: str,
    warn: Callable[[str], None] = lambda _: None,
) -> ApiCluster:
    """Open a cluster; nothing is asked of it yet.

    Args:
        url: ``kubernetes://``, perhaps with a context.
        environment: The variables of this process, which may name a kubeconfig.
        namespace: Where the leases of nodes are.
        identity: Who we are in them.
        warn: Called with a line for people, about what should be known of although it goes on.

    Raises:
        InvalidRequest: Nothing names a cluster, or what does can't be used.
        CorruptState: A kubeconfig isn't one.
    """
    address = parse_kubernetes_url(url)
    if not is_namespace(namespace):
        raise InvalidRequest(f'invalid --lease-namespace "{printable(namespace)}"')
    choice = choose(address, environment)
    if choice.warning:
        warn(choice.warning)
    clock = Clock()
    api = Api(choice, clock=clock, deadline_seconds=_OPENING_SECONDS)
    return ApiCluster(api, namespace=namespace, identity=identity, clock=clock)
