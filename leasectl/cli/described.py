"""A command's options, described once for both parsers, help and completion.

An option is described as help shows it: its names, and what its value is called::

    @option("-w, --wait WAIT", "Wait at most this long.")     # a duration
    @option("--scope [step|test]", "...", default="step")     # one of some words
    @option("--force", "...")                                 # a flag

What a value is called says how it is read and completed (`_READ_AS`, `_COMPLETED_FROM`). `app`
reads plain command lines by these descriptions; of all others, and for help and completion,
`command` makes click's options of the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from leasectl.errors import InvalidRequest
from leasectl.text.durations import parse_duration
from leasectl.text.naming import check_name, check_own_type

if TYPE_CHECKING:
    import click

# The headings under which help shows the options of commands that have many, in this order.
Group = Literal[
    "Lease",
    "Filters",
    "Leases to release",
    "Leases to reclaim",
    "Work",
    "Waiting",
    "End of the lease",
    "Result",
    "Limits",
    "Retries",
    "Load",
    "Policies",
    "Search",
    "Evictions",
    "Cluster",
    "Output",
    "Other options",
]

Function = TypeVar("Function", bound=Callable[..., Any])


class OneOf(NamedTuple):
    """A value that is one of some words."""

    words: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """Read it; ValueError if it is none of them."""
        if text not in self.words:
            raise ValueError(text)
        return text


class Between(NamedTuple):
    """A whole number of a range; without a highest one, there is no limit."""

    lowest: int
    highest: int | None = None

    def __call__(self, text: str) -> int:
        """Read it; ValueError if it is none."""
        number = int(text)
        if number < self.lowest or (self.highest is not None and number > self.highest):
            raise ValueError(text)
        return number


class Param(NamedTuple):
    """An option, or a word that stands without one.

    Args:
        names: As `click.option` or `click.argument` has them.
        settings: As these have them, and for `command.Option` or `command.Word`; a ``type`` reads
            the text, or raises ValueError or InvalidRequest.
        is_word: It is no option.
    """

    names: tuple[str, ...]
    settings: Mapping[str, Any]
    is_word: bool = False

    @property
    def variable(self) -> str:
        """Where its value goes."""
        last = self.names[-1]
        named = last if last.isidentifier() else max(self.names, key=len)
        return named.lstrip("-").replace("-", "_")


# How a value is read, and what it is completed from, by what help calls it; other values are texts.
_READ_AS: Mapping[str, Callable[[str], Any]] = {
    "D": parse_duration,
    "WAIT": parse_duration,
    "N": int,
    "PID": int,
    "POOL": check_own_type,
    "NAME": check_name,
}
_COMPLETED_FROM = {
    "POOL": "types",
    "NAME": "names",
    "A,B": "names",
    "H": "handles",
    "FILE": "files",
}


def option(
    described: str,
    help: str | Callable[[], str] = "",
    *,
    to: str = "",
    group: Group = "Other options",
    **settings: Any,
) -> Callable[[Function], Function]:
    """Describe an option of a command.

    Args:
        described: Its names and what its value is called, as help shows them; without a value, it
            is a flag.
        help: What it means, or what makes that when help is shown.
        to: Where its value goes, unless its longest name says that.
        group: The heading above it.
        settings: As `click.option` has them. They win over what the value's name says, and so does
            ``completed_from``: the name of a function in `completion_values`, or None.
    """
    parts = described.split()
    names = tuple(part.rstrip(",") for part in parts if part.startswith("-"))
    value = parts[len(names) :]
    told = _told_by(value[0], settings) if value else {"is_flag": True}
    return _describing(
        Param((*names, to) if to else names, {"help": help, "group": group, **told, **settings})
    )


def word(name: str, value: str, **settings: Any) -> Callable[[Function], Function]:
    """Describe a word that stands without an option, as `click.argument` does.

    Args:
        name: Where it goes.
        value: What help calls it.
        settings: See `option`; with ``stands_for``, the word may stand for that option.
    """
    return _describing(Param((name,), {**_told_by(value, settings), **settings}, is_word=True))


def _told_by(value: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that the name of a value tells."""
    bare = value.strip("[]")
    told: dict[str, Any] = {"metavar": value, "type": _READ_AS.get(bare)}
    if value.startswith("[") and value.islower():
        told = {"type": OneOf(tuple(bare.split("|")))}
    offered = settings.pop("completed_from", _COMPLETED_FROM.get(bare))
    return {**told, "shell_complete": _completing(offered)} if offered else told


def _completing(offered: str) -> Callable[..., list[Any]]:
    """Make a function that completes a word, and loads what that takes when it is called."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from leasectl.cli.completion_values import complete

        return complete(offered, ctx, param, incomplete)

    return complete


def _describing(param: Param) -> Callable[[Function], Function]:
    def describe(function: Function) -> Function:
        # Where click keeps its own, in its order.
        function.__dict__.setdefault("__click_params__", []).append(param)
        return function

    return describe


class PlainCommand:
    """A command most of whose command lines are read without click.

    Args:
        function: What it does, given all that `params` say.
        settings: As `click.command` has them.

    Attributes:
        function, settings: As given.
        params: Its options and words.
    """

    def __init__(self, function: Callable[..., object], settings: Mapping[str, Any]) -> None:
        self.function = function
        # The last first, as decorators are applied.
        self.params: Sequence[Param] = function.__dict__.pop("__click_params__", [])[::-1]
        self.settings = settings


def plain_command(**settings: Any) -> Callable[[Callable[..., object]], PlainCommand]:
    """Make a `PlainCommand` of a function."""
    return lambda function: PlainCommand(function, settings)


Form = TypeVar("Form", bound=str)


def form_of(option: str, form: Form | None, default: Form, *, as_json: bool) -> Form:
    """Return the form of the output: ``--json`` wins over the default, and over no other.

    Args:
        option: What else chooses a form.
        form: What it says; None for nothing.
        default: The form without it.
        as_json: Whether ``--json`` is given.

    Raises:
        InvalidRequest: The option names another form.
    """
    if as_json and form not in (None, "json"):
        raise InvalidRequest(f"use either {option} {form} or --json")
    return cast("Form", "json") if as_json else form or default
