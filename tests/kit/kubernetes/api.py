"""Requests to a Kubernetes API server as somebody: for what tests set up and look at."""

from __future__ import annotations

import base64
import contextlib
import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Union

import httpx

from tests.kit.certificates import Certificate
from tests.kit.waits import PATIENCE_SECONDS

Object = dict[str, Any]
Query = Mapping[str, Union[str, int]]


class Credentials(NamedTuple):
    """Credentials of a client: a certificate, a token, or none."""

    certificate: Certificate | None = None
    token: str | None = None


class Api:
    """One API server, with credentials for it.

    Args:
        server: Its address.
        ca_file: Of the CA that it is believed by.
        credentials: Who asks.
    """

    def __init__(self, server: str, ca_file: str, credentials: Credentials) -> None:
        self.server = server
        self.ca_file = ca_file
        verify = ssl.create_default_context(cafile=ca_file)
        headers = {}
        if credentials.certificate:
            verify.load_cert_chain(*credentials.certificate)
        if credentials.token:
            headers["Authorization"] = f"Bearer {credentials.token}"
        self._client = httpx.Client(
            base_url=server,
            verify=verify,
            headers=headers,
            timeout=PATIENCE_SECONDS,
            trust_env=False,
        )

    def __call__(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: Query | None = None,
    ) -> httpx.Response:
        """Ask for something, and return whatever it says to that.

        Args:
            method: GET, POST, PUT, PATCH or DELETE.
            path: Below the server's address.
            body: An object.
            content_type: Of a patch, `application/merge-patch+json` for example.
            query: Such as `labelSelector` and `resourceVersion`.
        """
        headers = {"Content-Type": content_type} if body is not None else {}
        return self._client.request(method, path, json=body, headers=headers, params=query)

    def ok(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        *,
        content_type: str = "application/json",
        query: Query | None = None,
    ) -> Object:
        """Ask for something that has to be granted, and return the object."""
        response = self(method, path, body, content_type=content_type, query=query)
        assert response.is_success, f"{method} {path}: {response.status_code} {response.text}"
        said: Object = response.json()
        return said

    def items(self, path: str, query: Query | None = None) -> list[Object]:
        """List objects."""
        listed: list[Object] = self.ok("GET", path, query=query)["items"]
        return listed

    def watch(self, path: str, query: Query | None = None) -> Iterator[Object]:
        """Watch objects; the events of it, one by one, until the stream ends, however it does."""
        asked = {"watch": "true", **(query or {})}
        streaming = self._client.stream("GET", path, params=asked, timeout=None)
        with contextlib.suppress(httpx.HTTPError), streaming as response:
            for line in response.iter_lines():
                yield json.loads(line)

    def is_ready(self) -> bool:
        """Whether the server says that it is."""
        try:
            return self("GET", "/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self._client.close()


def write_kubeconfig(
    path: Path, *, server: str, ca_file: str, user: Mapping[str, object], namespace: str
) -> Path:
    """Write a file with one context, and return its path.

    Args:
        path: Of the file. It is JSON, and so YAML.
        server: The address of the API server.
        ca_file: Of the CA that it is believed by.
        user: What a user in it may have: `token`, `tokenFile`, `exec`, `client-certificate` ...
        namespace: That the context is for.
    """
    cluster = {"server": server, "certificate-authority": ca_file}
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": dict(user)}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    path.chmod(0o600)
    return path


def api_of(kubeconfig: str, folder: Path) -> Api:
    """The API server of the current context of a kubeconfig.

    Args:
        kubeconfig: The path of the file. Its user has a client certificate or a token.
        folder: Where the certificates are put that stand in it.
    """
    view = ["kubectl", "config", "view", "--raw", "--minify", "--flatten", "--output", "json"]
    said = subprocess.run(
        [*view, f"--kubeconfig={kubeconfig}"], check=True, capture_output=True, text=True
    )
    config = json.loads(said.stdout)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]

    def file(name: str, data: str) -> str:
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        return str(path)

    certificate = None
    if "client-certificate-data" in user:
        certificate = Certificate(
            file("client.pem", user["client-certificate-data"]),
            file("client.key", user["client-key-data"]),
        )
    return Api(
        cluster["server"],
        file("ca.pem", cluster["certificate-authority-data"]),
        Credentials(certificate, user.get("token")),
    )
