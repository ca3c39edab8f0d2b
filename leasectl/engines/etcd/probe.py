"""Test without a trace whether etcd can do what leases need."""

from __future__ import annotations

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import absent, present, put
from leasectl.engines.etcd.keys import Keys


def probe(gateway: Gateway, keys: Keys) -> None:
    """Find out whether something could be written below a prefix.

    It is a transaction that would write if a key were there and weren't. A quorum has to agree on
    it, the user has to be allowed to read and to write, and etcd must not be out of space: a read
    that may be out of date, or a transaction of nothing, is answered by a member all alone.

    Args:
        gateway: To the cluster.
        keys: Of the prefix.

    Raises:
        LeaseError: It couldn't, as `Gateway.commit`.
    """
    key = keys.pools()
    gateway.commit((present(key), absent(key)), [put(key, "")])
