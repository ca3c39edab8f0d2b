"""One login serves all processes of a state directory, and none is repeated while it lasts."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable

import httpx
import pytest

from leasectl.engines.etcd import tokens
from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.gateway import Gateway
from leasectl.errors import AccessRefused, NotAllowed
from leasectl.http.settings import Settings
from leasectl.system.clock import Clock
from tests.kit.etcd.gateways import PREFIX, ROOT, address, demand_users, read_something
from tests.kit.etcd.server import EtcdServer, Security, etcd_server
from tests.kit.support import Cli

ANSWER = {
    "header": {"revision": "1"},
    "succeeded": True,
    "responses": [{"response_range": {"header": {}, "kvs": []}}],
}


class SlowMember(ThreadingHTTPServer):
    """Answers like etcd, and takes long to check a password.

    Attributes:
        slow_seconds: How long.
        logins: How many passwords it was asked to check.
        refusal: What it answers all else, unless that is done.
    """

    daemon_threads = True
    slow_seconds = 0.0
    refusal: tuple[int, str] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.logins = 0
        self.lock = threading.Lock()
        self.gave_up = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: SlowMember

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/v3/auth/authenticate":
            with self.server.lock:
                self.server.logins += 1
            self.server.gave_up.wait(self.server.slow_seconds)
            self._say(200, json.dumps({"token": "a.1"}))
        elif self.server.refusal is not None:
            self._say(*self.server.refusal)
        else:
            self._say(200, json.dumps(ANSWER))

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def slow() -> Iterator[SlowMember]:
    with SlowMember() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.gave_up.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def user_file(tmp_path: Path) -> str:
    path = tmp_path / "user"
    path.write_text(":".join(ROOT))
    return str(path)


OpenTo = Callable[..., Gateway]


@pytest.fixture
def open_to(user_file: str) -> OpenTo:
    """Open a gateway to a made-up member."""

    def open_it(server: SlowMember, *, user: bool = True, attempt_seconds: float = 2.0) -> Gateway:
        address = EtcdAddress((f"http://127.0.0.1:{server.server_address[1]}",), PREFIX)
        settings = Settings(user_file=user_file if user else None)
        return Gateway(
            address, settings, clock=Clock(), deadline_seconds=60.0, attempt_seconds=attempt_seconds
        )

    return open_it


@pytest.fixture
def kept_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which this process keeps its tokens."""
    monkeypatch.setattr(tokens, "state_directory", lambda: str(tmp_path))
    forget_those_of_this_process(monkeypatch)
    return tmp_path


def forget_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_of_process", {})


def test_login_is_not_repeated_while_etcd_checks_the_password(
    slow: SlowMember, open_to: OpenTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_those_of_this_process(monkeypatch)
    slow.slow_seconds = 1.0
    read_something(open_to(slow, attempt_seconds=0.05))
    assert slow.logins == 1


def test_those_who_come_meanwhile_wait_for_the_same_login(
    slow: SlowMember, open_to: OpenTo, kept_in: Path
) -> None:
    slow.slow_seconds = 0.5
    threads = [threading.Thread(target=read_something, args=(open_to(slow),)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert slow.logins == 1
    (file,) = kept_in.glob("etcd.token.*[0-9a-f]")
    assert file.stat().st_mode & 0o777 == 0o600


def test_another_user_or_password_is_another_login(
    slow: SlowMember, open_to: OpenTo, kept_in: Path, user_file: str
) -> None:
    read_something(open_to(slow))
    read_something(open_to(slow))
    assert slow.logins == 1
    new = Path(f"{user_file}.new")
    new.write_text("another:password")
    new.replace(user_file)
    read_something(open_to(slow))
    assert slow.logins == 2


def test_folder_that_cant_be_written_costs_a_login_and_no_more(
    slow: SlowMember, open_to: OpenTo, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_those_of_this_process(monkeypatch)
    monkeypatch.setattr(tokens, "state_directory", lambda: "/nowhere")
    read_something(open_to(slow))
    assert slow.logins == 1


COMMON_NAME = (
    "CommonName of client sending a request against gateway will be ignored and not used as "
    "expected\n"
)


@pytest.mark.parametrize("has_user", [True, False])
def test_certificate_with_a_common_name_is_said_to_be_why(
    slow: SlowMember, open_to: OpenTo, has_user: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_those_of_this_process(monkeypatch)
    slow.refusal = (400, COMMON_NAME)
    with pytest.raises(AccessRefused) as refused:
        read_something(open_to(slow, user=has_user))
    assert refused.value.exit_code == NotAllowed.exit_code
    text = str(refused.value)
    assert COMMON_NAME.strip() in text
    assert "without CN in LEASECTL_CERT_FILE, and name a file that holds" in text


def test_who_names_no_user_and_may_not_is_told_to_name_one(
    slow: SlowMember, open_to: OpenTo
) -> None:
    denied = "etcdserver: permission denied"
    slow.refusal = (403, json.dumps({"error": denied, "message": denied, "code": 7}))
    with pytest.raises(
        AccessRefused, match=r"name a file that holds user:password .* needs a role"
    ):
        read_something(open_to(slow, user=False))


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    with etcd_server(security=Security()) as server:
        demand_users(server, "/leasectl")
        yield server


def _logins(server: EtcdServer) -> int:
    text = httpx.get(f"{server.endpoints[0]}/metrics", trust_env=False).text
    counts = (
        line.rpartition(" ")[2]
        for line in text.splitlines()
        if line.startswith("grpc_server_started_total") and '"Authenticate"' in line
    )
    return sum(map(int, counts))


def test_one_login_serves_many_commands(cli: Cli, guarded: EtcdServer, user_file: str) -> None:
    cli.env |= {
        "LEASECTL_BACKEND": address(guarded).rpartition("/")[0],
        "LEASECTL_USER_FILE": user_file,
    }
    cli.ok("pool", "create", "T", "--count", "1")
    before = _logins(guarded)
    for _ in range(3):
        handle = cli.ok("acquire", "-t", "T").rstrip()
        cli.ok("release", handle)
    assert _logins(guarded) == before


def test_token_that_etcd_has_forgotten_is_replaced_for_all(
    cli: Cli, guarded: EtcdServer, user_file: str
) -> None:
    cli.env |= {
        "LEASECTL_BACKEND": address(guarded).rpartition("/")[0],
        "LEASECTL_USER_FILE": user_file,
    }
    cli("pool", "create", "U", "--count", "1")
    (file,) = (path for path in cli.state_dir.glob("etcd.token.*") if path.suffix != ".lock")
    file.write_text("nonsense.1")
    before = _logins(guarded)
    for _ in range(2):
        handle = cli.ok("acquire", "-t", "U").rstrip()
        cli.ok("release", handle)
    assert _logins(guarded) == before + 1
    assert "nonsense" not in file.read_text()


def test_waiter_with_time_waits_for_its_login_longer_than_for_a_request(
    slow: SlowMember, user_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_those_of_this_process(monkeypatch)
    address = EtcdAddress((f"http://127.0.0.1:{slow.server_address[1]}",), PREFIX)
    settings = Settings(user_file=user_file)
    gateway = Gateway(address, settings, clock=Clock(), deadline_seconds=0.1, attempt_seconds=0.05)
    slow.slow_seconds = 1.0
    with gateway.limited(Clock().elapsed() + 600):
        read_something(gateway)
    assert slow.logins == 1
