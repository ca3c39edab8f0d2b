"""Write YAML that all YAML readers read alike.

There are several versions of YAML, and readers that follow none: they disagree about ``1e3``,
``no`` and ``0o7``. So every text is between quotes as in JSON, which is YAML too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# No reader takes these for anything else: they begin with letters, and are longer than one.
_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z/.-]+", re.ASCII)
_WORDS = frozenset(["yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])


def yaml_documents(documents: Iterable[Mapping[str, Any]]) -> str:
    """Write objects of maps, lists and plain values as YAML, one document each."""
    return "".join(f"---\n{''.join(_lines(each, ''))}" for each in documents)


def _lines(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, each in value.items():
        start = f"{indent}{_key(key)}:"
        if isinstance(each, Mapping) and each:
            yield f"{start}\n"
            yield from _lines(each, f"{indent}  ")
        elif isinstance(each, list) and any(isinstance(item, Mapping) for item in each):
            yield f"{start}\n"
            for item in each:
                yield from _item(item, indent)
        else:
            yield f"{start} {_plain(each)}\n"


def _item(value: Any, indent: str) -> Iterator[str]:
    """An entry of a list; a map begins beside its dash."""
    if isinstance(value, Mapping) and value:
        first, *others = _lines(value, f"{indent}  ")
        yield f"{indent}- {first[len(indent) + 2 :]}"
        yield from others
    else:
        yield f"{indent}- {_plain(value)}\n"


def _key(key: str) -> str:
    is_plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS
    return key if is_plain else json.dumps(key)


def _plain(value: Any) -> str:
    # JSON leaves DEL as it is, which YAML doesn't allow.
    return json.dumps(value).replace("\x7f", "\\u007f")
