"""Names of objects, and the labels and annotations of our Leases.

Types and resource names may have capitals, "_" and 253 characters; names of objects and values of
labels may not. A name that is valid there is used as it is. Any other becomes a readable slug and a
hash of the whole name. A name that looks like such a slug is never used as it is. So two names
become the same only if their hashes are the same (80 bits). The full name is in an annotation.
Sources: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ and labels/ there.

One annotation holds the claim, and that is what counts. The fields of the LeaseSpec are written
beside it with the API's own meaning, for people and other programs. A Lease that has a holder in
its spec but no claim is another program's, and is never taken while that holder lasts.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any

# What all objects begin with that aren't resources.
OWN = "leasectl-"
POOL_PREFIX = "leasectl-pool-"
TICKET_PREFIX = "leasectl-ticket-"
VALUE_PREFIX = "leasectl-value-"
# What is said beside pools, of names that aren't in any yet.
OBJECT_OF_BELONGING = "leasectl-belonging"
LONGEST_OBJECT = 253
LONGEST_LABEL = 63

_HASH = 20  # hexadecimal digits
_HEX = frozenset("0123456789abcdef")
_OF_OBJECTS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")  # between dots
_OF_LABELS = _OF_OBJECTS.union("ABCDEFGHIJKLMNOPQRSTUVWXYZ._")
_NOT_AT_ENDS = "-._"
Json = Mapping[str, Any]
DOMAIN = "leasectl.dev/"
# Labels.
KIND = DOMAIN + "kind"
POOL = DOMAIN + "pool"
CLAIM_LABEL = DOMAIN + "claim"
ENTERING = DOMAIN + "entering"
MOVES_TO = DOMAIN + "moves-to"
SPACE = DOMAIN + "space"
# Annotations.
NAME = DOMAIN + "name"
TYPE = DOMAIN + "type"
CLAIM = DOMAIN + "claim"
ENDED = DOMAIN + "ended"
NOTE = DOMAIN + "note"
LAST = DOMAIN + "last"
FREED = DOMAIN + "freed"
MEMBER = DOMAIN + "member"
TICKET = DOMAIN + "ticket"
PLACE = DOMAIN + "place"
PARKED = DOMAIN + "parked"
COUNTS_AS = DOMAIN + "counts-as"
SETTINGS = DOMAIN + "settings"
PACE = DOMAIN + "pace"
CHANGED = DOMAIN + "changed"
COMING = DOMAIN + "coming"
EPOCH = DOMAIN + "epoch"
STATE = DOMAIN + "state"
BELONGING = DOMAIN + "belonging"
# Expectations of a manifest: kubectl writes them, and leasectl moves them into BELONGING.
EXPECT = DOMAIN + "expect"
BY = DOMAIN + "by"
KEPT = DOMAIN + "kept"
SUBJECT = DOMAIN + "subject"
# Of what is kept of a subject, each by its kind.
VALUE_DOMAIN = "value." + DOMAIN


def object_of_resource(name: str) -> str:
    """What the object of a resource is called."""
    return _as_it_is_or_slug(name, "")


def object_of_pool(pool_type: str) -> str:
    """What the object of a pool is called."""
    return _as_it_is_or_slug(pool_type, POOL_PREFIX)


def object_of_values(space: str, subject: str) -> str:
    """What the object is called in which all that is small is kept of a subject."""
    return _as_it_is_or_slug(f"{space}.{subject}", VALUE_PREFIX)


def object_of_content(space: str, subject: str, word: str) -> str:
    """What the object of a content is called."""
    return _as_it_is_or_slug(f"{space}.{subject}.content.{word}", VALUE_PREFIX)


def new_ticket_object() -> str:
    """What the object of a new ticket is called: as nothing else ever."""
    return TICKET_PREFIX + os.urandom(12).hex()


def label_of_type(pool_type: str) -> str:
    """The value of the label by which the objects of a pool are found."""
    if _is_label(pool_type) and not _looks_like_slug(pool_type):
        return pool_type
    return _slug(pool_type, LONGEST_LABEL)


def label_of_claim(claim_key: str) -> str:
    """The value of the label by which the objects with a claim key are found.

    Args:
        claim_key: With the id of the state directory where it is unique.
    """
    return hashlib.sha256(claim_key.encode()).hexdigest()[:40]


def _as_it_is_or_slug(name: str, prefix: str) -> str:
    fits = len(prefix) + len(name) <= LONGEST_OBJECT and _is_object(name)
    if fits and not _looks_like_slug(name) and not (prefix == "" and name.startswith(OWN)):
        return prefix + name
    return prefix + _slug(name, LONGEST_OBJECT - len(prefix))


def _is_object(name: str) -> bool:
    """Whether an object could have that name: labels of DNS with dots between, of any length."""
    parts = name.split(".")
    return all(each and _OF_OBJECTS.issuperset(each) and each.strip("-") == each for each in parts)


def _is_label(text: str) -> bool:
    """Whether that could be the value of a label."""
    fits = 0 < len(text) <= LONGEST_LABEL and _OF_LABELS.issuperset(text)
    return fits and text.strip(_NOT_AT_ENDS) == text


def _looks_like_slug(name: str) -> bool:
    """Whether what is valid could be the `_slug` of another one."""
    readable, digest = name[:-_HASH], name[-_HASH:]
    return len(digest) == _HASH and _HEX.issuperset(digest) and readable[-1:] in ("", "-")


def _slug(name: str, longest: int) -> str:
    """What is readable of a name, and a hash of it."""
    readable = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    while readable.startswith(OWN):
        readable = readable[len(OWN) :]
    readable = readable[: min(longest, LONGEST_LABEL) - _HASH - 1].strip("-")
    digest = hashlib.sha256(name.encode()).hexdigest()[:_HASH]
    return f"{readable}-{digest}" if readable else digest
