"""Whom a real API server lets in, and what it says to the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.engines.kubernetes.api.address import leases
from leasectl.errors import AccessRefused
from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.unit.engines.kubernetes.api.scripted import api_of

LEASE = {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}}


def refused(kubeconfig: Path, namespace: str) -> str:
    with pytest.raises(AccessRefused) as raised:
        api_of(kubeconfig, deadline_seconds=60).list(leases(namespace))
    assert raised.value.exit_code == 77
    return str(raised.value)


class TestTokens:
    def test_garbage_and_what_is_over_are_not_known(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        account = namespace.account
        for token in ("garbage", account.short_token(-10)):
            path = account.kubeconfig(tmp_path / "config", token=token)
            said = refused(path, namespace.name)
            assert "rejects the credentials (401: Unauthorized)" in said
            assert f'the token or certificate of user "test" in {path} has expired' in said

    def test_none_is_nobody(self, namespace: Namespace, tmp_path: Path) -> None:
        path = namespace.account.kubeconfig(tmp_path / "config", extensions=[])
        assert "nobody is allowed to list leases.coordination.k8s.io" in refused(
            path, namespace.name
        )


class TestRights:
    def test_who_may_nothing_hears_how_to_get_it(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        account = namespace.new_account("nobody", LEAST_RULES[1:])
        said = refused(account.kubeconfig(tmp_path / "config"), namespace.name)
        assert said.endswith(
            f'"{account.user}" is not allowed to list leases.coordination.k8s.io in namespace '
            f'"{namespace.name}", or the namespace is missing; ask an administrator to run: '
            f"leasectl kubernetes manifest --namespace {namespace.name} --service-account nobody "
            "| kubectl apply -f -"
        )

    def test_a_namespace_that_is_not_there_is_not_told_from_that(
        self, namespace: Namespace, kubeconfig: Path
    ) -> None:
        assert 'in namespace "elsewhere", or the namespace is missing' in refused(
            kubeconfig, "elsewhere"
        )
