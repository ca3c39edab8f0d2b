"""Certificates for tests, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_CA = (
    "basicConstraints=critical,CA:TRUE",
    "keyUsage=critical,keyCertSign,cRLSign",
    "subjectKeyIdentifier=hash",
)
_LEAF = (
    "basicConstraints=critical,CA:FALSE",
    "keyUsage=critical,digitalSignature",
    "extendedKeyUsage=serverAuth,clientAuth",
    "subjectAltName=IP:127.0.0.1",
    "subjectKeyIdentifier=hash",
    "authorityKeyIdentifier=keyid",
)


class Certificate(NamedTuple):
    """A certificate and its key, as paths of files."""

    file: str
    key_file: str


class Certificates(NamedTuple):
    """What a CA is, and what it signed: for servers at 127.0.0.1, and for their clients."""

    ca: Certificate
    server: Certificate
    client: Certificate


def make_certificates(folder: Path) -> Certificates:
    """Make a CA of its own in an empty folder."""
    ca = _make(folder, "ca", _CA, None)
    return Certificates(ca, _make(folder, "server", _LEAF, ca), _make(folder, "client", _LEAF, ca))


def make_client_certificate(folder: Path, name: str, ca: Certificate, *, group: str) -> Certificate:
    """Make a client certificate for a member of a group, as Kubernetes reads its subject."""
    return _make(folder, name, _LEAF, ca, subject=f"/O={group}/CN={name}")


def make_signing_key(path: Path) -> str:
    """Make an RSA key to sign tokens with, and return its path."""
    _openssl("genpkey", "-algorithm", "RSA", "-out", path)
    return str(path)


def sign(key_file: str, data: bytes) -> bytes:
    """Sign with an RSA key, as JWTs with RS256 are."""
    return _openssl("dgst", "-sha256", "-sign", key_file, data=data)


def encrypt_key(key_file: str, to: Path) -> str:
    """Write a key encrypted, and return its path."""
    _openssl("pkey", "-in", key_file, "-out", str(to), "-aes128", "-passout", "pass:secret")
    return str(to)


def _make(
    folder: Path,
    name: str,
    extensions: tuple[str, ...],
    issuer: Certificate | None,
    *,
    subject: str = "",
) -> Certificate:
    made = Certificate(str(folder / f"{name}.pem"), str(folder / f"{name}.key"))
    request, described = folder / f"{name}.csr", folder / f"{name}.ext"
    described.write_text("\n".join(extensions))
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    about = ("-subj", subject or f"/CN={name}")
    _openssl("req", "-new", *key, *about, "-keyout", made.key_file, "-out", request)
    signed_by = ("-CA", issuer.file, "-CAkey", issuer.key_file) if issuer else ()
    by = (*signed_by, "-CAcreateserial") if issuer else ("-signkey", made.key_file)
    _openssl("x509", "-req", "-in", request, "-extfile", described, "-out", made.file, *by)
    return made


def _openssl(*args: str | Path, data: bytes = b"") -> bytes:
    return subprocess.run(["openssl", *args], check=True, capture_output=True, input=data).stdout
