"""What is true of the package as a whole."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import leasectl

PACKAGE = Path(leasectl.__file__).parent


def imported_names(source: str) -> Iterator[str]:
    """The top-level names of what a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module.partition(".")[0]


@cache
def is_in_standard_library(name: str) -> bool:
    # sys.stdlib_module_names would say, from Python 3.10 on.
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return False
    if spec.origin in ("built-in", "frozen"):
        return True
    origin = Path(spec.origin)
    return (
        Path(sysconfig.get_path("stdlib")) in origin.parents
        and "site-packages" not in origin.parts
        and "dist-packages" not in origin.parts
    )


@cache
def declared_dependencies(extra: str | None = None) -> set[str]:
    """The distributions that every install of leasectl brings along, or those of an extra."""
    requirements = importlib.metadata.requires("leasectl") or []
    found = set()
    for each in requirements:
        name, _, condition = each.partition(";")
        of_extra = re.search(r"""extra == ['"](\w+)""", condition)
        if (of_extra.group(1) if of_extra else None) == extra:
            found.add(re.split(r"[^\w.-]", name.strip())[0].lower())
    return found


# What is imported under another name than it is installed by.
IMPORTED_AS = {"pyyaml": "yaml"}


def test_the_version_that_code_sees_is_the_installed_one() -> None:
    assert leasectl.__version__ == importlib.metadata.version("leasectl")


def files_to_ship(package: Path) -> set[str]:
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*")
        if path.suffix in {".py", ".bash", ".html", ".txt"} or path.name == "py.typed"
    }


def test_an_install_has_every_file_of_the_package() -> None:
    # -I: this process would find the source first.
    command = [sys.executable, "-I", "-c", "import leasectl; print(leasectl.__file__)"]
    installed = Path(subprocess.check_output(command, text=True).strip()).parent
    assert files_to_ship(installed) == files_to_ship(PACKAGE)


def test_the_package_depends_on_five_libraries() -> None:
    assert declared_dependencies() == {"click", "filelock", "httpx", "pyyaml", "tenacity"}
    assert declared_dependencies("serve") == {
        "jinja2",
        "markupsafe",
        "starlette",
        "uvicorn",
    }


# Some Pythons have the one in their standard library, the others the other.
EITHER_IN_THE_STANDARD_LIBRARY = {"_sha2", "_sha256"}


def test_a_module_imports_only_what_an_install_brings_along() -> None:
    always = declared_dependencies()
    for path in sorted(PACKAGE.rglob("*.py")):
        foreign = {
            name
            for name in imported_names(path.read_text(encoding="utf-8"))
            if name != "leasectl" and not is_in_standard_library(name)
        } - EITHER_IN_THE_STANDARD_LIBRARY
        allowed = set(always)
        if PACKAGE / "server" in path.parents:
            allowed |= declared_dependencies("serve")
        if path.name == "pytest_plugin.py":
            allowed |= declared_dependencies("pytest")
        if path.name == "plot.py":
            allowed |= declared_dependencies("plot")
        assert foreign <= {IMPORTED_AS.get(each, each) for each in allowed}, path
