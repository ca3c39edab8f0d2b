"""Queries of URLs are written as the standard library would."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from leasectl.http.messages import Answer, encode_query, redirection


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


@pytest.mark.parametrize(
    ("status", "location", "said"),
    [
        (302, "https://login/oauth?state=secret", "it redirects to https://login/oauth, which"),
        (307, "/other\x1b[2J", "it redirects to /other"),
        (302, "http://me:pw@login/a@b", "it redirects to http://login/a@b, which"),
        (302, "//me:pw@login", "it redirects to //login, which"),
        (302, "login?me=pw", "it redirects to login, which"),
        (302, "", ""),
        (200, "https://login/", ""),
        (404, "https://login/", ""),
    ],
)
def test_where_an_answer_leads_is_said_without_a_query(
    status: int, location: str, said: str
) -> None:
    found = redirection(Answer(status, "", {"location": location}))
    assert found.startswith(said)
    assert bool(found) == bool(said)
    assert "secret" not in found
    assert found.isprintable()
