"""A namespace per test, and who may do what there."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tests.kit.kubernetes.accounts import LEAST_RULES, Account, Rules
from tests.kit.kubernetes.api import Object
from tests.kit.kubernetes.control_plane import Asked, ControlPlane, asked_in
from tests.kit.kubernetes.servers import Kubernetes
from tests.kit.relay import Relay, Tls, relay


class Namespace:
    """One namespace, in which nothing is yet.

    Args:
        kubernetes: The servers that have it.
        name: Its name.

    Attributes:
        administrators: Access to each server, as somebody who may do everything.
        leases: The path of the Leases in it.
        events: The path of the events in it.
        pods: The path of the Pods in it.
        budgets: The path of the PodDisruptionBudgets in it.
        account: A service account that may do there what `leasectl` needs.
    """

    def __init__(self, kubernetes: Kubernetes, name: str) -> None:
        self.name = name
        self.administrators = kubernetes.administrators
        self.administrator = self.administrators[0]
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"
        self.events = f"/apis/events.k8s.io/v1/namespaces/{name}/events"
        self.pods = f"/api/v1/namespaces/{name}/pods"
        self.budgets = f"/apis/policy/v1/namespaces/{name}/poddisruptionbudgets"
        self._kubernetes = kubernetes
        self.administrator.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        self.account = self.new_account("client")

    def new_account(self, name: str, rules: Rules = LEAST_RULES) -> Account:
        """Make one more service account, with rights of its own."""
        servers = self._kubernetes
        account = Account(servers.administrators, servers.signing_key, self.name, name)
        account.permit(rules)
        return account

    def lease(self, name: str) -> Object:
        """A Lease as it is now."""
        return self.administrator.ok("GET", f"{self.leases}/{name}")

    def lease_names(self) -> list[str]:
        """The names of all Leases in it, sorted."""
        return [each["metadata"]["name"] for each in self.all_leases()]

    def all_leases(self) -> list[Object]:
        """All Leases in it, as of one instant."""
        return self.administrator.items(self.leases)

    def relay(self, number: int = 0) -> AbstractContextManager[Relay]:
        """What a client can be made to talk to instead of one of the servers, with a token."""
        plane = self.servers
        tls = Tls(plane.certificates.server, plane.certificates.ca.file)
        return relay(plane.endpoints[number], tls)

    @property
    def servers(self) -> ControlPlane:
        """The servers that have it; the test is skipped if they are not the tests' own."""
        return self._kubernetes.own

    def asked(self) -> list[Asked]:
        """What clients have asked of it so far, server by server.

        A request is in it a moment after its answer has come.
        """
        plane = self.servers
        logs = [plane.audit_log(number) for number in range(len(plane.endpoints))]
        return [asked for log in logs for asked in asked_in(log, self.name)]

    def delete(self) -> None:
        self.administrator.ok("DELETE", f"/api/v1/namespaces/{self.name}")


@contextlib.contextmanager
def new_namespace(kubernetes: Kubernetes) -> Iterator[Namespace]:
    """A namespace for as long as the block lasts; here it goes with the servers."""
    namespace = Namespace(kubernetes, f"leasectl-test-{secrets.token_hex(6)}")
    try:
        yield namespace
    finally:
        if kubernetes.control_plane is None:
            namespace.delete()
