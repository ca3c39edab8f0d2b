"""Read and write nodes, Leases and pods.

The texts of a Node or a Lease may hold anything that its writers put there; the API keeps only
their types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

from leasectl.maintenance.facts import Lease, Node, NodeWrite, Wanted, Window, parse_wanted
from leasectl.system.clock import rfc3339

Json = Mapping[str, Any]

REQUEST = "lifecycle.metal3.io/maintenance"
STATUS = "lifecycle.metal3.io/maintenance-status"
CORDON_MARK = "leasectl.dev/maintenance-cordon"
# The word of the request.
REQUEST_WORD = "leasectl.dev/maintenance-request"
# The holder whose window has begun, and the word of the request that it was begun for.
BEGUN_BY = "leasectl.dev/maintenance-holder"
BEGUN_WORD = "leasectl.dev/maintenance-begun"

_MIRROR = "kubernetes.io/config.mirror"
_FINISHED = ("Succeeded", "Failed")


class Pod(NamedTuple):
    """A pod that runs on a node, as far as a drain is concerned.

    Args:
        namespace, name, uid: Which one.
        is_of_node: It comes and goes with the node: a mirror pod, or one of a DaemonSet.
        is_managed: A controller makes another one when it goes.
        has_local_data: In an emptyDir, which goes with it.
        has_finished: Nothing runs in it any more.
        is_ending: It is about to go already.
    """

    namespace: str
    name: str
    uid: str
    is_of_node: bool = False
    is_managed: bool = True
    has_local_data: bool = False
    has_finished: bool = False
    is_ending: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def name_of(said: Json) -> str:
    """The name of an object."""
    return str(_part(said, "metadata").get("name") or "")


def parse_node(said: Json) -> Node:
    """Read a Node."""
    metadata = _part(said, "metadata")
    begun_by = _annotation(said, BEGUN_BY)
    return Node(
        str(metadata.get("uid") or ""),
        _annotation(said, STATUS),
        _part(said, "spec").get("unschedulable") is True,
        _annotation(said, CORDON_MARK),
        Window(begun_by, _annotation(said, BEGUN_WORD)) if begun_by else None,
    )


def request_of(said: Json) -> str | None:
    """Return the duration that a Node requests, as it is written there; None for none."""
    text = _part(_part(said, "metadata"), "annotations").get(REQUEST)
    return None if text is None else str(text)


def word_of(said: Json) -> str:
    """Return the word of a Node's request; empty if it has none."""
    return _annotation(said, REQUEST_WORD)


def wanted_of(said: Json) -> Wanted | None:
    """Return the request on a Node; None for none."""
    return parse_wanted(request_of(said), word_of(said))


def parse_lease(said: Json) -> Lease:
    """Read a Lease."""
    spec, metadata = _part(said, "spec"), _part(said, "metadata")
    owners = metadata.get("ownerReferences")
    nodes = [each for each in owners or () if isinstance(each, dict) and each.get("kind") == "Node"]
    return Lease(
        str(spec.get("holderIdentity") or ""),
        _count(spec.get("leaseDurationSeconds")),
        parse_time(spec.get("acquireTime")),
        parse_time(spec.get("renewTime")),
        _count(spec.get("leaseTransitions")),
        str(nodes[0].get("uid") or "") if nodes else "",
    )


def parse_pod(said: Json) -> Pod:
    """Read a pod."""
    metadata = _part(said, "metadata")
    owners: Sequence[Json] = metadata.get("ownerReferences") or ()
    controllers = [str(each.get("kind")) for each in owners if each.get("controller") is True]
    volumes: Sequence[Json] = _part(said, "spec").get("volumes") or ()
    return Pod(
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        is_of_node=_MIRROR in _part(metadata, "annotations") or "DaemonSet" in controllers,
        is_managed=bool(controllers),
        has_local_data=any(each.get("emptyDir") is not None for each in volumes),
        has_finished=_part(said, "status").get("phase") in _FINISHED,
        is_ending=metadata.get("deletionTimestamp") is not None,
    )


def node_patch(said: Json, write: NodeWrite, identity: str) -> Json:
    """Return a change of a Node as a merge patch, guarded by the version that was read.

    Args:
        said: The Node as it was read.
        write: The change.
        identity: Ours, for the cordon mark and the record of the window.
    """
    annotations: dict[str, str | None] = {STATUS: write.status or None}
    if write.removes_request:
        annotations.update({REQUEST: None, REQUEST_WORD: None})
    if write.begins is not None:
        annotations.update({BEGUN_BY: identity, BEGUN_WORD: write.begins})
    elif write.ends:
        annotations.update({BEGUN_BY: None, BEGUN_WORD: None})
    if write.cordon is not None:
        annotations[CORDON_MARK] = identity if write.cordon == "cordon" else None
    guard = _part(said, "metadata")
    metadata = {"resourceVersion": guard.get("resourceVersion"), "uid": guard.get("uid")}
    patch: dict[str, object] = {"metadata": {**metadata, "annotations": annotations}}
    if write.cordon in ("cordon", "uncordon"):
        patch["spec"] = {"unschedulable": True if write.cordon == "cordon" else None}
    return patch


def request_patch(text: str | None, word: str = "") -> Json:
    """Return the merge patch that writes a request.

    Args:
        text: The duration; None removes the request.
        word: The word of the request; empty for none.
    """
    return {"metadata": {"annotations": {REQUEST: text, REQUEST_WORD: word or None}}}


def lease_body(before: Json | None, name: str, lease: Lease, *, node: str = "") -> Json:
    """A Lease as it is to be written: a new one, or one that was read with another spec.

    Args:
        before: As it was read; None for a new one.
        name: Its name.
        lease: What it is to say. A duration of 0 is left out: the API takes none.
        node: The name of the Node that it goes with, whose uid is the owner's; empty for none.
    """
    metadata = dict(_part(before or {}, "metadata"))
    metadata.update(name=name, managedFields=None)
    if node and lease.owner_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": lease.owner_uid}
        metadata["ownerReferences"] = [owner]
    spec = dict(_part(before or {}, "spec"))
    spec.update(
        holderIdentity=lease.holder,
        leaseDurationSeconds=lease.duration_seconds or None,
        acquireTime=rfc3339(lease.acquired_at),
        renewTime=rfc3339(lease.renewed_at),
        leaseTransitions=lease.transitions,
    )
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def _part(said: Json, key: str) -> Json:
    part = said.get(key)
    return part if isinstance(part, dict) else {}


def _annotation(said: Json, key: str) -> str:
    return str(_part(_part(said, "metadata"), "annotations").get(key) or "")


def _count(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def parse_time(text: object) -> float | None:
    """A time of the API, in seconds since the epoch; None for none, or no time."""
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
