"""How etcd and its clients trust each other's certificates; against real servers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    FileUnreadable,
    InvalidRequest,
)
from leasectl.http.no_answer import NoAnswer
from leasectl.http.tls import Trust
from tests.kit.certificates import Certificates, encrypt_key, make_certificates
from tests.kit.etcd.gateways import (
    LetIn,
    address,
    first_lines,
    refusal,
    write_something,
)
from tests.kit.etcd.server import EtcdServer, Security, etcd_server


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


class TestCertificates:
    def test_a_server_whose_ca_is_named_is_trusted(
        self, secure: EtcdServer, certificates: Certificates, let_in: LetIn
    ) -> None:
        write_something(let_in(secure, ca_file=certificates.ca.file))

    def test_a_server_of_an_unknown_ca_is_refused_at_once(
        self, secure: EtcdServer, strangers: Certificates, let_in: LetIn
    ) -> None:
        for ca_file in (None, strangers.ca.file):
            text = refusal(let_in(secure, ca_file=ca_file), BackendUnreachable)
            assert secure.endpoints[0] in text
            assert "its certificate isn't trusted" in text
            assert "LEASECTL_CA_FILE" in text

    def test_a_server_that_goes_by_another_name_is_refused_at_once(
        self, secure: EtcdServer, certificates: Certificates, let_in: LetIn
    ) -> None:
        url = address(secure).replace("127.0.0.1", "localhost")
        text = refusal(let_in(url, ca_file=certificates.ca.file), BackendUnreachable)
        assert "not valid for 'localhost'" in text
        assert "use a name that is in the certificate" in text

    def test_one_member_that_is_not_trusted_does_not_end_the_search_for_one_that_is(
        self, secure: EtcdServer, certificates: Certificates, let_in: LetIn
    ) -> None:
        (member,) = secure.endpoints
        port = member.rpartition(":")[2]
        url = f"etcds://localhost:{port},127.0.0.1:{port}"
        write_something(let_in(url, ca_file=certificates.ca.file))

    def test_a_client_shows_its_certificate(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        let_in: LetIn,
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
        let_in: LetIn,
    ) -> None:
        stranger = {"cert_file": strangers.client.file, "key_file": strangers.client.key_file}
        for shown in ({}, stranger):
            gateway = let_in(mutual, ca_file=certificates.ca.file, **shown)
            text = refusal(gateway, BackendUnreachable)
            assert "it doesn't trust our client certificate" in text
            assert "LEASECTL_CERT_FILE" in text
            assert "_ssl.c" not in text

    def test_without_tls_the_files_mean_nothing(self, etcd: EtcdServer, let_in: LetIn) -> None:
        write_something(let_in(etcd, ca_file="/nowhere", key_file="/nowhere"))

    def test_nothing_is_read_before_it_is_needed(self, let_in: LetIn) -> None:
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
        let_in: LetIn,
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
        self, certificates: Certificates, let_in: LetIn
    ) -> None:
        text = refusal(let_in("etcds://h", cert_file=certificates.client.file), CorruptState)
        assert f"{certificates.client.file} holds no private key" in text
        assert "LEASECTL_KEY_FILE" in text

    def test_of_a_certificate_and_its_key_the_damaged_one_is_named(
        self, certificates: Certificates, tmp_path: Path, let_in: LetIn
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
        self, certificates: Certificates, tmp_path: Path, let_in: LetIn
    ) -> None:
        key_file = encrypt_key(certificates.client.key_file, tmp_path / "encrypted.key")
        gateway = let_in("etcds://h", cert_file=certificates.client.file, key_file=key_file)
        assert f"{key_file} is encrypted" in refusal(gateway, CorruptState)

    def test_a_key_of_another_certificate_is_refused(
        self, certificates: Certificates, let_in: LetIn
    ) -> None:
        shown = {"cert_file": certificates.client.file, "key_file": certificates.server.key_file}
        text = refusal(let_in("etcds://h", **shown), CorruptState)
        assert all(file in text for file in shown.values())
        assert "doesn't belong to the certificate" in text
        assert "_ssl.c" not in text

    def test_a_key_without_a_certificate_is_refused(self, let_in: LetIn) -> None:
        text = refusal(let_in("etcds://h", key_file="/key"), InvalidRequest)
        assert "LEASECTL_KEY_FILE is set without" in text

    def test_plain_requests_to_tls_and_the_reverse_are_told_apart_from_silence(
        self,
        etcd: EtcdServer,
        secure: EtcdServer,
        certificates: Certificates,
        let_in: LetIn,
    ) -> None:
        plain, tls = (f"//{each.endpoints[0].partition('://')[2]}" for each in (etcd, secure))
        with pytest.raises(
            BackendUnreachable, match="; if this etcd uses TLS, write etcds:"
        ) as said:
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

    def test_clients_that_go_on_for_long_heed_that_as_well(
        self,
        secure: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        let_in: LetIn,
    ) -> None:
        gateway = let_in(secure, **files.settings())
        with gateway.client() as watches:
            assert "canceled" not in first_lines(gateway, {}, watches)
            replace(files.ca, strangers.ca.file)
            with pytest.raises(NoAnswer, match="isn't trusted"):
                first_lines(gateway, {}, watches)
            replace(files.ca, certificates.ca.file)
            assert "canceled" not in first_lines(gateway, {}, watches)

    def test_while_files_do_not_fit_each_other_those_before_are_good(
        self,
        mutual: EtcdServer,
        certificates: Certificates,
        files: Files,
        let_in: LetIn,
    ) -> None:
        gateway = let_in(mutual, **files.settings())
        write_something(gateway)
        replace(files.cert, certificates.server.file)
        write_something(gateway)
        with gateway.client() as new:
            assert "canceled" not in first_lines(gateway, {}, new)
        replace(files.key, certificates.server.key_file)
        write_something(gateway)

    def test_a_refusal_is_not_believed_if_files_have_changed_meanwhile(
        self,
        secure: EtcdServer,
        certificates: Certificates,
        strangers: Certificates,
        files: Files,
        let_in: LetIn,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        replace(files.ca, strangers.ca.file)

        def make() -> ssl.SSLContext:
            context = ssl.create_default_context(cafile=files.ca)
            replace(files.ca, certificates.ca.file)
            return context

        trust = Trust(make, [str(files.ca)])
        monkeypatch.setattr("leasectl.engines.etcd.gateway.trust_for", lambda url, settings: trust)
        write_something(let_in(secure))

    def test_files_that_stay_as_they_are_are_read_once(
        self, secure: EtcdServer, files: Files, let_in: LetIn, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made: list[ssl.SSLContext] = []

        def make() -> ssl.SSLContext:
            made.append(ssl.create_default_context(cafile=files.ca))
            return made[-1]

        trust = Trust(make, [str(files.ca), "/nowhere"])
        monkeypatch.setattr("leasectl.engines.etcd.gateway.trust_for", lambda url, settings: trust)
        gateway = let_in(secure)
        write_something(gateway)
        write_something(gateway)
        with gateway.client() as client:
            assert "canceled" not in first_lines(gateway, {}, client)
        assert len(made) == 1
