"""What scripts/build-pyz leaves out of files, to save room: what only people read.

Comments and docstrings of their modules go, line by line, so that tracebacks still name the lines
of the original; what stands before the first statement stays, since it may be a license. Of what
others have written, a notice at the end says so. Descriptions go from METADATA, and comments from
certificates.

The test of the archive holds that what is left means the same.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Strings are found only lest something in them be taken for a comment. As in Python 3.9, for which
# all of it is written: none of them has quotes of its own kind within.
_STRING_OR_COMMENT = re.compile(
    rb"(\"{3}|'{3})(?:\\.|[^\\])*?\1"
    rb"| \"(?:\\.|[^\"\\\n])*\" | '(?:\\.|[^'\\\n])*'"
    rb"| (?P<comment>\#[^\r\n]*)",
    re.DOTALL | re.VERBOSE,
)
NOTICE = b"# Comments left out for leasectl.pyz\n"


def strip(name: str, content: bytes) -> bytes:
    """What is packed of a wheel's file.

    Args:
        name: Its path in the wheel.
        content: What it holds.
    """
    if name.endswith(".py"):
        stripped = strip_module(content)
        return stripped.removesuffix(NOTICE) if name.startswith("leasectl/") else stripped
    if name.endswith(".dist-info/METADATA"):
        return content.partition(b"\n\n")[0] + b"\n"
    if name.endswith(".pem"):
        return re.sub(rb"(?m)^(#.*)?\n", b"", content)
    return content


def strip_module(source: bytes) -> bytes:
    """A module without comments and docstrings, with every statement in the line it was in."""
    tree = ast.parse(source)
    line_starts = [0, *(found.end() for found in re.finditer(b"\n", source))]
    first = line_starts[tree.body[0].lineno - 1] if tree.body else len(source)
    comments = (each for each in _comments(source) if each.start >= first)
    parts, at = [], 0
    for start, end, instead in sorted([*_docstrings(tree, line_starts), *comments]):
        before = source[at:start]
        parts += [
            before if instead else before.rstrip(b" \t"),
            instead,
            b"\n" * source.count(b"\n", start, end),
        ]
        at = end
    return b"".join([*parts, source[at:]]).rstrip() + b"\n" + NOTICE if parts else source


class _Piece(NamedTuple):
    """What to leave out, from byte to byte, and what takes its place beside its ends of lines."""

    start: int
    end: int
    instead: bytes = b""


def _comments(source: bytes) -> Iterator[_Piece]:
    for found in _STRING_OR_COMMENT.finditer(source):
        if found["comment"]:
            yield _Piece(*found.span())


def _docstrings(tree: ast.AST, line_starts: Sequence[int]) -> Iterator[_Piece]:
    """The docstrings of whatever has one, wherever statements can be."""
    if isinstance(tree, _DOCUMENTED) and ast.get_docstring(tree, clean=False) is not None:
        text = tree.body[0]
        assert text.end_lineno is not None and text.end_col_offset is not None
        yield _Piece(
            line_starts[text.lineno - 1] + text.col_offset,
            line_starts[text.end_lineno - 1] + text.end_col_offset,
            # Where nothing else is, something has to be.
            b"pass" if len(tree.body) == 1 and not isinstance(tree, ast.Module) else b"",
        )
    for part in ("body", "orelse", "finalbody", "handlers"):
        statements = getattr(tree, part, None)
        for statement in statements if isinstance(statements, list) else ():
            yield from _docstrings(statement, line_starts)
