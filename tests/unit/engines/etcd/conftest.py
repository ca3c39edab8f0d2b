"""What the tests of the engine of etcd share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.engines.etcd import events
from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.engines.etcd.gateway import Gateway
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from tests.kit.etcd.access import NAMES, Access
from tests.kit.etcd.gateways import LONG, LetIn, WriteUserFile, address
from tests.kit.etcd.server import EtcdServer
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.marks import once_below
from tests.kit.peculiar import serve as serve

# Servers are there on one Python only: see scripts/test.
pytest_collection_modifyitems = once_below(__file__)


@pytest.fixture(autouse=True)
def nobody_looks_by_chance(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are counted here: none is made one time in so many, but where that is tested."""
    file = request.node.nodeid.partition("::")[0]
    if not file.endswith(("test_events.py", "test_packing.py")):
        monkeypatch.setattr(events, "_LOOK_EVERY", 2**64)


@pytest.fixture
def store(etcd: EtcdServer, prefix: str) -> Access:
    """Access to a pool of four that nobody has touched."""
    access = Access(etcd.endpoints, prefix)
    access.pools.create_pool("T", NAMES)
    return access


@pytest.fixture
def user_file(tmp_path: Path) -> WriteUserFile:
    def write(user: tuple[str, str]) -> str:
        file = tmp_path / "user"
        file.write_text(":".join(user) + "\n")
        return str(file)

    return write


@pytest.fixture
def let_in() -> Iterator[LetIn]:
    """Opens gateways, and closes them."""
    opened: list[Gateway] = []

    def open_one(
        server: EtcdServer | str, seconds: float = LONG, **settings: str | None
    ) -> Gateway:
        url = server if isinstance(server, str) else address(server)
        given = Settings(**settings)  # type: ignore[arg-type]
        opened.append(Gateway(parse_etcd_url(url), given, clock=Clock(), deadline_seconds=seconds))
        return opened[-1]

    yield open_one
    for gateway in opened:
        gateway.close()
