"""``etcd://h1:2379,h2:2379/prefix``: which members, and below which key."""

from __future__ import annotations

import re
from typing import NamedTuple

from leasectl.durations import printable
from leasectl.errors import InvalidRequest

DEFAULT_PREFIX = "/leasectl"
_HOST = r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]"
_MEMBER = rf"(?:{_HOST}):[0-9]{{1,5}}"
_URL = re.compile(
    rf"(?P<scheme>etcds?)://(?P<members>{_MEMBER}(?:,{_MEMBER})*)(?P<prefix>/[A-Za-z0-9._/-]*)?",
    re.ASCII,
)


class EtcdAddress(NamedTuple):
    """Where a cluster is.

    Args:
        endpoints: The members' base addresses, ``http://host:port`` or ``https://host:port``.
        prefix: The key below which everything is.
    """

    endpoints: tuple[str, ...]
    prefix: str


def is_etcd(url: str) -> bool:
    """Tell whether a URL means a cluster of etcd."""
    return url.startswith(("etcd:", "etcds:"))


def parse_etcd_url(url: str) -> EtcdAddress:
    """Read the URL of a cluster.

    Raises:
        InvalidRequest: It is none.
    """
    found = _URL.fullmatch(url)
    if found is None:
        raise InvalidRequest(
            f'"{printable(url)}" is no address of etcd; write it like etcd://h1:2379,h2:2379/prefix'
        )
    scheme = "https" if found["scheme"] == "etcds" else "http"
    endpoints = tuple(f"{scheme}://{member}" for member in found["members"].split(","))
    return EtcdAddress(endpoints, found["prefix"] or DEFAULT_PREFIX)
