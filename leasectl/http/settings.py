"""A client's settings, and the files they name; no secrets."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from leasectl.errors import CorruptState, FileUnreadable
from leasectl.system.poll import is_readable
from leasectl.text.wording import printable

_LONGEST_BYTES = 16 << 20
_PIECE_BYTES = 1 << 16
# What is no file, like a pipe or a terminal, may never say anything.
_LONGEST_WAIT_SECONDS = 5.0


class NamedFile(NamedTuple):
    """A file, with what messages about it say.

    Args:
        what: It is, like "user file".
        path: Where it is.
        named_by: The variable or the option that names it.
    """

    what: str
    path: str
    named_by: str

    def read(self, longest_bytes: int = _LONGEST_BYTES) -> bytes:
        """Read all of it, or its first so many bytes.

        Raises:
            FileUnreadable: It isn't there, may not be read, or is none that ends.
        """
        try:
            # A pipe that nobody writes to would be waited for at once.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                return _read(fd, longest_bytes)
            finally:
                os.close(fd)
        except OSError as error:
            raise self._unreadable(error.strerror or str(error)) from error
        except ValueError as error:  # of a NUL, or what no file system can write
            raise self._unreadable("not a valid file name") from error

    def _unreadable(self, why: str) -> FileUnreadable:
        return FileUnreadable(f"{self}: {why}; {self.named_by} must name a readable file")

    def refused(self, what: str, wanted: str = "does") -> CorruptState:
        """The error for a file that isn't what it should be; says nothing of what is in it."""
        return CorruptState(f"{self} {what}; {self.named_by} must name one that {wanted}")

    def __str__(self) -> str:
        return f"{self.what} {printable(self.path, longest=500)}"


def _read(fd: int, longest_bytes: int) -> bytes:
    pieces, left, until = [], longest_bytes, None
    while left:
        try:
            piece = os.read(fd, min(left, _PIECE_BYTES))
        except BlockingIOError:
            until = until or time.monotonic() + _LONGEST_WAIT_SECONDS
            _wait_for_more(fd, until - time.monotonic())
            continue
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _wait_for_more(fd: int, seconds: float) -> None:
    if not is_readable(fd, max(0.0, seconds)):
        raise TimeoutError(0, f"it didn't end within {_LONGEST_WAIT_SECONDS} s")


def is_readable_by_others(path: str) -> bool:
    """Tell whether a file's mode lets other users read it, or the members of its group."""
    try:
        return bool(os.stat(path).st_mode & 0o044)
    except (OSError, ValueError):
        return False  # whoever reads it says what is wrong with it


_LONGEST_TOKEN_BYTES = 64 * 1024


class Settings(NamedTuple):
    """Settings of a connection.

    Args:
        token_file: Path of a file with a bearer token, or None.
        ca_file: Path of a file with the certificates to trust, or None for the usual ones.
        trust_env: Heed ``http_proxy`` and its like. Not by default: a lease proxy is near, and
            scripts set those variables half-way.
        cert_file: Path of a file with the certificate to show to a server, or None.
        key_file: Path of a file with that certificate's key; None when it is in the same file.
        user_file: Path of a file with ``user:password`` for etcd, or None.
        cluster: Which cluster of Kubernetes, and where it is written as whom, as
            `leasectl.engines.kubernetes.api.choice` has it, on one line; or None.
        username: Whom to be to what stands in front of Boskos, or None.
        password_file: Path of a file with that user's password, or None.
    """

    token_file: str | None = None
    ca_file: str | None = None
    trust_env: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    user_file: str | None = None
    cluster: str | None = None
    username: str | None = None
    password_file: str | None = None


_DEFAULTS = Settings()


def encode_settings(settings: Settings) -> str:
    """Write settings as one text for a record; `parse_settings` reads it back.

    It has a line ``name=value`` for each setting that isn't the default.
    """
    if settings == _DEFAULTS:
        return ""
    named = {**settings._asdict(), "trust_env": "1" if settings.trust_env else None}
    return "\n".join(f"{name}={value}" for name, value in named.items() if value)


def parse_settings(text: str) -> Settings:
    """Read what `encode_settings` wrote.

    Raises:
        CorruptState: It has something else.
    """
    if not text:
        return _DEFAULTS
    named = dict(line.partition("=")[::2] for line in text.split("\n"))
    if not named.keys() <= set(Settings._fields) or not all(named.values()):
        raise CorruptState(
            f'settings "{printable(text, longest=200)}" were written by a newer leasectl, or are '
            "damaged"
        )
    return Settings(**{**named, "trust_env": "trust_env" in named})  # type: ignore[arg-type]


def read_token(path: str, *, named_by: str = "LEASECTL_TOKEN_FILE") -> str:
    """Read a bearer token from its file.

    Args:
        path: Of the file.
        named_by: The variable or the option that names it.

    Raises:
        FileUnreadable: It isn't there, or may not be read.
        CorruptState: There is none in it. The text says nothing of what is.
    """
    file = NamedFile("token file", path, named_by)
    token = file.read(_LONGEST_TOKEN_BYTES).decode("ascii", "replace").strip()
    if not token or not (token.isascii() and token.isprintable()) or " " in token:
        raise file.refused("holds no bearer token")
    return token
