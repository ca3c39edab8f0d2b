"""What a campaign on Kubernetes looked like all the time: who was in the queue, and who held what.

Nothing is judged by it. It is there to explain, line by line, where nothing was granted for long.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import httpx

from leasectl.engines.cluster.objects import ResourceObject, TicketObject
from leasectl.engines.kubernetes.encoding import parse_object
from leasectl.system.clock import boottime_seconds
from tests.crash.kubernetes_judge import Gap
from tests.kit.history import Event
from tests.kit.kubernetes.api import Api, Object

_EVERY_SECONDS = 0.25
# What led to a gap began not much longer before it than a ttl.
_BEFORE_SECONDS = 7.0


@contextlib.contextmanager
def taking(servers: Sequence[Api], path: str, file: Path) -> Iterator[None]:
    """Write down how the Leases at a path stand, as each server has it, whenever that changes."""
    is_over = threading.Event()

    def run(number: int, server: Api) -> None:
        before = ""
        while not is_over.wait(_EVERY_SECONDS):
            try:
                now = _told(server.items(path))
            except (httpx.HTTPError, AssertionError) as error:
                now = f"no answer: {type(error).__name__}"
            if now != before:
                with open(file, "a", encoding="utf-8") as out:
                    print(json.dumps([boottime_seconds(), f"server {number}: {now}"]), file=out)
            before = now

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(servers)]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        is_over.set()
        for each in threads:
            each.join()


def explain(gaps: Iterable[Gap], events: Iterable[Event], file: Path) -> Iterator[str]:
    """Tell all that is known of some times without a grant, in lines, in the order of time."""
    written = [(e.at / 1e9, f"{e.kind} {e.handle} {e.name}") for e in events if e.kind != "renewed"]
    seen = [(float(at), text) for at, text in map(json.loads, file.read_text().splitlines())]
    lines = sorted(written + seen)
    for gap in gaps:
        until = gap.until / 1e9
        since = until - gap.seconds
        yield f"{gap.seconds:.1f}s without a grant, from {since:.3f}"
        for at, text in lines:
            if since - _BEFORE_SECONDS <= at <= until + 0.1:
                yield f"  {at - since:+8.3f} {text}"


def _told(leases: Iterable[Object]) -> str:
    found = [parse_object(each) for each in leases]
    tickets = [each for each in found if isinstance(each, TicketObject)]
    queue = [each.holder_identity for each in sorted(tickets, key=lambda each: each.place)]
    held = [
        f"{each.name}={'-' if each.claim is None else each.claim.holder_identity}"
        for each in found
        if isinstance(each, ResourceObject)
    ]
    return f"queue {' '.join(queue) or '-'}; {' '.join(sorted(held))}"
