"""TLS from what certificates and keys are, not from where they are: some are in no file.

Python's ssl reads a key from a file only. That file is in memory, where that can be, and has no
name.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Iterator

from leasectl.errors import CorruptState, StateUnwritable
from leasectl.text.printable import printable
from leasectl.typed.hints import BinaryIO, NoReturn, cast
from leasectl.typed.tuples import NamedTuple


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
    """Whom to trust, and what to show.

    Args:
        ca: The certificates to trust; None for the usual ones.
        certificate: The one to show, and those between it and its CA; None for none.
        key: Its key; None where ``certificate`` has it, too.
        is_verified: Whether the server has to show one that is trusted.
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
    context = _trusting(pems)
    if pems.certificate is not None:
        _show(context, pems.certificate, pems.key)
    return context


def _trusting(pems: PemTls) -> ssl.SSLContext:
    if pems.is_verified and pems.ca is None:
        return ssl.create_default_context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not pems.is_verified:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif pems.ca is not None:
        _load_ca(context, pems.ca)
    return context


def _load_ca(context: ssl.SSLContext, ca: Pem) -> None:
    try:
        context.load_verify_locations(cadata=ca.content.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError) as error:
        raise ca.refused("holds no certificate in PEM form, or a damaged one") from error


def _show(context: ssl.SSLContext, certificate: Pem, key: Pem | None) -> None:
    key = certificate if key is None else key
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
            raise key.refused(f"isn't the key of {printable(certificate.source)}") from error
        why = (error.reason or "damaged").replace("_", " ").lower()
        raise certificate.refused(f"and its key can't be used ({printable(why)})") from error


@contextlib.contextmanager
def _nameless_file(content: bytes) -> Iterator[str]:
    """A path at which this process, and nobody else, reads something that is on no disk."""
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
