"""TLS contexts and certificates."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple, NoReturn, cast

from leasectl.errors import CorruptState, InvalidRequest, LeaseError, StateUnwritable
from leasectl.http.settings import NamedFile, Settings
from leasectl.text.wording import printable


class Pem(NamedTuple):
    """Something in PEM form.

    Args:
        content: It.
        source: Where it was found, for messages.
        advice: What to do where it isn't what it should be.
    """

    content: bytes
    source: str
    advice: str

    def refused(self, what: str) -> CorruptState:
        """The error for one that isn't what it should be; says nothing of what is in it."""
        return CorruptState(f"{printable(self.source, longest=500)} {what}; {self.advice}")


class PemTls(NamedTuple):
    """The certificates of a client's connections.

    Args:
        ca: The certificates to trust; None for the usual ones.
        certificate: The certificate to show, and those between it and its CA; None for none.
        key: The key of that certificate; None if ``certificate`` holds it, too.
        is_verified: Whether the server has to show a certificate that is trusted.
    """

    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    is_verified: bool = True


def pem_context(pems: PemTls) -> ssl.SSLContext:
    """Make the context of a client's connections.

    With a CA of its own that takes a millisecond, with the usual ones a hundred.

    Raises:
        CorruptState: Something isn't what it should be.
    """
    if pems.is_verified and pems.ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not pems.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif pems.ca is not None:
        try:
            context.load_verify_locations(cadata=pems.ca.content.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise pems.ca.refused("holds no certificate in PEM form, or a damaged one") from error
    if pems.certificate is not None:
        _show_pem(context, pems.certificate, pems.key or pems.certificate)
    return context


def _show_pem(context: ssl.SSLContext, certificate: Pem, key: Pem) -> None:
    if b"-----BEGIN" not in certificate.content:
        raise certificate.refused("holds no certificate in PEM form")
    if b"PRIVATE KEY-----" not in key.content:
        raise key.refused("holds no private key in PEM form")

    def refuse() -> NoReturn:  # rather than have OpenSSL ask at the terminal
        raise key.refused("is an encrypted key; it has to be one without a password")

    together = certificate.content.rstrip() + b"\n" + key.content
    try:
        with _nameless_file(together) as path:
            context.load_cert_chain(path, password=refuse)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            raise key.refused(f"doesn't belong to {printable(certificate.source)}") from error
        why = (error.reason or "damaged").replace("_", " ").lower()
        raise certificate.refused(f"and its key can't be used ({printable(why)})") from error


@contextlib.contextmanager
def _nameless_file(content: bytes) -> Iterator[str]:
    """A path that only this process can read, of data that is on no disk."""
    with _opened_nameless() as file:
        file.write(content)
        yield f"/proc/self/fd/{file.fileno()}"


def _opened_nameless() -> BinaryIO:
    if hasattr(os, "memfd_create"):  # not in a Python that was built for old systems
        with contextlib.suppress(OSError):  # the kernel is one, or forbids it
            return open(os.memfd_create("leasectl", os.MFD_CLOEXEC), "wb", buffering=0)
    import tempfile

    for folder in ("/dev/shm", None):  # in memory as a rule; else wherever such files go
        try:
            return cast(BinaryIO, tempfile.TemporaryFile("wb", buffering=0, dir=folder))
        except OSError as error:
            failed = error
    raise StateUnwritable(f"a key can't be handed to OpenSSL: {failed}; TMPDIR has to be writable")


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
            "LEASECTL_KEY_FILE is set without LEASECTL_CERT_FILE; set both, or unset "
            "LEASECTL_KEY_FILE"
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
            f"{certificate} holds no private key; name the file of its key in LEASECTL_KEY_FILE"
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
            f"the key in {key.path} doesn't belong to the certificate in {certificate.path}; "
            f"name the right key file in {key.named_by}"
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


# What tells of each file whether it is the same.
_Look = tuple[tuple[int, ...], ...]


class Trust:
    """A context for connections, made anew when a file that it is made of has changed.

    Threads may share it.

    Args:
        make: Makes it of the files as they are then.
        files: Their paths.
    """

    def __init__(self, make: Callable[[], ssl.SSLContext], files: Sequence[str]) -> None:
        self._make = make
        self._files = tuple(files)
        self._lock = threading.Lock()
        # Under the lock:
        self._context: ssl.SSLContext | None = None
        self._made_of: _Look = ()

    def context(self) -> ssl.SSLContext:
        """The context as it has to be now.

        While files are being replaced they may not fit each other. Then it is the one before, and
        the next time they are read again.

        Raises:
            LeaseError: There is none yet, and the files can't be used.
        """
        with self._lock:
            found = self._look()
            if self._context is None or found != self._made_of:
                try:
                    self._context, self._made_of = self._make(), found
                except LeaseError:
                    if self._context is None:
                        raise
            return self._context

    def is_outdated(self, context: ssl.SSLContext | None) -> bool:
        """Tell whether files have changed since that context was made."""
        with self._lock:
            return context is not self._context or self._look() != self._made_of

    def _look(self) -> _Look:
        return tuple(map(look_at, self._files))


def trust_of(settings: Settings) -> Trust:
    """The certificates of the settings: which to trust, and which to show."""

    return Trust(lambda: client_context(settings), client_files(settings))


def look_at(file: str) -> tuple[int, ...]:
    """What tells whether a file is the same as before; empty where there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_ino, found.st_size
