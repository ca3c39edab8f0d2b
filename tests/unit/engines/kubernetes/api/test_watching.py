"""All the ways in which a watch ends, and that its reader hears of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from leasectl.engines.kubernetes.api import watching
from leasectl.engines.kubernetes.api.address import leases
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.engines.kubernetes.api.watching import Watch, WatchEvent, WatchExpired
from leasectl.errors import AccessRefused, CorruptState
from leasectl.http.no_answer import WatchEnded
from tests.unit.engines.kubernetes.api.conftest import Script
from tests.unit.engines.kubernetes.api.scripted import Cut, Hang, Reply, Said, status

HERE = leases("ns")
OpenAt = Callable[..., Api]


def event(kind: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": {"metadata": {"name": "a", "resourceVersion": str(version)}}}


FIRST = event("ADDED", 3)


def said_error(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "type": "ERROR",
        "object": {"kind": "Status", "code": code, "reason": reason, "message": message},
    }


def follow(watch: Watch) -> tuple[list[WatchEvent], WatchEnded]:
    """What it says, and how it ends."""
    seen: list[WatchEvent] = []
    with pytest.raises(WatchEnded) as raised, watch as events:
        for each in events:
            seen.append(each)
    return seen, raised.value


def watch_at(api: Api, **options: Any) -> Watch:
    return api.watch(HERE, resource_version="2", **options)


def test_what_is_asked_for(script: Script, open_at: OpenAt) -> None:
    server = script(Said(lines=[FIRST, event("BOOKMARK", 9)]))
    seen, end = follow(watch_at(open_at(server), name="a", labels="k=v"))
    assert [(each.type, each.resource_version) for each in seen] == [
        ("ADDED", "3"),
        ("BOOKMARK", "9"),
    ]
    assert "has ended the watch" in str(end)
    (asked,) = server.asked
    assert asked.path == HERE.path()
    assert asked.query == {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": "2",
        "labelSelector": "k=v",
        "fieldSelector": "metadata.name=a",
    }


@pytest.mark.parametrize(
    "reply",
    [
        Cut(),
        status(500, "InternalError"),
        Said(lines=["no JSON"]),
        Said(lines=["[]"]),
        Said(lines=['{"type": "ADDED"}']),
        Said(lines=['{"type": "NEVER", "object": {}}']),
        Said(lines=[said_error(500, "InternalError", "etcd event received with PrevKv=nil")]),
        Said(lines=[said_error(401, "Unauthorized", "by now")]),
        Said(lines=['{"type": "ERROR", "object": {"code": "x"}}']),
    ],
)
def test_an_end_is_an_end(reply: Reply, script: Script, open_at: OpenAt) -> None:
    seen, end = follow(watch_at(open_at(script(reply))))
    assert seen == []
    assert not isinstance(end, WatchExpired)


@pytest.mark.parametrize(
    "reply",
    [
        status(410, "Expired", "too old resource version: 1 (100)"),
        Said(lines=[said_error(410, "Expired", "too old resource version: 1 (100)")]),
    ],
)
def test_what_is_too_old_is_an_end_of_its_own(
    reply: Reply, script: Script, open_at: OpenAt
) -> None:
    _, end = follow(watch_at(open_at(script(reply))))
    assert isinstance(end, WatchExpired)
    assert "too old resource version" in str(end)


def test_silence_is_an_end(
    script: Script, open_at: OpenAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = open_at(script(Said(lines=[FIRST], is_endless=True)))
    assert watching.LONGEST_SILENCE_SECONDS == 75.0
    watch = watch_at(api)
    watch._call = watch._call._replace(longest_silence_seconds=1.0)
    since = time.monotonic()
    seen, _ = follow(watch)
    assert len(seen) == 1
    assert time.monotonic() - since >= 1.0


def test_a_server_that_is_busy_says_until_when(script: Script, open_at: OpenAt) -> None:
    busy = Said(429, "Too many requests", (("Retry-After", "2"),))
    _, end = follow(watch_at(open_at(script(busy))))
    assert end.retry_after_seconds == 2.0


def test_who_may_not_watch_hears_it_as_it_is(script: Script, open_at: OpenAt) -> None:
    refusal = status(403, "Forbidden", 'User "bob" cannot watch resource "leases"')
    with pytest.raises(AccessRefused, match='"bob" is not allowed to watch leases') as raised:
        watch_at(open_at(script(refusal))).__enter__()
    assert raised.value.exit_code == 77
    with pytest.raises(CorruptState), watch_at(open_at(script(status(400, "BadRequest")))):
        pass


def test_a_token_that_is_refused_is_asked_for_again(script: Script, open_at: OpenAt) -> None:
    server = script(status(401, "Unauthorized"), Said(lines=[FIRST]))
    with pytest.raises(AccessRefused, match="rejects the credentials"):
        watch_at(open_at(server)).__enter__()
    assert len(server.asked) == 1  # the same one isn't shown again


@pytest.mark.parametrize("reply", [Hang(), Said(lines=[FIRST], is_endless=True)])
def test_any_thread_can_end_it(reply: Reply, script: Script, open_at: OpenAt) -> None:
    server = script(reply)
    watch = watch_at(open_at(server))

    def cut() -> None:
        while not server.asked:
            time.sleep(0.01)
        watch.cut()

    threading.Thread(target=cut, daemon=True).start()
    follow(watch)


def test_one_that_was_ended_before_it_began_asks_nobody(script: Script, open_at: OpenAt) -> None:
    server = script(Said(lines=[FIRST]))
    watch = watch_at(open_at(server))
    watch.cut()
    follow(watch)
    assert server.asked == []


def test_who_leaves_it_leaves_nothing_open(script: Script, open_at: OpenAt) -> None:
    server = script(Said(lines=[FIRST], is_endless=True))
    with watch_at(open_at(server)) as events:
        assert next(events).type == "ADDED"
    # The server's thread would hear of a connection that is still there.
    assert server.connections == 1
