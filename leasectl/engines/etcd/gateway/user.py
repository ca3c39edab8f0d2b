"""Read the user and password for etcd from a file."""

from __future__ import annotations

from typing import NamedTuple

from leasectl.http.settings import NamedFile

_LONGEST_BYTES = 64 * 1024


class User(NamedTuple):
    """Whom etcd knows."""

    name: str
    password: str


def read_user(path: str) -> User:
    """Read ``user:password``, one line; whatever follows the first ":" is the password.

    Raises:
        FileUnreadable: It isn't there, or may not be read.
        CorruptState: There is nothing of that form in it. The text says nothing of what is.
    """
    file = NamedFile("user file", path, "LEASECTL_USER_FILE")
    content = file.read(_LONGEST_BYTES)
    try:
        name, _, password = content.decode().rstrip("\r\n").partition(":")
    except UnicodeDecodeError:
        name = password = ""
    if not name or not password or not (name + password).isprintable():
        raise file.refused("doesn't hold user:password, on one line")
    return User(name, password)
