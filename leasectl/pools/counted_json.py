"""What a server counts, as JSON: a pair of encode and parse.

`status --json` prints it, and whoever shows what another process has counted reads it back.
"""

from __future__ import annotations

from leasectl.backends.kinds import kind_of
from leasectl.errors import InvalidRequest
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.shown_fields import read_shown, unreadable
from leasectl.system.clock import rfc3339
from leasectl.text.fields import MALFORMED, read_name, read_optional, read_text, read_time
from leasectl.typed.hints import Any


def encode_counts(counts: Counts) -> dict[str, object]:
    """Counts as JSON has them; `parse_counts` reads them back."""
    pools = list(map(_type_fields, counts.types))
    return {"backend": counts.backend, "at": rfc3339(counts.at), "pools": pools}


def _type_fields(counted: CountedType) -> dict[str, object]:
    return {
        "type": counted.type,
        "capacity": counted.capacity,
        "free": counted.free,
        "held": counted.held,
        "waiting": counted.waiting,
        "states": dict(counted.states),
        "owners": [
            {
                "owner": each.owner,
                "held": each.number,
                "handle": each.handle,
                "names": list(each.names),
                "since": rfc3339(each.since),
            }
            for each in counted.owners
        ],
        "lost": [
            {"name": each.name, "holder_identity": each.holder_identity, "at": rfc3339(each.at)}
            for each in counted.lost
        ],
    }


def are_counts(fields: Any) -> bool:
    """Tell whether what a server has told of its pools is what another one has counted."""
    try:
        return kind_of(read_text(fields["backend"])).counted_by is not None
    except (*MALFORMED, InvalidRequest):
        return False


def parse_counts(fields: Any, *, backend: str) -> Counts:
    """Read what `encode_counts` wrote, perhaps in a newer version; text is made safe to show.

    Args:
        fields: What JSON held.
        backend: The URL that it was asked of here.

    Raises:
        CorruptState: It isn't what any version has written.
    """
    try:
        return Counts(backend, read_time(fields["at"]), tuple(map(_counted_type, fields["pools"])))
    except MALFORMED as error:
        raise unreadable(backend, error) from error


def _counted_type(fields: Any) -> CountedType:
    return CountedType(
        read_name(fields["type"]),
        int(fields["free"]),
        {read_shown(state): int(number) for state, number in fields["states"].items()},
        tuple(map(_owner, fields["owners"])),
        int(fields["waiting"]),
        tuple(map(_loss, fields["lost"])),
    )


def _owner(fields: Any) -> CountedOwner:
    return CountedOwner(
        read_shown(fields["owner"]),
        int(fields["held"]),
        read_optional(read_name, fields["handle"]),
        tuple(map(read_name, fields["names"])),
        read_optional(read_time, fields["since"]),
    )


def _loss(fields: Any) -> CountedLoss:
    return CountedLoss(
        read_name(fields["name"]), read_shown(fields["holder_identity"]), read_time(fields["at"])
    )
