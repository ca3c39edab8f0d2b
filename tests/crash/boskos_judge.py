"""Whether what Boskos and those who used its resources wrote down can be true."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.kit.boskos.history import BoskosHistory


class Use(NamedTuple):
    """That a process used a resource; times in ns of CLOCK_BOOTTIME."""

    name: str
    since: int
    until: int
    pid: int


def read_uses(path: Path) -> list[Use]:
    """What `boskos_user.py` wrote."""
    found: dict[tuple[str, int], Use] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        pid, name, at = line.split()
        use = found.get((name, int(pid)), Use(name, int(at), int(at), int(pid)))
        found[name, int(pid)] = use._replace(until=int(at))
    return sorted(found.values())


def overlaps(
    uses: list[Use], *, forgotten_at: Sequence[int] = (), within: float = 0.0
) -> Iterator[str]:
    """Names that two used at once.

    Args:
        uses: Sorted.
        forgotten_at: When the server forgot who had what: whoever had something may use it on.
        within: Until that many seconds later.
    """
    for before, use in zip(uses, uses[1:]):
        forgiven = any(
            before.since < at < use.since and before.until < at + within * 1e9
            for at in forgotten_at
        )
        if before.name == use.name and use.since < before.until and not forgiven:
            seconds = (before.until - use.since) / 1e9
            yield f"{use.name} was used by {before.pid} and {use.pid} for {seconds:.3f} s"


def out_of_order(history: BoskosHistory, *, ttl_seconds: float) -> Iterator[str]:
    """Grants to somebody while more were before him than there were others free.

    Args:
        history: Of a Boskos that forgets places as soon as they don't count any more.
        ttl_seconds: For how long they count.
    """
    places: dict[str, float] = {}
    free = 0
    for event in history.events:
        if event["event"] == "start":
            places.clear()
        elif event["event"] == "ask":
            at, free = event["at"], event["free"]
            places = {each: until for each, until in places.items() if until >= at}
            if event["request_id"]:
                places[event["request_id"]] = at + ttl_seconds
        elif event["event"] == "grant" and event.get("request_id"):
            ahead = list(places).index(event["request_id"])
            if ahead >= free:
                yield f"{event['name']} was granted past {ahead}, with {free} free"
            del places[event["request_id"]]


def changed_ids(history: BoskosHistory) -> Iterator[str]:
    """Owners who gave up their place by asking under another id, though they had got nothing.

    Who wants several and has lost the first of them begins anew.
    """
    asked: dict[str, str] = {}
    granted: set[str] = set()
    had: set[str] = set()
    for event in history.events:
        if event["event"] == "grant":
            granted.add(event.get("request_id", ""))
            had.add(event["resource"]["owner"])
        elif event["event"] == "request" and event["path"].endswith("/acquire"):
            words = parse_qs(urlsplit(event["target"]).query)
            owner, request_id = words["owner"][0], words.get("request_id", [""])[0]
            before = asked.setdefault(owner, request_id)
            if request_id != before and before not in granted and owner not in had:
                yield f"{owner} asked as {request_id} after {before}, which had got nothing"
            asked[owner] = request_id
