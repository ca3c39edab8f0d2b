"""The user and password for etcd, from their file."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.errors import CorruptState

_LONGEST_BYTES = 64 * 1024


class User(NamedTuple):
    """Whom etcd knows."""

    name: str
    password: str


def read_user(path: str) -> User:
    """Read ``user:password``, one line; whatever follows the first ":" is the password.

    Raises:
        CorruptState: It can't be read, or there is nothing of that form in it. The text says
            nothing of what is.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(_LONGEST_BYTES)
    except OSError as error:
        raise CorruptState(f"user file {path}: {error.strerror or error}") from error
    try:
        name, _, password = content.decode().rstrip("\r\n").partition(":")
    except UnicodeDecodeError:
        name = password = ""
    if not name or not password or not (name + password).isprintable():
        raise CorruptState(f"user file {path} doesn't hold user:password, on one line")
    return User(name, password)
