"""Files and certificates that settings name."""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from pathlib import Path

import pytest

from leasectl.errors import CorruptState, FileUnreadable
from leasectl.http import settings
from leasectl.http.settings import NamedFile, Settings, encode_settings, parse_settings
from leasectl.http.tls import Pem, PemTls, pem_context
from tests.kit.certificates import Certificates, encrypt_key, make_certificates
from tests.kit.descriptors import leaving_open


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def pem(path: str | Path) -> Pem:
    return Pem(Path(path).read_bytes(), f"what {Path(path).name} has", "mend it")


def test_nothing_is_left_open_and_no_file_is_made(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    client = certificates.client
    with leaving_open(0):
        pems = PemTls(pem(certificates.ca.file), pem(client.file), pem(client.key_file))
        context = pem_context(pems)
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert list(tmp_path.iterdir()) == []


def test_without_files_in_memory_there_is_one_without_a_name(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    made = tempfile.TemporaryFile

    def in_a_folder_of_ours(mode: str, *, buffering: int, dir: str | None) -> object:
        assert dir == "/dev/shm"
        return made(mode, buffering=buffering, dir=tmp_path)

    monkeypatch.setattr(tempfile, "TemporaryFile", in_a_folder_of_ours)
    client = certificates.client
    pem_context(PemTls(pem(certificates.ca.file), pem(client.file), pem(client.key_file)))
    assert list(tmp_path.iterdir()) == []


def test_a_certificate_and_its_key_may_be_in_one(certificates: Certificates) -> None:
    client = certificates.client
    both = Path(client.file).read_bytes() + Path(client.key_file).read_bytes()
    pem_context(PemTls(pem(certificates.ca.file), Pem(both, "both", "")))


def test_a_server_is_believed_only_where_that_is_said(certificates: Certificates) -> None:
    assert pem_context(PemTls(is_verified=False)).verify_mode == ssl.CERT_NONE
    assert pem_context(PemTls(pem(certificates.ca.file))).verify_mode == ssl.CERT_REQUIRED
    assert pem_context(PemTls()).verify_mode == ssl.CERT_REQUIRED


def test_what_cannot_be_used_is_named_and_not_shown(
    certificates: Certificates, tmp_path: Path
) -> None:
    client, server, ca = certificates.client, certificates.server, pem(certificates.ca.file)
    encrypted = encrypt_key(client.key_file, tmp_path / "encrypted")
    damaged = Pem(b"-----BEGIN CERTIFICATE-----\ns3cret\n-----END CERTIFICATE-----\n", "it", "mend")
    for pems, line in (
        (PemTls(Pem(b"s3cret", "the CA", "mend it")), "the CA holds no certificate"),
        (PemTls(damaged), "it holds no certificate in PEM form, or a damaged one; mend"),
        (PemTls(ca, Pem(b"s3cret", "it", "mend it")), "it holds no certificate in PEM form"),
        (PemTls(ca, pem(client.file)), "what client.pem has holds no private key in PEM form"),
        (PemTls(ca, pem(client.file), pem(server.key_file)), "doesn't belong to what client.pem"),
        (PemTls(ca, pem(client.file), pem(encrypted)), "what encrypted has is an encrypted key"),
        (PemTls(ca, damaged, pem(client.key_file)), "it and its key can't be used"),
    ):
        with pytest.raises(CorruptState) as raised:
            pem_context(pems)
        assert line in str(raised.value)
        assert "s3cret" not in str(raised.value)
        assert "mend" in str(raised.value)


def test_a_context_with_a_ca_of_its_own_has_no_others(certificates: Certificates) -> None:
    assert len(pem_context(PemTls(pem(certificates.ca.file))).get_ca_certs()) == 1


def read(path: object, longest_bytes: int = 1 << 20) -> bytes:
    return NamedFile("token file", str(path), "--it").read(longest_bytes)


def test_all_of_it_is_read_or_as_much_as_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 200_000)
    assert len(read(tmp_path / "a")) == 200_000
    assert len(read(tmp_path / "a", 70_000)) == 70_000
    assert read("/dev/null") == b""
    assert len(read("/dev/zero", 100_000)) == 100_000


def test_a_pipe_that_nobody_writes_to_is_empty(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read(tmp_path / "pipe") == b""


def test_what_is_written_into_a_pipe_is_waited_for(tmp_path: Path) -> None:
    reading, writing = os.pipe()

    def write() -> None:
        os.write(writing, b"late")
        os.close(writing)

    threading.Timer(0.05, write).start()
    assert read(f"/dev/fd/{reading}") == b"late"
    os.close(reading)


def test_a_pipe_whose_writer_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "_LONGEST_WAIT_SECONDS", 0.05)
    reading, writing = os.pipe()
    os.write(writing, b"begun")
    with pytest.raises(FileUnreadable, match=r"it didn't end within 0.05 s; --it must name"):
        read(f"/dev/fd/{reading}")
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/nonesuch", "No such file or directory"),
        ("/", "Is a directory"),
        ("a\0b", "not a valid file name"),
        ("\ud800", "not a valid file name"),
    ],
)
def test_what_cannot_be_read_says_why(path: str, why: str) -> None:
    with pytest.raises(FileUnreadable, match=why) as raised:
        read(path)
    assert str(raised.value).isprintable()


ALL = Settings("/token", "/ca", True, "/cert", "/key", "/user")


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        ALL,
        Settings(trust_env=True),
        Settings(user_file="/user"),
        Settings(cert_file="/cert"),
        Settings(ca_file="/ca", key_file="/key"),
        Settings(cluster='{"server":"https://there"}'),
        ALL._replace(cluster="{}"),
    ],
)
def test_what_is_written_is_read_back(settings: Settings) -> None:
    assert parse_settings(encode_settings(settings)) == settings


def test_the_text_names_what_is_not_the_default() -> None:
    settings = Settings(ca_file="/a=b", trust_env=True)
    assert encode_settings(settings) == "ca_file=/a=b\ntrust_env=1"


@pytest.mark.parametrize("text", ["/token", "a\nb", "colour=red", "ca_file=", "ca_file=/ca\n"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(CorruptState, match="newer leasectl, or are damaged"):
        parse_settings(text)
