"""HTML, made so that text from elsewhere can't become a part of it."""

from __future__ import annotations

import html
from collections.abc import Iterable

from leasectl.typed.hints import Union


class Markup(str):
    """HTML as it is. Only what is written in this package becomes one without being escaped."""

    __slots__ = ()


Content = Union[str, Markup, None]
Attribute = Union[str, int, float, bool, None]
_EMPTY = frozenset({"input", "line", "path", "polygon", "polyline", "rect", "use"})


def escaped(text: Content) -> Markup:
    """Text as HTML; of None nothing."""
    if text is None:
        return Markup()
    return text if isinstance(text, Markup) else Markup(html.escape(text, quote=True))


def joined(parts: Iterable[Content], separator: str = "") -> Markup:
    """Several parts, one after the other."""
    return Markup(escaped(separator).join(map(escaped, parts)))


def tag(element: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """An element.

    Args:
        element: Its name.
        content: What is in it, in order; text is escaped.
        attributes: Their values are escaped. None and False: not there; True: without a value. A
            name ends in ``_`` where Python has the word for something else, and has ``_`` for
            ``-``.
    """
    words = [element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{html.escape(str(value), quote=True)}"')
    opening = f"<{' '.join(words)}>"
    if element in _EMPTY and not content:
        return Markup(opening if element == "input" else f"{opening[:-1]}/>")
    return Markup(f"{opening}{joined(content)}</{element}>")
