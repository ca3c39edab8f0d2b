"""Paths, calls, and the JSON of both directions.

Client and server share this module. ``GET /leasectl/v2`` describes the server. Every other request
is a POST with a JSON object:

- ``/leasectl/v2/acquire``: `AcquireBody`. It waits, and is answered with the leases. The key makes
  it idempotent: a repeated request joins the wait of the first, or gets its grant. With the header
  `ROUND` it is answered with null after so many seconds, and the client repeats it. So a server
  behind a reverse proxy notices when the machine of a waiting client dies.
- ``/leasectl/v2/call/NAME``: one of `CALLS`, with named arguments; answered with ``{"result": …}``.
- ``/leasectl/v2/wait``: ``{"after": N, "claim_key": K}``; answered as soon as there is an event
  with a larger number, of that claim key unless it is null, or after `WAIT_SECONDS`.

A record is an object that names its kind in ``is`` and leaves out fields with their default value.
An error is ``{"error": KIND, "message": TEXT}``, with a class of `leasectl.errors` as its kind.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from leasectl import errors
from leasectl.errors import LeaseError, NotSupported
from leasectl.model import Lease, Request
from leasectl.text.naming import is_name, is_resource_name
from leasectl.text.wording import printable

if TYPE_CHECKING:
    from leasectl.engines.notes import Note

VERSION = 2
ROOT = "/leasectl/v2"
ACQUIRE = f"{ROOT}/acquire"
CALL = f"{ROOT}/call/"
WAIT = f"{ROOT}/wait"
# Shorter than the read timeout of nginx.
WAIT_SECONDS = 50.0
# A header, because older servers refuse a field that they don't know.
ROUND = "Leasectl-Round"
# With `server.served_leases.RETURN_SECONDS` less than two thirds of the default ttl: the waiters of
# a machine that died have left the queue before its leases end.
ROUND_SECONDS = 20
# A content of 1 MiB grows by a third, and more is written with it.
LONGEST_BODY_BYTES = 4 << 20
EVENTS_AT_ONCE = 2000

# The parameters of each call, in order; those that only `admin` may make are `ADMIN_CALLS`.
CALLS: Mapping[str, tuple[str, ...]] = {
    "engine.free": ("claim_key", "names", "by"),
    "engine.renew": ("claim_key", "ttl_seconds"),
    "engine.withdraw": ("claim_key", "why"),
    "pools.pools": ("pool_type",),
    "pools.create_pool": ("pool_type", "names", "settings"),
    "pools.change_settings": ("pool_type", "settings", "seen"),
    "pools.add_resources": ("pool_type", "names"),
    "pools.remove_resources": ("pool_type", "names", "force"),
    "pools.end_early": ("claim_key", "names", "reason", "at_once"),
    "pools.delete_pool": ("pool_type", "force"),
    "members.members": ("names",),
    "members.belonging": (),
    "members.replace": ("before", "after", "seen", "claimant"),
    "members.replace_belonging": ("before", "after"),
    "notes.of_pool": ("pool_type",),
    "notes.of_claims": ("claim_key",),
    "notes.change": ("changes",),
    "notes.free": ("notes", "by"),
    "values.get": ("key",),
    "values.read": ("prefix",),
    "values.change": ("changes", "guard", "event"),
    "values.check_room": (),
    "values.tidy": (),
    "events.read": ("wanted", "after"),
    "events.latest": ("wanted", "number", "only_recent"),
    "events.last_number": (),
}
ADMIN_CALLS = frozenset(
    {
        "pools.create_pool",
        "pools.change_settings",
        "pools.add_resources",
        "pools.remove_resources",
        "pools.delete_pool",
        "members.replace",
        "members.replace_belonging",
    }
)


class AcquireBody(NamedTuple):
    """What a client asks for.

    Args:
        claim_key: Unique for each acquisition, the same in every repetition.
        holder_identity: ``<job>/<build>/<host>/<handle>``.
        request: What is wanted, with its ttl.
        wait_seconds: How long it may wait from now on; None for no limit.
    """

    claim_key: str
    holder_identity: str
    request: Request
    wait_seconds: float | None = None


class Granted(NamedTuple):
    """What a request got.

    Args:
        leases: The leases.
        pool_type: If several types would do, that of the leases.
    """

    leases: tuple[Lease, ...]
    pool_type: str | None = None


class Renewal(NamedTuple):
    """The result of a renewal.

    Args:
        names: The names that are still held.
        notes: The notes at the claims.
    """

    names: tuple[str, ...]
    notes: tuple[Note, ...] = ()


class Found(NamedTuple):
    """A part of the events.

    Args:
        events: At most `EVENTS_AT_ONCE`; fewer are the last.
        missed: What isn't kept any more.
    """

    events: tuple[Any, ...]
    missed: tuple[Any, ...] = ()


class News(NamedTuple):
    """The end of a wait.

    Args:
        last: The number of the last event.
        is_changed: There was something; else the time was over.
        reason: Who took a lease of the claim key by force, and why; empty for nothing.
        notes: All notes at the claims, if only notes have changed; else None.
    """

    last: int
    is_changed: bool = False
    reason: str = ""
    notes: tuple[Note, ...] | None = None


def encode(value: object) -> object:
    """Return what `json` writes for a value of the model."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        record: Any = value
        defaults = record._field_defaults
        fields = {
            name: encode(each)
            for name, each in zip(record._fields, record)
            if name not in defaults or each != defaults[name]
        }
        return {"is": type(record).__name__, **fields}
    if isinstance(value, (tuple, list)):
        return [encode(each) for each in value]
    if isinstance(value, (set, frozenset)):
        return {"is": "set", "items": sorted(value)}
    if isinstance(value, bytes):
        return {"is": "bytes", "base64": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"is": "map", "items": [[key, encode(each)] for key, each in value.items()]}
    return value


def decode(data: Any) -> Any:
    """Read what `encode` wrote; fields that only another version has are left out.

    The names of leases and pools are paths and words of a shell elsewhere, so others than those
    that a pool may have are refused. Texts for people are made safe for a terminal.

    Raises:
        ValueError, TypeError, KeyError: It is something else.
    """
    if isinstance(data, list):
        return tuple([decode(each) for each in data])
    if not isinstance(data, dict):
        return data
    kind = data["is"]
    if kind == "bytes":
        return base64.b64decode(data["base64"], validate=True)
    if kind == "set":
        return frozenset(data["items"])
    if kind == "map":
        return {key: decode(each) for key, each in data["items"]}
    record = _records()[kind]
    known = record._fields
    fields = {name: decode(each) for name, each in data.items() if name in known}
    for name, each in fields.items():
        is_good = _NAMES.get(f"{kind}.{name}")
        if is_good is not None and each is not None:
            _check_names(each if isinstance(each, tuple) else (each,), is_good)
    if kind in _SHOWN:
        fields = {name: each if name == "note" else _safe(each) for name, each in fields.items()}
    return record(**fields)


# The fields that have names, and what each of them has to be.
_NAMES: Mapping[str, Callable[[str], bool]] = {
    "Lease.name": is_resource_name,
    "Resource.name": is_resource_name,
    "Renewal.names": is_resource_name,
    "Note.name": is_resource_name,
    "Note.type": is_name,
    "Pool.type": is_name,
    "Granted.pool_type": is_name,
    "Member.name": is_resource_name,
    "Member.pool": is_name,
    "Member.expected": is_name,
    "Member.moves_to": is_name,
    # They go back as they came.
    "Member.holder": str.isprintable,
    "Cordon.by": str.isprintable,
    "Cordon.reason": str.isprintable,
}
# Records whose texts people see.
_SHOWN = frozenset({"Lease", "Resource", "QueueEntry", "Pool", "Event", "News"})
_LONGEST_SHOWN = 4096


def decode_result(data: Any) -> Any:
    """Read the result of a call; a list of texts is one of resource names.

    Raises:
        ValueError, TypeError, KeyError: It is something else.
    """
    result = decode(data)
    if type(result) is tuple:
        _check_names([each for each in result if isinstance(each, str)], is_resource_name)
    return result


def _check_names(names: Iterable[Any], is_good: Callable[[str], bool]) -> None:
    for each in names:
        if not isinstance(each, str) or not is_good(each):
            raise ValueError(f"not a name: {each!r}")


def _safe(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value, longest=_LONGEST_SHOWN)
    return tuple(map(_safe, value)) if type(value) is tuple else value


@cache
def _records() -> Mapping[str, Any]:
    """Return the classes of records, by name."""
    from leasectl.engines import facts, notes, values
    from leasectl.engines.rules import membership
    from leasectl.model import Claimant, Process
    from leasectl.state import event

    classes = (
        *(AcquireBody, Granted, Renewal, Found, News, Lease, Request, Claimant, Process),
        *(facts.PoolSettings, facts.QueueEntry, facts.Resource, facts.Pool),
        *(membership.Lifetime, membership.Cordon, membership.Member, membership.Pools),
        *(notes.Note, notes.NoteChange, values.Value, values.ValueChange, values.Guard),
        *(event.Event, event.EventFilter, event.Missed),
    )
    return {each.__name__: each for each in classes}


# The status of an answer, by the class of its error; the first that fits.
_STATUS = (
    (errors.NotFound, 404),
    (errors.NotAllowed, 409),
    (errors.NoLease, 408),
    (errors.InvalidRequest, 400),
    (errors.BackendUnreachable, 503),
)


def status_of(error: LeaseError) -> int:
    """Return the status of the answer with an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def encode_error(error: LeaseError) -> dict[str, str]:
    """Return the answer to a request that failed."""
    kind = next(each for each in type(error).__mro__ if each.__module__ == errors.__name__)
    return {"error": kind.__name__, "message": str(error)}


def parse_error(data: object) -> LeaseError | None:
    """Return the error that an answer has; None if it has none."""
    if not isinstance(data, dict) or not isinstance(data.get("message"), str):
        return None
    kind = getattr(errors, str(data.get("error")), LeaseError)
    is_ours = isinstance(kind, type) and issubclass(kind, LeaseError)
    if not is_ours or kind is errors.AccessRefused:
        kind = LeaseError
    return kind(printable(data["message"], longest=_LONGEST_SHOWN))


def too_old(url: str) -> NotSupported:
    """The error for a server without this version of the extension."""
    return NotSupported(
        f"{url} doesn't know version {VERSION} of leasectl's extension of the lease proxy's "
        f"protocol; use its http:// address, or a leasectl serve of this version"
    )
