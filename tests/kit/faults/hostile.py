"""Answers to an acquire that are well-formed and still not to be trusted."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Callable

from tests.kit.faults.answers import names_answer
from tests.kit.faults.http1 import Answer

# These invent names; nothing is granted for them.
_INVENTED: dict[str, object] = {
    "traversal": ["../x"],
    "slash": ["/etc/passwd"],
    "newline": ["T--00\nT--01"],
    "long": ["x" * 300],
    "option": ["-rf"],
    "control": ["\x1b]0;title\x07T--00"],
    "shell": ["$(touch pwned)"],
    "blank": [""],
    "space": ["T--00 T--01"],
    "comma": ["T--00,T--01"],
    "number": [7],
    "string": "T--00",
    "null": None,
}
# These are JSON that few programs expect.
_WRITTEN = {
    "surrogate": rb'{"names":["\ud800"]}',
    "deep": b'{"names":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
}
# These misreport a grant that happened.
_MISREPORTED: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "empty": lambda names: [],
    "fewer": lambda names: list(names[:-1]),
    "more": lambda names: [*names, "somebody-elses"],
    "duplicate": lambda names: [*names, *names[:1]],
}
VARIANTS = (*_INVENTED, *_WRITTEN, *_MISREPORTED)


def choose(variant: str | None, chance: random.Random) -> str:
    """The variant that was asked for, or any."""
    return variant or chance.choice(VARIANTS)


def needs_grant(variant: str) -> bool:
    return variant in _MISREPORTED


def answer(variant: str, granted: Sequence[str]) -> Answer:
    """The 200 to send, given what was granted."""
    if variant in _MISREPORTED:
        return names_answer(_MISREPORTED[variant](granted))
    if variant in _WRITTEN:
        return Answer(200, _WRITTEN[variant], "application/json")
    return names_answer(_INVENTED[variant])
