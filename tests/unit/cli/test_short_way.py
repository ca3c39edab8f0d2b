"""Plain command lines are read as click reads them, and what isn't plain is left to it."""

from __future__ import annotations

import importlib
import random
from collections.abc import Iterator
from typing import Any

import pytest

from leasectl.cli.app import SHORT, parse
from leasectl.cli.command import command_for_click
from leasectl.cli.described import PlainCommand

LINES = 500
VALUES = (
    "T",
    "T--00",
    "a,b",
    "K=V",
    "K=",
    "=V",
    "0",
    "1",
    "7",
    "300",
    "1_0",
    " 5",
    "90s",
    "1h30m",
    "18m-22m",
    "0s",
    "soon",
    "step",
    "test",
    "handle",
    "csv",
    "json",
    "plain",
    "keep",
    "-1",
    "-",
    "--",
    "",
    "ä b",
    "\udcff",
)
STRANGE = ("--nonesuch", "-x", "-tT", "-h", "--help", "--typ", "--json=1", "--", "-w5", "-")


def command_of(name: str) -> PlainCommand:
    command = importlib.import_module(f"leasectl.cli.commands.{name}").command
    assert isinstance(command, PlainCommand)
    return command


def words_of(command: PlainCommand, luck: random.Random) -> Iterator[str]:
    """A command line that might be meant, and often isn't quite right."""
    options = [each for each in command.params if not each.is_word]
    for _ in range(luck.choice((0, 1, 1, 2, 2, 3, 5))):
        kind = luck.random()
        if kind < 0.25:
            yield luck.choice(VALUES[:2] if luck.random() < 0.7 else VALUES)
        elif kind < 0.3:
            yield luck.choice(STRANGE)
        else:
            option = luck.choice(options)
            name = luck.choice([each for each in option.names if each.startswith("-")])
            if option.settings.get("is_flag"):
                yield name
            elif name.startswith("--") and luck.random() < 0.3:
                yield f"{name}={luck.choice(VALUES)}"
            else:
                yield name
                yield luck.choice(VALUES)


def read_by_click(command: PlainCommand, args: list[str]) -> dict[str, Any]:
    return command_for_click(command).make_context("it", list(args)).params


@pytest.mark.parametrize("name", SHORT)
def test_it_reads_what_click_reads(name: str) -> None:
    command, luck, read = command_of(name), random.Random(f"{name} 1"), 0
    for _ in range(LINES):
        args = [*words_of(command, luck)]
        parsed = parse(command, args)
        if parsed is not None:
            assert parsed == read_by_click(command, args), args
            read += 1
    assert read > LINES / 20, "hardly any line was plain"


@pytest.mark.parametrize(
    "line",
    [
        "acquire T",
        "acquire -t T",
        "acquire --type T -c 2",
        "acquire azure--install -w 2h --release-after 20m --guard-pid 7",
        "acquire T --label a=b --label c=d --where zone!=1 --optional --output json",
        "acquire T U",
        "release --handle h",
        "release h i",
        "release --names a,b -n c --json",
        "release --scope test",
        "release --all",
        "release h --delay 20m --detach",
        "release --handle=",
        "renew h --ttl 2h",
        "cat h",
        "cat --handle h --format csv",
    ],
)
def test_what_scripts_write_is_plain(line: str) -> None:
    name, *args = line.split()
    parsed = parse(command_of(name), args)
    assert parsed is not None
    assert parsed == read_by_click(command_of(name), args)


@pytest.mark.parametrize(
    "line",
    [
        "acquire",
        "acquire --help",
        "acquire T --count two",
        "acquire T -t T",
        "acquire T -c 1 -c 1",
        "acquire -tT",
        "acquire T --priority -5",
        "acquire T --cou 2",
        "acquire T -- U",
        "acquire -- T",
        "acquire T -w",
        "acquire T -w soon",
        "acquire T --output xml",
        "acquire T -E 300",
        "acquire a/b",
        "acquire T --quiet=1",
        "release h --handle i",
        "renew",
        "renew h i",
        "cat -h",
    ],
)
def test_what_is_unusual_or_wrong_is_left_to_click(line: str) -> None:
    name, *args = line.split()
    assert parse(command_of(name), args) is None
