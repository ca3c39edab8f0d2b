"""Build transactions, and read their responses.

Keys and values are text here, and base64 on the way. What is zero to etcd isn't said: each word
costs it 3 us to take in, a twentieth of what it takes to do what is asked.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from leasectl.errors import CorruptState
from leasectl.text.properties import MALFORMED, Malformed, read_integer, reason_of
from leasectl.text.wording import printable

# etcd's own limit on operations of either branch, and on comparisons, of one transaction
# (--max-txn-ops). A transaction within it has a limit of its own: what that one leaves of this.
MOST_OPERATIONS = 128

Json = Mapping[str, Any]


class KeyValue(NamedTuple):
    """A key of etcd with its value and revisions. A lease id of 0 is none."""

    key: str
    value: str
    create_revision: int
    mod_revision: int
    etcd_lease_id: int = 0


class Found(NamedTuple):
    """What one read of a transaction found; ``count`` goes beyond the limit that was set."""

    items: tuple[KeyValue, ...]
    count: int  # type: ignore[assignment]  # etcd's word rather than tuple.count

    @property
    def first(self) -> KeyValue | None:
        return self.items[0] if self.items else None


class Outcome(NamedTuple):
    """What a transaction came to.

    Args:
        succeeded: Its guards held.
        revision: The store's, right after it.
        answers: Of its reads, those of the branch that was taken, in their order.
        repeated: An earlier try may have been carried out, and its answer was lost.
    """

    succeeded: bool
    revision: int
    answers: tuple[Found, ...]
    repeated: bool = False


def encode(text: str) -> str:
    """Keys and values travel as base64."""
    return b2a_base64(text.encode(), newline=False).decode()


def decode(text: str) -> str:
    """The reverse of `encode`.

    Raises:
        ValueError: It isn't text in base64.
    """
    return b64decode(text, validate=True).decode()


def end_of(prefix: str) -> str:
    """The key right after all keys that start with a prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def read(key: str) -> Json:
    """Read one key."""
    return {"request_range": {"key": encode(key)}}


def read_all(prefix: str, *, limit: int = 0, keys_only: bool = False) -> Json:
    """Read keys by prefix, in the order of the keys; 0 for no limit."""
    options: dict[str, Any] = {"keys_only": True} if keys_only else {}
    if limit:
        options["limit"] = str(limit)
    return {"request_range": {**_below(prefix), **options}}


def read_from(start: str, end: str, *, keys_only: bool = False) -> Json:
    """Read keys from one to right before another, in the order of the keys."""
    options = {"keys_only": True} if keys_only else {}
    return {"request_range": {**_span(start, end), **options}}


def read_last_created(prefix: str, *, before: int, limit: int) -> Json:
    """Read the keys that were created last, the last first.

    Args:
        prefix: The prefix of the keys.
        before: The revision before which they were created.
        limit: How many.
    """
    order = {"sort_order": "DESCEND", "sort_target": "CREATE", "limit": str(limit)}
    return {"request_range": {**_below(prefix), **order, "max_create_revision": str(before - 1)}}


def read_created_after(prefix: str, revision: int) -> Json:
    """Read the keys that were created after a revision."""
    return {"request_range": {**_below(prefix), "min_create_revision": str(revision + 1)}}


def count(prefix: str) -> Json:
    """Count keys by prefix."""
    return {"request_range": {**_below(prefix), "count_only": True}}


def as_of(reading: Json, revision: int) -> Json:
    """Read that as it was at a revision."""
    return {"request_range": {**reading["request_range"], "revision": str(revision)}}


def put(key: str, value: str, *, etcd_lease_id: int = 0) -> Json:
    """Write one key, attached to an etcd lease unless that is 0."""
    written = {"key": encode(key), "value": encode(value)}
    if etcd_lease_id:
        written["lease"] = str(etcd_lease_id)
    return {"request_put": written}


def delete(key: str) -> Json:
    """Delete one key, if it is there."""
    return {"request_delete_range": {"key": encode(key)}}


def grouped(operations: Sequence[Json]) -> Sequence[Json]:
    """Return many writes as nested transactions without guards; return few unchanged.

    What nested transactions read isn't among the answers. etcd's limit on a group is reduced by the
    comparisons of the outer transaction, so the groups are small.
    """
    if len(operations) <= MOST_OPERATIONS:
        return operations
    size = MOST_OPERATIONS // 4
    groups = (operations[start : start + size] for start in range(0, len(operations), size))
    return [{"request_txn": {"success": list(group)}} for group in groups]


def none_below(prefix: str) -> Json:
    """Guard: there is no key with that prefix."""
    return {**absent(prefix), **_below(prefix)}


def delete_all(prefix: str) -> Json:
    """Delete keys by prefix."""
    return {"request_delete_range": _below(prefix)}


def unchanged(key: str, mod_revision: int) -> Json:
    """Guard: the key still has this revision; 0 means that it isn't there."""
    return {"key": encode(key), "target": "MOD", "mod_revision": str(mod_revision)}


def has_value(key: str, value: str) -> Json:
    """Guard: the key is there with that value."""
    return {"key": encode(key), "target": "VALUE", "value": encode(value)}


def unwritten_since(prefix: str, revision: int) -> Json:
    """Guard: no key with that prefix was written after a revision."""
    limit = {"target": "MOD", "result": "LESS", "mod_revision": str(revision + 1)}
    return {**_below(prefix), **limit}


def created_at(key: str, create_revision: int) -> Json:
    """Guard: it is the same key still, whatever was written to it; 0 means that it isn't there."""
    return {"key": encode(key), "target": "CREATE", "create_revision": str(create_revision)}


def revision_in(kv: KeyValue | None) -> int:
    """Return the revision at which a key was written; 0 if it isn't there."""
    return 0 if kv is None else kv.mod_revision


def present(key: str) -> Json:
    """Guard: the key is there."""
    wanted = {"target": "CREATE", "result": "GREATER", "create_revision": "0"}
    return {"key": encode(key), **wanted}


def absent(key: str) -> Json:
    """Guard: the key isn't there."""
    return created_at(key, 0)


def _span(start: str, end: str) -> dict[str, str]:
    """The keys from one to right before another."""
    return {"key": encode(start), "range_end": encode(end)}


def _below(prefix: str) -> dict[str, str]:
    """The keys with a prefix."""
    return _span(prefix, end_of(prefix))


def parse_outcome(
    answer: Json, repeated: bool, then: Sequence[Json] = (), otherwise: Sequence[Json] = ()
) -> Outcome:
    """What a transaction's answer says.

    Args:
        answer: As the gateway gave it.
        repeated: An earlier try may have been carried out.
        then: What was to be done if all guards held.
        otherwise: What was to be done if not.

    Raises:
        CorruptState: It isn't one.
    """
    try:
        found = [
            _found(each["response_range"])
            for each in answer.get("responses", ())
            if "response_range" in each
        ]
        revision = read_integer(answer["header"]["revision"])
        succeeded = bool(answer.get("succeeded"))
        if len(found) != sum(
            "request_range" in each for each in (then if succeeded else otherwise)
        ):
            raise Malformed("the number of answers differs from the number of reads")
    except MALFORMED as error:
        raise unreadable_answer(error) from error
    return Outcome(succeeded, revision, tuple(found), repeated)


def unreadable_answer(error: Exception) -> CorruptState:
    """The error for an answer that etcd wouldn't give."""
    return CorruptState(
        f"etcd gave an answer that can't be read ({reason_of(error)}); is this the address of "
        "an etcd?"
    )


def unreadable(kv: KeyValue, error: object) -> CorruptState:
    """The error for a key whose value isn't in leasectl's format."""
    return CorruptState(
        f"etcd: {printable(kv.key)} can't be read: {printable(reason_of(error), longest=80)}; "
        "was it written by a newer version?"
    )


def parse_key_value(kv: Json) -> KeyValue:
    """Read a key as the gateway gives it; what is zero or empty it leaves out."""
    return KeyValue(
        decode(kv["key"]),
        decode(kv.get("value", "")),
        read_integer(kv.get("create_revision", 0)),
        read_integer(kv["mod_revision"]),
        read_integer(kv.get("lease", 0)),
    )


def _found(answer: Json) -> Found:
    return Found(
        tuple(map(parse_key_value, answer.get("kvs", ()))), read_integer(answer.get("count", 0))
    )
