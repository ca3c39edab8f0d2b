"""Make foreign text safe for a terminal; cut text to a width; write counts and lists."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, TypeVar

Cut = Literal["middle", "end"]
_ELLIPSIS = "…"


def printable(text: str, *, longest: int = 60) -> str:
    """Make foreign text safe for one line of a terminal: control characters escaped, cut."""
    safe = text if text.isprintable() else "".join(map(_escaped, text))
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def printable_url(url: str, *, longest: int = 60) -> str:
    """Make a URL safe to show, without the secrets that it may carry by mistake.

    A user, a password, a fragment and the values of unknown parameters are left out.
    """
    before, at, after = url.rpartition("@")
    if at:
        scheme, colon, rest = before.partition(":")
        after = f"{scheme}://{after}" if colon and rest.startswith("/") else after
    after, has_fragment, _ = after.partition("#")
    start, has_query, query = after.partition("?")
    if has_query:
        after = f"{start}?{'&'.join(map(_without_secret, query.split('&')))}"
    return printable(f"{after}#…" if has_fragment else after, longest=longest)


# Of URLs of Boskos and of Kubernetes.
_PARAMETERS = ("context", "kubeconfig", "state", "leased", "release-to", "expire", "queue-ttl")


def _without_secret(parameter: str) -> str:
    name, equals, _ = parameter.partition("=")
    if name in _PARAMETERS or not parameter:
        return parameter
    return f"{name}=…" if equals else "…"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def cells(text: str) -> int:
    """How many cells of a terminal a text of printable characters takes."""
    return len(text) if text.isascii() else sum(map(_cells_of, text))


def widest(texts: Sequence[str]) -> int:
    """How many cells the widest of some texts takes; there may be thousands."""
    return max(map(len if "".join(texts).isascii() else cells, texts))


def shorten(text: str, width: int | None, *, cut: Cut = "middle") -> str:
    """Leave out characters of a text that takes more cells than there are, and show where.

    Args:
        text: Of printable characters.
        width: Cells; None for any number.
        cut: Where characters are left out.
    """
    if width is None or cells(text) <= width:
        return text
    if width <= 1:
        return _ELLIPSIS[:width]
    tail = (width - 1) // 2 if cut == "middle" else 0
    return _head(text, width - 1 - tail) + _ELLIPSIS + _head(text[::-1], tail)[::-1]


def wrap(text: str, width: int | None, *, indent: str) -> list[str]:
    """Lay a text out in lines, broken at spaces where there are any.

    Args:
        text: Of printable characters; runs of spaces in it stay.
        width: Cells of a line; None for any number.
        indent: Put before each line but the first, where there is room for it.
    """
    lines: list[str] = []
    while width is not None and cells(text) > width:
        head = _head(text, width) or text[:1]
        at = head.rfind(" ", len(indent) + 1) if text[len(head) :][:1] != " " else len(head)
        if at <= 0:
            at = len(head)
        lines.append(text[:at].rstrip())
        text = (indent if len(indent) < width // 2 else "") + text[at:].lstrip()
    return [*lines, text]


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text up with spaces, so that it takes that many cells and stands at one side."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def _head(text: str, width: int) -> str:
    """The longest beginning that takes no more cells."""
    if text.isascii():
        return text[:width]
    taken = 0
    for position, character in enumerate(text):
        taken += _cells_of(character)
        if taken > width:
            return text[:position]
    return text


def _cells_of(character: str) -> int:
    if character.isascii():
        return 1
    import unicodedata

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


_MOST_LISTED = 5

T = TypeVar("T")


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 handle``, ``2 handles``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def followed_by(said: object, more: str) -> str:
    """Put two parts of a message together; after a question the second is a sentence of its own.

    An error that says nothing, such as a MemoryError, goes by its name.
    """
    text = str(said) or type(said).__name__
    return f"{text} {more[:1].upper()}{more[1:]}" if text.endswith("?") else f"{text}; {more}"


def listed(things: Sequence[T], write: Callable[[T], str] = str) -> str:
    """Write some of many things, and how many are left out.

    Args:
        things: Texts, or things of which a text is made for those that are shown.
        write: Makes the text of a thing.
    """
    rest = len(things) - _MOST_LISTED
    return ", ".join(map(write, things[:_MOST_LISTED])) + (f" and {rest} more" if rest > 0 else "")


NO_POOLS = (
    "there are no pools yet; create one with: leasectl pool create POOL --count N, or those in a "
    "file with: leasectl pool apply -f FILE"
)
# What other tools call our options.
_OTHER_NAMES = {
    "--deadline": "--wait",
    "--endpoints": "--backend",
    "--expires": "--ttl",
    "--file": "--filename",
    "--follow": "--watch",
    "--lease-duration": "--ttl",
    "--number": "--count",
    "--pid": "--guard-pid",
    "--pool": "--type",
    "--retries": "--attempts",
    "--server": "--backend",
    "--timeout": "--wait",
    "--wait-timeout": "--wait",
}
# What other tools call our commands, or people would: the first that a group has is meant.
_OTHER_COMMANDS: dict[str, tuple[str, ...]] = {
    "claim": ("acquire",),
    "delete": ("pool delete", "release"),
    "describe": ("status", "list"),
    "drop": ("release", "delete"),
    "exec": ("run",),
    "free": ("release",),
    "get": ("list", "status", "cat"),
    "heartbeat": ("renew",),
    "keep-alive": ("renew",),
    "lock": ("acquire", "run"),
    "ls": ("list", "status"),
    "list": ("status", "pool list"),
    "new": ("create", "acquire"),
    "ps": ("status",),
    "rm": ("remove", "delete", "release"),
    "show": ("list", "status", "cat"),
    "take": ("acquire",),
    "top": ("status --watch",),
    "unlock": ("release",),
    "with": ("run",),
}


def did_you_mean(wanted: str, known: Sequence[str]) -> str:
    """Suggest the nearest of the known pools, or say that there are none."""
    if not known:
        return f"; {NO_POOLS}"
    near = nearest(wanted, known)
    hint = f'; did you mean "{near}"?' if near else ";"
    return f"{hint} list them with: leasectl pool list"


def nearest(wanted: str, known: Sequence[str]) -> str | None:
    """The one of some words that was probably meant; None when none is like it.

    One with the same letters in another order comes first: to difflib, "stauts" is "stats".
    """
    import difflib

    letters = sorted(wanted)
    near = [each for each in known if sorted(each) == letters]
    near = near or difflib.get_close_matches(wanted, known, n=1)
    return near[0] if near else None


def commands_meant(wanted: str, known: Sequence[str]) -> list[str]:
    """The commands of a group that do what is called otherwise elsewhere, else the nearest.

    Args:
        wanted: What was written.
        known: The group's commands.
    """
    meant = [each for each in _OTHER_COMMANDS.get(wanted, ()) if each.split()[0] in known]
    return meant or list(filter(None, [nearest(wanted, known)]))


def option_meant(wanted: str, known: Collection[str]) -> str | None:
    """The option that does what one of another tool does, where a command has it."""
    meant = _OTHER_NAMES.get(wanted)
    return meant if meant in known else None
