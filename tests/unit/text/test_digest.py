"""Digests: the same as those of hashlib, however they are made."""

from __future__ import annotations

import hashlib

import pytest

from leasectl.text.digest import sha256_hex


@pytest.mark.parametrize("text", ["", "a", "https://127.0.0.1:6443 default", "ä" * 1000])
def test_a_digest_is_that_of_hashlib(text: str) -> None:
    assert sha256_hex(text) == hashlib.sha256(text.encode()).hexdigest()
