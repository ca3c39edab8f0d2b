"""Events as objects of Kubernetes: what is written is read back, and what isn't ours is nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasectl.engines.cluster.objects import Identity, Told
from leasectl.engines.kubernetes.posting import encode_post, parse_post
from leasectl.state.event import Event
from tests.kit.kubernetes.namespaces import Namespace

GRANTED = Event(
    0,
    1700000000.123456,
    "granted",
    "azure--install",
    ("azure--install--00", "azure--install--01"),
    (7000, 7001),
    handle="azure--install-abcdef",
    acquisition=2,
    holder_identity="job/1/host/azure--install-abcdef",
    count=2,
    priority=3,
    ticket=5,
    grant=7000,
    wait_seconds=1.5,
)
QUEUED = Event(0, 1700000000.0, "queued", "azure--install", handle="h", ticket=5)
TWO = (Identity("azure--install--00", "uid-0"), Identity("azure--install--01", "uid-1"))


def as_made(body: dict[str, Any], version: int = 12) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(version)}}


def test_what_is_written_is_read_back_in_its_order() -> None:
    first, second = encode_post(Told((QUEUED, GRANTED), TWO), "ns")
    assert parse_post(as_made(first)) == [
        QUEUED._replace(number=12000),
        GRANTED._replace(number=12001),
    ]
    assert parse_post(as_made(second)) == []  # or it would be told twice


def test_each_resource_tells_its_own_story() -> None:
    objects = encode_post(Told((GRANTED,), TWO), "ns")
    assert [each["regarding"]["name"] for each in objects] == [each.name for each in TWO]
    assert {each["reason"] for each in objects} == {"Granted"}
    assert len({each["metadata"]["name"] for each in objects}) == 2


@pytest.mark.parametrize(
    "annotation",
    [
        None,
        "",
        "{",
        "{}",
        "[1]",
        "[[]]",
        '[{"kind":"granted"}]',
        '[{"kind":"granted","time":"x","type":"T"}]',
        '[{"kind":"granted","time":1e999,"type":"T"}]',
        '[{"kind":"gr\\u001b[2J","time":1,"type":"T"}]',
        '[{"kind":"granted","time":1,"type":"../T"}]',
        '[{"kind":"granted","time":1,"type":"T","names":["\\n"]}]',
        "[" * 100_000,
    ],
)
def test_what_nobody_of_ours_has_written_is_nothing(annotation: str | None) -> None:
    (body, *_) = encode_post(Told((GRANTED,), TWO), "ns")
    annotations = {} if annotation is None else {"leasectl.dev/events": annotation}
    body["metadata"]["annotations"] = annotations
    assert parse_post(as_made(body)) == []


def test_text_of_others_is_safe_to_show() -> None:
    (body, *_) = encode_post(Told((GRANTED,), TWO), "ns")
    (record,) = json.loads(body["metadata"]["annotations"]["leasectl.dev/events"])
    record["reason"] = "\x1b[2J"
    body["metadata"]["annotations"]["leasectl.dev/events"] = json.dumps([record])
    (event,) = parse_post(as_made(body))
    assert event.reason == "\\x1b[2J"


def test_a_server_takes_the_longest_there_are(namespace: Namespace) -> None:
    long = GRANTED._replace(
        type="T" * 200,
        names=tuple("N" * 250 + str(n) for n in range(100)),
        fences=tuple(range(100)),
        holder_identity="ü" * 900,
        reason="é\n" * 150,
    )
    about = tuple(Identity("a" * 253, "uid") for _ in range(100))
    for kind in ("queued", "granted", "gave up", "lost", "released", "pool deleted", "work done"):
        event = long._replace(kind=kind)
        for body in encode_post(Told((event,), about), namespace.name):
            namespace.administrator.ok("POST", namespace.events, body)
    made = namespace.administrator.items(namespace.events)
    read = [event for each in made for event in parse_post(each)]
    assert len(read) == 7
    assert {each.names for each in read} == {long.names}
