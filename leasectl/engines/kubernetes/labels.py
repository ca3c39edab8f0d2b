"""Labels and annotations of our Leases.

What a claim consists of is one annotation, and that is what counts: the fields of the LeaseSpec are
written beside it with the API's own meaning, for people and for other programs. A Lease that has a
holder there and no claim is somebody else's, for as long as it says, and never ours to take before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
