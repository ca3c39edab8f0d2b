"""Read afterwards, from the log of the stand-in, what it granted to whom, and in which order.

Every line about a resource has ``boottime_ns`` (CLOCK_BOOTTIME, what holders date their own logs
with) and ``resource``, all that was so of it from then on. Each acquire is an ``ask``, with the
rank that it had and how many were free; a ``grant`` follows if that was enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

# One line of the log; which fields there are depends on the event.
Event = Mapping[str, Any]

_ENDS = ("release", "reset", "reap")


class Tenure(NamedTuple):
    """A time in which Boskos took a resource to be owned.

    Args:
        since: In ns of CLOCK_BOOTTIME.
        until: The same; None if it still does.
        end: What ended it: ``release``, ``reset`` or ``reap``; empty if nothing has.
    """

    name: str
    owner: str
    since: int
    until: int | None = None
    end: str = ""


class BoskosHistory:
    """What the log of one Boskos says, from all the times that it was started.

    Args:
        events: In the order of the log.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)

    @classmethod
    def read(cls, path: Path) -> BoskosHistory:
        """Read a log; a last line that is still being written is left out."""
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        return cls(json.loads(line) for line in whole.split("\n") if line)

    def of(self, event: str) -> list[Event]:
        """All events of a kind."""
        return [each for each in self.events if each["event"] == event]

    def asked(self, path: str) -> list[Event]:
        """All requests with this path, such as ``/acquire``."""
        return [each for each in self.of("request") if each["path"].endswith(path)]

    @property
    def tenures(self) -> list[Tenure]:
        """The owners of resources over time, as Boskos saw them, in the order of the grants."""
        found: list[Tenure] = []
        open_ones: dict[str, int] = {}
        for event in self.events:
            if event["event"] == "grant":
                open_ones[event["name"]] = len(found)
                owner = event["resource"]["owner"]
                found.append(Tenure(event["name"], owner, event["boottime_ns"]))
            elif event["event"] in _ENDS and event["name"] in open_ones:
                index = open_ones.pop(event["name"])
                ended = {"until": event["boottime_ns"], "end": event["event"]}
                found[index] = found[index]._replace(**ended)
        return found

    def problems(self) -> list[str]:
        """List grants of resources that another had, which no Boskos may make."""
        owners: dict[str, str] = {}
        found: list[str] = []
        for event in self.events:
            if event["event"] == "start" and "--remembers=nothing" in event["command"]:
                owners.clear()
            resource = event.get("resource")
            if resource is None:
                continue
            name, owner = resource["name"], resource["owner"]
            if event["event"] == "grant" and owners.get(name):
                found.append(f"{name} went to {owner} while {owners[name]} had it")
            owners[name] = owner
        return found + self.out_of_turn()

    def out_of_turn(self) -> list[str]:
        """The grants by rank that were for another rank or another requester."""
        asks: dict[int, Event] = {}
        found: list[str] = []
        for grant in self.events:
            if grant["event"] == "ask":
                asks[grant["request"]] = grant  # counted from 1 again after each start
            if grant["event"] != "grant" or grant["rank"] is None:
                continue  # the latter is past the queue: by name, or another job's
            ask = asks.get(grant["request"])
            if ask is None or grant["rank"] > grant["free"]:
                found.append(f"{grant['name']} was granted to rank {grant['rank']}")
            elif ask["owner"] != grant["resource"]["owner"]:
                found.append(f"{grant['name']} was asked for by {ask['owner']}")
        return found
