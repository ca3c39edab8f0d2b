"""What the tests of the API's client share."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from leasectl.engines.kubernetes.api.requests import Api
from tests.kit.certificates import Certificates, make_certificates
from tests.unit.engines.kubernetes.api.scripted import (
    Reply,
    Scripted,
    api_of,
    write_kubeconfig,
)

Script = Callable[..., Scripted]


@pytest.fixture
def script() -> Iterator[Script]:
    """Starts API servers that say what a test wants."""
    servers: list[Scripted] = []

    def start(*replies: Reply, context: ssl.SSLContext | None = None) -> Scripted:
        servers.append(Scripted(*replies, context=context))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def open_at(tmp_path: Path) -> Iterator[Callable[..., Api]]:
    """Opens the API of such a server, with a token."""
    opened: list[Api] = []

    def start(server: Scripted, **options: Any) -> Api:
        opened.append(api_of(write_kubeconfig(tmp_path / "kubeconfig", server.url), **options))
        return opened[-1]

    yield start
    for api in opened:
        api.close()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))
