"""Whom to trust on a connection with TLS, and what to show for ourselves."""

from __future__ import annotations

import ssl
from typing import NoReturn

from leasectl.backends.settings import Settings
from leasectl.errors import CorruptState, InvalidRequest


def client_context(settings: Settings) -> ssl.SSLContext:
    """Make the context of a client's connections, with its files read.

    Raises:
        InvalidRequest: There is a key, and no certificate that it belongs to.
        CorruptState: A file can't be read, or doesn't hold what it should.
    """
    context = _trusting(settings.ca_file)
    if settings.cert_file:
        _show(context, settings.cert_file, settings.key_file or settings.cert_file)
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
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise _unusable("CA file", ca_file, error) from error


def _show(context: ssl.SSLContext, cert_file: str, key_file: str) -> None:
    _check_readable("certificate file", cert_file)
    _check_readable("key file", key_file)

    def refuse() -> NoReturn:  # rather than have OpenSSL ask at the terminal
        raise CorruptState(f"key file {key_file}: it is encrypted; give one that isn't")

    try:
        context.load_cert_chain(cert_file, key_file, password=refuse)
    except OSError as error:
        what = "certificate file" if key_file == cert_file else f"key file {key_file} for"
        raise _unusable(what, cert_file, error) from error


def _check_readable(what: str, path: str) -> None:
    """OpenSSL doesn't say which of two files it couldn't read."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise _unusable(what, path, error) from error


def _unusable(what: str, path: str | None, error: OSError) -> CorruptState:
    said = error.strerror or str(error)
    if isinstance(error, ssl.SSLError):
        said = f"it doesn't hold what it should: {said}"
    return CorruptState(f"{what} {path}: {said}")
