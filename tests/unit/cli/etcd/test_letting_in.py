"""Commands on a cluster that asks who they are, over TLS."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.certificates import Certificates, make_certificates
from tests.kit.etcd.gateways import READER, ROOT, demand_users
from tests.kit.etcd.server import EtcdServer, Security, etcd_server
from tests.kit.hosts import Script
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually

TOKEN_SECONDS = 1
EXPIRED_SECONDS = TOKEN_SECONDS + 1.5  # etcd looks for expired tokens once a second


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def strict(certificates: Certificates) -> Iterator[EtcdServer]:
    """A member that asks for a certificate and a user."""
    with etcd_server(security=Security(certificates, asks_clients=True)) as server:
        demand_users(server, "/leasectl")
        yield server


@pytest.fixture
def known(cli: Cli, strict: EtcdServer, certificates: Certificates, tmp_path: Path) -> Cli:
    """Commands that say who they are."""
    user_file = tmp_path / "user"
    user_file.write_text(":".join(ROOT))
    cli.env |= {
        "LEASECTL_BACKEND": strict.endpoints[0].replace("https", "etcds"),
        "LEASECTL_CA_FILE": certificates.ca.file,
        "LEASECTL_CERT_FILE": certificates.client.file,
        "LEASECTL_KEY_FILE": certificates.client.key_file,
        "LEASECTL_USER_FILE": str(user_file),
    }
    return cli


def refusal(cli: Cli, code: int, **env: str | None) -> str:
    """The one line that a command says which isn't let in."""
    finished: Finished = cli("pool", "list", **env)
    assert finished.code == code
    assert finished.out == ""
    (line,) = finished.err.splitlines()
    return line


def test_the_keeper_releases_as_who_acquired(known: Cli) -> None:
    known.ok("pool", "create", "T", "--count", "1")
    handle = known.ok("acquire", "-t", "T", "--release-after", "1s").rstrip()

    def is_released() -> bool:
        said = json.loads(known.ok("cat", "--handle", handle, "--format", "json"))
        return bool(said["state"] == "released")

    eventually(is_released)
    known.ok("run", "-t", "T", "--", "true")
    known.ok("pool", "delete", "T")
    written = b"".join(file.read_bytes() for file in known.state_dir.rglob("*") if file.is_file())
    assert known.env["LEASECTL_USER_FILE"].encode() in written
    assert ROOT[1].encode() not in written


def test_who_is_not_let_in_is_told_why_in_one_line(known: Cli, tmp_path: Path) -> None:
    user_file = tmp_path / "other"
    user_file.write_text("root:wr0ng")
    line = refusal(known, 77, LEASECTL_USER_FILE=str(user_file))
    assert str(user_file) in line
    assert "wr0ng" not in line
    assert "LEASECTL_USER_FILE" in refusal(known, 77, LEASECTL_USER_FILE=None)
    assert "LEASECTL_CA_FILE" in refusal(known, 69, LEASECTL_CA_FILE=None)
    no_certificate = {"LEASECTL_CERT_FILE": None, "LEASECTL_KEY_FILE": None}
    assert "LEASECTL_CERT_FILE" in refusal(known, 69, **no_certificate)
    assert "/nowhere" in refusal(known, 64, LEASECTL_CA_FILE="/nowhere")
    assert "LEASECTL_CERT_FILE" in refusal(known, 64, LEASECTL_CERT_FILE=None)


def test_who_may_only_look_is_told_so(known: Cli, tmp_path: Path) -> None:
    known.ok("pool", "create", "L", "--count", "1")
    user_file = tmp_path / "reader"
    user_file.write_text(":".join(READER))
    known.env["LEASECTL_USER_FILE"] = str(user_file)
    assert "L" in known.ok("pool", "list")
    finished = known("acquire", "-t", "L", "-w", "0")
    assert finished.code == 77
    assert "permission denied" in finished.err
    before = known.ok("pool", "list", "--json")
    report = known("doctor", "--json")
    assert report.code == 77
    (failed,) = (each for each in json.loads(report.out)["checks"] if each["status"] == "fail")
    assert failed["name"] == "etcd writing"
    assert "read and write all keys below /leasectl/" in failed["advice"]
    assert known.ok("pool", "list", "--json") == before


def test_doctor_says_as_whom_it_comes_and_shows_no_password(known: Cli) -> None:
    said = {
        each["name"]: each["what"] for each in json.loads(known.ok("doctor", "--json"))["checks"]
    }
    env = known.env
    assert said["etcd access"] == (
        f"as user root of {env['LEASECTL_USER_FILE']}, trusting {env['LEASECTL_CA_FILE']}, "
        f"showing {env['LEASECTL_CERT_FILE']}"
    )
    assert said["etcd writing"] == "allowed below /leasectl/"
    assert ROOT[1] not in str(said)


@pytest.mark.parametrize(
    ("variables", "code", "failing", "advice"),
    [
        (("LEASECTL_CERT_FILE", "LEASECTL_KEY_FILE"), 69, "etcd members", "LEASECTL_CERT_FILE"),
        (("LEASECTL_CA_FILE",), 69, "etcd members", "LEASECTL_CA_FILE"),
        (("LEASECTL_KEY_FILE",), 65, "etcd access", "LEASECTL_KEY_FILE"),
        (("LEASECTL_USER_FILE",), 77, "etcd pools", "LEASECTL_USER_FILE"),
    ],
)
def test_doctor_says_once_what_there_is_to_do_when_we_are_not_let_in(
    known: Cli, variables: tuple[str, ...], code: int, failing: str, advice: str
) -> None:
    report = known("doctor", "--json", **dict.fromkeys(variables))
    assert report.code == code
    (failed,) = (each for each in json.loads(report.out)["checks"] if each["status"] == "fail")
    assert failed["name"] == failing
    assert advice in failed["advice"]


@pytest.fixture(scope="module")
def forgetful() -> Iterator[EtcdServer]:
    """A member that asks for a user, and forgets its tokens soon."""
    with etcd_server(security=Security(token_seconds=TOKEN_SECONDS)) as server:
        demand_users(server, "/leasectl")
        yield server


@pytest.fixture
def user_file(cli: Cli, forgetful: EtcdServer, tmp_path: Path) -> Path:
    """Says who the commands are, to a member that asks again every second."""
    file = tmp_path / "user"
    file.write_text(":".join(ROOT))
    cli.env["LEASECTL_BACKEND"] = forgetful.endpoints[0].replace("http", "etcd") + "/leasectl"
    cli.env["LEASECTL_USER_FILE"] = str(file)
    cli.ok("pool", "create", "T", "--count", "1")
    return file


def test_a_command_ends_with_its_lease_when_etcd_no_longer_lets_it_be_renewed(
    cli: Cli, user_file: Path
) -> None:
    script = Script(cli.cwd, "say begin; exec sleep 60")
    run = cli.start("run", "-q", "-t", "T", "--ttl", "4s", "--", str(script.path))
    script.wait_for("begin")
    user_file.write_text("root:changed")
    finished = run.finish()
    assert finished.code == 79
    assert "was lost" in finished.err
    user_file.write_text(":".join(ROOT))
    eventually(lambda: not held(cli))
    cli.ok("pool", "delete", "T", "--force")


def test_a_release_that_is_refused_is_done_once_it_is_allowed(cli: Cli, user_file: Path) -> None:
    handle = cli.ok("acquire", "-t", "T").rstrip()
    user_file.unlink()
    failed = cli("release", "--handle", handle)
    assert failed.code in (64, 65)
    assert "the keeper keeps trying to release it" in failed.err
    user_file.write_text(":".join(ROOT))
    eventually(lambda: not held(cli))
    cli.ok("pool", "delete", "T")


def held(cli: Cli) -> int:
    (pool,) = json.loads(cli.ok("status", "-t", "T", "--json"))["pools"]
    count: int = pool["held"]
    return count


def queued(cli: Cli) -> int:
    (pool,) = json.loads(cli.ok("status", "-t", "T", "--json"))["pools"]
    return len(pool["queue"])


def test_a_waiter_hears_what_was_freed_although_its_token_has_expired(
    cli: Cli, user_file: Path
) -> None:
    first = cli.ok("acquire", "-t", "T").rstrip()
    waiters = []
    for number in (1, 2):
        waiters.append(cli.start("acquire", "-t", "T", "-w", "10m"))
        eventually(lambda number=number: queued(cli) == number)  # type: ignore[misc]
    time.sleep(EXPIRED_SECONDS)  # the streams go on; the tokens that opened them have expired
    cli.ok("release", "--handle", first)
    second = waiters[0].finish()
    assert second.code == 0
    # Its predecessor has changed, so this one needs a new stream, and a new token for that.
    time.sleep(EXPIRED_SECONDS)
    cli.ok("release", "--handle", second.out.rstrip())
    third = waiters[1].finish()
    assert third.code == 0
    cli.ok("release", "--handle", third.out.rstrip())
    cli.ok("pool", "delete", "T")
