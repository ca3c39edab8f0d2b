"""Whom to trust on a connection with TLS, and what to show for ourselves."""

from __future__ import annotations

import re
import ssl

from leasectl.errors import CorruptState, InvalidRequest
from leasectl.http.named_file import NamedFile
from leasectl.http.settings import Settings
from leasectl.typed.hints import NoReturn

_CERTIFICATE = re.compile(rb"^-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----", re.MULTILINE)
_KEY = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----", re.MULTILINE)


def client_context(settings: Settings) -> ssl.SSLContext:
    """Make the context of a client's connections, with its files read.

    Raises:
        InvalidRequest: There is a key, and no certificate that it belongs to.
        FileUnreadable: A file isn't there, or may not be read.
        CorruptState: A file doesn't hold what it should.
    """
    context = _trusting(settings.ca_file)
    if settings.cert_file:
        _show(context, settings.cert_file, settings.key_file)
    elif settings.key_file:
        raise InvalidRequest(
            f"{settings.key_file} is the key of no certificate; "
            "name that in LEASECTL_CERT_FILE, or unset LEASECTL_KEY_FILE"
        )
    return context


def client_files(settings: Settings) -> tuple[str, ...]:
    """The files that `client_context` reads, as paths."""
    ca_file = settings.ca_file or ssl.get_default_verify_paths().cafile
    files = (ca_file, settings.cert_file, settings.key_file)
    return tuple(file for file in files if file)


def _trusting(ca_file: str | None) -> ssl.SSLContext:
    if ca_file is None:
        return ssl.create_default_context()
    file = NamedFile("CA file", ca_file, "LEASECTL_CA_FILE or SSL_CERT_FILE")
    content = file.read()
    if not content:  # of a pipe that nobody writes to, OpenSSL would wait for more
        raise _without_certificate(file, content)
    try:
        return ssl.create_default_context(cafile=ca_file)
    except ssl.SSLError as error:
        raise _without_certificate(file, content) from error


def _show(context: ssl.SSLContext, cert_file: str, key_file: str | None) -> None:
    certificate = NamedFile("certificate file", cert_file, "LEASECTL_CERT_FILE")
    content = certificate.read()
    if not _CERTIFICATE.search(content):
        raise _without_certificate(certificate, content)
    if key_file is None and not _KEY.search(content):
        raise CorruptState(
            f"{certificate} holds no private key; name its file in LEASECTL_KEY_FILE"
        )
    key = certificate
    if key_file is not None:
        key = NamedFile("key file", key_file, "LEASECTL_KEY_FILE")
        if not _KEY.search(key.read()):
            raise key.refused("holds no private key in PEM form")

    def refuse() -> NoReturn:  # rather than have OpenSSL ask at the terminal
        raise key.refused("is encrypted", "isn't")

    try:
        context.load_cert_chain(cert_file, key_file, password=refuse)
    except ssl.SSLError as error:
        raise _why_not(error, certificate, content, key) from error


def _why_not(
    error: ssl.SSLError, certificate: NamedFile, content: bytes, key: NamedFile
) -> CorruptState:
    """Which of the two is wrong, as OpenSSL doesn't say."""
    reason = error.reason or ""
    if "MISMATCH" in reason:
        return CorruptState(
            f"the key in {key.path} isn't that of the certificate in {certificate.path}; "
            f"name the one that is in {key.named_by}"
        )
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(certificate.path)
    except ssl.SSLError:
        return _without_certificate(certificate, content)
    if reason.startswith(("EE_", "CA_")):  # well-formed, but weaker than this OpenSSL allows
        said = reason.replace("_", " ").lower()
        return certificate.refused(f"is too weak for OpenSSL ({said})", "isn't")
    return key.refused("is damaged", "isn't")


def _without_certificate(file: NamedFile, content: bytes) -> CorruptState:
    if _CERTIFICATE.search(content):
        return file.refused("is damaged", "isn't")
    return file.refused("holds no certificate in PEM form")
