#!/usr/bin/env python3
"""Writes leasectl's man pages: the help of each command, in the form of man(7).

usage: scripts/man_pages.py FOLDER

Building leasectl runs this (setup.py), so that an install has them in share/man/man1. It needs
what the help is made of: click, and no other library.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from leasectl import __version__  # noqa: E402
from leasectl.cli.command import Command  # noqa: E402
from leasectl.cli.groups import TOLD  # noqa: E402
from leasectl.cli.root import command as root  # noqa: E402
from leasectl.cli.root import environment  # noqa: E402
from leasectl.errors import EXIT_CODES  # noqa: E402

# click's mark for a paragraph whose lines stay as they are.
_AS_IT_IS = "\b\n"
_EXAMPLE = re.compile(r"Examples?:\n")


def main() -> None:
    """Write all pages into a folder."""
    if len(sys.argv) != 2:
        sys.exit("usage: scripts/man_pages.py FOLDER")
    write_pages(Path(sys.argv[1]))


def write_pages(folder: Path) -> list[Path]:
    """Write a page for each command, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for ctx in contexts(click.Context(root, info_name="leasectl", **root.context_settings)):
        path = folder / f"{page_name(ctx)}.1"
        path.write_text(page(ctx), encoding="utf-8")
        written.append(path)
    return written


def contexts(ctx: click.Context) -> Iterator[click.Context]:
    """A command, and all commands that it has."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            each = ctx.command.get_command(ctx, name)
            assert each is not None
            yield from contexts(
                click.Context(each, info_name=name, parent=ctx, **each.context_settings)
            )


def page_name(ctx: click.Context) -> str:
    """What man(1) finds the page by, as git's pages are named: ``leasectl-pool-create``."""
    return ctx.command_path.replace(" ", "-")


def page(ctx: click.Context) -> str:
    """The page of a command, in the language of man(7)."""
    command = ctx.command
    title = page_name(ctx)
    summary, _, description = inspect.cleandoc(command.help or "").partition("\n")
    usage = " ".join(command.collect_usage_pieces(ctx))
    lines = [
        f'.TH {title.upper()} 1 "" "leasectl {__version__}" "leasectl"',
        ".nh",  # or words of ours are broken
        ".ad l",
        ".SH NAME",
        f"{title} \\- {escaped(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {escaped(ctx.command_path)}",
        escaped(usage),
        ".SH DESCRIPTION",
        *paragraphs(description.strip("\n") or summary),
        *sections_of_options(ctx),
    ]
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *commands_of(ctx)]
    if command is root:
        lines += [".SH ENVIRONMENT", *definitions(environment())]
        lines += [".SS Told to the command under run, and by acquire \\-\\-output env"]
        lines += definitions(TOLD)
    else:
        lines += [".SH ENVIRONMENT", "See ENVIRONMENT in", ".BR leasectl (1)."]
    lines += [".SH EXIT STATUS", *definitions(EXIT_CODES)]
    example = _EXAMPLE.split(command.epilog or "")[1:]
    if example:
        lines += [".SH EXAMPLES", *as_it_is(example[0])]
    lines += [".SH SEE ALSO", ", ".join(see_also(ctx))]
    return "\n".join(lines) + "\n"


def sections_of_options(ctx: click.Context) -> Iterator[str]:
    """The options, under the headings that help has."""
    command = ctx.command
    if isinstance(command, Command):
        groups = command.groups_of_options(ctx)
    else:
        shown = [each for each in command.get_params(ctx) if isinstance(each, click.Option)]
        groups = [("Options", shown)]
    yield ".SH OPTIONS"
    for title, options in groups:
        if len(groups) > 1:
            yield f".SS {escaped(title)}"
        yield from definitions(each.get_help_record(ctx) or ("", "") for each in options)


def commands_of(ctx: click.Context) -> Iterator[str]:
    """The commands of a group, with the first sentence of each."""
    for each in contexts(ctx):
        if each.parent is ctx:
            yield ".TP"
            yield f".BR {page_name(each)} (1)"
            yield escaped(inspect.cleandoc(each.command.help or "").split("\n")[0])


def see_also(ctx: click.Context) -> Iterator[str]:
    """The pages of the commands that a page doesn't list itself."""
    if ctx.parent is None:
        yield "\\fBleasectl help\\fR \\fICOMMAND\\fR"
        return
    for each in contexts(ctx.parent):
        if each is ctx.parent or (each.parent is ctx.parent and each.command is not ctx.command):
            yield f"\\fB{page_name(each)}\\fR(1)"


def definitions(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Terms, and what they mean."""
    for term, meaning in pairs:
        yield ".TP"
        yield f".B {escaped(term)}"
        yield escaped(" ".join(meaning.split()))


def paragraphs(text: str) -> Iterator[str]:
    """What help says, paragraph by paragraph; of those that are marked, the lines stay."""
    for paragraph in text.split("\n\n"):
        yield ".PP"
        if paragraph.startswith(_AS_IT_IS):
            yield from as_it_is(paragraph[len(_AS_IT_IS) :])
        else:
            yield escaped(" ".join(paragraph.split()))


def as_it_is(text: str) -> Iterator[str]:
    """Lines that stay as they are."""
    yield ".nf"
    yield from map(escaped, text.strip("\n").split("\n"))
    yield ".fi"


def escaped(text: str) -> str:
    """Text that troff takes for nothing else."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


if __name__ == "__main__":
    main()
