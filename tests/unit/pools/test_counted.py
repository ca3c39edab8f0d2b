"""What a server counts, as JSON that another process reads back."""

from __future__ import annotations

from typing import Any

import pytest

from leasectl.errors import CorruptState
from leasectl.pools.counted import CountedLoss, CountedOwner, CountedType, Counts
from leasectl.pools.shown_json import are_counts, encode_counts, parse_counts

COUNTS = Counts(
    "boskos+http://b",
    1_700_000_000.0,
    (
        CountedType(
            "T",
            1,
            {"dirty": 1, "free": 1, "leased": 3},
            (
                CountedOwner("job/1/host/T-abcdef/7", 2, "T-abcdef", ("a", "b"), 1_690_000_000.0),
                CountedOwner("somebody", 1),
            ),
            4,
            (CountedLoss("c", "job/1/host/T-ghijkl", 1_695_000_000.0),),
        ),
    ),
)


def test_it_reads_back_what_it_writes() -> None:
    told = encode_counts(COUNTS)
    assert are_counts(told)
    assert parse_counts(told, backend="http://s") == COUNTS._replace(backend="http://s")


def test_what_somebody_has_is_held() -> None:
    (found,) = COUNTS.types
    assert (found.capacity, found.held, found.free) == (5, 3, 1)


@pytest.mark.parametrize(
    "told", [None, [], "x", {}, {"backend": 1}, {"backend": "x:"}, {"backend": "etcd://e:1"}]
)
def test_what_only_a_pool_or_nobody_tells_is_no_count(told: object) -> None:
    assert not are_counts(told)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "../T"),
        ("free", "many"),
        ("states", ["free"]),
        ("owners", [{"owner": "o"}]),
        ("waiting", None),
        ("lost", [{"name": "a b", "holder_identity": "", "at": ""}]),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(field: str, value: object) -> None:
    told: Any = encode_counts(COUNTS)
    told["pools"][0][field] = value
    with pytest.raises(CorruptState, match="can't be read") as raised:
        parse_counts(told, backend="http://s")
    assert "\n" not in str(raised.value)


def test_text_of_others_is_made_safe_to_show() -> None:
    told: Any = encode_counts(COUNTS)
    told["pools"][0]["owners"][1]["owner"] = "evil\x1b[2J"
    (found,) = parse_counts(told, backend="http://s").types
    assert "\x1b" not in found.owners[1].owner
