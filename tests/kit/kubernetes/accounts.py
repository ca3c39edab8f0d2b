"""Service accounts, with the tokens, kubeconfigs and rights that a test gives them."""

from __future__ import annotations

import base64
import itertools
import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from unittest import SkipTest

from tests.kit.certificates import sign
from tests.kit.kubernetes.api import Api, Credentials, Object, write_kubeconfig
from tests.kit.kubernetes.control_plane import ISSUER
from tests.kit.waits import eventually

# That the server lets a token live on after its end, for clocks that differ.
_LEEWAY_SECONDS = 60


def _encode(part: object) -> bytes:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


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

# Besides those, in all of the cluster.
MAINTENANCE_RULES: Rules = (
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
)

_GROUP = "rbac.authorization.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Rights:
    """The rights of one account in one place, none at first.

    Args:
        administrators: Access to each API server, as somebody who may do everything.
        namespace: That the account is in.
        account: Its name.
        everywhere: Whether the rights are for all of the cluster, not only for that namespace.
    """

    def __init__(
        self, administrators: Sequence[Api], namespace: str, account: str, *, everywhere: bool
    ) -> None:
        self._administrators = administrators
        self._subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        self._user = f"system:serviceaccount:{namespace}:{account}"
        self._kind = "ClusterRole" if everywhere else "Role"
        self._name = f"{namespace}-{account}"
        self._namespace = None if everywhere else namespace
        below = "" if everywhere else f"/namespaces/{namespace}"
        self._path = f"/apis/{_GROUP}/v1{below}/{self._kind.lower()}"
        self._changes = itertools.count(1)
        self._mark = ""

    def permit(self, rules: Rules) -> None:
        """Let it do so much, and nothing else, from here on."""
        # Servers hear of a change a moment later. This right is of no use but to tell when.
        self._mark = f"change-{next(self._changes)}"
        mark = {"apiGroups": ["leasectl.test"], "resources": [self._mark], "verbs": ["get"]}
        self._put("s", {"rules": [*rules, mark]})
        reference = {"apiGroup": _GROUP, "kind": self._kind, "name": self._name}
        self._put("bindings", {"subjects": [self._subject], "roleRef": reference})
        self._wait_until_permitted(True)

    def forbid(self) -> None:
        """Let it do nothing, from here on."""
        if self._mark:
            self._administrators[0].ok("DELETE", f"{self._path}bindings/{self._name}")
            self._wait_until_permitted(False)
            self._mark = ""

    def _put(self, kind: str, body: Object) -> None:
        path, ask = f"{self._path}{kind}", self._administrators[0]
        named = {"metadata": {"name": self._name}, **body}
        if ask("POST", path, named).status_code == 409:
            ask.ok("PUT", f"{path}/{self._name}", named)

    def _wait_until_permitted(self, expected: bool) -> None:
        asked = {"group": "leasectl.test", "resource": self._mark, "verb": "get"}
        if self._namespace:
            asked["namespace"] = self._namespace
        review = {"spec": {"user": self._user, "resourceAttributes": asked}}
        for api in self._administrators:
            eventually(
                partial(_is_answered, api, review, expected),
                what=f"{api.server} has heard of the rights of {self._user}",
            )


def _is_answered(api: Api, review: Object, expected: bool) -> bool:
    return bool(api.ok("POST", _REVIEWS, review)["status"]["allowed"]) is expected


class Account:
    """A service account, which may do nothing at first.

    Args:
        administrators: Access to each API server, as somebody who may do everything.
        signing_key: The file with the key that tokens are signed with, if it is known.
        namespace: That it is in.
        name: Its own.
    """

    def __init__(
        self, administrators: Sequence[Api], signing_key: str | None, namespace: str, name: str
    ) -> None:
        self.namespace, self.name = namespace, name
        self.user = f"system:serviceaccount:{namespace}:{name}"
        self._administrator, self._signing_key = administrators[0], signing_key
        self._path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        accounts = self._path.rpartition("/")[0]
        made = self._administrator.ok("POST", accounts, {"metadata": {"name": name}})
        self._uid = made["metadata"]["uid"]
        self._here = Rights(administrators, namespace, name, everywhere=False)
        self._everywhere = Rights(administrators, namespace, name, everywhere=True)

    def permit(self, rules: Rules = LEAST_RULES) -> None:
        """Let it do so much in its namespace, and nothing else there, from here on."""
        self._here.permit(rules)

    def permit_everywhere(self, rules: Rules) -> None:
        """Let it do so much in all of the cluster, besides what it may in its namespace."""
        self._everywhere.permit(rules)

    def forbid(self) -> None:
        """Let it do nothing, from here on."""
        self._here.forbid()
        self._everywhere.forbid()

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
            raise SkipTest("needs API servers of its own, whose key signs tokens")
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
