"""Read pool files, also Boskos' resource lists."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, Union

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


KEYS = ("properties", "userdata")

Refuse = Callable[[Part, str], InvalidRequest]


class EntryProperties:
    """The properties that one entry speaks of.

    Args:
        fields: Of the entry.
        names: The names that it lists; None where it lists none.
        path: What messages call the entry.
        refuse: Makes the error that says what is wrong where.
    """

    def __init__(
        self,
        fields: Mapping[str, Part],
        names: tuple[str, ...] | None,
        path: str,
        refuse: Refuse,
    ) -> None:
        self._names = names
        self._path = path
        self._refuse = refuse
        self._of_all: dict[str, str] = {}
        self._of_one: dict[str, dict[str, str]] = {}
        for key in (each for each in KEYS if each in fields):
            self._read(key, fields[key])

    @property
    def of_all(self) -> Properties:
        """What is so of all resources, however many there come to be."""
        return tuple(sorted(self._of_all.items()))

    def by_name(self) -> dict[str, Properties]:
        """What is so of each resource that the entry lists."""
        return {
            name: tuple(sorted({**self._of_all, **self._of_one.get(name, {})}.items()))
            for name in self._names or ()
        }

    def _read(self, what: str, part: Part) -> None:
        path = f"{self._path}.{what}"
        if not isinstance(part, Fields):
            raise self._refuse(part, f"{path} must be a mapping")
        for key, value in part.pairs:
            if isinstance(value, Fields) and what == "properties":
                self._read_named(key, value, path)
            else:
                self._put(self._of_all, key, value, path)
        for name, own in {"": {}, **self._of_one}.items():
            self._check(part, path, {**self._of_all, **own}, name)

    def _read_named(self, name: Scalar, part: Fields, path: str) -> None:
        if self._names is None:
            self._fail(
                part, f"{path}: an entry without names can't give properties of single resources"
            )
        if name.text not in self._names:
            self._fail(name, f'{path}: "{printable(name.text)}" is none of the entry\'s names')
        own = self._of_one.setdefault(name.text, {})
        for key, value in part.pairs:
            self._put(own, key, value, f"{path}.{name.text}")

    def _put(self, into: dict[str, str], key: Scalar, value: Part, path: str) -> None:
        if not isinstance(value, Scalar) or value.is_null:
            self._fail(value, f"{path}.{printable(key.text)} must be a word")
        if key.text in into:
            self._fail(key, f'{path}: "{printable(key.text)}" is there twice')
        try:
            into[check_key(key.text)] = check_value(key.text, value.text)
        except InvalidRequest as error:
            self._fail(key, f"{path}: {error}")

    def _check(self, part: Part, path: str, together: dict[str, str], name: str) -> None:
        try:
            check_count(f'"{name}" has' if name else "there are", len(together))
        except InvalidRequest as error:
            self._fail(part, f"{path}: {error}")

    def _fail(self, part: Part, what: str) -> NoReturn:
        raise self._refuse(part, what) from None


DEFAULT_KEYS = ("default", "grace")
_BOOLEANS = {"true": True, "false": False}


def read_default(fields: Mapping[str, Part], path: str, refuse: Refuse) -> DefaultChange:
    """Read it of the fields of an entry.

    Args:
        fields: Of the entry.
        path: What messages call the entry.
        refuse: Makes the error that says what is wrong where.

    Raises:
        InvalidRequest: It can't be meant.
    """
    is_default = _boolean(fields["default"], path, refuse) if "default" in fields else None
    if "grace" not in fields:
        return DefaultChange(is_default)
    if not is_default:
        raise refuse(
            fields["grace"], f"{path}: grace applies to the default pool only; add default: true"
        )
    return DefaultChange(is_default, _grace(fields["grace"], path, refuse))


def _boolean(part: Part, path: str, refuse: Refuse) -> bool:
    if not isinstance(part, Scalar) or not part.plain or part.text not in _BOOLEANS:
        raise refuse(part, f"{path}.default must be true or false")
    return _BOOLEANS[part.text]


def _grace(part: Part, path: str, refuse: Refuse) -> float:
    if not isinstance(part, Scalar):
        raise refuse(part, f"{path}.grace must be a word")
    try:
        seconds = parse_duration(part.text)
        check_grace(seconds)
    except InvalidRequest as error:
        raise refuse(part, f"{path}.grace: {error}") from None
    return seconds


# Ours, which Boskos passes over.
_SETTINGS = ("pace", "burst", "aging")
_READ = (
    *("type", "state", "names", "min-count", "max-count"),
    *(*_SETTINGS, *KEYS, *DEFAULT_KEYS, "expect"),
)
_READ_OVER = ("lifespan", "config", "needs")
_AS_JSON = "yq -o json FILE | leasectl pool apply -f -"
_PACED = PoolSettings(pace_seconds=1.0)
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


class _Reader:
    """Reads one document, and remembers what more than one of its entries may say."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, list[str]] = {}
        self._counted: dict[str, CountedPool] = {}
        self._order: dict[str, None] = {}
        self._settings: dict[str, SettingsChange] = {}
        self._properties: dict[str, dict[str, Properties]] = {}
        self._defaults: dict[str, DefaultChange] = {}
        self._expected: dict[str, Expected] = {}
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
        pools: list[Definition] = [
            self._counted[each]._replace(
                settings=self._settings[each],
                default=self._defaults[each],
                expected=self._expected.get(each),
            )
            if each in self._counted
            else NamedPool(
                each,
                tuple(self._named[each]),
                self._settings[each],
                self._properties[each],
                self._defaults[each],
                self._expected.get(each),
            )
            for each in self._order
        ]
        places = {
            name: f"{self._where}:{line}" if line else self._where
            for name, (_, line) in self._seen.items()
        }
        return Definitions(tuple(pools), self._notes_in_order(), places)

    def _entry(self, entry: Part, path: str) -> None:
        if not isinstance(entry, Fields):
            raise self._refused(entry, f"{path} must be a mapping with a type")
        fields = self._fields(entry, (*_READ, *_READ_OVER), path)
        pool_type = self._type(entry, fields, path)
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
        if pool_type in self._counted or (counts and pool_type in self._order):
            raise self._refused(
                entry, f'{path}: pool "{pool_type}" is there twice, and not by names alone'
            )
        self._order[pool_type] = None
        self._add_settings(pool_type, fields, path)
        self._add_default(pool_type, fields, path)
        if "expect" in fields:
            self._add_expected(pool_type, fields["expect"], path)
        listed = None if names is None else self._add_names(pool_type, names, path)
        properties = None
        if any(key in fields for key in KEYS):
            properties = EntryProperties(fields, listed, path, self._refused)
        if listed is None:
            self._counted[pool_type] = self._counts(pool_type, entry, fields, path)._replace(
                properties=None if properties is None else properties.of_all
            )
        else:
            said = self._properties.setdefault(pool_type, {})
            said.update({} if properties is None else properties.by_name())

    def _type(self, entry: Fields, fields: Mapping[str, Part], path: str) -> str:
        if "type" not in fields:
            raise self._refused(entry, f"{path}: type is missing")
        value = self._scalar(fields["type"], f"{path}.type")
        try:
            return check_own_type(value.text)
        except InvalidRequest as error:
            raise self._refused(value, f"{path}: {error}") from None

    def _add_names(self, pool_type: str, names: Part, path: str) -> tuple[str, ...]:
        """Take in the names of an entry, which are returned."""
        if not isinstance(names, Items):
            raise self._refused(names, f"{path}.names must be a list")
        mine = self._named.setdefault(pool_type, [])
        for number, item in enumerate(names.items):
            value = self._scalar(item, f"{path}.names[{number}]")
            try:
                name = check_own_name(value.text)
            except InvalidRequest as error:
                raise self._refused(value, f"{path}.names[{number}]: {error}") from None
            if name in self._seen:
                first_type, line = self._seen[name]
                at = f" in line {line}" if line else ""
                raise self._refused(
                    value,
                    f'{path}.names[{number}]: "{name}" is already in pool "{first_type}"{at}',
                )
            self._seen[name] = (pool_type, value.line)
            mine.append(name)
        self._count_in(len(names.items), names)
        return tuple(mine[len(mine) - len(names.items) :])

    def _add_settings(self, pool_type: str, fields: Mapping[str, Part], path: str) -> None:
        """Take in how a pool is to grant; several entries of one pool may each say some of it."""
        said: dict[str, Any] = self._settings.get(pool_type, NO_CHANGE)._asdict()
        for key in (each for each in _SETTINGS if each in fields):
            name = key if key == "burst" else f"{key}_seconds"
            if said[name] is not None:
                raise self._refused(
                    fields[key], f'{path}: {key} of pool "{pool_type}" is there twice'
                )
            said[name] = self._setting(key, self._scalar(fields[key], f"{path}.{key}"), path)
            try:
                # Whether it goes with what the pool has is seen later.
                changed(_PACED, SettingsChange(**{name: said[name]}))
            except InvalidRequest as error:
                raise self._refused(fields[key], f"{path}: {error}") from None
        self._settings[pool_type] = SettingsChange(**said)

    def _add_default(self, pool_type: str, fields: Mapping[str, Part], path: str) -> None:
        """Take in whether a pool is to be the default; one entry says that, of one pool."""
        before = self._defaults.setdefault(pool_type, NO_DEFAULT_CHANGE)
        given = [fields[key] for key in DEFAULT_KEYS if key in fields]
        if not given:
            return
        if before != NO_DEFAULT_CHANGE:
            raise self._refused(given[0], f'{path}: default of pool "{pool_type}" is there twice')
        change = read_default(fields, path, self._refused)
        others = [each for each, other in self._defaults.items() if other.is_default]
        if change.is_default and others:
            raise self._refused(
                given[0], f'{path}: pool "{others[0]}" is the default already; one can be'
            )
        self._defaults[pool_type] = change

    def _add_expected(self, pool_type: str, part: Part, path: str) -> None:
        """Read the names and patterns that an entry expects in its pool."""
        path = f"{path}.expect"
        if not isinstance(part, Items):
            raise self._refused(part, f"{path} must be a list of names and patterns")
        if pool_type in self._expected:
            raise self._refused(part, f'{path} of pool "{pool_type}" is there twice')
        names, patterns = list[str](), list[str]()
        for number, item in enumerate(part.items):
            value = self._scalar(item, f"{path}[{number}]")
            is_pattern = "*" in value.text or "?" in value.text
            try:
                subject = check_pattern(value.text) if is_pattern else check_own_name(value.text)
            except InvalidRequest as error:
                raise self._refused(value, f"{path}[{number}]: {error}") from None
            if subject in self._expected_in:
                raise self._refused(
                    value,
                    f'{path}[{number}]: "{subject}" is already expected in pool '
                    f'"{self._expected_in[subject]}"',
                )
            self._expected_in[subject] = pool_type
            (patterns if is_pattern else names).append(subject)
        self._count_in(len(part.items), part)
        self._expected[pool_type] = Expected(tuple(names), tuple(patterns))

    def _setting(self, key: str, value: Scalar, path: str) -> float | int:
        if key == "burst":
            if not value.plain or not _COUNT.fullmatch(value.text) or len(value.text) > 9:
                said = printable(value.text)
                raise self._refused(value, f'{path}.burst: "{said}" is not a whole number')
            return int(value.text)
        try:
            return parse_duration(value.text)
        except InvalidRequest as error:
            raise self._refused(value, f"{path}.{key}: {error}") from None

    def _counts(
        self, pool_type: str, entry: Fields, fields: Mapping[str, Part], path: str
    ) -> CountedPool:
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
        return CountedPool(pool_type, least, most)

    def _number(self, fields: Mapping[str, Part], key: str, path: str) -> int:
        value = self._scalar(fields[key], f"{path}.{key}")
        said = printable(value.text)
        if not value.plain or not _COUNT.fullmatch(value.text):
            raise self._refused(value, f'{path}.{key}: "{said}" is not a whole number')
        least, most = _RANGES[key]
        if len(value.text) > len(str(most)) or not least <= int(value.text) <= most:
            raise self._refused(value, f"{path}.{key} {said}: it can be {least} to {most}")
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

    def _refused(self, part: Part, what: str) -> InvalidRequest:
        return refusal(self._where, part.line, what)
