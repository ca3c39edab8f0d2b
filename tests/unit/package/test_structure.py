"""The package's structure: layers, SQL, sockets, printing, what a command loads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

import leasectl
from leasectl.backends.kinds import LOADERS
from tests.kit.support import Cli, clean_environment

PACKAGE = Path(leasectl.__file__).parent
SOURCES = {
    path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(PACKAGE.rglob("*.py"))
}
NODES = {name: tuple(ast.walk(ast.parse(source))) for name, source in SOURCES.items()}
once = pytest.mark.once  # the source is the same on every Python

# A module imports only from its own layer and from earlier ones.
LAYERS = (
    "errors model text system",
    "state http",
    "engines",
    "backends",
    "leases pools run once reclaim maintenance",
    "keeper doctor server",
    "cli client pytest_plugin",
    "__main__ __init__ pyz shell",
)
LAYER_OF = {room: layer for layer, rooms in enumerate(LAYERS) for room in rooms.split()}
SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|DROP|PRAGMA)\s")
PRINTS = {"os.environ", "os.getenv", "sys.argv", "sys.exit", "sys.stdout", "sys.stderr"}
# A process that starts another passes on its environment.
MAY_READ_ENVIRONMENT = {
    "leases/opening.py",
    "state/keeper_process.py",
    "keeper/__main__.py",
    "engines/kubernetes/api/credentials.py",
}


def imports(name: str, *, for_types: bool = True) -> Iterator[str]:
    """Yield the modules that a file imports, also inside functions.

    Args:
        name: The file.
        for_types: Also those that only type checkers import.
    """
    of_types = {
        id(inner)
        for node in NODES[name]
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in NODES[name]:
        if id(node) in of_types and not for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int:
    return LAYER_OF[module.split(".")[1]]


@once
def test_imports_point_one_way() -> None:
    upward = [
        (name, imported)
        for name in SOURCES
        for imported in imports(name)
        if imported.startswith("leasectl.")
        and imported.split(".")[1] in LAYER_OF
        and layer_of(imported) > LAYER_OF[name.split("/")[0].removesuffix(".py")]
        and not (name.startswith("pyz/") and layer_of(imported) == LAYER_OF["__main__"])
    ]
    assert upward == []


MODULES = {
    "leasectl." + name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name
    for name in SOURCES
}


@cache
def imported(module: str) -> set[str]:
    """Return the modules of the package that a module imports, except for type checkers."""
    return set(MODULES).intersection(imports(MODULES[module], for_types=False))


def reached(*modules: str, without: Collection[str] = ()) -> set[str]:
    """Return what modules import, what that imports, and so on; leave some modules out."""
    found: set[str] = set()
    new = set(modules)
    while new:
        new = set().union(*map(imported, new)).difference(found, without)
        found |= new
    return found


@once
def test_no_two_modules_import_each_other() -> None:
    assert [module for module in MODULES if module in reached(module)] == []


@once
def test_sql_is_in_two_folders() -> None:
    folders = {
        name.rpartition("/")[0]
        for name, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
    }
    assert folders == {"state", "engines/local"}


@once
def test_sockets_are_in_http_and_server() -> None:
    network = {"socket", "ssl", "http.client", "httpcore", "httpx", "urllib.request"}
    folders = {name.split("/")[0] for name in SOURCES if network & set(imports(name))}
    assert folders == {"http", "server"}


@once
def test_threads_start_in_one_module() -> None:
    starters = {
        name
        for name, source in SOURCES.items()
        if re.search(r"\bThread\(|\(.*\bThread\):|start_new_thread", source)
    }
    assert starters == {"system/threads.py"}


@once
def test_only_the_command_line_prints_exits_and_reads_the_environment() -> None:
    users = {
        name
        for name, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and f"{node.value.id}.{node.attr}" in PRINTS
    }
    elsewhere = {name for name in users if name.split("/")[0] not in ("cli", "pyz", "__main__.py")}
    assert elsewhere <= MAY_READ_ENVIRONMENT


# Importing one of these takes about as long as a whole command.
HEAVY = {
    *("asyncio", "click", "dataclasses", "filelock", "httpx", "inspect", "json", "logging"),
    *("ssl", "subprocess", "tenacity", "urllib", "yaml"),
}


@pytest.mark.parametrize(
    "line",
    [
        "acquire T",
        "acquire -t T --count 1 -w 0 -q --guard-pid 1 --release-after 20m --output names",
        "--backend local: release --all",
    ],
)
def test_a_plain_acquire_or_release_loads_no_heavy_library(cli: Cli, line: str) -> None:
    cli.pool("T")
    script = (
        "import os, sys\n"
        "me = os.getpid()\n"
        "def end(code):\n"
        "    if os.getpid() == me:\n"  # not the process that starts the keeper
        "        sys.stderr.write(' '.join(sys.modules))\n"
        "        sys.stderr.flush()\n"
        "    leave(code)\n"
        "leave, os._exit = os._exit, end\n"
        "from leasectl.cli.app import main\n"
        "main()\n"
    )
    finished = cli.spawn([sys.executable, "-S", "-c", prepare(script), *line.split()]).finish()
    assert finished.code == 0
    assert HEAVY & set(finished.err.split()) == set()


def prepare(script: str) -> str:
    """A script for `python -S`, which loads no .pth files: they may load anything."""
    return f"import sys; sys.path += {sys.path!r}\n{script}"


# Commands wait for the keeper to start, and for `afterwards` to end.
@pytest.mark.parametrize("module", ["leasectl.keeper.loop", "leasectl.system.afterwards"])
def test_background_work_loads_no_heavy_library(module: str) -> None:
    script = prepare(f"import {module}\nprint(*sys.modules)")
    command = [sys.executable, "-S", "-c", script]
    loaded = subprocess.check_output(command, text=True, env=clean_environment()).split()
    assert HEAVY & set(loaded) == set()


# The installation of a keeper may be deleted while it runs.
@pytest.mark.parametrize("scheme", [each for each in LOADERS if each not in ("local", "none")])
def test_keeper_loads_all_that_it_may_import_later(scheme: str) -> None:
    script = prepare(
        "import leasectl.keeper.loop\n"
        "from leasectl.keeper.server import load_code_for\n"
        f"load_code_for('local:'), load_code_for('{scheme}://h:1')\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-S", "-c", script]
    loaded = subprocess.check_output(command, text=True, env=clean_environment()).split()
    # The backends that it doesn't use, and what acquires.
    unneeded = {"leasectl.backends", "leasectl.backends.pool.turn"}
    kind = LOADERS[scheme]()
    needed = reached("leasectl.keeper.loop", kind.__module__, without=unneeded)
    assert needed - set(loaded) == set()


def test_the_event_log_of_etcd_loads_no_logging() -> None:
    """`concurrent.futures` would, for each command that reads events."""
    script = prepare("import leasectl.engines.etcd.event_log\nprint(*sys.modules)")
    command = [sys.executable, "-S", "-c", script]
    loaded = subprocess.check_output(command, text=True, env=clean_environment()).split()
    assert {"logging", "concurrent.futures"} & set(loaded) == set()
