"""Whom a real API server lets in, and what it says to the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.api.collection import leases
from leasectl.engines.kubernetes.api.refusals import Conflict, LostAnswer
from leasectl.errors import AccessRefused
from tests.kit.kubernetes.accounts import LEAST_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.relay import Relay
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

    def test_one_that_ends_is_replaced_by_what_its_file_has(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        account, file = namespace.account, tmp_path / "token"
        file.write_text(account.token())
        api = api_of(account.kubeconfig(tmp_path / "config", tokenFile=str(file)))
        api.list(leases(namespace.name))
        file.write_text(account.short_token(-10))
        with pytest.raises(AccessRefused, match=r"the token in .*token has expired"):
            api.list(leases(namespace.name))
        file.write_text(account.token())
        api.list(leases(namespace.name))

    def test_a_program_is_asked_anew_when_its_token_has_ended(
        self, namespace: Namespace, tmp_path: Path
    ) -> None:
        account = namespace.account
        version = "client.authentication.k8s.io/v1"
        for name, token in (("1", account.short_token(-10)), ("2", account.token())):
            credential = {"kind": "ExecCredential", "apiVersion": version}
            (tmp_path / name).write_text(json.dumps({**credential, "status": {"token": token}}))
        # The second time, the other one.
        script = f"cd {tmp_path}; cat 1; mv 2 1 2> /dev/null; true"
        plugin = {"apiVersion": version, "command": "sh", "args": ["-c", script]}
        api = api_of(account.kubeconfig(tmp_path / "config", exec=plugin))
        api.list(leases(namespace.name))


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


class TestLostAnswers:
    def test_a_write_that_was_carried_out_is_not_made_again(
        self, namespace: Namespace, between_api: Relay, tmp_path: Path
    ) -> None:
        path = namespace.account.kubeconfig(tmp_path / "config", server=between_api.endpoint)
        api, here = api_of(path), leases(namespace.name)
        between_api.listen(after=lambda _number, _path: True)
        with pytest.raises(LostAnswer):
            api.create(here, LEASE)
        between_api.listen()
        made = api.get(here, "a")
        between_api.listen(after=lambda number, _path: len(between_api.methods) == number == 3)
        with pytest.raises(Conflict):  # of the first try, which may be said to be repeatable
            api.replace(here, "a", {**made, "spec": {"holderIdentity": "you"}}, is_repeatable=True)
        assert api.get(here, "a")["spec"] == {"holderIdentity": "you"}

    def test_a_read_is(self, namespace: Namespace, between_api: Relay, tmp_path: Path) -> None:
        path = namespace.account.kubeconfig(tmp_path / "config", server=between_api.endpoint)
        between_api.listen(after=lambda number, _path: number < 3)
        assert api_of(path).list(leases(namespace.name)).items == ()
        assert len(between_api.paths) == 3
