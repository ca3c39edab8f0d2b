"""Read JSON and YAML documents, with line numbers for errors.

Only the parser of the YAML library is used, never its constructors: a tag can't make an object, an
alias refers to its anchor and copies nothing, and depth is bounded. So a document costs about as
much as its bytes do, whatever it says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from leasectl.errors import InvalidRequest, NotSupported
from leasectl.text.wording import printable

if TYPE_CHECKING:
    import yaml

DEEPEST = 100
_NULLS = ("", "~", "null", "Null", "NULL")
_TAGS = tuple(f"tag:yaml.org,2002:{each}" for each in ("str", "int", "null", "seq", "map"))


class Scalar(NamedTuple):
    """A word, as it was written; ``plain``, without quotes, it may be a number or null as well."""

    text: str
    plain: bool
    line: int | None = None

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


class Items(NamedTuple):
    """A list."""

    items: tuple[Part, ...]
    line: int | None = None


class Fields(NamedTuple):
    """A mapping, with no key twice."""

    pairs: tuple[tuple[Scalar, Part], ...]
    line: int | None = None


Part = Union[Scalar, Items, Fields]


def parse_document(text: str, where: str, *, as_json: str) -> Part:
    """Read one document: JSON, or YAML where there is a library for it.

    Args:
        text: The document.
        where: What messages call it. For JSON, only syntax errors have a line.
        as_json: The command that prints it as JSON, for users who have no library for YAML.

    Raises:
        InvalidRequest: It is neither, more than one, nested too deeply, or has a key twice.
        NotSupported: It isn't JSON, and no library here can read YAML.
    """
    not_json = refusal(where, None, "invalid JSON")
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _parse_json(text, where)
        except RecursionError:
            raise _too_deep(where, None) from None
        except ValueError as error:
            if not isinstance(error, json.JSONDecodeError):
                raise
            # YAML has braces and brackets, too.
            not_json = refusal(where, error.lineno, f"invalid JSON ({error.msg})")
    return _parse_yaml(text, where, not_json, as_json)


def refusal(where: str, line: int | None, what: str) -> InvalidRequest:
    """Say what is wrong in a document, and in which line."""
    return InvalidRequest(f"{where}:{line}: {what}" if line else f"{where}: {what}")


def _too_deep(where: str, line: int | None) -> InvalidRequest:
    return refusal(where, line, f"nested more than {DEEPEST} deep")


class _Unquoted(str):
    """What stands in JSON without quotes."""


def _parse_json(text: str, where: str) -> Part:
    def fields(pairs: list[tuple[str, Any]]) -> Fields:
        return _fields([(Scalar(k, plain=False), _from_json(v)) for k, v in pairs], where, None)

    value = json.loads(
        text,
        object_pairs_hook=fields,
        parse_int=_Unquoted,
        parse_float=_Unquoted,
        parse_constant=_Unquoted,
    )
    return _from_json(value)


def _from_json(value: Any) -> Part:
    if isinstance(value, Fields):
        return value
    if isinstance(value, list):
        return Items(tuple(_from_json(each) for each in value))
    if isinstance(value, str):
        return Scalar(str(value), plain=isinstance(value, _Unquoted))
    return Scalar({None: "null", True: "true", False: "false"}[value], plain=True)


def _parse_yaml(text: str, where: str, not_json: InvalidRequest, as_json: str) -> Part:
    try:
        import yaml
    except ImportError:
        raise NotSupported(
            f"{not_json}, and without PyYAML, as in leasectl.pyz, no YAML can be read; turn it "
            f"into JSON, as with: {as_json}"
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _compose(yaml.parse(text, Loader=loader), where)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = error.problem or error.context or "this isn't valid YAML"
        raise refusal(
            where, mark.line + 1 if mark else None, printable(said, longest=200)
        ) from None
    except (yaml.YAMLError, ValueError, OverflowError):
        found = yaml.reader.Reader.NON_PRINTABLE.search(text)
        if found is None:
            raise refusal(where, None, "this isn't valid YAML") from None
        line = text.count("\n", 0, found.start()) + 1
        said = f'character "{printable(found.group())}" can\'t be in YAML'
        raise refusal(where, line, said) from None


class _Open(NamedTuple):
    """A list or mapping whose end hasn't been seen; of a mapping, keys and values in turn."""

    start: yaml.CollectionStartEvent
    parts: list[Part]


def _compose(events: Iterable[yaml.Event], where: str) -> Part:
    """Make parts of a parser's events, without recursion: depth is up to who wrote the file."""
    import yaml

    anchored: dict[str, Part] = {}
    opened: list[_Open] = []
    documents: list[Part] = []
    for event in events:
        line = _line(event)
        anchor: str | None = getattr(event, "anchor", None)
        part: Part
        if isinstance(event, yaml.CollectionStartEvent):
            _check_tag(event.tag, where, line)
            opened.append(_Open(event, []))
            if len(opened) > DEEPEST:
                raise _too_deep(where, line)
            continue
        if isinstance(event, yaml.ScalarEvent):
            _check_tag(event.tag, where, line)
            part = Scalar(event.value, not event.style, line)
        elif isinstance(event, yaml.AliasEvent):
            if anchor not in anchored:
                raise refusal(where, line, f"no anchor &{printable(anchor or '')} before this")
            part, anchor = anchored[anchor], None
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = opened.pop()
            part, anchor = _closed(closed, where), closed.start.anchor
        elif isinstance(event, yaml.DocumentStartEvent) and documents:
            raise refusal(where, line, "a second document begins; put all into one")
        else:
            continue
        if anchor is not None:
            anchored[anchor] = part
        (opened[-1].parts if opened else documents).append(part)
    return documents[0] if documents else Scalar("", plain=True)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _closed(closed: _Open, where: str) -> Part:
    import yaml

    line = _line(closed.start)
    if isinstance(closed.start, yaml.SequenceStartEvent):
        return Items(tuple(closed.parts), line)
    return _fields(zip(closed.parts[::2], closed.parts[1::2]), where, line)


def _fields(pairs: Iterable[tuple[Part, Part]], where: str, line: int | None) -> Fields:
    return Fields(tuple(_checked(pairs, where)), line)


def _checked(pairs: Iterable[tuple[Part, Part]], where: str) -> Iterator[tuple[Scalar, Part]]:
    seen = set()
    for key, value in pairs:
        if not isinstance(key, Scalar):
            raise refusal(where, key.line, "a list or mapping can't be a key")
        if key.text in seen:
            raise refusal(where, key.line, f'"{printable(key.text)}" is given twice')
        seen.add(key.text)
        yield key, value


def _check_tag(tag: str | None, where: str, line: int) -> None:
    if tag is not None and tag not in _TAGS:
        raise refusal(where, line, f"tags such as {printable(tag)} aren't supported")
