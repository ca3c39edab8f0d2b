"""Parse plain command lines of frequent commands without click.

Plain is: each option by its whole name, its value in the next word or behind a ``=``, none twice
that takes one value, nothing that begins with a dash but names of options, and no variable of the
environment in the place of an option. Anything else is left to click: also whatever is wrong, for
there is one place that says what that is.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from leasectl.cli.described import Param, PlainCommand
from leasectl.errors import LeaseError


class _NotPlain(Exception):
    """Not to be read here."""


def parse(command: PlainCommand, args: Sequence[str]) -> dict[str, Any] | None:
    """Read a command line.

    Args:
        command: Of which.
        args: What follows its name.

    Returns:
        The values of all variables; None where it is for click to read, or to refuse.
    """
    try:
        return _parse(command.params, args)
    except (_NotPlain, ValueError, LeaseError):
        return None


def _parse(params: Sequence[Param], args: Sequence[str]) -> dict[str, Any]:
    if any(os.environ.get(each.settings.get("envvar", "")) for each in params):
        raise _NotPlain
    texts, words = _sort(params, args)
    if words and not any(each.is_word for each in params):
        raise _NotPlain
    values: dict[str, Any] = {}
    for each in params:
        if not each.is_word:
            values[each.variable] = _value(each, texts.get(each.variable))
    for each in params:
        if each.is_word:
            _settle(each, values, words)
    return values


def _sort(params: Sequence[Param], args: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Tell options and their texts, of each all that were given, from words that stand alone."""
    by_name = {name: each for each in params if not each.is_word for name in each.names}
    texts: dict[str, list[str]] = {}
    words = []
    left = iter(args)
    for arg in left:
        if not arg.startswith("-"):
            words.append(arg)
            continue
        name, equals, text = arg.partition("=") if arg.startswith("--") else (arg, "", "")
        found = by_name.get(name)
        if found is None or (found.settings.get("is_flag") and equals):
            raise _NotPlain
        given = texts.setdefault(found.variable, [])
        if found.settings.get("is_flag"):
            continue
        if not equals:
            text = next(left, "-")
            if text.startswith("-"):
                raise _NotPlain
        given.append(text)
        if len(given) > 1 and not found.settings.get("multiple"):
            raise _NotPlain
    return texts, words


def _value(param: Param, texts: list[str] | None) -> Any:
    """The value of an option."""
    settings = param.settings
    if settings.get("is_flag"):
        return texts is not None
    if settings.get("multiple"):
        return tuple(_read(param, text) for text in texts or ())
    if texts:
        return _read(param, texts[0])
    default = settings.get("default")
    return _read(param, default) if isinstance(default, str) else default


def _read(param: Param, text: str) -> Any:
    reads = param.settings.get("type")
    return text if reads is None else reads(text)


def _settle(param: Param, values: dict[str, Any], words: Sequence[str]) -> None:
    """Store a positional word as the option that it stands for."""
    variable, settings = param.settings["stands_for"], param.settings
    several = settings.get("nargs") == -1
    value = values[variable]
    if words:
        if value not in (None, ()) or (len(words) > 1 and not several):
            raise _NotPlain
        read = [_read(param, text) for text in words]
        values[variable] = tuple(read) if several else read[0]
    elif settings.get("needed") and value in (None, ()):
        raise _NotPlain
