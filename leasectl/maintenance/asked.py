"""Request, cancel and show maintenance."""

from __future__ import annotations

from typing import Literal, NamedTuple

from leasectl.errors import InvalidRequest, NotFound
from leasectl.maintenance.api_cluster import ApiCluster
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import parse_wanted
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import Json, name_of, parse_lease, parse_node, request_of
from leasectl.text.wording import printable


class Standing(NamedTuple):
    """How the maintenance of a node stands.

    Args:
        node: Its name.
        asked: For how long, as it was written; None for nothing.
        status: What is noted; empty for nothing.
        cordon: Whose, if it is cordoned: ``ours`` or ``another's``.
        holder: Who has its lease; empty for nobody.
        over_at: When its time is over, in seconds since the epoch, if the lease is ours.
    """

    node: str
    asked: str | None
    status: str
    cordon: Literal["", "ours", "another's"]
    holder: str
    over_at: float | None


def ask_for(cluster: ApiCluster, node: str, text: str) -> str | None:
    """Have a node ask for maintenance; returns what it asked for before.

    Args:
        cluster: Where.
        node: The name of the node.
        text: For how long, as durations are written.

    Raises:
        InvalidRequest: It is no duration, or none at all.
        NotFound: There is no such node.
    """
    wanted = parse_wanted(text)
    if wanted is None or wanted.seconds is None:
        raise InvalidRequest(f'--for "{printable(text)}" is no time; write it like 30m')
    return _asked(cluster, node, text.strip())


def cancel(cluster: ApiCluster, node: str) -> bool:
    """Have a node ask for no maintenance any more; returns whether it did.

    Raises:
        NotFound: There is no such node.
    """
    return _asked(cluster, node, None) is not None


def _asked(cluster: ApiCluster, node: str, text: str | None) -> str | None:
    """Write what a node asks for; returns what it asked for before."""
    said = cluster.node(node)
    if said is None or not cluster.ask_for(node, text):
        raise _no_node(node)
    return request_of(said)


def is_without_controller(cluster: ApiCluster) -> bool:
    """Whether it is certain that no controller does what nodes ask for; of one that was killed,
    it isn't.
    """
    said = cluster.lease(LEASE_NAME)
    return said is None or not parse_lease(said).duration_seconds


def standings(cluster: ApiCluster, settings: Settings, node: str | None = None) -> list[Standing]:
    """How maintenance stands: of one node, or of all of which there is something to say.

    Raises:
        NotFound: There is no such node.
    """
    if node is not None:
        said = cluster.node(node)
        if said is None:
            raise _no_node(node)
        return [_standing(said, cluster.lease(settings.lease_of(node)), settings)]
    by_name = {name_of(each): each for each in cluster.leases()}
    found = [
        _standing(each, by_name.get(settings.lease_of(name_of(each))), settings)
        for each in cluster.nodes()
    ]
    return [e for e in found if e.asked is not None or e.status or e.cordon == "ours"]


def _standing(said: Json, lease_said: Json | None, settings: Settings) -> Standing:
    node, us = parse_node(said), settings.us
    cordon: Literal["", "ours", "another's"] = ""
    if node.is_unschedulable:
        cordon = "ours" if node.marked_by == us.identity else "another's"
    holder, over_at = "", None
    if lease_said is not None:
        lease = parse_lease(lease_said)
        holder = lease.holder if lease.duration_seconds else ""
        if holder == us.identity and lease.ends_at is not None:
            over_at = lease.ends_at - us.padding_seconds
    return Standing(name_of(said), request_of(said), node.status, cordon, holder, over_at)


def _no_node(node: str) -> NotFound:
    return NotFound(f'no node "{printable(node, longest=253)}"; see: kubectl get nodes')
