"""How etcd lets a client in, or doesn't: TLS, users and their roles; against real servers."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Callable, NamedTuple

import httpx
import pytest

from leasectl.backends.opening import open_probe
from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import encode, put, read
from leasectl.engines.etcd.opening import open_gateway
from leasectl.errors import (
    AccessRefused,
    BackendUnreachable,
    CorruptState,
    FileUnreadable,
    InvalidRequest,
    LeaseError,
    NotAllowed,
)
from leasectl.http.exchange import Client
from leasectl.http.messages import Call
from leasectl.http.no_answer import NoAnswer
from leasectl.http.settings import Settings
from leasectl.http.trust import Trust
from leasectl.system.clock import Clock
from tests.kit.certificates import Certificate, Certificates, encrypt_key, make_certificates
from tests.kit.etcd.server import EtcdServer, Security, etcd_server
from tests.kit.etcd.users import READER, ROOT, demand_no_users, demand_users
from tests.kit.support import eventually

PREFIX = "/ci"
TOKEN_SECONDS = 2
# Long enough to show that nobody waited for it.
LONG = 60.0


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of another CA."""
    return make_certificates(tmp_path_factory.mktemp("strangers"))


@pytest.fixture(scope="module")
def secure(certificates: Certificates) -> Iterator[EtcdServer]:
    """With TLS."""
    with etcd_server(security=Security(certificates)) as server:
        yield server


@pytest.fixture(scope="module")
def mutual(certificates: Certificates) -> Iterator[EtcdServer]:
    """With TLS, and clients have to show a certificate."""
    with etcd_server(security=Security(certificates, asks_clients=True)) as server:
        yield server


@pytest.fixture(scope="module")
def guarded() -> Iterator[EtcdServer]:
    """With users, whose tokens don't last."""
    with etcd_server(security=Security(token_seconds=TOKEN_SECONDS)) as server:
        demand_users(server, PREFIX)
        yield server


@pytest.fixture
def user_file(tmp_path: Path) -> Callable[[tuple[str, str]], str]:
    def write(user: tuple[str, str]) -> str:
        file = tmp_path / "user"
        file.write_text(":".join(user) + "\n")
        return str(file)

    return write


@pytest.fixture
def let_in() -> Iterator[Callable[..., Gateway]]:
    """Opens gateways, and closes them."""
    opened: list[Gateway] = []

    def open_one(
        server: EtcdServer | str, seconds: float = LONG, **settings: str | None
    ) -> Gateway:
        url = server if isinstance(server, str) else address(server)
        given = Settings(**settings)  # type: ignore[arg-type]
        opened.append(open_gateway(url, given, clock=Clock(), deadline_seconds=seconds))
        return opened[-1]

    yield open_one
    for gateway in opened:
        gateway.close()


def address(server: EtcdServer) -> str:
    """The URL of all members of a server."""
    scheme = "etcds" if server.endpoints[0].startswith("https") else "etcd"
    members = ",".join(endpoint.partition("://")[2] for endpoint in server.endpoints)
    return f"{scheme}://{members}{PREFIX}"


def write_something(gateway: Gateway) -> None:
    assert gateway.commit((), [put(f"{PREFIX}/key", "value")]).succeeded


def read_something(gateway: Gateway) -> None:
    assert gateway.read(read(f"{PREFIX}/key")).succeeded


def refusal(gateway: Gateway, kind: type[LeaseError]) -> str:
    """What is said by a request that is refused at once, with the code of such an error."""
    since = time.monotonic()
    with pytest.raises(BackendUnreachable) as raised:
        write_something(gateway)
    assert time.monotonic() - since < LONG / 4
    assert raised.value.exit_code == kind.exit_code
    assert str(raised.value).isprintable()
    return str(raised.value)


class TestCertificates:
    def test_a_server_whose_ca_is_named_is_trusted(
        self, secure: EtcdServer, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        write_something(let_in(secure, ca_file=certificates.ca.file))

    def test_a_server_of_an_unknown_ca_is_refused_at_once(
        self, secure: EtcdServer, strangers: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        for ca_file in (None, strangers.ca.file):
            text = refusal(let_in(secure, ca_file=ca_file), BackendUnreachable)
            assert secure.endpoints[0] in text
            assert "its certificate isn't trusted" in text
            assert "LEASECTL_CA_FILE" in text

    def test_a_server_that_goes_by_another_name_is_refused_at_once(
        self, secure: EtcdServer, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        url = address(secure).replace("127.0.0.1", "localhost")
        text = refusal(let_in(url, ca_file=certificates.ca.file), BackendUnreachable)
        assert "not valid for 'localhost'" in text
        assert "use a name that it has" in text

    def test_one_member_that_is_not_trusted_does_not_end_the_search_for_one_that_is(
        self, secure: EtcdServer, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        (member,) = secure.endpoints
        port = member.rpartition(":")[2]
        url = f"etcds://localhost:{port},127.0.0.1:{port}"
        write_something(let_in(url, ca_file=certificates.ca.file))

    def test_a_client_shows_its_certificate(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        let_in: Callable[..., Gateway],
        tmp_path: Path,
    ) -> None:
        shown = certificates.client
        files = {"ca_file": certificates.ca.file, "cert_file": shown.file}
        write_something(let_in(mutual, **files, key_file=shown.key_file))
        both = tmp_path / "both.pem"
        both.write_text(Path(shown.file).read_text() + Path(shown.key_file).read_text())
        write_something(let_in(mutual, **{**files, "cert_file": str(both)}))

    def test_a_client_that_shows_no_certificate_or_a_strangers_is_told_at_once(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        let_in: Callable[..., Gateway],
    ) -> None:
        stranger = {"cert_file": strangers.client.file, "key_file": strangers.client.key_file}
        for shown in ({}, stranger):
            gateway = let_in(mutual, ca_file=certificates.ca.file, **shown)
            text = refusal(gateway, BackendUnreachable)
            assert "it wants a certificate of ours that it trusts" in text
            assert "LEASECTL_CERT_FILE" in text
            assert "_ssl.c" not in text

    def test_without_tls_the_files_mean_nothing(
        self, etcd: EtcdServer, let_in: Callable[..., Gateway]
    ) -> None:
        write_something(let_in(etcd, ca_file="/nowhere", key_file="/nowhere"))

    def test_nothing_is_read_before_it_is_needed(self, let_in: Callable[..., Gateway]) -> None:
        let_in("etcds://h", ca_file="/nowhere", key_file="/nowhere", user_file="/nowhere")

    @pytest.mark.parametrize(
        ("setting", "content"),
        [
            ("ca_file", None),
            ("ca_file", ""),
            ("ca_file", "no certificate"),
            ("cert_file", None),
            ("cert_file", "no certificate"),
            ("key_file", None),
            ("key_file", "no key"),
        ],
    )
    def test_a_file_that_can_not_be_used_is_named(
        self,
        setting: str,
        content: str | None,
        certificates: Certificates,
        tmp_path: Path,
        let_in: Callable[..., Gateway],
    ) -> None:
        file = tmp_path / "file"
        if content is not None:
            file.write_text(content)
        good = {"ca_file": certificates.ca.file, "cert_file": certificates.client.file}
        good["key_file"] = certificates.client.key_file
        kind = FileUnreadable if content is None else CorruptState
        text = refusal(let_in("etcds://h", **{**good, setting: str(file)}), kind)
        assert f"file {file}" in text
        assert ("No such file" in text) == (content is None)
        assert f"LEASECTL_{setting.upper()}" in text
        assert "_ssl.c" not in text

    def test_a_certificate_without_a_key_is_told_where_to_name_it(
        self, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        text = refusal(let_in("etcds://h", cert_file=certificates.client.file), CorruptState)
        assert f"{certificates.client.file} holds no private key" in text
        assert "LEASECTL_KEY_FILE" in text

    def test_of_a_certificate_and_its_key_the_damaged_one_is_named(
        self, certificates: Certificates, tmp_path: Path, let_in: Callable[..., Gateway]
    ) -> None:
        shown = certificates.client
        files = {"cert_file": shown.file, "key_file": shown.key_file}
        for setting, file in files.items():
            damaged = tmp_path / setting
            head, body, *rest = Path(file).read_text().splitlines(keepends=True)
            damaged.write_text("".join([head, "A" * 8 + body[8:], *rest]))
            text = refusal(let_in("etcds://h", **{**files, setting: str(damaged)}), CorruptState)
            assert f"file {damaged} is damaged; LEASECTL_{setting.upper()}" in text

    def test_a_key_that_is_encrypted_is_refused_without_asking_for_its_password(
        self, certificates: Certificates, tmp_path: Path, let_in: Callable[..., Gateway]
    ) -> None:
        key_file = encrypt_key(certificates.client.key_file, tmp_path / "encrypted.key")
        gateway = let_in("etcds://h", cert_file=certificates.client.file, key_file=key_file)
        assert f"{key_file} is encrypted" in refusal(gateway, CorruptState)

    def test_a_key_of_another_certificate_is_refused(
        self, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        shown = {"cert_file": certificates.client.file, "key_file": certificates.server.key_file}
        text = refusal(let_in("etcds://h", **shown), CorruptState)
        assert all(file in text for file in shown.values())
        assert "isn't that of the certificate" in text
        assert "_ssl.c" not in text

    def test_a_key_without_a_certificate_is_refused(self, let_in: Callable[..., Gateway]) -> None:
        text = refusal(let_in("etcds://h", key_file="/key"), InvalidRequest)
        assert "/key is the key of no certificate" in text

    def test_plain_requests_to_tls_and_the_reverse_are_told_apart_from_silence(
        self,
        etcd: EtcdServer,
        secure: EtcdServer,
        certificates: Certificates,
        let_in: Callable[..., Gateway],
    ) -> None:
        plain, tls = (f"//{each.endpoints[0].partition('://')[2]}" for each in (etcd, secure))
        with pytest.raises(BackendUnreachable, match="; with TLS its address is etcds://") as said:
            write_something(let_in(f"etcd:{tls}", 0.5))
        assert str(said.value).count(tls) == 1
        # With a hint at "etcd://", unless Python can't tell that from a connection that was lost.
        with pytest.raises(BackendUnreachable):
            write_something(let_in(f"etcds:{plain}", 0.5, ca_file=certificates.ca.file))


class Files(NamedTuple):
    """What a client trusts and shows, in files that can be replaced."""

    ca: Path
    cert: Path
    key: Path

    def settings(self) -> dict[str, str]:
        return {"ca_file": str(self.ca), "cert_file": str(self.cert), "key_file": str(self.key)}


def replace(file: Path, by: str) -> None:
    """Have a file be a copy of another, at once."""
    copy = file.with_suffix(".new")
    copy.write_bytes(Path(by).read_bytes())
    copy.replace(file)


@pytest.fixture
def files(tmp_path: Path, certificates: Certificates) -> Files:
    """With what is good for all servers here."""
    made = Files(tmp_path / "ca.pem", tmp_path / "cert.pem", tmp_path / "key.pem")
    replace(made.ca, certificates.ca.file)
    replace(made.cert, certificates.client.file)
    replace(made.key, certificates.client.key_file)
    return made


class TestReplacedFiles:
    """Certificates don't last; processes do that look after leases."""

    def test_a_ca_that_was_replaced_is_trusted_from_the_next_request_on(
        self,
        secure: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(secure, **files.settings())
        write_something(gateway)
        replace(files.ca, strangers.ca.file)
        assert "its certificate isn't trusted" in refusal(gateway, BackendUnreachable)
        replace(files.ca, certificates.ca.file)
        write_something(gateway)

    def test_a_certificate_that_was_replaced_is_shown_from_the_next_request_on(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        let_in: Callable[..., Gateway],
    ) -> None:
        replace(files.cert, strangers.client.file)
        replace(files.key, strangers.client.key_file)
        gateway = let_in(mutual, **files.settings())
        assert "wants a certificate of ours" in refusal(gateway, BackendUnreachable)
        replace(files.cert, certificates.client.file)
        replace(files.key, certificates.client.key_file)
        write_something(gateway)

    def test_clients_that_go_on_for_long_heed_that_as_well(
        self,
        secure: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(secure, **files.settings())
        gateway.grant(4712, 60)
        with gateway.client() as keeps_alive, gateway.client() as watches:
            assert gateway.keep_alive_at(keeps_alive, 0, 4712, 5).is_alive
            assert "canceled" not in first_lines(gateway, {}, watches)
            replace(files.ca, strangers.ca.file)
            with pytest.raises(NoAnswer, match="isn't trusted"):
                gateway.keep_alive_at(keeps_alive, 0, 4712, 5)
            with pytest.raises(NoAnswer, match="isn't trusted"):
                first_lines(gateway, {}, watches)
            replace(files.ca, certificates.ca.file)
            assert gateway.keep_alive_at(keeps_alive, 0, 4712, 5).is_alive
            assert "canceled" not in first_lines(gateway, {}, watches)

    def test_while_files_do_not_fit_each_other_those_before_are_good(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        files: Files,
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(mutual, **files.settings())
        write_something(gateway)
        replace(files.cert, certificates.server.file)
        write_something(gateway)
        with gateway.client() as new:
            assert not gateway.keep_alive_at(new, 0, 4713, 5).is_alive
        replace(files.key, certificates.server.key_file)
        write_something(gateway)

    def test_a_refusal_is_not_believed_if_files_have_changed_meanwhile(
        self, secure: EtcdServer, certificates: Certificates, strangers: Certificates, files: Files
    ) -> None:
        replace(files.ca, strangers.ca.file)

        def make() -> ssl.SSLContext:
            context = ssl.create_default_context(cafile=files.ca)
            replace(files.ca, certificates.ca.file)
            return context

        trust = Trust(make, [str(files.ca)])
        with contextlib.closing(Gateway(secure.endpoints, clock=Clock(), trust=trust)) as gateway:
            write_something(gateway)

    def test_files_that_stay_as_they_are_are_read_once(
        self, secure: EtcdServer, files: Files
    ) -> None:
        made: list[ssl.SSLContext] = []

        def make() -> ssl.SSLContext:
            made.append(ssl.create_default_context(cafile=files.ca))
            return made[-1]

        trust = Trust(make, [str(files.ca), "/nowhere"])
        with contextlib.closing(Gateway(secure.endpoints, clock=Clock(), trust=trust)) as gateway:
            write_something(gateway)
            write_something(gateway)
            with gateway.client() as client:
                assert not gateway.keep_alive_at(client, 0, 4714, 5).is_alive
        assert len(made) == 1

    def test_a_command_outlasts_that_a_server_has_another_certificate(
        self,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        tmp_path: Path,
        let_in: Callable[..., Gateway],
    ) -> None:
        own = Certificate(str(tmp_path / "server.pem"), str(tmp_path / "server.key"))
        for file, by in zip(own, certificates.server):
            replace(Path(file), by)
        with etcd_server(security=Security(certificates._replace(server=own))) as server:
            gateway = let_in(server, **files.settings())
            write_something(gateway)
            both = Path(certificates.ca.file).read_text() + Path(strangers.ca.file).read_text()
            files.ca.write_text(both)
            for file, by in zip(own, strangers.server):
                replace(Path(file), by)
            server.kill(0)
            server.start(0)
            write_something(gateway)


class TestUsers:
    def test_a_user_is_let_in(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(ROOT))
        write_something(gateway)
        gateway.grant(4711, 60)
        assert gateway.keep_alive(4711)
        gateway.revoke(4711)
        assert not gateway.keep_alive(4711)

    def test_the_user_is_let_in_where_there_are_no_users(
        self,
        etcd: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        write_something(let_in(etcd, user_file=user_file(ROOT)))

    def test_who_names_no_user_is_told_how_to(
        self, guarded: EtcdServer, let_in: Callable[..., Gateway]
    ) -> None:
        text = refusal(let_in(guarded), NotAllowed)
        assert "user name is empty" in text
        assert "LEASECTL_USER_FILE" in text

    def test_a_wrong_password_is_refused_at_once_and_not_shown(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        for user in (("root", "wr0ng"), ("nobody", "wr0ng"), ("root", "wr0ng:word")):
            file = user_file(user)
            text = refusal(let_in(guarded, user_file=file), NotAllowed)
            assert file in text
            assert "wr0ng" not in text

    @pytest.mark.parametrize("content", ["", "\n", "root", "root:", ":s3cret", "root:s3cret\ntwo"])
    def test_a_file_that_holds_no_user_is_refused_and_not_shown(
        self, content: str, tmp_path: Path, guarded: EtcdServer, let_in: Callable[..., Gateway]
    ) -> None:
        file = tmp_path / "user"
        file.write_text(content)
        text = refusal(let_in(guarded, user_file=str(file)), CorruptState)
        assert f"{file} doesn't hold user:password, on one line; LEASECTL_USER_FILE" in text
        assert "s3cret" not in text

    def test_a_file_that_is_no_text_or_not_there_is_refused(
        self, tmp_path: Path, guarded: EtcdServer, let_in: Callable[..., Gateway]
    ) -> None:
        file = tmp_path / "user"
        text = refusal(let_in(guarded, user_file=str(file)), FileUnreadable)
        assert f"{file}: No such file or directory; LEASECTL_USER_FILE" in text
        file.write_bytes(b"root:\xff\xfe")
        text = refusal(let_in(guarded, user_file=str(file)), CorruptState)
        assert f"{file} doesn't hold user:password" in text

    def test_a_role_that_may_only_read_is_told_so(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(READER))
        read_something(gateway)
        text = refusal(gateway, NotAllowed)
        assert "permission denied" in text
        assert f"read and write all keys below {PREFIX}/" in text
        with pytest.raises(AccessRefused, match="permission denied"):
            gateway.read(read("/elsewhere"))

    def test_a_probe_finds_out_who_may_not_both_read_and_write(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
    ) -> None:
        def probe(user: tuple[str, str]) -> None:
            settings = Settings(user_file=user_file(user))
            found = open_probe(address(guarded), settings, clock=Clock())
            assert found is not None
            found()

        probe(ROOT)
        for user in (READER, (ROOT[0], "wrong")):
            with pytest.raises(AccessRefused):
                probe(user)

    def test_a_token_that_has_expired_is_replaced(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(ROOT))
        write_something(gateway)
        (before,) = tokens(gateway)
        assert tokens(gateway) == [before]
        time.sleep(TOKEN_SECONDS + 1.5)  # etcd looks for those that have expired once a second
        write_something(gateway)
        assert tokens(gateway) != [before]

    def test_a_token_that_has_expired_makes_no_answer_doubtful(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(ROOT))
        write_something(gateway)
        time.sleep(TOKEN_SECONDS + 1.5)
        assert not gateway.commit((), [put(f"{PREFIX}/key", "value")]).repeated

    def test_a_password_that_was_changed_is_read_anew(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(("root", "wrong")))
        refusal(gateway, NotAllowed)
        user_file(ROOT)
        write_something(gateway)

    def test_threads_share_a_gateway_while_tokens_expire(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(ROOT))
        failures: list[BaseException] = []

        def work() -> None:
            try:
                for _ in range(3):
                    write_something(gateway)
                    time.sleep(TOKEN_SECONDS + 0.5)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []

    def test_users_may_be_demanded_and_no_longer_demanded_in_between(
        self, user_file: Callable[[tuple[str, str]], str], let_in: Callable[..., Gateway]
    ) -> None:
        with etcd_server() as server:
            gateway = let_in(server, user_file=user_file(ROOT))
            for demand in (demand_users, None, None):
                write_something(gateway)
                with gateway.client() as client:
                    assert gateway.headers(client, 0, 5) == {}
                if demand is not None:
                    demand(server, PREFIX)
                    write_something(gateway)
                    assert len(tokens(gateway)) == 1
                    demand_no_users(server)

    def test_a_member_that_was_started_anew_is_talked_to_again(
        self, user_file: Callable[[tuple[str, str]], str], let_in: Callable[..., Gateway]
    ) -> None:
        with etcd_server() as server:
            demand_users(server, PREFIX)
            gateway = let_in(server, user_file=user_file(ROOT))
            write_something(gateway)
            server.kill(0)
            server.start(0)
            write_something(gateway)


def tokens(gateway: Gateway) -> list[str]:
    """What a stream would show now."""
    with gateway.client() as client:
        return list(gateway.headers(client, 0, 5).values())


def first_lines(
    gateway: Gateway, headers: dict[str, str], client: Client | None = None
) -> dict[str, object]:
    """What etcd says first when a key is to be watched, by a new client unless one is given."""
    body = json.dumps({"create_request": {"key": encode(f"{PREFIX}/key")}})
    call = Call(gateway.endpoints[0] + "/v3/watch", body.encode(), headers)
    with contextlib.ExitStack() as end:
        client = client or end.enter_context(gateway.client())
        lines = end.enter_context(client.stream(call))
        said: dict[str, object] = json.loads(next(lines))["result"]
        return said


class TestStreams:
    def test_a_watch_is_let_in_also_when_the_token_had_expired(
        self,
        guarded: EtcdServer,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        gateway = let_in(guarded, user_file=user_file(READER))
        with gateway.client() as client:
            headers = gateway.headers(client, 0, 5)
            assert "canceled" not in first_lines(gateway, headers)
            time.sleep(TOKEN_SECONDS + 1.5)
            assert first_lines(gateway, headers)["canceled"]
            assert "canceled" not in first_lines(gateway, gateway.headers(client, 0, 5))

    def test_a_watch_without_a_user_needs_nothing(
        self, etcd: EtcdServer, let_in: Callable[..., Gateway]
    ) -> None:
        gateway = let_in(etcd)
        with gateway.client() as client:
            assert gateway.headers(client, 0, 5) == {}
        assert "canceled" not in first_lines(gateway, {})

    def test_a_watch_goes_over_tls(
        self, mutual: EtcdServer, certificates: Certificates, let_in: Callable[..., Gateway]
    ) -> None:
        shown = certificates.client
        files = {"ca_file": certificates.ca.file, "cert_file": shown.file}
        gateway = let_in(mutual, **files, key_file=shown.key_file)
        assert "canceled" not in first_lines(gateway, {})


class TestMembers:
    def test_no_server_at_all_is_said_in_time(self, let_in: Callable[..., Gateway]) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        with pytest.raises(BackendUnreachable, match=rf"127\.0\.0\.1:{port}.*is it there"):
            write_something(let_in(f"etcd://127.0.0.1:{port}", 0.5))

    @pytest.mark.parametrize("with_users", [False, True])
    def test_a_cluster_without_a_quorum_is_said_in_time(
        self,
        with_users: bool,
        user_file: Callable[[tuple[str, str]], str],
        let_in: Callable[..., Gateway],
    ) -> None:
        with etcd_server(3) as server:
            settings = {}
            if with_users:
                demand_users(server, PREFIX)
                settings["user_file"] = user_file(ROOT)
            gateway = let_in(server, 3.0, **settings)
            write_something(gateway)
            server.signal(0, signal.SIGSTOP)
            server.kill(1)
            since = time.monotonic()
            with pytest.raises(BackendUnreachable, match="do they have a quorum"):
                write_something(gateway)
            assert 2.9 < time.monotonic() - since < 8
            server.signal(0, signal.SIGCONT)
            write_something(let_in(server, **settings))

    def test_a_token_is_good_at_every_member(
        self, user_file: Callable[[tuple[str, str]], str], let_in: Callable[..., Gateway]
    ) -> None:
        with etcd_server(3) as server:
            demand_users(server, PREFIX)
            gateway = let_in(server, user_file=user_file(ROOT))
            (before,) = tokens(gateway)
            # A member knows it as soon as it has applied what made it.
            eventually(lambda: all(takes(each, before) for each in server.endpoints))
            server.kill(gateway.current)
            write_something(gateway)
            with gateway.client() as client:
                shown = gateway.headers(client, gateway.current, 5)
            assert list(shown.values()) == [before]


def takes(endpoint: str, token: str) -> bool:
    """Whether a member lets the owner of a token in."""
    body = {"key": encode(f"{PREFIX}/key")}
    headers = {"Authorization": token}
    answer = httpx.post(f"{endpoint}/v3/kv/range", json=body, headers=headers, trust_env=False)
    return answer.status_code == 200


def test_no_credential_gets_into_what_a_failure_says(
    guarded: EtcdServer, user_file: Callable[[tuple[str, str]], str], let_in: Callable[..., Gateway]
) -> None:
    gateway = let_in(guarded, user_file=user_file(READER))
    with pytest.raises(AccessRefused) as raised:
        write_something(gateway)
    (token,) = tokens(gateway)
    told: list[str] = []
    error: BaseException | None = raised.value
    while error is not None:
        told.append(repr(error))
        error = error.__cause__ or error.__context__
    assert not any(secret in text for secret in (token, READER[1]) for text in told)
