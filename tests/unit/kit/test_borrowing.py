"""What folders of tests have in common is in the kit: none borrows from another."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

TESTS = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(TESTS.parent)
    for path in TESTS.rglob("*.py")
    if "node_modules" not in path.parts
)
KIT = PurePosixPath("tests/kit")


def imported(source: str) -> Iterator[PurePosixPath]:
    """The modules of the tests that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            # `from tests.cluster import run` may be a module of the folder.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (PurePosixPath(*name.split(".")) for name in names if name.startswith("tests."))


def borrowed(path: PurePosixPath, source: str) -> list[str]:
    """What a file of tests imports from elsewhere than its own folder and the kit."""
    return [
        str(module)
        for module in imported(source)
        if KIT not in module.parents and path.parent not in module.parents
    ]


def test_a_folder_borrows_from_the_kit_only() -> None:
    found = {
        path: borrowed(PurePosixPath(path), (TESTS.parent / path).read_text(encoding="utf-8"))
        for path in FILES
    }
    assert {path: modules for path, modules in found.items() if modules} == {}


def test_the_kit_borrows_from_nobody() -> None:
    for path in FILES:
        if PurePosixPath(path).is_relative_to(KIT):
            source = (TESTS.parent / path).read_text(encoding="utf-8")
            assert all(module.is_relative_to(KIT) for module in imported(source)), path


def test_borrowing_would_be_noticed() -> None:
    source = (
        "from tests.kit.hosts import hosts\n"
        "from tests.crash.sweeping import Sweep\n"
        "def f():\n    from tests.unit.server.conftest import Serve\n"
    )
    here = PurePosixPath("tests/crash/test_it.py")
    assert borrowed(here, source) == ["tests/unit/server/conftest/Serve"]
