"""Objects of values: parse and build them.

Of a subject all that is small is one object, an annotation for each kind of it, and each content is
another. Text is kept as it is, so that `kubectl describe lease` shows it; bytes that are none, or
would come back as others, are in base64. The object of a subject also says which contents there
are, before they are: so none is forgotten, whoever is killed.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from leasectl.engines.kubernetes.objects import names
from leasectl.engines.kubernetes.objects.bodies import Body, as_seen, micro_time, new_body
from leasectl.engines.kubernetes.objects.fields import mapping, parse_time, read_natural
from leasectl.engines.kubernetes.objects.objects import (
    BY,
    KEPT,
    SPACE,
    SUBJECT,
    VALUE_DOMAIN,
    ContentObject,
    Identity,
    Json,
    Said,
    ValuesObject,
)
from leasectl.engines.values import CONTENT, Parts, parts_of
from leasectl.text.properties import Malformed, read_json, read_optional, read_text

_LAST_TIME = 253_402_300_799.0  # of the calendar, wall clock


# Reading


def read_values(id_: Identity, raw: Json, notes: Mapping[str, Any]) -> ValuesObject:
    """Read the object of a subject; one of `MALFORMED` where it is none."""
    space, _, subject = read_text(notes[SUBJECT]).partition("/")
    if id_.name != names.object_of_values(space, subject):
        raise Malformed(f"it says that it is of {space}/{subject}")
    record = read_json(notes[KEPT])
    said = {kind: _read_said(notes, kind, each) for kind, each in record["said"].items()}
    contents = {word: _read_until(until) for word, until in record["contents"].items()}
    return ValuesObject(id_, raw, space, subject, said, contents)


def read_content(id_: Identity, raw: Json, notes: Mapping[str, Any]) -> ContentObject:
    """Read the object of a content; one of `MALFORMED` where it is none."""
    key = read_text(notes[SUBJECT])
    parts = parts_of(key)
    if parts.kind != CONTENT or id_.name != _object_of(parts):
        raise Malformed(f"it says that it is {key}")
    return ContentObject(id_, raw, key, _read_said(notes, CONTENT, read_json(notes[KEPT])))


def _read_said(notes: Mapping[str, Any], kind: str, record: Any) -> Said:
    text = read_text(notes[_annotation(kind)])
    is_text = not mapping(record).get("base64")
    content = text.encode() if is_text else b64decode(text, validate=True)
    until = _read_until(record["until"])
    return Said(content, read_natural(record["version"]), parse_time(record["written"]), until)


def _read_until(value: Any) -> float | None:
    return read_optional(parse_time, value)


# Writing


def values_body(
    seen: ValuesObject | None,
    parts: Parts,
    said: Mapping[str, Said],
    contents: Mapping[str, float | None],
) -> Body:
    """The object of a subject as it is to be.

    Args:
        seen: As it was seen; None for none.
        parts: Of a key of it.
        said: What is to be kept of it.
        contents: Which contents there are then.
    """
    body = new_body(names.object_of_values(parts.space, parts.subject), "values")
    if seen is not None:
        maker = body["metadata"]["annotations"][BY]
        body = as_seen(seen.raw)
        body["metadata"]["annotations"] = {
            key: value
            for key, value in body["metadata"]["annotations"].items()
            if not key.startswith(VALUE_DOMAIN)
        }
        body["metadata"]["annotations"][BY] = maker
    meta = body["metadata"]
    meta["labels"][SPACE] = names.label_of_type(parts.space)
    meta["annotations"][SUBJECT] = f"{parts.space}/{parts.subject}"
    records = {kind: _write_said(meta["annotations"], kind, each) for kind, each in said.items()}
    untils = {word: _time(until) for word, until in contents.items()}
    meta["annotations"][KEPT] = json.dumps({"said": records, "contents": untils})
    return body


def content_body(key: str, said: Said, seen: ContentObject | None = None) -> Body:
    """The object of a content, new or in the place of what was seen there."""
    body = new_body(_object_of(parts_of(key)), "content") if seen is None else as_seen(seen.raw)
    notes = body["metadata"]["annotations"]
    notes[SUBJECT] = key
    notes[KEPT] = json.dumps(_write_said(notes, CONTENT, said))
    return body


def object_of_content(key: str) -> str:
    """What the object of a content is called."""
    return _object_of(parts_of(key))


def _object_of(parts: Parts) -> str:
    return names.object_of_content(parts.space, parts.subject, parts.word)


def _write_said(notes: dict[str, Any], kind: str, said: Said) -> dict[str, Any]:
    """Have annotations say it; returns the record of that."""
    text = _as_text(said.content)
    notes[_annotation(kind)] = b64encode(said.content).decode() if text is None else text
    record = {
        "version": said.version,
        "written": micro_time(said.written_at),
        "until": _time(said.until),
    }
    return record if text is not None else {**record, "base64": True}


def _as_text(content: bytes) -> str | None:
    """Bytes as the text that they are, if they are one that is safe to print in a terminal."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if all(each.isprintable() or each in "\n\t" for each in text) else None


def _annotation(kind: str) -> str:
    return VALUE_DOMAIN + kind.replace("/", ".")


def _time(wall: float | None) -> str | None:
    return None if wall is None else micro_time(min(wall, _LAST_TIME))
