"""SQL is written where the tables are known: of the records, and of the embedded pools."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasectl

PACKAGE = Path(leasectl.__file__).parent
WITH_SQL = (PACKAGE / "state", PACKAGE / "engines" / "local")
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA)\s")


def statements(source: str) -> Iterator[str]:
    """The texts in a module that begin as SQL does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value):
            yield node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_sql_is_in_two_folders_only(path: Path) -> None:
    if not any(path.is_relative_to(folder) for folder in WITH_SQL):
        assert list(statements(path.read_text(encoding="utf-8"))) == []


def test_sql_elsewhere_would_be_noticed() -> None:
    assert list(statements("db.execute(f'SELECT x FROM {table}')")) != []
    assert any(list(statements(path.read_text())) for path in WITH_SQL[1].glob("*.py"))
