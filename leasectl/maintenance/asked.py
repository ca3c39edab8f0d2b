"""Request, cancel and show maintenance."""

from __future__ import annotations

import secrets
from typing import Literal, NamedTuple

from leasectl.errors import InvalidRequest, NotFound
from leasectl.maintenance.api_cluster import ApiCluster
from leasectl.maintenance.controller import Settings
from leasectl.maintenance.facts import parse_wanted
from leasectl.maintenance.leadership import LEASE_NAME
from leasectl.maintenance.objects import Json, name_of, parse_lease, parse_node, request_of, word_of
from leasectl.text.wording import printable

_WORD_BYTES = 8


class Standing(NamedTuple):
    """The state of a node's maintenance.

    Args:
        node: The name of the node.
        asked: The requested duration, as it was written; None for no request.
        status: The status; empty for none.
        cordon: Whose cordon the node has: ``ours`` or ``another's``; empty for none.
        holder: The holder of the node's Lease; empty for none.
        over_at: When our window is over, in seconds since the epoch.
        waits_until: When the Lease that a request waits for expires, by its own times, if its
            holder doesn't renew it. The controller takes a Lease once it has seen it unchanged for
            as long as it lasts, which may be later.
        waits_seconds: How long that Lease lasts.
    """

    node: str
    asked: str | None
    status: str
    cordon: Literal["", "ours", "another's"]
    holder: str
    over_at: float | None = None
    waits_until: float | None = None
    waits_seconds: int = 0


def ask_for(cluster: ApiCluster, node: str, text: str) -> str | None:
    """Request maintenance of a node; return the duration that was requested before, if any.

    A new request gets a new word, so that it gets a window of its own. A changed request keeps its
    word: the window that has begun for it is made longer or shorter.

    Args:
        cluster: The cluster.
        node: The name of the node.
        text: The duration.

    Raises:
        InvalidRequest: It isn't a duration, or it is 0.
        NotFound: The node doesn't exist.
    """
    wanted = parse_wanted(text)
    if wanted is None or wanted.seconds is None:
        raise InvalidRequest(f'invalid --for "{printable(text)}"; use a duration like 30m')
    said = _node(cluster, node)
    before = request_of(said)
    word = secrets.token_hex(_WORD_BYTES) if before is None else word_of(said)
    _write(cluster, node, text.strip(), word)
    return before


def cancel(cluster: ApiCluster, node: str) -> bool:
    """Remove the request of a node; return whether there was one.

    Raises:
        NotFound: The node doesn't exist.
    """
    said = _node(cluster, node)
    _write(cluster, node, None, "")
    return request_of(said) is not None


def _node(cluster: ApiCluster, node: str) -> Json:
    said = cluster.node(node)
    if said is None:
        raise _no_node(node)
    return said


def _write(cluster: ApiCluster, node: str, text: str | None, word: str) -> None:
    if not cluster.ask_for(node, text, word):
        raise _no_node(node)


def is_without_controller(cluster: ApiCluster) -> bool:
    """Return whether no controller leads; False while the Lease of a killed one lasts."""
    said = cluster.lease(LEASE_NAME)
    return said is None or not parse_lease(said).duration_seconds


def standings(cluster: ApiCluster, settings: Settings, node: str | None = None) -> list[Standing]:
    """Return the state of one node, or of all nodes with a request, a status or our cordon.

    Raises:
        NotFound: The node doesn't exist.
    """
    if node is not None:
        said = _node(cluster, node)
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
    standing = Standing(name_of(said), request_of(said), node.status, cordon, "")
    lease = None if lease_said is None else parse_lease(lease_said)
    if lease is None or not lease.holder or not lease.duration_seconds:
        return standing
    standing = standing._replace(holder=lease.holder)
    if lease.holder == us.identity:
        over_at = None if lease.ends_at is None else lease.ends_at - us.padding_seconds
        return standing._replace(over_at=over_at)
    if standing.asked is None:
        return standing
    written_at = lease.acquired_at if lease.renewed_at is None else lease.renewed_at
    until = None if written_at is None else written_at + lease.duration_seconds
    return standing._replace(waits_until=until, waits_seconds=lease.duration_seconds)


def _no_node(node: str) -> NotFound:
    return NotFound(f'no node "{printable(node, longest=253)}"; see: kubectl get nodes')
