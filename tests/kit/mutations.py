"""Change real answers of servers into ones that no server should give."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

_LENGTH = re.compile(rb"(\r\ncontent-length: *)\d+", re.IGNORECASE)
# Written as they are: no JSON has them, or few programs expect them.
_RAW = {
    "@infinity": "Infinity",
    "@minus": "-Infinity",
    "@nan": "NaN",
    "@exponent": "1e999",
    "@large": "9" * 400,
    "@huge": "9" * 6000,
    "@deep": "[" * 50_000 + "]" * 50_000,
}
_INSTEAD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        1e300,
        "",
        "x",
        "\x1b]0;title\x07\n",
        "\ud800",
        "٣",
        "-5",
        "1e9",
    ),
    *("9" * 400, "9" * 6000, "AP8=", [], {}, [None], [[]], {"x": 1}, "x" * 100_000, *_RAW),
)
_BODIES = ("", "null", "7", "[]", "[1]", '"x"', "{}", "<html>no</html>", "\x1b[31m", *_RAW.values())


def mutated_json(text: str, chance: Random) -> str:
    """Change one or two things in a JSON text, or all of it."""
    kind = chance.randrange(12)
    if kind == 0:
        return chance.choice(_BODIES)
    if kind == 1:
        return text[: chance.randrange(len(text) + 1)]
    try:
        root = [json.loads(text)]
    except ValueError:
        return chance.choice(_BODIES)
    for _ in range(chance.choice((1, 1, 2))):
        _mutate(root, chance)
    said = json.dumps(root[0], separators=(",", ":")) if root else ""
    for word, raw in _RAW.items():
        said = said.replace(f'"{word}"', raw)
    return said


def _mutate(root: list[Any], chance: Random) -> None:
    places = list(_places(root))
    if not places:
        return
    container, key = chance.choice(places)
    how = chance.randrange(4)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container, list):
        container.insert(key, container[key])
    else:
        container[key] = chance.choice(_INSTEAD)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    pairs = enumerate(value) if isinstance(value, list) else value.items()
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, (list, dict)):
            yield from _places(inner)


def mutated_answer(data: bytes, chance: Random) -> bytes:
    """Change the body of a piece of an answer, if all of that is in it, or a line of a stream."""
    head, blank, body = data.partition(b"\r\n\r\n")
    if data.startswith(b"HTTP/") and blank and _LENGTH.search(head):
        text = mutated_json(body.decode("utf-8", "replace"), chance).encode("utf-8", "replace")
        head = _LENGTH.sub(lambda found: b"%b%d" % (found[1], len(text)), head)
        return head + blank + text
    before, rest = (head + blank, body) if data.startswith(b"HTTP/") else (b"", data)
    size, _, piece = rest.partition(b"\r\n")
    if not re.fullmatch(rb"[0-9a-f]+", size) or int(size, 16) == 0:
        return data
    line, after = piece[: int(size, 16)], piece[int(size, 16) :]
    text = mutated_json(line.decode("utf-8", "replace"), chance).encode("utf-8", "replace") + b"\n"
    return before + b"%x\r\n" % len(text) + text + after
