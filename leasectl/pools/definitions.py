"""Read pool files, also Boskos' resource lists."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, Union

from leasectl.engines.facts import PoolSettings
from leasectl.engines.rules.membership import Properties
from leasectl.errors import InvalidRequest
from leasectl.pools.settings import NO_CHANGE, SettingsChange, changed, check_grace
from leasectl.text.documents import Fields, Items, Part, Scalar, parse_document, refusal
from leasectl.text.durations import parse_duration
from leasectl.text.naming import MOST_AT_ONCE, check_own_name, check_own_type, check_pattern
from leasectl.text.properties import check_count, check_key, check_value
from leasectl.text.wording import listed, printable


class DefaultChange(NamedTuple):
    """A change of the default pool; None keeps what is so now.

    Args:
        is_default: The pool is, or isn't, the default pool.
        grace_seconds: How long it holds new names back.
    """

    is_default: bool | None = None
    grace_seconds: float | None = None


NO_DEFAULT_CHANGE = DefaultChange()


class Expected(NamedTuple):
    """What is expected in a pool.

    Args:
        names: These names.
        patterns: The names that match one of these patterns.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @property
    def subjects(self) -> tuple[str, ...]:
        """The names and the patterns."""
        return (*self.names, *self.patterns)


NOTHING_EXPECTED = Expected()


class NamedPool(NamedTuple):
    """A pool of exactly these resources.

    Of those that ``properties`` has, that and nothing else is to be so; the others stay what they
    are. ``expected`` replaces all that is expected in the pool; None leaves it.
    """

    type: str
    names: tuple[str, ...]
    settings: SettingsChange = NO_CHANGE
    properties: Mapping[str, Properties] = {}
    default: DefaultChange = NO_DEFAULT_CHANGE
    expected: Expected | None = None


class CountedPool(NamedTuple):
    """A pool of at least and at most so many resources, whatever their names.

    Of all of them ``properties`` and nothing else is to be so; None: they stay what they are.
    ``expected`` is as in `NamedPool`.
    """

    type: str
    at_least: int
    at_most: int
    settings: SettingsChange = NO_CHANGE
    properties: Properties | None = None
    default: DefaultChange = NO_DEFAULT_CHANGE
    expected: Expected | None = None


Definition = Union[NamedPool, CountedPool]


class Definitions(NamedTuple):
    """What a file says.

    Args:
        pools: Those that it defines.
        notes: Lines about what in it means nothing here, in its order.
        places: Where each name is listed: the file and, if that is known, the line.
    """

    pools: tuple[Definition, ...]
    notes: tuple[str, ...] = ()
    places: Mapping[str, str] = {}


_Value = TypeVar("_Value")
_PROPERTIES = ("properties", "userdata")
_DEFAULT = ("default", "grace")
# Ours, which Boskos passes over.
_SETTINGS = ("pace", "burst", "aging")
_READ = (
    *("type", "state", "names", "min-count", "max-count"),
    *(*_SETTINGS, *_PROPERTIES, *_DEFAULT, "expect"),
)
_READ_OVER = ("lifespan", "config", "needs")
_AS_JSON = "yq -o json FILE | leasectl pool apply -f -"
_PACED = PoolSettings(pace_seconds=1.0)
_BOOLEANS = {"true": True, "false": False}
_COUNT = re.compile(r"0|[1-9][0-9]*", re.ASCII)


def parse_definitions(text: str, where: str) -> Definitions:
    """Read a file's text, YAML or JSON.

    Args:
        text: All of it.
        where: What messages call the file.

    Raises:
        InvalidRequest: It isn't of this form; says in which line, except for JSON.
        NotSupported: It is YAML, and nothing here can read that.
    """
    return _Reader(where).read(parse_document(text, where, as_json=_AS_JSON))


class _Node(NamedTuple):
    """A part of a document, and what messages call it: the file, and the path in that."""

    part: Part
    where: str
    path: str

    def at(self, part: Part) -> _Node:
        """Return the place of another part that messages call the same."""
        return self._replace(part=part)

    def refused(self, what: str) -> InvalidRequest:
        return refusal(self.where, self.part.line, f"{self.path}{what}")

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Give an error of the check inside this place."""
        try:
            yield
        except InvalidRequest as error:
            raise self.refused(f": {error}") from None

    def scalar(self) -> Scalar:
        if not isinstance(self.part, Scalar) or self.part.is_null:
            raise self.refused(" must be a word")
        return self.part

    def read(self, check: Callable[[str], _Value]) -> _Value:
        text = self.scalar().text
        with self.refusing():
            return check(text)

    def whole_number(self, longest: int) -> int:
        value = self.scalar()
        if not value.plain or not _COUNT.fullmatch(value.text) or len(value.text) > longest:
            raise self.refused(f': "{printable(value.text)}" is not a whole number')
        return int(value.text)

    def items(self, of_what: str = "") -> list[_Node]:
        if not isinstance(self.part, Items):
            raise self.refused(f" must be a list{of_what}")
        parts = enumerate(self.part.items)
        return [_Node(part, self.where, f"{self.path}[{n}]") for n, part in parts]

    def fields(self, known: tuple[str, ...], otherwise: str) -> dict[str, _Node]:
        """Return the fields of a mapping, without those that are null."""
        if not isinstance(self.part, Fields):
            raise self.refused(otherwise)
        for key, _ in self.part.pairs:
            if key.text not in known:
                raise self.at(key).refused(
                    f': "{printable(key.text)}" is unknown in a list of Boskos resources; '
                    f"known: {', '.join(known)}"
                )
        return {
            key.text: _Node(value, self.where, f"{self.path}.{key.text}")
            for key, value in self.part.pairs
            if not (isinstance(value, Scalar) and value.is_null)
        }


@dataclass
class _Pool:
    """What the entries of one pool say so far."""

    type: str
    counts: tuple[int, int] | None = None  # else it is defined by names
    names: list[str] = field(default_factory=list)
    settings: SettingsChange = NO_CHANGE
    by_name: dict[str, Properties] = field(default_factory=dict)
    of_all: Properties | None = None
    default: DefaultChange = NO_DEFAULT_CHANGE
    expected: Expected | None = None

    def definition(self) -> Definition:
        rest = self.default, self.expected
        if self.counts is not None:
            return CountedPool(self.type, *self.counts, self.settings, self.of_all, *rest)
        return NamedPool(self.type, tuple(self.names), self.settings, self.by_name, *rest)


class _Reader:
    """Reads one document."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._pools: dict[str, _Pool] = {}
        self._expected_in: dict[str, str] = {}  # the pool of each name or pattern
        self._seen: dict[str, tuple[str, int | None]] = {}
        self._total = 0
        self._notes: dict[str, dict[int | None, None]] = {}  # the lines of each

    def read(self, document: Part) -> Definitions:
        if not isinstance(document, Fields):
            raise refusal(self._where, document.line, 'a mapping with "resources" is expected')
        top = _Node(document, self._where, "the file").fields(("resources",), "")
        entries = top["resources"].part if "resources" in top else document
        if not isinstance(entries, Items) or not entries.items:
            what = '"resources" must be a list of at least one entry'
            raise refusal(self._where, entries.line, what)
        for entry in _Node(entries, self._where, "resources").items():
            self._entry(entry)
        places = {
            name: f"{self._where}:{line}" if line else self._where
            for name, (_, line) in self._seen.items()
        }
        pools = tuple(pool.definition() for pool in self._pools.values())
        return Definitions(pools, self._notes_in_order(), places)

    def _entry(self, entry: _Node) -> None:
        fields = entry.fields((*_READ, *_READ_OVER), " must be a mapping with a type")
        if "type" not in fields:
            raise entry.refused(": type is missing")
        value = fields["type"].scalar()
        with entry.at(value).refusing():
            pool_type = check_own_type(value.text)
        self._note_what_is_read_over(entry, fields)
        counts = [key for key in ("min-count", "max-count") if key in fields]
        names = fields.get("names")
        if names is not None and isinstance(names.part, Items) and not names.part.items:
            names = None
        if names is not None and counts:
            raise entry.at(fields[counts[0]].part).refused(f": use either names or {counts[0]}")
        if names is None and not counts:
            raise entry.refused(
                f': pool "{pool_type}" has neither names nor max-count; to delete a pool: '
                f"leasectl pool delete {pool_type}"
            )
        known = self._pools.get(pool_type)
        if known is not None and (counts or known.counts is not None):
            what = f'pool "{pool_type}" has several entries; then each must have names'
            raise entry.refused(f": {what}, not min-count or max-count")
        pool = self._pools.setdefault(pool_type, _Pool(pool_type))
        self._add_settings(pool, fields, entry)
        self._add_default(pool, fields, entry)
        if "expect" in fields:
            self._add_expected(pool, fields["expect"])
        added = None if names is None else self._add_names(pool, names)
        self._add_properties(pool, added, fields)
        if names is None:
            pool.counts = self._counts(entry, fields)

    def _add_names(self, pool: _Pool, names: _Node) -> Sequence[str]:
        """Take in the names of an entry, which are returned."""
        added = []
        for item in names.items():
            name = item.read(check_own_name)
            if name in self._seen:
                first_type, line = self._seen[name]
                there = f" in line {line}" if line else ""
                raise item.refused(f': "{name}" is already in pool "{first_type}"{there}')
            self._seen[name] = (pool.type, item.part.line)
            added.append(name)
        self._count_in(len(added), names.part)
        pool.names += added
        return added

    def _add_settings(self, pool: _Pool, fields: Mapping[str, _Node], entry: _Node) -> None:
        """Take in how a pool is to grant; several entries of one pool may each say some of it."""
        said: dict[str, Any] = pool.settings._asdict()
        for key in (each for each in _SETTINGS if each in fields):
            name = key if key == "burst" else f"{key}_seconds"
            node = fields[key]
            of_entry = entry.at(node.part)
            if said[name] is not None:
                raise of_entry.refused(f': {key} of pool "{pool.type}" is given twice')
            said[name] = node.whole_number(9) if key == "burst" else node.read(parse_duration)
            with of_entry.refusing():
                # Whether it goes with what the pool has is seen later.
                changed(_PACED, SettingsChange(**{name: said[name]}))
        pool.settings = SettingsChange(**said)

    def _add_default(self, pool: _Pool, fields: Mapping[str, _Node], entry: _Node) -> None:
        """Take in whether a pool is to be the default; one entry says that, of one pool."""
        given = [fields[key] for key in _DEFAULT if key in fields]
        if not given:
            return
        first = entry.at(given[0].part)
        if pool.default != NO_DEFAULT_CHANGE:
            raise first.refused(f': default of pool "{pool.type}" is given twice')
        is_default = grace_seconds = None
        if "default" in fields:
            part = fields["default"].part
            if not isinstance(part, Scalar) or not part.plain or part.text not in _BOOLEANS:
                raise fields["default"].refused(" must be true or false")
            is_default = _BOOLEANS[part.text]
        if "grace" in fields:
            grace = fields["grace"]
            if not is_default:
                what = "grace applies to the default pool only; add default: true"
                raise entry.at(grace.part).refused(f": {what}")
            grace_seconds = grace.read(_read_grace)
        others = [each for each, other in self._pools.items() if other.default.is_default]
        if is_default and others:
            raise first.refused(
                f': pool "{others[0]}" has default: true already; remove one of them'
            )
        pool.default = DefaultChange(is_default, grace_seconds)

    def _add_expected(self, pool: _Pool, node: _Node) -> None:
        """Read the names and patterns that an entry expects in its pool."""
        items = node.items(" of names and patterns")
        if pool.expected is not None:
            raise node.refused(f' of pool "{pool.type}" is given twice')
        names, patterns = list[str](), list[str]()
        for item in items:
            text = item.scalar().text
            is_pattern = "*" in text or "?" in text
            subject = item.read(check_pattern if is_pattern else check_own_name)
            if subject in self._expected_in:
                other = self._expected_in[subject]
                raise item.refused(f': "{subject}" is already expected in pool "{other}"')
            self._expected_in[subject] = pool.type
            (patterns if is_pattern else names).append(subject)
        self._count_in(len(items), node.part)
        pool.expected = Expected(tuple(names), tuple(patterns))

    def _add_properties(
        self, pool: _Pool, names: Sequence[str] | None, fields: Mapping[str, _Node]
    ) -> None:
        """Read the properties of an entry: of all its resources, and of single names."""
        given = [fields[each] for each in _PROPERTIES if each in fields]
        of_all: dict[str, str] = {}
        of_one: dict[str, dict[str, str]] = {}
        for node in given:
            if not isinstance(node.part, Fields):
                raise node.refused(" must be a mapping")
            for key, value in node.part.pairs:
                if not isinstance(value, Fields) or node is not fields.get("properties"):
                    _put(of_all, key, node.at(value))
                    continue
                if names is None:
                    what = "an entry without names can't give properties of single resources"
                    raise node.at(value).refused(f": {what}")
                if key.text not in names:
                    said = f"\"{printable(key.text)}\" isn't among the entry's names"
                    raise node.at(key).refused(f": {said}")
                own = of_one.setdefault(key.text, {})
                for own_key, own_value in value.pairs:
                    _put(own, own_key, _Node(own_value, self._where, f"{node.path}.{key.text}"))
            with node.refusing():
                check_count("there are", len(of_all))
                for name, own in of_one.items():
                    check_count(f'"{name}" has', len({**of_all, **own}))
        if given and names is None:
            pool.of_all = tuple(sorted(of_all.items()))
        for name in names or () if given else ():
            pool.by_name[name] = tuple(sorted({**of_all, **of_one.get(name, {})}.items()))

    def _counts(self, entry: _Node, fields: Mapping[str, _Node]) -> tuple[int, int]:
        if "max-count" not in fields:
            raise entry.refused(": min-count needs max-count, the largest number of resources")
        most = _number(fields["max-count"], 1, 999_999_999)  # nothing is made up to that
        least = _number(fields["min-count"], 0, MOST_AT_ONCE) if "min-count" in fields else 0
        if least > most:
            raise entry.refused(f": min-count {least} is more than max-count {most}")
        self._count_in(least, entry.part)
        if least < most:
            self._note(
                fields["max-count"].part,
                "resources are not created on demand, so max-count only limits the pool; add "
                "them with leasectl pool add",
            )
        return least, most

    def _count_in(self, count: int, part: Part) -> None:
        self._total += count
        if self._total > MOST_AT_ONCE:
            what = f"more than {MOST_AT_ONCE} resources in one file; split it"
            raise refusal(self._where, part.line, what)

    def _note_what_is_read_over(self, entry: _Node, fields: Mapping[str, _Node]) -> None:
        assert isinstance(entry.part, Fields)
        for key, _ in entry.part.pairs:
            if key.text in _READ_OVER and key.text in fields:
                self._note(key, f"{key.text} is ignored: leasectl has no such setting")
        if "state" in fields:
            state = fields["state"]._replace(path="state").scalar()
            if state.text != "free":
                said = printable(state.text)
                self._note(state, f"state {said} is ignored: new resources are free at once")

    def _note(self, part: Part, text: str) -> None:
        self._notes.setdefault(text, {})[part.line] = None

    def _notes_in_order(self) -> tuple[str, ...]:
        """One line for all that is the same, in the order of their first lines."""
        found = sorted(self._notes.items(), key=lambda each: next(iter(each[1])) or 0)
        return tuple(self._noted(text, *lines) for text, lines in found)

    def _noted(self, text: str, first: int | None, *others: int | None) -> str:
        lines = "lines" if len(others) > 1 else "line"
        also = f" (also in {lines} {listed([str(line) for line in others])})" if others else ""
        return str(refusal(self._where, first, text + also))


def _read_grace(text: str) -> float:
    seconds = parse_duration(text)
    check_grace(seconds)
    return seconds


def _number(node: _Node, least: int, most: int) -> int:
    number = node.whole_number(1000)
    if not least <= number <= most:
        said = printable(node.scalar().text)
        raise node.refused(f" {said}: use a number from {least} to {most}")
    return number


def _put(into: dict[str, str], key: Scalar, value: _Node) -> None:
    part = value.part
    if not isinstance(part, Scalar) or part.is_null:
        raise value.refused(f".{printable(key.text)} must be a word")
    at_key = value.at(key)
    if key.text in into:
        raise at_key.refused(f': "{printable(key.text)}" is given twice')
    with at_key.refusing():
        into[check_key(key.text)] = check_value(key.text, part.text)
