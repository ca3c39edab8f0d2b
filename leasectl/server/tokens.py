"""Bearer tokens, each with a name and rights; the address of a client."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple, Union

from starlette.requests import Request

from leasectl.errors import InvalidRequest
from leasectl.http.settings import NamedFile
from leasectl.text.naming import is_name
from leasectl.text.wording import printable

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

RIGHTS = ("use", "admin")
_LONGEST_FILE_BYTES = 1 << 20
_WRITE = "write lines like: NAME use TOKEN, or NAME use,admin TOKEN"


class Token(NamedTuple):
    """A bearer token.

    Args:
        name: For people; empty for the only token of a file that names none.
        text: What clients show.
        rights: Some of `RIGHTS`.
    """

    name: str
    text: str
    rights: frozenset[str]

    @property
    def secret(self) -> str:
        """What handles of its clients are told apart by; it stays when the text is changed."""
        return self.name or self.text


# What a client has where no token is asked for.
ANYBODY = Token("", "", frozenset({"use"}))


def parse_tokens(text: str) -> tuple[Token, ...]:
    """Read a token file: one bearer token, or lines ``NAME RIGHTS TOKEN``.

    Raises:
        ValueError: It is something else; its text repeats no token.
    """
    lines = [line.split() for line in text.splitlines()]
    lines = [words for words in lines if words and not words[0].startswith("#")]
    if (
        not lines
        or not text.isascii()
        or not all(w.isprintable() for words in lines for w in words)
    ):
        raise ValueError("holds no bearer token")
    if len(lines) == 1 and len(lines[0]) == 1:
        return (Token("", lines[0][0], frozenset({"use"})),)
    tokens = []
    for number, words in enumerate(lines, 1):
        if len(words) != 3 or not is_name(words[0]):
            raise ValueError(f"has a wrong entry {number}; {_WRITE}")
        rights = frozenset(words[1].split(","))
        if not rights <= set(RIGHTS):
            raise ValueError(f"has unknown rights for {words[0]}; {_WRITE}")
        tokens.append(Token(words[0], words[2], rights | {"use"}))
    for what in (0, 1):
        if len({token[what] for token in tokens}) < len(tokens):
            raise ValueError(f"has two entries with the same {('name', 'token')[what]}")
    return tuple(tokens)


class Tokens:
    """The tokens of a file.

    Args:
        path: Of the file.

    Raises:
        FileUnreadable: It isn't there, or may not be read.
        CorruptState: There is no token in it.
    """

    def __init__(self, path: str) -> None:
        self._file = NamedFile("token file", path, "--token-file")
        self._tokens: tuple[Token, ...] = ()
        self.reread()

    def reread(self) -> None:
        """Read the file again; the tokens stay as they are if it can't be used."""
        text = self._file.read(_LONGEST_FILE_BYTES).decode("ascii", "replace")
        try:
            self._tokens = parse_tokens(text)
        except ValueError as error:
            raise self._file.refused(str(error)) from None

    def find(self, text: str) -> Token | None:
        """Return the token with a text.

        How long it takes to refuse a text doesn't tell how much of it was right.
        """
        found = None
        for token in self._tokens:
            if hmac.compare_digest(text.encode(), token.text.encode()):
                found = token
        return found

    def shown_by(self, request: Request) -> Token | None:
        """Return the token that a request carries."""
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        return self.find(shown.strip()) if scheme.lower() == "bearer" else None


# Where a request's scope has its token.
TOKEN_KEY = "leasectl.token"


def token_of(request: Request) -> Token:
    """Return the token of a request that was let in."""
    token: Token = request.scope.get(TOKEN_KEY, ANYBODY)
    return token


def parse_network(text: str) -> Network:
    """Read the address of a trusted proxy, or a network; InvalidRequest for anything else."""
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError:
        raise InvalidRequest(
            f'invalid address "{printable(text)}"; write an IP address, or a network like '
            "10.0.0.0/8"
        ) from None


def client_address(request: Request, trusted: Sequence[Network]) -> str:
    """Return the address of a request's client, for people.

    Each proxy adds the address that it was reached from. So they are read from the end, and the
    first that isn't that of a trusted proxy is the client's.
    """
    address = request.client.host if request.client else ""
    forwarded = _forwarded(request)
    while forwarded and _is_trusted(address, trusted):
        address = forwarded.pop()
    return printable(address, longest=100)


def _forwarded(request: Request) -> list[str]:
    """Return the addresses that proxies have noted: of RFC 7239 or of X-Forwarded-For."""
    lines = request.headers.getlist("forwarded")
    if not lines:
        lines = request.headers.getlist("x-forwarded-for")
        return [_bare(each) for line in lines for each in line.split(",")]
    found = []
    for element in (each for line in lines for each in line.split(",")):
        pairs = (pair.strip().partition("=") for pair in element.split(";"))
        found += [_bare(value) for name, _, value in pairs if name.lower() == "for"]
    return found


def _bare(text: str) -> str:
    """Return an address without quotes, brackets and port."""
    text = text.strip().strip('"')
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None) or parsed
    return any(mapped in network for network in trusted)
