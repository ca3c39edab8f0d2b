"""Queries of URLs are written as the standard library would."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from leasectl.http.messages import encode_query


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"limit": "500", "labelSelector": "leasectl.dev/pool=T,leasectl.dev/kind in (pool,ticket)"},
        {"continue": "eyJ2IjoibWV0YS5rOHMuaW8vdjEi+/=", "a b": "c&d"},
        {"all": "".join(map(chr, range(256))) + "€\U0001f600", "": ""},
    ],
)
def test_a_query_is_as_urlencode_has_it(parts: dict[str, str]) -> None:
    assert encode_query(parts) == urlencode(parts)
