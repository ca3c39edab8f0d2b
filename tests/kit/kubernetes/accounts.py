"""Service accounts: what clients are, with the rights and tokens that a test gives them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.kit.certificates import sign
from tests.kit.kubernetes.api import Api, Credentials, Object
from tests.kit.kubernetes.control_plane import ISSUER
from tests.kit.kubernetes.kubeconfigs import write_kubeconfig
from tests.kit.support import eventually

Rules = Sequence[Mapping[str, Sequence[str]]]

LEAST_RULES: Rules = (
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
    {
        "apiGroups": ["events.k8s.io"],
        "resources": ["events"],
        "verbs": ["create", "list", "watch"],
    },
)

_RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

# That the server lets a token live on after its end, for clocks that differ.
_LEEWAY_SECONDS = 60


class Account:
    """A service account with a Role of its own, in one namespace.

    Args:
        administrators: Access to each API server, as somebody who may do everything.
        signing_key: The file with the key that tokens are signed with, if it is known.
        namespace: That it is in, and may do something in.
        name: Its own, and its Role's.
    """

    def __init__(
        self, administrators: Sequence[Api], signing_key: str | None, namespace: str, name: str
    ) -> None:
        self.namespace, self.name = namespace, name
        self.user = f"system:serviceaccount:{namespace}:{name}"
        self._administrators, self._signing_key = administrators, signing_key
        self._administrator = administrators[0]
        self._roles = f"{_RBAC}/{namespace}/roles"
        self._bindings = f"{_RBAC}/{namespace}/rolebindings"
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        accounts = self._path.rpartition("/")[0]
        made = self._administrator.ok("POST", accounts, {"metadata": {"name": name}})
        self._uid = made["metadata"]["uid"]

    def permit(self, rules: Rules = LEAST_RULES) -> None:
        """Let it do so much in its namespace, and nothing else, from here on."""
        role = {"metadata": {"name": self.name}, "rules": list(rules)}
        if self._administrator("POST", self._roles, role).status_code == 409:
            self._administrator.ok("PUT", f"{self._roles}/{self.name}", role)
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name}
        binding = {
            "metadata": {"name": self.name},
            "subjects": [subject],
            "roleRef": reference,
        }
        assert self._administrator("POST", self._bindings, binding).status_code in (201, 409)
        self._wait_until_permitted(rules, True)

    def forbid(self) -> None:
        """Let it do nothing, from here on."""
        rules = self._administrator.ok("GET", f"{self._roles}/{self.name}")["rules"]
        self._administrator.ok("DELETE", f"{self._bindings}/{self.name}")
        self._wait_until_permitted(rules, False)

    def token(self, seconds: int = 3600) -> str:
        """Ask for a token, as kubectl and the kubelet do; it is good for ten minutes at least."""
        request = {"spec": {"expirationSeconds": seconds}}
        said = self._administrator.ok("POST", f"{self._path}/token", request)
        token: str = said["status"]["token"]
        return token

    def short_token(self, seconds: float) -> str:
        """A token such as the server makes, but for any time, also one that has passed.

        One that the server has seen while it was good goes on for up to ten seconds: so long it
        remembers whose it is.
        """
        if self._signing_key is None:
            pytest.skip("needs API servers of its own, whose key signs tokens")
        now = int(time.time())
        who = {"name": self.name, "uid": self._uid}
        claims = {
            "iss": ISSUER,
            "aud": [ISSUER],
            "sub": self.user,
            "iat": now - 3600,
            "nbf": now - 3600,
            "exp": now + seconds - _LEEWAY_SECONDS,
            "kubernetes.io": {"namespace": self.namespace, "serviceaccount": who},
        }
        signed = b".".join(map(_encode, ({"alg": "RS256", "typ": "JWT"}, claims)))
        return (signed + b"." + _base64(sign(self._signing_key, signed))).decode()

    def api(self, token: str | None = None, *, server: str | None = None) -> Api:
        """What it sees of an API server; the caller closes it."""
        first = self._administrator
        return Api(server or first.server, first.ca_file, Credentials(token=token or self.token()))

    def kubeconfig(
        self,
        path: Path,
        *,
        token: str | None = None,
        server: str | None = None,
        **user: object,
    ) -> Path:
        """Write a kubeconfig for it, and return its path.

        Args:
            path: Of the file.
            token: For it; by default one of an hour.
            server: Another address than the first server's, a relay's for example.
            user: What the user in it has instead of a token: `tokenFile`, `exec` ...
        """
        first = self._administrator
        return write_kubeconfig(
            path,
            server=server or first.server,
            ca_file=first.ca_file,
            user=user or {"token": token or self.token()},
            namespace=self.namespace,
        )

    def _wait_until_permitted(self, rules: Rules, expected: bool) -> None:
        """Servers hear of a change of rights a moment later, all of one change at once."""
        rule = rules[0]
        asked = {
            "namespace": self.namespace,
            "group": rule["apiGroups"][0],
            "resource": rule["resources"][0],
            "verb": rule["verbs"][0],
        }
        review = {"spec": {"user": self.user, "resourceAttributes": asked}}
        for api in self._administrators:
            eventually(
                partial(_is_answered, api, review, expected),
                what=f"{self.user} {'may' if expected else 'may not'} {asked} at {api.server}",
            )


def _is_answered(api: Api, review: Object, expected: bool) -> bool:
    return bool(api.ok("POST", _REVIEWS, review)["status"]["allowed"]) is expected


def _encode(part: object) -> bytes:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
