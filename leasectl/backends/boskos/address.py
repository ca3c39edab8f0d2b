"""``boskos+https://HOST/PATH?state=free&leased=leased&...``: which Boskos, and how it is used.

What Boskos calls a state is up to those who use it, and how long a lease lasts that nobody renews
is up to the reaper beside it, which no answer tells of. So an address says both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qsl

from leasectl.backends.kinds import check_port
from leasectl.errors import InvalidRequest
from leasectl.text.durations import NoTime, parse_duration
from leasectl.text.printable import printable
from leasectl.typed.tuples import NamedTuple

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
            "an address of Boskos holds no user; where something in front of it asks for one, name "
            "it in LEASECTL_BOSKOS_USERNAME, and the file with the password in "
            "LEASECTL_BOSKOS_PASSWORD_FILE"
        )
    found = _URL.fullmatch(url)
    if found is None:
        raise _wrong(url, "is no address of Boskos")
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
        raise _wrong(url, f'has "{address.leased}" for what is leased and for what isn\'t')
    return address


def _parameters(url: str, query: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise _wrong(url, f'has "{printable(query)}" after the "?"') from None
    for name, _ in pairs:
        if name not in _PARAMETERS:
            raise _wrong(
                url, f'has "{printable(name)}" after the "?", where {", ".join(_PARAMETERS)} may be'
            )
    said = dict(pairs)
    if len(said) < len(pairs):
        raise _wrong(url, "says something twice")
    return said


def _state(url: str, said: Mapping[str, str], name: str, default: str) -> str:
    state = said.get(name, default)
    if not _STATE.fullmatch(state):
        raise _wrong(url, f'has {name} "{printable(state)}", which is no name of a state')
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
    return InvalidRequest(f'"{printable(url)}" {what}; write it like {LIKE}')
