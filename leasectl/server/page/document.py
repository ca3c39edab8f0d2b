"""The document around what the page says, and what a browser is told to keep to with it."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from leasectl.server.page.markup import Markup, escaped

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
