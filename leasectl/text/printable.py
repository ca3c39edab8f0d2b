"""Foreign text, made safe to show."""

from __future__ import annotations


def printable(text: str, *, longest: int = 60) -> str:
    """Make foreign text safe for one line of a terminal: control characters escaped, cut."""
    safe = text if text.isprintable() else "".join(map(_escaped, text))
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def printable_url(url: str, *, longest: int = 60) -> str:
    """Make a URL safe to show, without the user and password that it may carry."""
    before, at, after = url.rpartition("@")
    if at:
        scheme, colon, rest = before.partition(":")
        after = f"{scheme}://{after}" if colon and rest.startswith("/") else after
    return printable(after, longest=longest)


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
