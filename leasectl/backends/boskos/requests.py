"""Boskos' address, login, requests and limits."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from leasectl.backends.kinds import check_port
from leasectl.errors import InvalidRequest
from leasectl.http.messages import Call
from leasectl.http.settings import NamedFile, Settings
from leasectl.text.durations import NoTime, parse_duration
from leasectl.text.wording import printable, printable_url

# What Boskos' reaper does where nobody has said otherwise, and what its requests are kept for.
REAPER_SECONDS = 30 * 60.0
QUEUE_SECONDS = 30.0
# The states that the reaper knows without `--extra-source-states`.
REAPED_STATES = ("busy", "cleaning", "leased")
# A lease is renewed three times as often, and whoever waits asks again each few seconds.
SHORTEST_SECONDS = 3.0
# Boskos writes down in whole seconds when one was updated last.
_ROUNDED_SECONDS = 1.0
_RENEW_EACH_SECONDS = 30.0
_URL = re.compile(
    r"boskos\+(?P<server>https?://(?P<host>[A-Za-z0-9._~-]+|\[[0-9A-Fa-f:.]+\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?:/[A-Za-z0-9._~/-]*)?)(?:\?(?P<query>[^#]*))?",
    re.ASCII,
)
_STATE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
_PARAMETERS = ("state", "leased", "release-to", "expire", "queue-ttl")
LIKE = "boskos+https://HOST?expire=30m"


class BoskosAddress(NamedTuple):
    """Where a Boskos is, and how it is set up.

    Args:
        server: Its base address, ``http://host`` or ``https://host``, without a "/" at its end.
        free: The state in which a resource may be had.
        leased: The state of one that is held.
        release_to: The state of one that was given back.
        expire_seconds: For how long the reaper leaves one alone that nobody updates; None where
            nobody has said.
        queue_seconds: For how long Boskos keeps the place of a request that isn't asked again.
    """

    server: str
    free: str = "free"
    leased: str = "leased"
    release_to: str = "free"
    expire_seconds: float | None = None
    queue_seconds: float = QUEUE_SECONDS

    @property
    def ttl_seconds(self) -> float:
        """How long a lease lasts after its last renewal."""
        return self.reaper_seconds - _ROUNDED_SECONDS

    @property
    def reaper_seconds(self) -> float:
        """What the reaper is said to be set to."""
        return REAPER_SECONDS if self.expire_seconds is None else self.expire_seconds

    @property
    def renew_seconds(self) -> float:
        """How often one is renewed."""
        return min(self.ttl_seconds / 3, _RENEW_EACH_SECONDS)


def parse_boskos_url(url: str) -> BoskosAddress:
    """Read the URL of a Boskos.

    Raises:
        InvalidRequest: It is none.
    """
    if "@" in url:
        raise InvalidRequest(  # without the address, which may hold a password
            "a Boskos address can't hold a user; for a password in front of Boskos, "
            "set LEASECTL_BOSKOS_USERNAME, and name the file with the password in "
            "LEASECTL_BOSKOS_PASSWORD_FILE"
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise _wrong(url, "is not a URL of Boskos")
    check_port(url, found["port"], like=LIKE)
    said = _parameters(url, found["query"] or "")
    address = BoskosAddress(
        found["server"].rstrip("/"),
        _state(url, said, "state", "free"),
        _state(url, said, "leased", "leased"),
        _state(url, said, "release-to", "free"),
        _seconds(url, said, "expire"),
        _seconds(url, said, "queue-ttl") or QUEUE_SECONDS,
    )
    if address.leased in (address.free, address.release_to):
        raise _wrong(
            url,
            f"has leased={address.leased}, which is also the state of free or released resources "
            "(state=, release-to=; default: free)",
        )
    return address


def _parameters(url: str, query: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise _wrong(url, 'has no NAME=VALUE after the "?"') from None
    for name, _ in pairs:
        if name not in _PARAMETERS:
            raise _wrong(
                url, f'has the parameter "{printable(name)}"; known: {", ".join(_PARAMETERS)}'
            )
    said = dict(pairs)
    if len(said) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(each for each in names if names.count(each) > 1)
        raise _wrong(url, f"has the parameter {twice} twice")
    return said


def _state(url: str, said: Mapping[str, str], name: str, default: str) -> str:
    state = said.get(name, default)
    if not _STATE.fullmatch(state):
        raise _wrong(url, f'has {name} "{printable(state)}", which is not the name of a state')
    return state


def _seconds(url: str, said: Mapping[str, str], name: str) -> float | None:
    if name not in said:
        return None
    try:
        seconds = parse_duration(said[name])
    except NoTime as error:
        raise _wrong(url, f"has a bad {name}: {error}") from None
    if seconds < SHORTEST_SECONDS:
        raise _wrong(url, f"has {name}={printable(said[name])}, which is less than 3s")
    return seconds


def _wrong(url: str, what: str) -> InvalidRequest:
    return InvalidRequest(f'"{printable_url(url)}" {what}; write it like {LIKE}')


def acquire(address: BoskosAddress, pool_type: str, owner: str, request_id: str | None) -> Call:
    """Ask for one of a type.

    Args:
        address: Of Boskos.
        pool_type: The type.
        owner: Whose it is to be.
        request_id: What keeps a place in the queue; None for whoever doesn't wait.
    """
    query = {"type": pool_type, "state": address.free, "dest": address.leased, "owner": owner}
    if request_id is not None:
        query["request_id"] = request_id
    return _call(address, "/acquire", query)


def acquire_by_name(address: BoskosAddress, name: str, owner: str) -> Call:
    """Ask for that very resource, past the queue.

    Never for several: of those Boskos keeps what it found, and doesn't say which.
    """
    query = {"names": name, "state": address.free, "dest": address.leased, "owner": owner}
    return _call(address, "/acquirebystate", query)


def update(address: BoskosAddress, name: str, owner: str) -> Call:
    """Say that an owner still has a resource; to anybody else's nothing happens."""
    return _call(address, "/update", {"name": name, "owner": owner, "state": address.leased})


def release(address: BoskosAddress, name: str, owner: str) -> Call:
    """Give back what an owner has; to anybody else's nothing happens."""
    return _call(address, "/release", {"name": name, "dest": address.release_to, "owner": owner})


def metric(address: BoskosAddress, pool_type: str) -> Call:
    """Ask how many of a type are in which state, and how many each owner has."""
    return _call(address, "/metric", {"type": pool_type}, method="GET")


def sign_of_life(address: BoskosAddress) -> Call:
    """Ask for a metric without a type, which only Boskos refuses in these words."""
    return _call(address, "/metric", {}, method="GET")


def _call(address: BoskosAddress, path: str, query: dict[str, str], method: str = "POST") -> Call:
    text = f"?{urlencode(query)}" if query else ""
    return Call(f"{address.server}{path}{text}", method=method)


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
        raise InvalidRequest(f"{there} is set, but {missing} isn't; set both or neither")
    if ":" in name or not name.isprintable():
        raise InvalidRequest(f"{USERNAME} is not a valid user name: {printable(name)}")
    if not path.isprintable():
        raise InvalidRequest(f"{PASSWORD_FILE} is not a valid path: {printable(path)}")
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
        raise file.refused("doesn't hold a password as its only line")
    both = settings.username.encode() + b":" + password
    return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}


def type_of(owner: str) -> str:
    """The type that an owner has asked for: what its handle is named after."""
    return owner.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
