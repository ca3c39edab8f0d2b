"""The map of the tests is whole: each folder is on it, and each module that isn't a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
WITH_MODULES = ("bats", "cluster", "contract", "crash", "kit", "kit/boskos", "kit/faults")


def folders(parent: Path) -> set[str]:
    return {
        each.name
        for each in parent.iterdir()
        if each.is_dir() and each.name not in ("__pycache__", "node_modules")
    }


def test_every_folder_of_tests_is_on_the_map() -> None:
    linked = re.findall(r"^\| \[`(\w+)/`\]\((\S+)\)", (TESTS / "README.md").read_text(), re.M)
    assert {name for name, _ in linked} == folders(TESTS)
    assert all((TESTS / target).is_file() for _, target in linked)


def test_unit_tests_are_in_folders_of_the_package_or_on_the_map() -> None:
    package = TESTS.parent / "leasectl"
    text = (TESTS / "unit" / "README.md").read_text()
    beside = set(re.findall(r"^\| `(\w+)/` \|", text, re.M))
    assert folders(TESTS / "unit") - beside <= folders(package)


@pytest.mark.parametrize("folder", WITH_MODULES)
def test_every_module_is_named_in_its_folders_story(folder: str) -> None:
    text = (TESTS / folder / "README.md").read_text()
    there = {
        path
        for path in (TESTS / folder).rglob("*")
        if path.suffix in (".py", ".bash", ".bats") and not path.name.startswith(("conftest", "__"))
    }
    modules = {path.name for path in there if path.parent == TESTS / folder}
    assert {name for name in modules if name not in text and not name.startswith("test_")} == set()
    named = set(re.findall(r"`(\w+\.(?:py|bash|bats))`", text))
    assert named <= {path.name for path in there}
