"""A command's options, described for both parsers.

A command of this kind is its function, and what describes its options beside it. `app` reads
plain command lines by that description; of all others, and for help and completion, `command` makes
click's options of the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from leasectl.errors import InvalidRequest
from leasectl.text.durations import parse_duration

# The headings under which help shows the options of commands that have many, in this order.
WHAT = "Lease"
RECLAIMED = "Leases to reclaim"
WORK = "Work"
FILTERS = "Filters"
RELEASED = "Leases to release"
WAITING = "Waiting"
ENDING = "End of the lease"
ATTEMPTS = "Retries"
SIMULATED = "Load"
POLICIES = "Policies"
SOUGHT = "Search"
EVICTED = "Evictions"
CLUSTER = "Cluster"
OUTPUT = "Output"
OTHERS = "Other options"
GROUPS = (
    *(WHAT, FILTERS, RELEASED, RECLAIMED, WORK, WAITING, ENDING, ATTEMPTS),
    *(SIMULATED, POLICIES, SOUGHT, EVICTED, CLUSTER, OUTPUT, OTHERS),
)

Function = TypeVar("Function", bound=Callable[..., Any])


class OneOf:
    """A value that is one of some words.

    Args:
        words: Which.
    """

    def __init__(self, *words: str) -> None:
        self.words = words

    def __call__(self, text: str) -> str:
        """Read it; ValueError if it is none of them."""
        if text not in self.words:
            raise ValueError(text)
        return text

    def for_click(self) -> Any:
        """The same for click, which says what is wrong with one."""
        import click

        return click.Choice(self.words)


class Between:
    """A whole number of a range.

    Args:
        lowest: Of it.
        highest: Of it; None for no limit.
    """

    def __init__(self, lowest: int, highest: int | None = None) -> None:
        self.lowest = lowest
        self.highest = highest

    def __call__(self, text: str) -> int:
        """Read it; ValueError if it is none."""
        number = int(text)
        if number < self.lowest or (self.highest is not None and number > self.highest):
            raise ValueError(text)
        return number

    def for_click(self) -> Any:
        """The same for click, which says what is wrong with one."""
        import click

        return click.IntRange(self.lowest, self.highest)


class Param(NamedTuple):
    """An option, or a word that may stand without one.

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
        named = [name for name in self.names if name.isidentifier()]
        longest = max(self.names, key=len)
        return named[0] if named else longest.lstrip("-").replace("-", "_")


def option(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Describe an option of a command, as `click.option` does."""
    return _describing(Param(names, settings))


def flag(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Describe an option without a value."""
    return option(*names, is_flag=True, **settings)


def duration(*names: str, metavar: str = "D", **settings: Any) -> Callable[[Function], Function]:
    """Describe an option whose value is a duration."""
    return option(*names, type=parse_duration, metavar=metavar, **settings)


def word(*names: str, **settings: Any) -> Callable[[Function], Function]:
    """Describe a word that may stand for an option, as `click.argument` does."""
    return _describing(Param(names, settings, is_word=True))


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
        params: Its options and words. Parameters of click are only in commands that aren't plain.
    """

    def __init__(self, function: Callable[..., object], settings: Mapping[str, Any]) -> None:
        self.function = function
        # The last first, as decorators are applied.
        self.params: Sequence[Any] = function.__dict__.pop("__click_params__", [])[::-1]
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
        raise InvalidRequest(f"{option} {form} and --json: name one of them")
    return cast("Form", "json") if as_json else form or default
