"""Parse ``etcd://h1:2379,h2:2379/prefix``."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

from leasectl.errors import InvalidRequest
from leasectl.text.wording import printable_url

DEFAULT_PREFIX = "/leasectl"
DEFAULT_PORT = 2379
_URL = re.compile(r"(?P<scheme>etcds?)://(?P<members>[^/?#]*)(?P<prefix>/.*)?", re.ASCII)
# Names in DNS, and what people use in their place: Compose and Docker allow "_".
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_MEMBER = re.compile(
    rf"(?P<host>{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{{1,5}}))?",
    re.ASCII,
)
_PREFIX_PART = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_LONGEST_HOST = 253
_LONGEST_PREFIX = 1024


class EtcdAddress(NamedTuple):
    """Where a cluster is.

    Args:
        endpoints: The members' base addresses, ``http://host:port`` or ``https://host:port``.
        prefix: The key below which everything is, with a "/" before and none after it.
    """

    endpoints: tuple[str, ...]
    prefix: str = DEFAULT_PREFIX

    @property
    def is_secure(self) -> bool:
        """Whether it is talked to with TLS."""
        return self.endpoints[0].startswith("https:")


def parse_etcd_url(url: str) -> EtcdAddress:
    """Read the URL of a cluster.

    A member that is named twice counts once. Nothing else is made the same: two URLs that differ
    are two backends, even where they mean one cluster.

    Raises:
        InvalidRequest: It is none.
    """
    if "@" in url:
        raise InvalidRequest(  # without the address, which may hold a password
            "an etcd address can't hold a user; name a file with user:password in "
            "LEASECTL_USER_FILE"
        )
    found = _URL.fullmatch(url)
    if found is None or not found["members"]:
        raise _wrong(url, "is not a URL of etcd")
    scheme = "https" if found["scheme"] == "etcds" else "http"
    members = dict.fromkeys(_member(url, member) for member in found["members"].split(","))
    endpoints = tuple(f"{scheme}://{member}" for member in members)
    return EtcdAddress(endpoints, _prefix(url, found["prefix"] or ""))


def _member(url: str, text: str) -> str:
    found = _MEMBER.fullmatch(text)
    if found is None or len(found["host"]) > _LONGEST_HOST or not _is_address(found["host"]):
        raise _wrong(url, f'has "{printable_url(text)}" where a member\'s host and port should be')
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65535:
        raise _wrong(url, f"has port {port}, which is not between 1 and 65535")
    return f"{found['host']}:{port}"


def _is_address(host: str) -> bool:
    """Whether what looks like an IP address is one; names pass."""
    try:
        if host.startswith("["):
            ipaddress.IPv6Address(host[1:-1])
        elif re.fullmatch(r"[0-9.]+", host):
            ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def _prefix(url: str, text: str) -> str:
    """A key is no path: etcd wouldn't resolve "//", "." or "..", so they can only be mistakes."""
    prefix = text.rstrip("/")
    for part in prefix.split("/")[1:]:
        if not _PREFIX_PART.fullmatch(part) or part in (".", ".."):
            raise _wrong(url, f'has the invalid part "{printable_url(part)}" in its prefix')
    if len(prefix) > _LONGEST_PREFIX:
        raise _wrong(url, f"has a prefix of more than {_LONGEST_PREFIX} characters")
    return prefix or DEFAULT_PREFIX


def _wrong(url: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f'"{printable_url(url)}" {what}; write it like etcd://h1:2379,h2:2379/prefix'
    )
