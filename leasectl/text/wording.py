"""How messages write numbers of things, and lists of them."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.typed.hints import Callable, TypeVar

_MOST_LISTED = 5

T = TypeVar("T")


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 handle``, ``2 handles``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def followed_by(said: object, more: str) -> str:
    """Put two parts of a message together; after a question the second is a sentence of its own."""
    text = str(said)
    return f"{text} {more[:1].upper()}{more[1:]}" if text.endswith("?") else f"{text}; {more}"


def listed(texts: Sequence[str]) -> str:
    """Write some of many things, and how many are left out."""
    return listed_as(texts, str)


def listed_as(things: Sequence[T], write: Callable[[T], str]) -> str:
    """The same of what isn't text yet: only of what is shown it is made."""
    rest = len(things) - _MOST_LISTED
    return ", ".join(map(write, things[:_MOST_LISTED])) + (f" and {rest} more" if rest > 0 else "")
