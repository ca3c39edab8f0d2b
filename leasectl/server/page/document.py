"""Build and escape HTML; the frame around the sections."""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Union

from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration


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


def since(earlier: float, now: float) -> Markup:
    """How long ago a time was: ``12m``.

    Args:
        earlier: Wall clock, seconds since the epoch.
        now: Likewise.
    """
    return _time("data-since", earlier, format_duration(max(0.0, now - earlier)))


def until(later: float, now: float) -> Markup:
    """How long it is until a time: ``in 14s``, and ``now`` once it has come."""
    left = later - now
    return _time("data-until", later, f"in {format_duration(left)}" if left > 0 else "now")


def _time(key: str, at: float, text: str) -> Markup:
    moment = rfc3339(at) or ""
    return tag("time", text, datetime=f"{moment[:19]}Z", **{key: f"{at:.1f}"})


# Without scripts the page is got anew so often.
_REFRESH_SECONDS = 30
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def document(title: str, body: Markup, *, is_refreshed: bool) -> str:
    """A whole document.

    Args:
        title: Its title.
        body: What is in it.
        is_refreshed: Browsers without scripts get it again from time to time.
    """
    refresh = f'<meta http-equiv="refresh" content="{_REFRESH_SECONDS}">'
    content = {
        "title": f"{escaped(title)}",
        "refresh": f"<noscript>{refresh}</noscript>" if is_refreshed else "",
        "body": body,
    }
    return _PLACE.sub(lambda found: content[found[1]], _template())


@functools.lru_cache(maxsize=1)
def headers() -> Mapping[str, str]:
    """What a browser keeps to: only our own style and script, named by their hashes, and no other
    host; nothing is kept, and nobody shows it in a frame."""
    rules = (
        "default-src 'none'",
        f"script-src {_hash('script')}",
        f"style-src {_hash('style')}",
        "img-src data:",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
    return {
        "Content-Security-Policy": "; ".join(rules),
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Cache-Control": "no-store",
    }


@functools.lru_cache(maxsize=1)
def _template() -> str:
    return Path(__file__).with_name("page.html").read_text(encoding="utf-8")


def _hash(element: str) -> str:
    """The source expression of CSP for what stands in an element of the template."""
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", _template(), re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
