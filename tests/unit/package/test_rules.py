"""What stands where in the package: each thing outside has one place that knows it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Callable

import pytest

import leasectl
from leasectl.backends.kinds import KINDS

# The source is the same on every Python.
pytestmark = pytest.mark.once

PACKAGE = Path(leasectl.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))

MOST_LINES = 350
# Each rule reads all modules.
parsed = cache(ast.parse)
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA)\s")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def where(found: Callable[[str], object]) -> list[str]:
    """The modules in whose source something is found."""
    return [name_of(path) for path in MODULES if found(path.read_text(encoding="utf-8"))]


def statements(source: str) -> list[str]:
    """The texts in a module that begin as SQL does."""
    texts = (node.value for node in ast.walk(parsed(source)) if isinstance(node, ast.Constant))
    return [text for text in texts if isinstance(text, str) and SQL.match(text)]


def test_sql_is_written_where_the_tables_are_known() -> None:
    assert {name.rpartition("/")[0] for name in where(statements)} == {"state", "engines/local"}
    assert statements("db.execute(f'SELECT x FROM {table}')") != []


def imports_of(*names: str) -> Callable[[str], bool]:
    """Whether a module imports one of these, wherever in it the import stands."""

    def imports(source: str) -> bool:
        found = set()
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}", *(f"{node.module}.{each.name}" for each in node.names)}
        return bool(found & set(names))

    return imports


# Not of those that are reached by HTTP as others are: any address is asked whether it is over TLS.
SCHEMES = {each for kind in KINDS for each in kind.schemes} - {"http", "https"}
URL = re.compile(rf"({'|'.join(re.escape(each) for each in sorted(SCHEMES))}):(//)?")


def beginnings_of_urls(source: str) -> list[str]:
    """The texts in a module that are what a backend's URL begins with."""
    texts = (node.value for node in ast.walk(parsed(source)) if isinstance(node, ast.Constant))
    return [text for text in texts if isinstance(text, str) and URL.fullmatch(text)]


def test_nobody_asks_a_url_what_its_backend_can_do() -> None:
    reading = {"backends/kinds.py", "engines/kubernetes/api/address.py"}
    writing = {"backends/dry_run.py", "engines/kubernetes/events/own_record.py"}
    assert set(where(beginnings_of_urls)) == reading | writing
    assert beginnings_of_urls("def f(url):\n    return url.startswith('etcds:')") == ["etcds:"]


def test_only_one_folder_talks_to_the_network() -> None:
    network = imports_of(
        *("socket", "_socket", "ssl", "_ssl"),
        *("http.client", "httpcore", "httpx", "urllib.request"),
    )
    of_server = {
        "server/connection.py",
        "server/delivery.py",
        "server/serving.py",
        "cli/commands/serve.py",
    }
    elsewhere = [name for name in where(network) if not name.startswith("http/")]
    assert set(elsewhere) <= of_server  # whose connections others open
    assert network("def f():\n    from http import client")


def test_only_one_file_calls_poll() -> None:
    assert where(imports_of("select")) == ["system/poll.py"]
    others = where(imports_of("asyncio", "selectors"))
    assert {name.partition("/")[0] for name in others} == {"server"}


def test_only_one_file_decides_when_to_try_again() -> None:
    assert where(imports_of("tenacity")) == ["system/backoff.py"]


def test_only_one_folder_names_typing_which_takes_long_to_load() -> None:
    assert set(where(imports_of("typing"))) == {"typed/hints.py", "typed/tuples.py"}
    assert imports_of("typing")("def f():\n    from typing import Any")


def test_the_root_has_what_everybody_needs_and_nothing_else() -> None:
    there = {path.name for path in PACKAGE.iterdir() if path.is_file()}
    assert there == {"__init__.py", "__main__.py", "errors.py", "model.py", "py.typed"}


@pytest.mark.parametrize("folder", FOLDERS, ids=name_of)
def test_a_folder_has_a_story_and_no_code(folder: Path) -> None:
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    code = [ast.unparse(each) for each in tree.body[1:]]
    assert [line.split(" = ")[0] for line in code] == (["__version__"] if folder == PACKAGE else [])
    story = ast.get_docstring(tree) or ""
    assert len(story.splitlines()) >= 5
    assert unnamed_in(story, folder) == []


def unnamed_in(story: str, folder: Path) -> list[str]:
    """The modules and folders in a folder that its story doesn't tell of.

    A command's module is known by the command's name.
    """
    modules = {path.stem: path.read_text() for path in folder.glob("*.py")}
    there = {name for name, source in modules.items() if "\ndef command(" not in source}
    there -= {name for name in modules if name.startswith("__")}
    there |= {path.parent.name for path in folder.glob("*/__init__.py")}
    # `engine`, `proxy.opening`, or with what is in it: `engine.Engine`
    told = set(re.findall(r"`(?:\w+\.)?(\w+)", story)) | set(re.findall(r"`(\w+)", story))
    return sorted(there - told)


def test_a_module_without_a_place_in_the_story_would_be_noticed() -> None:
    assert unnamed_in("First `poll`, then `clock.Clock`.", PACKAGE / "system") != []
    assert "poll" not in unnamed_in("First `poll`.", PACKAGE / "system")


def test_a_module_fits_in_a_head() -> None:
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
