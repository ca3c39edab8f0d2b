"""Digests of texts: what tells one from all others."""

from __future__ import annotations

from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import sha256
else:
    # Python's own, of which `hashlib` is made where there is no OpenSSL: that registers all that
    # there is, which takes longer than the digests of a command by far.
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256  # before Python 3.12
        except ImportError:
            from hashlib import sha256


def sha256_hex(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()
