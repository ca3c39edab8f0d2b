"""How to talk to a server: what a handle's record keeps, so that the keeper can do it as well.

Paths of credentials, never the credentials themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from leasectl.errors import CorruptState

# How long a release may take in all; whoever releases may have less time, or more.
RELEASE_SECONDS = 10.0
_LONGEST_TOKEN_BYTES = 64 * 1024


class Settings(NamedTuple):
    """Settings of a connection.

    Args:
        token_file: Path of a file with a bearer token, or None.
        ca_file: Path of a file with the certificates to trust, or None for the usual ones.
        trust_env: Heed ``http_proxy`` and its like. Not by default: a lease proxy is near, and
            scripts set those variables half-way.
    """

    token_file: str | None = None
    ca_file: str | None = None
    trust_env: bool = False


def encode_settings(settings: Settings) -> str:
    """Write settings as one text, empty for the usual ones; `parse_settings` reads it back."""
    if settings == Settings():
        return ""
    return "\n".join(
        (
            settings.token_file or "",
            settings.ca_file or "",
            "trust" if settings.trust_env else "",
        )
    )


def parse_settings(text: str) -> Settings:
    """Read what `encode_settings` wrote."""
    if not text:
        return Settings()
    token_file, ca_file, trust = text.split("\n")
    return Settings(token_file or None, ca_file or None, trust == "trust")


def read_token(path: str) -> str:
    """Read a bearer token from its file; CorruptState when there is none in it."""
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(_LONGEST_TOKEN_BYTES).strip()
    except (OSError, UnicodeError) as error:
        raise CorruptState(f"token file {path}: {error}") from error
    if not token or not token.isprintable() or " " in token:
        raise CorruptState(f"token file {path} holds no bearer token")
    return token
