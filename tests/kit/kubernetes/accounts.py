"""Service accounts: what clients are, with the tokens and kubeconfigs that a test gives them."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import SkipTest

from tests.kit.certificates import sign
from tests.kit.kubernetes.api import Api, Credentials
from tests.kit.kubernetes.control_plane import ISSUER
from tests.kit.kubernetes.kubeconfigs import write_kubeconfig
from tests.kit.kubernetes.rights import LEAST_RULES, Rights, Rules

# That the server lets a token live on after its end, for clocks that differ.
_LEEWAY_SECONDS = 60


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


def _encode(part: object) -> bytes:
    return _base64(json.dumps(part).encode())


def _base64(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
