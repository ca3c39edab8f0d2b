"""From the URL of a cluster of etcd, and how to talk to it, to its gateway."""

from __future__ import annotations

from leasectl.backends.etcd_address import parse_etcd_url
from leasectl.backends.settings import Settings
from leasectl.clock import Clock
from leasectl.engines.etcd_gateway import Gateway


def open_gateway(
    url: str, settings: Settings, *, clock: Clock, deadline_seconds: float = 10.0
) -> Gateway:
    """Open a cluster's gateway; nothing is asked of it yet.

    Args:
        url: As `parse_etcd_url` reads it.
        settings: How to talk to it.
        clock: Where times come from.
        deadline_seconds: How long a request may take, all its repetitions included.
    """
    endpoints = parse_etcd_url(url).endpoints
    return Gateway(endpoints, clock=clock, deadline_seconds=deadline_seconds)
