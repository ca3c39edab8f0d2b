"""Which pools there are in etcd."""

from __future__ import annotations

from leasectl.engines.etcd.gateway.gateway import Gateway
from leasectl.engines.etcd.gateway.requests import read_all
from leasectl.engines.etcd.key_values import name_in
from leasectl.engines.etcd.keys import Keys


def pool_types(gateway: Gateway, keys: Keys) -> list[str]:
    """The types of all pools there are, sorted."""
    (found,) = gateway.read(read_all(keys.pools())).answers
    return [name_in(kv) for kv in found.items if not kv.value]
