"""What was edited by hand and contradicts the annotations.

The annotations count. After an edit of a label, leasectl doesn't find the object; after an edit of
a field that `kubectl get leases` shows, people see a wrong value. Both are restored from the
annotations. What an edit removes from the annotations is lost: an edited claim is no claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasectl.engines.cluster.objects import (
    Kind,
    ResourceObject,
    TicketObject,
    Unreadable,
)
from leasectl.engines.kubernetes import names
from leasectl.engines.kubernetes.encoding import (
    Body,
    annotations_of,
    as_seen,
    identity_of,
    kind_of,
    labels_of,
    parse_object,
    show_claim,
)
from leasectl.engines.kubernetes.names import (
    BELONGING,
    CLAIM_LABEL,
    EXPECT,
    KIND,
    MOVES_TO,
    NAME,
    POOL,
    SETTINGS,
    SPACE,
    SUBJECT,
    TICKET,
    TYPE,
    Json,
)
from leasectl.errors import CorruptState, LeaseError, NotAllowed
from leasectl.text.wording import printable


def as_it_counts(raw: Json) -> Body | None:
    """How an object is written again that was edited; None where it wasn't, or nothing tells.

    Args:
        raw: Any Lease, as the server has it.
    """
    notes = annotations_of(raw)
    kind = _kind_by_annotations(identity_of(raw).name, notes)
    if kind is None:
        return None
    body = as_seen(raw)
    labels = body["metadata"]["labels"]
    labels[KIND] = kind
    labels.pop(POOL, None)
    if kind == "values":
        labels[SPACE] = names.label_of_type(notes[SUBJECT].partition("/")[0])
    if isinstance(notes.get(TYPE), str):
        labels[POOL] = names.label_of_type(notes[TYPE])
    found = parse_object(body)
    if found is None or isinstance(found, Unreadable):
        return None
    if isinstance(found, TicketObject) and found.claim_key:
        labels[CLAIM_LABEL] = names.label_of_claim(found.claim_key)
    elif isinstance(found, ResourceObject):
        if found.member.moves_to is not None:
            labels[MOVES_TO] = names.label_of_type(found.member.moves_to)
        if found.claim is not None and found.claim.claim_key:
            show_claim(body, found.claim)
    is_same = labels == labels_of(raw) and body["spec"] == (raw.get("spec") or {})
    return None if is_same else body


def why_taken(raw: Json, namespace: str) -> LeaseError | None:
    """Why nothing of ours can be made that is called as this object; None where it is one of ours.

    Args:
        raw: Any Lease, as the server has it.
        namespace: That it is in.
    """
    name = printable(identity_of(raw).name, longest=253)
    shown = f'Lease "{name}" in namespace "{namespace}"'
    found = parse_object(raw)
    if found is not None and not isinstance(found, Unreadable):
        return None
    if as_it_counts(raw) is not None:
        return NotAllowed(
            f"{shown} has lost a label of leasectl; restore it with: leasectl doctor --fix"
        )
    if isinstance(found, Unreadable):
        return CorruptState(
            f"{shown} was edited, and can no longer be read ({found.why}); correct "
            f"it, or delete it with: kubectl delete lease -n {namespace} {name}"
        )
    if kind_of(raw):
        return CorruptState(f"{shown} was made by a newer version of leasectl; use that version")
    return NotAllowed(
        f"{shown} was not made by leasectl, and blocks this name; delete it or use another name"
    )


def _kind_by_annotations(object_name: str, notes: Mapping[str, Any]) -> Kind | None:
    """What an object is by its name and what is noted at it; None where that isn't clear."""
    name, pool_type = notes.get(NAME), notes.get(TYPE)
    if isinstance(name, str) and object_name == names.object_of_resource(name):
        return "resource"
    if TICKET in notes and object_name.startswith(names.TICKET_PREFIX):
        return "ticket"
    is_of_pool = SETTINGS in notes and isinstance(pool_type, str)
    if is_of_pool and object_name == names.object_of_pool(str(pool_type)):
        return "pool"
    if (BELONGING in notes or EXPECT in notes) and object_name == names.OBJECT_OF_BELONGING:
        return "belonging"
    if isinstance(notes.get(SUBJECT), str) and object_name.startswith(names.VALUE_PREFIX):
        return "content" if notes[SUBJECT].count("/") > 1 else "values"
    return None
