"""What is kept of works: results, and what has become of those that have none yet.

A result's content is written first, under a name with the fence of whoever has got it; only the
pointer to it counts, which is written in the step that gives the lease back. So a content that
nothing points to is one of a runner that has lost its lease, or died.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from leasectl.engines.values import CONTENT, Value, ValueChange, Values
from leasectl.errors import CorruptState
from leasectl.leases.on_demand import round_key
from leasectl.once.rounds import Round, encode_round, parse_round
from leasectl.once.work import Work
from leasectl.text.fields import MALFORMED, read_name, read_number, read_text
from leasectl.typed.tuples import NamedTuple

POINTERS, _CONTENTS, _FAILURES = "once/result/", f"once/{CONTENT}/", "once/failed/"
# For how long a runner may ask a server again that doesn't answer, and longer.
_FAILURE_KEPT_SECONDS = 3600.0
# It is written before its pointer, and is not to be gone before that.
_KEPT_LONGER_SECONDS = 3600.0


class Kept(NamedTuple):
    """A result that is kept.

    Args:
        work: Of which work.
        fence: Of the lease under which it was got.
        holder_identity: Who held that.
        seconds: How long the command took.
        size: Of the content, in bytes.
        written_at: When, wall clock, in seconds since the epoch.
        keep_seconds: How long it is kept, from then on.
        version: What tells it from any other.
    """

    work: Work
    fence: int
    holder_identity: str
    seconds: float
    size: int
    written_at: float = 0.0
    keep_seconds: float = 0.0
    version: int = 0


class Results:
    """The results and rounds that a store keeps.

    Args:
        values: Where.
    """

    def __init__(self, values: Values) -> None:
        self._values = values

    def kept(self, work: Work) -> Kept | None:
        """The result of a work, if one is kept."""
        found = self._values.get(POINTERS + work.digest)
        return None if found is None else _parse_pointer(found)

    def content(self, kept: Kept) -> bytes | None:
        """The content of a result; None if it has gone meanwhile."""
        found = self._values.get(_content_key(kept.work, kept.fence))
        return None if found is None else found.content

    def all_kept(self) -> list[Kept]:
        """All results that are kept."""
        return kept_in(self._values.read(POINTERS))

    def round(self, work: Work) -> Round:
        """What has become of a work since its last result."""
        found = self._values.get(round_key(work.pool_type))
        return Round() if found is None else parse_round(found.content)

    def has_failed(self, work: Work, fence: int) -> bool:
        """Tell whether it was recorded that a runner has failed, if that was to be noted."""
        return self._values.get(_failure_key(work, fence)) is not None

    def tidy(self) -> None:
        """Take away what is over, where the store doesn't by itself."""
        self._values.tidy()


def kept_in(values: Iterable[Value]) -> list[Kept]:
    """The results that are kept, of what was read under `POINTERS`."""
    return [_parse_pointer(each) for each in values]


def to_keep_content(kept: Kept, content: bytes) -> ValueChange:
    """Write a content that nothing points to yet."""
    seconds = kept.keep_seconds + _KEPT_LONGER_SECONDS
    return ValueChange(_content_key(kept.work, kept.fence), content, keep_seconds=seconds)


def to_point_at(kept: Kept) -> ValueChange:
    """Have a result be that of its work."""
    return ValueChange(
        POINTERS + kept.work.digest, encode_pointer(kept), keep_seconds=kept.keep_seconds
    )


def to_forget(kept: Kept) -> list[ValueChange]:
    """Have a result be none any more; nothing is changed if there is another by now."""
    pointer = ValueChange(POINTERS + kept.work.digest, None, kept.version)
    return [pointer, to_drop_content(kept.work, kept.fence)]


def to_find_none(work: Work) -> ValueChange:
    """Change nothing if there is a result by now."""
    return ValueChange(POINTERS + work.digest, None, 0)


def to_drop_content(work: Work, fence: int) -> ValueChange:
    """Take away what a runner may have left behind."""
    return ValueChange(_content_key(work, fence), None)


def to_keep_round(work: Work, found: Round | None) -> ValueChange:
    """Write down what has become of a work; None for nothing that anybody has to know."""
    content = None if found is None else encode_round(found._replace(key=work.key))
    return ValueChange(round_key(work.pool_type), content)


def to_note_failure(work: Work, fence: int) -> ValueChange:
    """Note that a runner has failed, so that it knows that this was recorded, for some time."""
    return ValueChange(_failure_key(work, fence), b"", keep_seconds=_FAILURE_KEPT_SECONDS)


def encode_pointer(kept: Kept) -> bytes:
    """Write a pointer; `_parse_pointer` reads it back."""
    return json.dumps(
        {
            "key": kept.work.key,
            "fence": kept.fence,
            "holder": kept.holder_identity,
            "seconds": kept.seconds,
            "size": kept.size,
            "keep": kept.keep_seconds,
        }
    ).encode()


def _parse_pointer(value: Value) -> Kept:
    try:
        record = json.loads(value.content)
        return Kept(
            Work(read_name(record["key"]), value.key[len(POINTERS) :]),
            int(read_number(record["fence"])),
            read_text(record["holder"]),
            read_number(record["seconds"]),
            int(read_number(record["size"])),
            value.written_at,
            read_number(record["keep"]),
            value.version,
        )
    except MALFORMED as error:
        raise CorruptState(f"the result kept under {value.key} can't be read: {error!r}") from error


def _content_key(work: Work, fence: int) -> str:
    return f"{_CONTENTS}{work.digest}/{fence}"


def _failure_key(work: Work, fence: int) -> str:
    return f"{_FAILURES}{work.digest}/{fence}"
