"""Judge afterwards, from a lease proxy's log, whether what happened was right.

usage: history.py LOG [--state-dir DIR]... [--holds NAME]... [--lost]
                  [--quiet-after MARK [--key KEY]]

Prints what is wrong, a line each; the exit code is 1 when something is. A log is always checked for
what no server may do (grant a name twice, free what isn't leased). With --state-dir or --holds,
what is leased at the end must be what the handles in those state directories and the caller hold;
--lost leaves out grants that no client can know of. With --quiet-after there must be no request
after that mark; with --key, none whose idempotency key begins so.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Callable

# One line of the log; which fields there are depends on the event.
Event = Mapping[str, Any]

_NOT_LEASED = "no resource name"
# With these faults an answer says something else than what was granted.
_LIES = ("names-hostile", "not-json")


class History:
    """What a lease proxy's log says.

    Args:
        events: In the order of the log.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self.requests: dict[int, Event] = {each["request"]: each for each in self.of("request")}

    @classmethod
    def read(cls, path: Path) -> History:
        """Read a log; a last line that is still being written is left out."""
        whole = path.read_text(encoding="utf-8").rpartition("\n")[0]
        return cls(json.loads(line) for line in whole.split("\n") if line)

    def of(self, event: str) -> list[Event]:
        """All events of a kind."""
        return [each for each in self.events if each["event"] == event]

    # ---- what is leased at the end

    @property
    def leased(self) -> set[str]:
        """Grants minus releases."""
        leased: set[str] = set()
        for event in self.events:
            if event["event"] in ("grant", "kept"):
                leased.add(event["name"])
            elif event["event"] == "release":
                leased.discard(event["name"])
            elif event["event"] == "reap":
                leased.difference_update(event["names"])
        return leased

    @property
    def forgotten(self) -> set[str]:
        """Leased, and no client can release it any more: a release of it failed at Boskos."""
        failed = {each["name"] for each in self.of("not-released") if not _was_not_leased(each)}
        return failed & self.leased

    @property
    def lost(self) -> set[str]:
        """Leased, and no answer can have told a client so."""
        return self._untold(lambda answer: True)

    @property
    def unsure(self) -> set[str]:
        """As `lost`, and what was told only to clients that had closed or half-closed."""
        return self._untold(lambda answer: not answer["client_gone"])

    def _untold(self, believes: Callable[[Event], bool]) -> set[str]:
        unannounced: set[str] = set()
        for event in self.events:
            if event["event"] == "grant":
                unannounced.add(event["name"])
            elif event["event"] == "answer" and event["how"] == "cut":
                unannounced.update(event["names"])
            elif event["event"] == "answer" and self._tells_names(event) and believes(event):
                unannounced.difference_update(event["names"])
        return unannounced & self.leased

    def _tells_names(self, answer: Event) -> bool:
        whole = answer["how"] in ("whole", "drip") and answer["written"]
        fault = self.requests.get(answer["request"], {}).get("fault")
        return bool(whole and answer["status"] == 200 and fault not in _LIES)

    # ---- what clients did

    @property
    def released_unleased(self) -> list[str]:
        """The names that clients wanted to release and that weren't leased, in that order."""
        return [each["name"] for each in self.of("not-released") if _was_not_leased(each)]

    def requests_after(self, at: float, *, key: str = "") -> list[Event]:
        """Requests since a time by CLOCK_MONOTONIC, by clients whose key begins with this one."""
        return [each for each in self.of("request") if each["at"] > at and _has_key(each, key)]

    def grants_after(self, at: float, *, key: str = "") -> list[Event]:
        """Grants since a time, to requests whose key begins with this one."""
        return [
            each
            for each in self.of("grant")
            if each["at"] > at and _has_key(self.requests[each["request"]], key)
        ]

    def mark(self, text: str) -> float:
        """When this mark was set, the last time.

        Raises:
            ValueError: It never was.
        """
        times = [each["at"] for each in self.of("mark") if each["text"] == text]
        if not times:
            raise ValueError(f"no mark {text!r} in the log")
        return float(times[-1])

    # ---- what is wrong

    def problems(self) -> list[str]:
        """What no server may have done, or no log may say."""
        holder: dict[str, int | str] = {}
        granted: set[str] = set()
        found: list[str] = []
        for before, event in zip([{"seq": 0, "at": 0.0}, *self.events], self.events):
            if event["seq"] != before["seq"] + 1 or event["at"] < before["at"]:
                found.append(f"line {event['seq']} doesn't follow line {before['seq']}")
            kind, name = event["event"], event.get("name")
            if kind == "grant":
                if name in holder:
                    found.append(
                        f"{name} was granted to request {event['request']} "
                        f"while {holder[name]} had it"
                    )
                if event["request"] not in self.requests:
                    found.append(f"{name} was granted to a request that nobody made")
                holder[str(name)] = f"request {event['request']}"
                granted.add(str(name))
            elif kind == "release":
                if name not in holder:
                    found.append(f"{name} was released by {event['request']} and wasn't leased")
                holder.pop(str(name), None)
            elif kind == "kept":
                if name in holder:
                    found.append(f"{name} went to {holder[name]} and hadn't been released")
                holder[str(name)] = f"request {event['request']}"
            elif kind == "occupy":
                found += [
                    f"{each} was occupied while leased" for each in holder.keys() & event["names"]
                ]
                holder.update(dict.fromkeys(event["names"], "another job"))
            elif kind in ("vacate", "reap"):
                for each in event["names"]:
                    holder.pop(each, None)
            elif kind == "answer" and self._tells_names(event):
                found += [
                    f"request {event['request']} was told of {each}, which was never granted"
                    for each in event["names"]
                    if each not in granted
                ]
        return found

    def compare(
        self, handles: Mapping[str, Collection[str]], *, without: Collection[str] = ()
    ) -> list[str]:
        """How what is leased differs from what handles hold.

        Args:
            handles: The names in each.
            without: Leases that are in no handle and needn't be, such as `lost` ones.
        """
        leased = self.leased
        found: list[str] = []
        for handle, names in sorted(handles.items()):
            found += [f"{handle} holds {name}, which isn't leased" for name in {*names} - leased]
        for name in sorted(leased - self.forgotten):
            holders = sorted(handle for handle, names in handles.items() if name in names)
            if len(holders) > 1:
                found.append(f"{name} is in {' and '.join(holders)}")
            elif not holders and name not in without:
                grant = [each for each in self.of("grant") if each["name"] == name][-1]
                found.append(f"{name} is in no handle; request {grant['request']} got it")
        return found


def names_in_handles(state_dir: Path) -> dict[str, list[str]]:
    """The names that the handles of a state directory hold, read without any of leasectl's code."""
    return {
        str(path): path.read_text(encoding="utf-8").split()
        for path in sorted((state_dir / "handles").glob("*"))
        if path.suffix != ".lock" and path.stat().st_size
    }


def _was_not_leased(event: Event) -> bool:
    return str(event["reason"]).startswith(_NOT_LEASED)


def _has_key(request: Event, key: str) -> bool:
    return str(request["idempotency_key"] or "").startswith(key)


def main() -> None:
    parser = argparse.ArgumentParser(usage=(__doc__ or "").split("usage: ")[1])
    parser.add_argument("log", type=Path)
    parser.add_argument("--state-dir", action="append", default=[], type=Path)
    parser.add_argument("--holds", action="append", default=[])
    parser.add_argument("--lost", action="store_true")
    parser.add_argument("--quiet-after")
    parser.add_argument("--key", default="")
    arguments = parser.parse_args()
    found = _judge(History.read(arguments.log), arguments)
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


def _judge(history: History, arguments: argparse.Namespace) -> list[str]:
    found = history.problems()
    if arguments.state_dir or arguments.holds:
        handles: dict[str, list[str]] = {"the caller": arguments.holds}
        for state_dir in arguments.state_dir:
            handles.update(names_in_handles(state_dir))
        found += history.compare(handles, without=history.lost if arguments.lost else ())
    if arguments.quiet_after is not None:
        late = history.requests_after(history.mark(arguments.quiet_after), key=arguments.key)
        found += [f"request {each['request']} came after that: {each['target']}" for each in late]
    return found


if __name__ == "__main__":
    main()
