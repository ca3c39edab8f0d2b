"""A namespace per test, and who may do what there."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit.kubernetes.accounts import LEAST_RULES, Account, Rules
from tests.kit.kubernetes.api import Api, Object
from tests.kit.kubernetes.assets import Programs, find_programs, how_to_have_one
from tests.kit.kubernetes.control_plane import ControlPlane, control_plane
from tests.kit.kubernetes.kubeconfigs import api_of
from tests.kit.relay import Relay, Tls, relay


class Kubernetes(NamedTuple):
    """API servers that tests make namespaces on.

    Args:
        administrators: Access to each, as somebody who may do everything.
        control_plane: The servers themselves; None if they are somebody else's.
    """

    administrators: Sequence[Api]
    control_plane: ControlPlane | None = None

    @property
    def signing_key(self) -> str | None:
        """The file with the key that tokens are signed with, if it is known."""
        return self.control_plane.signing_key if self.control_plane else None


class Namespace:
    """One namespace, in which nothing is yet.

    Args:
        kubernetes: The servers that have it.
        name: Its name.

    Attributes:
        leases: The path of the Leases in it.
        events: The path of the events in it.
        account: A service account that may do there what `leasectl` needs.
    """

    def __init__(self, kubernetes: Kubernetes, name: str) -> None:
        self.name = name
        self.administrator = kubernetes.administrators[0]
        self.leases = f"/apis/coordination.k8s.io/v1/namespaces/{name}/leases"
        self.events = f"/apis/events.k8s.io/v1/namespaces/{name}/events"
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
        return [each["metadata"]["name"] for each in self.administrator.items(self.leases)]

    def relay(self, number: int = 0) -> AbstractContextManager[Relay]:
        """What a client can be made to talk to instead of one of the servers, with a token."""
        plane = self._kubernetes.control_plane
        if plane is None:
            pytest.skip("needs an API server of its own, whose certificate a relay can show")
        tls = Tls(plane.certificates.server, plane.certificates.ca.file)
        return relay(plane.endpoints[number], tls)

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


def programs_or_skip() -> Programs:
    """The programs of a control plane; if they are missing, the test is skipped."""
    return find_programs() or pytest.skip(how_to_have_one())


@contextlib.contextmanager
def kubernetes_servers() -> Iterator[Kubernetes]:
    """The cluster that `LEASECTL_TEST_KUBECONFIG` names, or else an API server of our own."""
    given = os.environ.get("LEASECTL_TEST_KUBECONFIG")
    if given:
        with tempfile.TemporaryDirectory() as folder:
            yield Kubernetes([api_of(given, Path(folder))])
    else:
        with own_servers(1) as servers:
            yield servers


@contextlib.contextmanager
def own_servers(size: int) -> Iterator[Kubernetes]:
    """So many API servers that may be stopped, killed and started."""
    with control_plane(programs_or_skip(), size) as servers:
        yield Kubernetes([servers.administrator(number) for number in range(size)], servers)
