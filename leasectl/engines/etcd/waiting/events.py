"""Read the messages of a watch stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from leasectl.engines.etcd.gateway.requests import KeyValue, encode, end_of, parse_key_value
from leasectl.engines.etcd.waiting.targets import Watched
from leasectl.errors import NotAllowed
from leasectl.http.no_answer import NoAnswer
from leasectl.text.properties import MALFORMED, read_integer, read_json, reason_of
from leasectl.text.wording import printable


class EventsLost(Exception):
    """No stream will tell of something that happened: etcd forgot it, or was restored."""


class WatchLine(NamedTuple):
    """One line of the stream.

    Args:
        watch: The number of the watch that it is about, as etcd gave it.
        is_begun: It says that the watch has begun.
        revision: The one that the member was at then.
        events: What it tells: keys as they were written, or were deleted (without a value).
        is_over: It says that the watch has ended.
    """

    watch: int
    is_begun: bool
    revision: int
    events: tuple[KeyValue, ...]
    is_over: bool = False


def encode_watches(
    revisions: Mapping[Watched, int], *, from_now: bool = False, has_progress: bool = False
) -> str:
    """One stream for several watches, each from right after its revision, or from now.

    The gateway reads one request after the other, and etcd begins the watches in that order. With
    progress a member says now and then where it is, also when nothing happens.
    """
    return "".join(
        json.dumps(
            {"create_request": _create(watched, 0 if from_now else revision + 1, has_progress)}
        )
        for watched, revision in revisions.items()
    )


def encode_end(watch: int) -> str:
    """What ends a watch of a stream that goes on, by the number that etcd gave it."""
    return json.dumps({"cancel_request": {"watch_id": str(watch)}})


def parse_line(line: str) -> WatchLine:
    """Read a line of the stream.

    Raises:
        EventsLost: A watch was to begin at a revision that etcd has forgotten, or somebody else
            wrote what can't be read.
        NoAnswer: It says nothing, or that a watch couldn't begin.
        NotAllowed: The user may not watch that, or not any more.
    """
    try:
        result = read_json(line)["result"]
        if read_integer(result.get("compact_revision", 0)):
            raise EventsLost
        reason = str(result.get("cancel_reason", ""))
        if "permission denied" in reason:
            raise NotAllowed(f"the watch was cancelled: {printable(reason)}")
        is_begun, is_over = bool(result.get("created")), bool(result.get("canceled"))
        if is_over and (is_begun or reason):
            raise NoAnswer("the watch was cancelled")
        changes = [event["kv"] for event in result.get("events", ())]
        try:
            events = tuple(map(parse_key_value, changes))
        except UnicodeDecodeError as error:
            raise EventsLost from error
        revision = read_integer(result["header"]["revision"]) if is_begun else 0
        return WatchLine(
            read_integer(result.get("watch_id", 0)), is_begun, revision, events, is_over
        )
    except MALFORMED as error:
        raise NoAnswer(f"no event: {reason_of(error)}") from error


def _create(watched: Watched, start_revision: int, has_progress: bool) -> dict[str, Any]:
    unwanted = ("NOPUT",) * (not watched.puts) + ("NODELETE",) * (not watched.deletes)
    request: dict[str, Any] = {"key": encode(watched.key), "start_revision": str(start_revision)}
    if watched.is_prefix:
        request["range_end"] = encode(end_of(watched.key))
    if has_progress:
        request["progress_notify"] = True
    return {**request, "filters": list(unwanted)}
