"""Render templates to HTML; the headers of the page."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from leasectl.engines.facts import NO_SETTINGS
from leasectl.pools.overview import what_is_noted, why_unavailable
from leasectl.pools.settings import describe
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given, build_url_in, short_handle, short_name
from leasectl.text.properties import described, written
from leasectl.text.wording import printable

_FOLDER = Path(__file__).parent
_LONGEST_TEXT = 300


def render(template: str, **context: object) -> Markup:
    """Fill a template; text is escaped wherever it comes in."""
    return Markup(_environment().get_template(template).render(context))


@functools.lru_cache(maxsize=1)
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader([_FOLDER, _FOLDER.parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        no_settings=NO_SETTINGS,
        since=since,
        until=until,
        what_is_noted=what_is_noted,
        why_unavailable=why_unavailable,
    )
    made.filters.update(
        build_url=build_url_in,
        described=described,
        duration=format_duration,
        given=as_given,
        granting=describe,
        short_handle=short_handle,
        short_name=short_name,
        shown=shown,
        written=written,
    )
    return made


def shown(text: str) -> str:
    """Return foreign text without control characters, cut where it is very long."""
    return printable(text, longest=_LONGEST_TEXT)


def since(earlier: float, now: float) -> Markup:
    """Return how long ago a time was: ``12m``; both wall clock, seconds since the epoch."""
    return _time("since", earlier, format_duration(max(0.0, now - earlier)))


def until(later: float, now: float) -> Markup:
    """Return how long it is until a time: ``in 14s``, and ``now`` once it has come."""
    left = later - now
    return _time("until", later, f"in {format_duration(left)}" if left > 0 else "now")


def _time(key: str, at: float, text: str) -> Markup:
    moment = (rfc3339(at) or "")[:19]
    return Markup('<time datetime="{}Z" data-{}="{:.1f}">{}</time>').format(moment, key, at, text)


@functools.lru_cache(maxsize=1)
def headers() -> Mapping[str, str]:
    """Return the headers that bind a browser: only our own style and script, named by their
    hashes, and no other host; the page isn't kept, and not shown in a frame."""
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


def _hash(element: str) -> str:
    """Return the source expression of CSP for an element of the template."""
    template = (_FOLDER / "page.html").read_text(encoding="utf-8")
    (content,) = re.findall(f"<{element}>(.*?)</{element}>", template, re.DOTALL)
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
