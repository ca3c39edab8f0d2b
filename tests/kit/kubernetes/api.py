"""Requests to a Kubernetes API server as somebody: for what tests set up and look at."""

from __future__ import annotations

import contextlib
import json
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Union

import httpx

from tests.kit.certificates import Certificate
from tests.kit.waits import PATIENCE_SECONDS

Object = dict[str, Any]
Query = Mapping[str, Union[str, int]]


class Credentials(NamedTuple):
    """Who asks: by a client certificate, by a token, or nobody in particular."""

    certificate: Certificate | None = None
    token: str | None = None


class Api:
    """One API server as somebody sees it.

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
