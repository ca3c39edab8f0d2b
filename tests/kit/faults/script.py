"""Which request gets which fault: rules, as JSON or in one line each.

    reset-after path=acquire nth=1          the first acquire from now on
    500 request=3 text="no disk space"      the third request of all
    reset-connect connection=1,2            the first two connections
    drip path=release                       every release
    reset-before|reset-after|500 rate=0.2   one request in five, one of the three

The first rule that matches a request decides. Chance is drawn from the seed and the request's
number, so the same seed and the same order of requests give the same faults.
"""

from __future__ import annotations

import random
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.kit.faults import hostile

# What each fault does is said in tests/faults/README.md.
FAULTS = frozenset(
    [
        "refuse",
        "reset-connect",
        "reset-before",
        "reset-after",
        "delay",
        "delay-after",
        "late",
        "hang",
        "hang-after",
        "fail-unit",
        "boskos-away",
        "garbage",
        "not-json",
        "half",
        "drip",
        "close-keepalive",
        "names-hostile",
    ]
)
_STATUS = re.compile(r"[345][0-9][0-9]", re.ASCII)
_SECONDS = {
    "delay": 0.1,
    "delay-after": 0.1,
    "late": 0.1,
    "refuse": 0.5,
    "boskos-away": 160.0,
    "drip": 0.002,
}


class Fault(NamedTuple):
    """What is to go wrong with one request.

    Args:
        name: One of FAULTS, or a status to answer with.
        seconds: How long; for ``drip`` between two bytes; 0 for ``refuse`` means until told.
        text: What an error says, or what ``not-json`` answers.
        unit: The unit, from 1, at which ``fail-unit`` fails.
        bytes: How much of the answer ``half`` sends.
        variant: Which names ``names-hostile`` answers with.
    """

    name: str
    seconds: float = 0.0
    text: str | None = None
    unit: int = 1
    bytes: int | None = None
    variant: str | None = None

    @property
    def status(self) -> int | None:
        """The status to answer with instead of doing anything."""
        return int(self.name) if _STATUS.fullmatch(self.name) else None


class Rule(NamedTuple):
    """A fault, and for which requests.

    Args:
        faults: One of these, chosen by chance.
        path: The end of the request's path, such as ``acquire``; None for any.
        request: Numbers among all requests, from 1; empty for any.
        connection: Numbers among all connections, from 1; empty for any.
        nth: Numbers among the requests with this path since the rule was set; empty for any.
        times: How often at most; None for always.
        rate: The share of the requests that match, 0 to 1.
    """

    faults: tuple[Fault, ...]
    path: str | None = None
    request: frozenset[int] = frozenset()
    connection: frozenset[int] = frozenset()
    nth: frozenset[int] = frozenset()
    times: int | None = None
    rate: float = 1.0


_KEYS = {"fault", *Rule._fields, *Fault._fields} - {"faults", "name"}


class Script:
    """The rules in force.

    Args:
        seed: What chance is drawn from.
    """

    def __init__(self, seed: int, rules: Iterable[Rule] = ()) -> None:
        self._seed = seed
        self.replace(rules)

    def replace(self, rules: Iterable[Rule]) -> None:
        """Put other rules in force; their counts begin at 1."""
        self._rules = list(rules)
        self._seen = [0] * len(self._rules)
        self._applied = [0] * len(self._rules)

    def for_connection(self, number: int) -> Fault | None:
        """Decide what happens to a connection before anything is read from it."""
        for index, rule in enumerate(self._rules):
            if rule.faults[0].name == "reset-connect" and self._hits(
                index, number, not rule.connection or number in rule.connection, kind="connection"
            ):
                return rule.faults[0]
        return None

    def for_request(self, number: int, *, path: str, connection: int) -> Fault | None:
        """Decide what happens to a request."""
        decided: Fault | None = None
        for index, rule in enumerate(self._rules):
            if rule.faults[0].name == "reset-connect" or not _path_matches(rule.path, path):
                continue
            self._seen[index] += 1
            matches = (
                (not rule.request or number in rule.request)
                and (not rule.connection or connection in rule.connection)
                and (not rule.nth or self._seen[index] in rule.nth)
            )
            if decided is None and self._hits(index, number, matches, kind="request"):
                decided = self._chance(number, "fault").choice(rule.faults)
        return decided

    def content(self, number: int) -> random.Random:
        """Chance for what a fault needs besides: bytes of garbage, which names."""
        return self._chance(number, "content")

    def _hits(self, index: int, number: int, matches: bool, *, kind: str) -> bool:
        rule = self._rules[index]
        if not matches or (rule.times is not None and self._applied[index] >= rule.times):
            return False
        if rule.rate < 1 and self._chance(number, f"{kind} {index}").random() >= rule.rate:
            return False
        self._applied[index] += 1
        return True

    def _chance(self, number: int, purpose: str) -> random.Random:
        return random.Random(f"{self._seed} {number} {purpose}")


def _path_matches(wanted: str | None, path: str) -> bool:
    return wanted is None or path == wanted or path.endswith(f"/{wanted}")


def parse_rule(source: object) -> Rule:
    """Read a rule from a line or from JSON's object.

    Raises:
        ValueError: It says something that no rule says.
    """
    fields = _read_line(source) if isinstance(source, str) else source
    if not isinstance(fields, Mapping) or "fault" not in fields:
        raise ValueError(f"not a rule: {source!r}")
    unknown = sorted(set(fields) - _KEYS)
    if unknown:
        raise ValueError(f"a rule has no {unknown[0]!r}; it may have {', '.join(sorted(_KEYS))}")
    names = str(fields["fault"]).split("|")
    if "reset-connect" in names and (len(names) > 1 or {"path", "request", "nth"} & set(fields)):
        raise ValueError("reset-connect is for connections and goes with nothing else")
    return Rule(
        faults=tuple(_fault(name, fields) for name in names),
        path=None if fields.get("path") is None else str(fields["path"]),
        request=_numbers(fields.get("request")),
        connection=_numbers(fields.get("connection")),
        nth=_numbers(fields.get("nth")),
        times=None if fields.get("times") is None else int(str(fields["times"])),
        rate=float(str(fields.get("rate", 1))),
    )


def _fault(name: str, fields: Mapping[object, object]) -> Fault:
    if name not in FAULTS and not _STATUS.fullmatch(name):
        known = ", ".join(sorted(FAULTS))
        raise ValueError(f"no fault {name!r}; there are {known}, and statuses such as 500")
    text, size, variant = (fields.get(key) for key in ("text", "bytes", "variant"))
    if variant is not None and variant not in hostile.VARIANTS:
        raise ValueError(f"no variant {variant!r}; there are {', '.join(hostile.VARIANTS)}")
    return Fault(
        name=name,
        seconds=float(str(fields.get("seconds", _SECONDS.get(name, 0.0)))),
        text=None if text is None else str(text),
        unit=int(str(fields.get("unit", 1))),
        bytes=None if size is None else int(str(size)),
        variant=None if variant is None else str(variant),
    )


def _read_line(line: str) -> dict[str, object]:
    name, *words = shlex.split(line) or [""]
    fields: dict[str, object] = {"fault": name}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"not KEY=VALUE: {word!r}")
        fields[key] = value
    return fields


def _numbers(value: object) -> frozenset[int]:
    if value is None:
        return frozenset()
    parts = value if isinstance(value, list) else str(value).split(",")
    return frozenset(int(str(part)) for part in parts)
