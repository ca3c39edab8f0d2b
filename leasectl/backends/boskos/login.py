"""As whom we come to what stands in front of Boskos and asks for a user and password."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from leasectl.errors import InvalidRequest
from leasectl.http.named_file import NamedFile
from leasectl.http.settings import Settings
from leasectl.text.printable import printable

USERNAME = "LEASECTL_BOSKOS_USERNAME"
PASSWORD_FILE = "LEASECTL_BOSKOS_PASSWORD_FILE"  # it is no password
_LONGEST_BYTES = 64 * 1024


def with_login(settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Add to settings whose password is in which file, as the environment says it.

    Raises:
        InvalidRequest: It says only one of them, or something that can't be sent.
    """
    name, path = environment.get(USERNAME), environment.get(PASSWORD_FILE)
    if not name and not path:
        return settings
    if not name or not path:
        there, missing = (USERNAME, PASSWORD_FILE) if name else (PASSWORD_FILE, USERNAME)
        raise InvalidRequest(f"{there} is set and {missing} isn't; Boskos needs both, or neither")
    if ":" in name or not name.isprintable():
        raise InvalidRequest(f"{USERNAME} holds what no user is called: {printable(name)}")
    if not path.isprintable():
        raise InvalidRequest(f"{PASSWORD_FILE} holds what no path here may: {printable(path)}")
    return settings._replace(username=name, password_file=os.path.abspath(path))


def login_headers(settings: Settings) -> dict[str, str]:
    """The headers that say it; none where nobody is named.

    Raises:
        FileUnreadable: The file isn't there, or may not be read.
        CorruptState: There is no password in it. The text says nothing of what is.
    """
    if settings.username is None or settings.password_file is None:
        return {}
    file = NamedFile("password file", settings.password_file, PASSWORD_FILE)
    password = file.read(_LONGEST_BYTES).rstrip(b"\r\n")
    if not password or b"\n" in password:
        raise file.refused("doesn't hold a password, on one line")
    both = settings.username.encode() + b":" + password
    return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}
