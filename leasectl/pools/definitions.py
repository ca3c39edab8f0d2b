"""Read pool files, also Boskos' resource lists."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Union

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
# What each can be; nothing is made up to max-count.
_RANGES = {"min-count": (0, MOST_AT_ONCE), "max-count": (1, 999_999_999)}


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


@dataclass
class _Pool:
    """What the entries of one pool say so far."""

    counts: tuple[int, int] | None = None  # else it is defined by names
    names: list[str] = field(default_factory=list)
    settings: SettingsChange = NO_CHANGE
    by_name: dict[str, Properties] = field(default_factory=dict)
    of_all: Properties | None = None
    default: DefaultChange = NO_DEFAULT_CHANGE
    expected: Expected | None = None

    def definition(self, pool_type: str) -> Definition:
        rest = self.default, self.expected
        if self.counts is not None:
            return CountedPool(pool_type, *self.counts, self.settings, self.of_all, *rest)
        return NamedPool(pool_type, tuple(self.names), self.settings, self.by_name, *rest)


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
            raise self._refused(document, 'a mapping with "resources" is expected')
        top = self._fields(document, ("resources",), "the file")
        entries = top.get("resources")
        if not isinstance(entries, Items) or not entries.items:
            at = document if entries is None else entries
            raise self._refused(at, '"resources" must be a list of at least one entry')
        for number, entry in enumerate(entries.items):
            self._entry(entry, f"resources[{number}]")
        pools = tuple(pool.definition(pool_type) for pool_type, pool in self._pools.items())
        places = {
            name: f"{self._where}:{line}" if line else self._where
            for name, (_, line) in self._seen.items()
        }
        return Definitions(pools, self._notes_in_order(), places)

    def _entry(self, entry: Part, path: str) -> None:
        if not isinstance(entry, Fields):
            raise self._refused(entry, f"{path} must be a mapping with a type")
        fields = self._fields(entry, (*_READ, *_READ_OVER), path)
        if "type" not in fields:
            raise self._refused(entry, f"{path}: type is missing")
        value = self._scalar(fields["type"], f"{path}.type")
        with self._refusing(value, path):
            pool_type = check_own_type(value.text)
        self._note_what_is_read_over(entry, fields)
        counts = [key for key in ("min-count", "max-count") if key in fields]
        names = fields.get("names")
        if isinstance(names, Items) and not names.items:
            names = None
        if names is not None and counts:
            raise self._refused(fields[counts[0]], f"{path}: either names or {counts[0]}")
        if names is None and not counts:
            raise self._refused(
                entry,
                f'{path}: pool "{pool_type}" has neither names nor max-count; to delete a pool: '
                f"leasectl pool delete {pool_type}",
            )
        known = self._pools.get(pool_type)
        if known is not None and (counts or known.counts is not None):
            raise self._refused(
                entry, f'{path}: pool "{pool_type}" is there twice, and not by names alone'
            )
        pool = self._pools.setdefault(pool_type, _Pool())
        self._add_settings(pool_type, pool, fields, path)
        self._add_default(pool_type, pool, fields, path)
        if "expect" in fields:
            self._add_expected(pool_type, pool, fields["expect"], f"{path}.expect")
        added = None if names is None else self._add_names(pool_type, pool, names, path)
        if any(key in fields for key in _PROPERTIES):
            self._add_properties(pool, added, fields, path)
        if names is None:
            pool.counts = self._counts(entry, fields, path)

    def _add_names(self, pool_type: str, pool: _Pool, names: Part, path: str) -> Sequence[str]:
        """Take in the names of an entry, which are returned."""
        if not isinstance(names, Items):
            raise self._refused(names, f"{path}.names must be a list")
        added = []
        for number, item in enumerate(names.items):
            at = f"{path}.names[{number}]"
            value = self._scalar(item, at)
            with self._refusing(value, at):
                name = check_own_name(value.text)
            if name in self._seen:
                first_type, line = self._seen[name]
                there = f" in line {line}" if line else ""
                raise self._refused(
                    value, f'{at}: "{name}" is already in pool "{first_type}"{there}'
                )
            self._seen[name] = (pool_type, value.line)
            added.append(name)
        self._count_in(len(added), names)
        pool.names += added
        return added

    def _add_settings(
        self, pool_type: str, pool: _Pool, fields: Mapping[str, Part], path: str
    ) -> None:
        """Take in how a pool is to grant; several entries of one pool may each say some of it."""
        said: dict[str, Any] = pool.settings._asdict()
        for key in (each for each in _SETTINGS if each in fields):
            name = key if key == "burst" else f"{key}_seconds"
            if said[name] is not None:
                raise self._refused(
                    fields[key], f'{path}: {key} of pool "{pool_type}" is there twice'
                )
            said[name] = self._setting(key, self._scalar(fields[key], f"{path}.{key}"), path)
            with self._refusing(fields[key], path):
                # Whether it goes with what the pool has is seen later.
                changed(_PACED, SettingsChange(**{name: said[name]}))
        pool.settings = SettingsChange(**said)

    def _setting(self, key: str, value: Scalar, path: str) -> float | int:
        if key == "burst":
            return self._whole_number(value, f"{path}.burst", longest=9)
        with self._refusing(value, f"{path}.{key}"):
            return parse_duration(value.text)

    def _add_default(
        self, pool_type: str, pool: _Pool, fields: Mapping[str, Part], path: str
    ) -> None:
        """Take in whether a pool is to be the default; one entry says that, of one pool."""
        given = [fields[key] for key in _DEFAULT if key in fields]
        if not given:
            return
        if pool.default != NO_DEFAULT_CHANGE:
            raise self._refused(given[0], f'{path}: default of pool "{pool_type}" is there twice')
        is_default = grace_seconds = None
        if "default" in fields:
            part = fields["default"]
            if not isinstance(part, Scalar) or not part.plain or part.text not in _BOOLEANS:
                raise self._refused(part, f"{path}.default must be true or false")
            is_default = _BOOLEANS[part.text]
        if "grace" in fields:
            part = fields["grace"]
            if not is_default:
                what = "grace applies to the default pool only; add default: true"
                raise self._refused(part, f"{path}: {what}")
            if not isinstance(part, Scalar):
                raise self._refused(part, f"{path}.grace must be a word")
            with self._refusing(part, f"{path}.grace"):
                grace_seconds = parse_duration(part.text)
                check_grace(grace_seconds)
        others = [each for each, other in self._pools.items() if other.default.is_default]
        if is_default and others:
            raise self._refused(
                given[0], f'{path}: pool "{others[0]}" is the default already; one can be'
            )
        pool.default = DefaultChange(is_default, grace_seconds)

    def _add_expected(self, pool_type: str, pool: _Pool, part: Part, path: str) -> None:
        """Read the names and patterns that an entry expects in its pool."""
        if not isinstance(part, Items):
            raise self._refused(part, f"{path} must be a list of names and patterns")
        if pool.expected is not None:
            raise self._refused(part, f'{path} of pool "{pool_type}" is there twice')
        names, patterns = list[str](), list[str]()
        for number, item in enumerate(part.items):
            at = f"{path}[{number}]"
            value = self._scalar(item, at)
            is_pattern = "*" in value.text or "?" in value.text
            with self._refusing(value, at):
                subject = check_pattern(value.text) if is_pattern else check_own_name(value.text)
            if subject in self._expected_in:
                other = self._expected_in[subject]
                raise self._refused(
                    value, f'{at}: "{subject}" is already expected in pool "{other}"'
                )
            self._expected_in[subject] = pool_type
            (patterns if is_pattern else names).append(subject)
        self._count_in(len(part.items), part)
        pool.expected = Expected(tuple(names), tuple(patterns))

    def _add_properties(
        self, pool: _Pool, names: Sequence[str] | None, fields: Mapping[str, Part], path: str
    ) -> None:
        """Read the properties of an entry: of all its resources, and of single names."""
        of_all: dict[str, str] = {}
        of_one: dict[str, dict[str, str]] = {}
        for what in (each for each in _PROPERTIES if each in fields):
            part, at = fields[what], f"{path}.{what}"
            if not isinstance(part, Fields):
                raise self._refused(part, f"{at} must be a mapping")
            for key, value in part.pairs:
                if not (isinstance(value, Fields) and what == "properties"):
                    self._put(of_all, key, value, at)
                    continue
                if names is None:
                    raise self._refused(
                        value,
                        f"{at}: an entry without names can't give properties of single resources",
                    )
                if key.text not in names:
                    said = f'"{printable(key.text)}" is none of the entry\'s names'
                    raise self._refused(key, f"{at}: {said}")
                own = of_one.setdefault(key.text, {})
                for own_key, own_value in value.pairs:
                    self._put(own, own_key, own_value, f"{at}.{key.text}")
            with self._refusing(part, at):
                check_count("there are", len(of_all))
                for name, own in of_one.items():
                    check_count(f'"{name}" has', len({**of_all, **own}))
        if names is None:
            pool.of_all = tuple(sorted(of_all.items()))
        for name in names or ():
            pool.by_name[name] = tuple(sorted({**of_all, **of_one.get(name, {})}.items()))

    def _put(self, into: dict[str, str], key: Scalar, value: Part, path: str) -> None:
        if not isinstance(value, Scalar) or value.is_null:
            raise self._refused(value, f"{path}.{printable(key.text)} must be a word")
        if key.text in into:
            raise self._refused(key, f'{path}: "{printable(key.text)}" is there twice')
        with self._refusing(key, path):
            into[check_key(key.text)] = check_value(key.text, value.text)

    def _counts(self, entry: Part, fields: Mapping[str, Part], path: str) -> tuple[int, int]:
        if "max-count" not in fields:
            raise self._refused(entry, f"{path}: max-count is missing, the most that there may be")
        most = self._number(fields, "max-count", path)
        least = self._number(fields, "min-count", path) if "min-count" in fields else 0
        if least > most:
            raise self._refused(entry, f"{path}: min-count {least} is more than max-count {most}")
        self._count_in(least, entry)
        if least < most:
            self._note(
                fields["max-count"],
                "resources are not created on demand, so max-count only limits the pool; add "
                "them with leasectl pool add",
            )
        return least, most

    def _number(self, fields: Mapping[str, Part], key: str, path: str) -> int:
        value = self._scalar(fields[key], f"{path}.{key}")
        number = self._whole_number(value, f"{path}.{key}", longest=1000)
        least, most = _RANGES[key]
        if not least <= number <= most:
            said = printable(value.text)
            raise self._refused(value, f"{path}.{key} {said}: it can be {least} to {most}")
        return number

    def _whole_number(self, value: Scalar, path: str, *, longest: int) -> int:
        is_number = value.plain and _COUNT.fullmatch(value.text) and len(value.text) <= longest
        if not is_number:
            said = printable(value.text)
            raise self._refused(value, f'{path}: "{said}" is not a whole number')
        return int(value.text)

    def _count_in(self, count: int, part: Part) -> None:
        self._total += count
        if self._total > MOST_AT_ONCE:
            raise self._refused(part, f"more than {MOST_AT_ONCE} resources at a time")

    def _note_what_is_read_over(self, entry: Fields, fields: Mapping[str, Part]) -> None:
        for key, _ in entry.pairs:
            if key.text in _READ_OVER and key.text in fields:
                self._note(key, f"{key.text} is ignored: leasectl doesn't know it")
        state = fields.get("state")
        if state is None:
            return
        if not isinstance(state, Scalar):
            raise self._refused(state, "state must be a word")
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

    def _fields(self, part: Fields, known: tuple[str, ...], path: str) -> dict[str, Part]:
        """The fields of a mapping, without those that are null."""
        for key, _ in part.pairs:
            if key.text not in known:
                raise self._refused(
                    key,
                    f'{path}: "{printable(key.text)}" is unknown in a list of Boskos resources; '
                    f"known: {', '.join(known)}",
                )
        return {
            key.text: value
            for key, value in part.pairs
            if not (isinstance(value, Scalar) and value.is_null)
        }

    def _scalar(self, part: Part, path: str) -> Scalar:
        if not isinstance(part, Scalar) or part.is_null:
            raise self._refused(part, f"{path} must be a word")
        return part

    @contextlib.contextmanager
    def _refusing(self, part: Part, path: str) -> Iterator[None]:
        """Give an error of the check inside the place of the part that it is about."""
        try:
            yield
        except InvalidRequest as error:
            raise self._refused(part, f"{path}: {error}") from None

    def _refused(self, part: Part, what: str) -> InvalidRequest:
        return refusal(self._where, part.line, what)
