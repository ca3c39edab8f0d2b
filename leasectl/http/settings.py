"""How to talk to a server: what a handle's record keeps, so that the keeper can do it as well.

Paths of credentials, never the credentials themselves.
"""

from __future__ import annotations

from leasectl.errors import CorruptState
from leasectl.http.named_file import NamedFile
from leasectl.typed.tuples import NamedTuple

_LONGEST_TOKEN_BYTES = 64 * 1024


class Settings(NamedTuple):
    """Settings of a connection.

    Args:
        token_file: Path of a file with a bearer token, or None.
        ca_file: Path of a file with the certificates to trust, or None for the usual ones.
        trust_env: Heed ``http_proxy`` and its like. Not by default: a lease proxy is near, and
            scripts set those variables half-way.
        cert_file: Path of a file with the certificate to show to a server, or None.
        key_file: Path of a file with that certificate's key; None when it is in the same file.
        user_file: Path of a file with ``user:password`` for etcd, or None.
        cluster: Which cluster of Kubernetes, and where it is written as whom, as
            `leasectl.engines.kubernetes.api.choice` has it, on one line; or None.
        username: Whom to be to what stands in front of Boskos, or None.
        password_file: Path of a file with that user's password, or None.
    """

    token_file: str | None = None
    ca_file: str | None = None
    trust_env: bool = False
    cert_file: str | None = None
    key_file: str | None = None
    user_file: str | None = None
    cluster: str | None = None
    username: str | None = None
    password_file: str | None = None


def encode_settings(settings: Settings) -> str:
    """Write settings as one text, empty for the usual ones; `parse_settings` reads it back."""
    if settings == Settings():
        return ""
    lines = [settings.token_file, settings.ca_file, "trust" if settings.trust_env else ""]
    etcd_lines = [settings.cert_file, settings.key_file, settings.user_file]
    # Versions that knew no others still read what consists of the first three, six, or seven.
    if settings.username:
        lines += [*etcd_lines, settings.cluster, settings.username, settings.password_file]
    elif settings.cluster:
        lines += [*etcd_lines, settings.cluster]
    elif any(etcd_lines):
        lines += etcd_lines
    return "\n".join(line or "" for line in lines)


def parse_settings(text: str) -> Settings:
    """Read what `encode_settings` wrote, in any version so far.

    Raises:
        CorruptState: It is of none of them.
    """
    if not text:
        return Settings()
    lines = text.split("\n")
    if len(lines) not in (3, 6, 7, 9):
        raise CorruptState(
            f"settings of {len(lines)} lines were written by a newer leasectl, or are damaged"
        )
    token_file, ca_file, trust, *files = (line or None for line in lines)
    return Settings(token_file, ca_file, trust == "trust", *files)


def read_token(path: str, *, named_by: str = "LEASECTL_TOKEN_FILE") -> str:
    """Read a bearer token from its file.

    Args:
        path: Of the file.
        named_by: The variable or the option that names it.

    Raises:
        FileUnreadable: It isn't there, or may not be read.
        CorruptState: There is none in it. The text says nothing of what is.
    """
    file = NamedFile("token file", path, named_by)
    token = file.read(_LONGEST_TOKEN_BYTES).decode("ascii", "replace").strip()
    if not token or not (token.isascii() and token.isprintable()) or " " in token:
        raise file.refused("holds no bearer token")
    return token
