"""How the events of a bucket are written as one value, and what is believed of such a value."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode

import pytest

from leasectl.engines.etcd import packing
from leasectl.engines.etcd.events import NUMBERS_PER_REVISION, encode_event, parse_event
from leasectl.engines.etcd.packing import encode_pack, parse_pack
from leasectl.engines.etcd.requests import KeyValue
from leasectl.errors import CorruptState
from leasectl.state.event import Event

EVENTS = (
    Event(0, 1.5, "queued", "T", handle="h", acquisition=1, holder_identity="j/1/host/h"),
    Event(
        0,
        2.25,
        "granted",
        "T",
        ("T--00", "T--01"),
        handle="h",
        count=2,
        ticket=9,
        grant=4,
        wait_seconds=0.75,
    ),
    Event(0, 3, "released", "U", ("U--0",), (1280,), hold_seconds=60.5, by="command", priority=-3),
    Event(0, 0.0, "pool changed", "a.b_c-d", holder_identity="ü@host", reason="„so“", count=0),
)


def key(event: Event, *, revision: int, index: int = 0, value: str | None = None) -> KeyValue:
    token = f"{revision:012x}{index:02x}"
    path = f"/p/event/{'0' * 20}/{event.type}/{token}"
    return KeyValue(path, encode_event(event) if value is None else value, revision, revision)


def written(value: str) -> KeyValue:
    return KeyValue(f"/p/packed/{'0' * 20}/1", value, 99, 99)


def packed(record: object) -> KeyValue:
    """A value of our form, whatever it says."""
    return written(b64encode(zlib.compress(json.dumps(record).encode())).decode())


def test_events_are_read_back_as_they_were_read_before() -> None:
    items = [key(each, revision=10 + n, index=n) for n, each in enumerate(EVENTS)]
    expected = [parse_event(kv) for kv in items]
    assert parse_pack(written(encode_pack(items))) == expected
    assert parse_pack(written(encode_pack(items[::-1]))) == expected


def test_several_of_one_transaction_stay_in_their_order() -> None:
    items = [key(EVENTS[0], revision=7, index=index) for index in (3, 0, 2, 1)]
    found = parse_pack(written(encode_pack(items)))
    assert [each.number for each in found] == [
        7 * NUMBERS_PER_REVISION + index for index in range(4)
    ]


def test_what_a_later_version_has_written_is_kept_as_it_was() -> None:
    """A packer of this version doesn't know what it can leave out."""
    later = '{"time": 1, "kind": "moved", "to": "U", "names": ["x"]}'
    unreadable = '{"when": 1}'
    items = [
        key(EVENTS[0], revision=5),
        key(EVENTS[0], revision=6, value=later),
        key(EVENTS[0], revision=7, value=unreadable),
        key(EVENTS[2], revision=8),
    ]
    pack = encode_pack(items)
    found = parse_pack(written(pack))
    assert [each.kind for each in found] == ["queued", "moved", "released"]
    assert found == [parse_event(items[n]) for n in (0, 1, 3)]
    text = zlib.decompress(b64decode(pack)).decode()
    assert [each[-1] for each in json.loads(text)["others"]] == [later, unreadable]


def test_two_that_claim_the_same_place_are_both_there() -> None:
    """Copied by somebody, many in one transaction."""
    first, second = EVENTS[1], EVENTS[1]._replace(wait_seconds=None)
    items = [
        key(each, revision=7)._replace(key=f"/T/{n}00") for n, each in enumerate((first, second))
    ]
    assert len(parse_pack(written(encode_pack(items)))) == 2


def test_it_is_a_small_part_of_what_it_replaces() -> None:
    items = [
        key(EVENTS[1]._replace(time=n * 3.7, grant=n, handle=f"T-{n * 7919 % 4096:x}"), revision=n)
        for n in range(1, 1001)
    ]
    assert len(encode_pack(items)) * 5 < sum(len(kv.key + kv.value) for kv in items)


COLUMNS = {"number": [128, 256], "time": [1.0, 2.0], "kind": ["lost"] * 2, "type": ["T"] * 2}


def test_what_is_written_so_is_read() -> None:
    """What the next test breaks."""
    first, second = parse_pack(packed({"events": COLUMNS, "others": []}))
    assert first == Event(128, 1.0, "lost", "T")
    assert second.number == 256


@pytest.mark.parametrize(
    "wrong",
    [
        {"number": [256, 128]},
        {"number": [1.5, 2]},
        {"number": [True, 2]},
        {"number": [128]},
        {"number": "12"},
        {"time": [1, 1e300]},
        {"time": [-1, 1]},
        {"time": ["1", "2"]},
        {"time": [1, float("nan")]},
        {"time": [1, float("inf")]},
        {"time": [None, 1]},
        {"kind": ["\x1b[2J", "lost"]},
        {"kind": [["lost"], ["lost"]]},
        {"kind": [7, 7]},
        {"type": ["a b", "T"]},
        {"type": None},
        {"names": [["a b"], []]},
        {"names": [5, 5]},
        {"fences": [["x"], []]},
        {"fences": [[True], []]},
        {"handle": [None, ""]},
        {"by": [1, 2]},
        {"count": ["many", 1]},
        {"ticket": [1.0, 2.0]},
        {"wait_seconds": [None, -1]},
        {"hold_seconds": ["", 1]},
    ],
)
def test_a_column_that_can_not_be_is_not_believed(wrong: dict[str, object]) -> None:
    columns = {
        field: column for field, column in {**COLUMNS, **wrong}.items() if column is not None
    }
    with pytest.raises(CorruptState, match="can't be read"):
        parse_pack(packed({"events": columns, "others": []}))


@pytest.mark.parametrize(
    "value",
    [
        "",
        "%",
        "AAAA",
        b64encode(zlib.compress(b"[]")[:-1]).decode(),
        b64encode(zlib.compress(b"[]")).decode(),
        b64encode(zlib.compress(b"[" * 100_000)).decode(),
        b64encode(zlib.compress(b'{"events": {}}')).decode(),
        b64encode(zlib.compress(b'{"events": [], "others": [1]}')).decode(),
        b64encode(zlib.compress(b'{"events": [1], "others": []}')).decode(),
    ],
)
def test_a_value_that_is_none_is_not_believed(value: str) -> None:
    with pytest.raises(CorruptState, match="can't be read"):
        parse_pack(written(value))


def test_a_value_that_unpacks_to_more_than_any_is_not_believed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pack = encode_pack([key(EVENTS[0], revision=5)])
    assert len(parse_pack(written(pack))) == 1
    monkeypatch.setattr(packing, "_LONGEST_BYTES", 100)
    with pytest.raises(CorruptState, match="cut off"):
        parse_pack(written(pack))


def test_text_that_a_terminal_would_heed_is_escaped() -> None:
    columns = {
        **COLUMNS,
        "handle": ["h\x1b", ""],
        "holder_identity": ["a\x1b[2J", "b"],
        "by": ["c\r", ""],
        "reason": ["b\n", "x" * 5000],
    }
    first, second = parse_pack(packed({"events": columns, "others": []}))
    assert (first.handle, first.holder_identity, first.reason) == ("h\\x1b", "a\\x1b[2J", "b\\n")
    assert first.by.isprintable()
    assert len(second.reason) == 2000
