"""Which module may import which, and what a command may load."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import leasectl
from tests.kit.support import Cli, clean_environment

# What is written is the same on every Python.
once = pytest.mark.once
PACKAGE = Path(leasectl.__file__).parent

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def module_name(path: Path) -> str:
    return ".".join(("leasectl", *path.relative_to(PACKAGE).with_suffix("").parts))


GROUND = ("typed", "errors", "model", "text", "system")
STORES = (*GROUND, "state", "http", "engines")
SERVICES = (*STORES, "backends", "leases")

# What each room of the house may import beside itself. A room is a module or folder right below
# leasectl, or an engine: those are a room each, and what lies beside them is `engines`.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "typed": (),
    "errors": ("typed",),
    "model": ("typed", "errors"),
    "text": ("typed", "errors", "model"),
    "system": ("typed", "errors", "model"),
    "state": GROUND,
    "http": GROUND,
    "engines": (*GROUND, "state", "http"),
    "engines.memory": STORES,
    "engines.local": STORES,
    "engines.etcd": STORES,
    "engines.kubernetes": STORES,
    "backends": (
        *STORES,
        "engines.memory",
        "engines.local",
        "engines.etcd",
        "engines.kubernetes",
    ),
    "leases": (*STORES, "backends"),
    "pools": SERVICES,
    # It runs the pool algorithm on pools in memory.
    "pools.simulation": (*SERVICES, "pools", "engines.memory"),
    "run": SERVICES,
    "once": (*SERVICES, "run"),
    "reclaim": SERVICES,
    # What it asks of a cluster goes by the API of one engine: the others have no nodes.
    "maintenance": (*GROUND, "http", "engines", "engines.kubernetes"),
    "server": (*SERVICES, "pools", "run"),
    # It is the embedded pools' witness.
    "keeper": (*SERVICES, "pools", "run", "engines.local"),
    # It looks at what the engines keep, not only at what they say.
    "doctor": (*SERVICES, "pools", "run", "engines.local", "engines.etcd", "engines.kubernetes"),
    "cli": (
        *SERVICES,
        "pools",
        "pools.simulation",
        "run",
        "once",
        "reclaim",
        "maintenance",
        "server",
        "keeper",
        "doctor",
    ),
    "__main__": ("typed", "cli", "system"),
    # What starts the archive, before there is a package to import from.
    "pyz": ("errors", "__main__"),
    "shell": (),
}


def room_of(module: str) -> str:
    """The room that a module of leasectl is in; '' for the package itself."""
    parts = module.split(".")[1:]
    engine = ".".join(parts[:2])
    return engine if engine in MAY_IMPORT else ".".join(parts[:1])


def own_imports(source: str) -> Iterator[str]:
    """The modules of leasectl that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("leasectl."))
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            names = [f"{module}.{a.name}" for a in node.names if not a.name.startswith("__")]
            if module == "leasectl" or (module.startswith("leasectl.") and is_folder(module)):
                yield from names
            elif module.startswith("leasectl."):
                yield module


def is_folder(module: str) -> bool:
    return PACKAGE.joinpath(*module.split(".")[1:]).is_dir()


def against_the_plan(module: str, source: str) -> list[str]:
    """What a module imports and its room may not."""
    room = room_of(module)
    allowed = {room, *MAY_IMPORT[room]}
    return [imported for imported in own_imports(source) if room_of(imported) not in allowed]


@once
@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path: Path) -> None:
    module = module_name(path)
    assert room_of(module) in MAY_IMPORT, f"say in MAY_IMPORT which room {module} is"
    assert against_the_plan(module, path.read_text(encoding="utf-8")) == []


@once
def test_the_plan_has_no_room_that_is_not_there() -> None:
    assert {room_of(module_name(path)) for path in MODULES} | {"shell"} == set(MAY_IMPORT)


@once
@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("leasectl.engines.local.engine", "from leasectl.leases.service import Service"),
        ("leasectl.engines.local.engine", "from leasectl.engines.etcd.keys import Keys"),
        ("leasectl.engines.local.engine", "def f():\n    from leasectl.engines import etcd"),
        ("leasectl.text.naming", "import leasectl.system.clock"),
        ("leasectl.state.handles", "from leasectl import http"),
        ("leasectl.run.runner", "from leasectl.pools.admin import PoolService"),
        ("leasectl.leases.service", "from leasectl.run.child import Child"),
        ("leasectl.server.api", "from leasectl.cli.app import main"),
        ("leasectl.keeper.loop", "from leasectl.engines.etcd.keys import Keys"),
    ],
)
def test_an_import_that_points_the_wrong_way_would_be_noticed(module: str, source: str) -> None:
    assert len(against_the_plan(module, source)) == 1


@once
def test_no_two_modules_import_each_other() -> None:
    imports = {
        module_name(path): set(own_imports(path.read_text(encoding="utf-8"))) for path in MODULES
    }
    for module in imports:
        reached = set(imports[module])
        while True:
            further = set().union(*(imports.get(each, set()) for each in reached)) - reached
            if not further:
                break
            reached |= further
        assert module not in reached


@once
@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_command_line_prints_exits_and_reads_the_environment(path: Path) -> None:
    module = module_name(path)
    if room_of(module) in ("cli", "__main__", "pyz"):
        return
    allowed = {
        "leasectl.state.keeper_process": {"os.environ"},  # what it passes on to the keeper
        "leasectl.keeper.__main__": {"sys.argv", "os.environ"},
        # What it passes on to the program that says who we are.
        "leasectl.engines.kubernetes.api.credentials": {"os.environ"},
    }.get(module, set())
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    forbidden = {"os.environ", "os.getenv", "sys.argv", "sys.exit", "sys.stdout", "sys.stderr"}
    assert used & forbidden <= allowed


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that are loaded after a statement, in an interpreter of its own."""
    script = f"{statement}\nimport sys; print(*sys.modules)"
    # -S: no site, which may load anything for a .pth file; the paths are given instead.
    argv = [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{script}"]
    out = subprocess.check_output(argv, text=True, env=clean_environment())
    return {name.partition(".")[0] for name in out.split()}


# What a plain acquire or release on the embedded pool may load, on whatever Python: that is most of
# its time. What is added here is paid for by every command of every script.
STANDARD = {
    *("__future__", "abc", "collections", "contextlib", "encodings", "errno"),
    *("fcntl", "functools", "gc", "importlib", "itertools", "keyword", "math"),
    *("operator", "pwd", "reprlib", "select", "struct", "types", "warnings"),
}
OURS = {
    "backends": "contract kinds local opening pool pool.backend pool.turn",
    "cli": "app commands commands.acquire commands.release context described loaded options "
    "short_way shown shown.handle_output shown.output shown.waiting",
    "engines": "contract local local.engine local.queues local.sides local.store local.wait_pipes "
    "local.waiter refusals",
    "errors": "",
    "http": "named_file settings",
    "leases": "acquire adoption announce caller delay journal losses recovery release request "
    "scope_test service targets",
    "model": "",
    "state": "database directory event_rows handle_rows handles keeper_process keeper_version "
    "lock_file names_files pipes purging rows shared_leases timers",
    "system": "c_signal clock lock_wait named_pipe poll process process_watch signals",
    "text": "durations naming printable suggestions wording",
    "typed": "hints tuples",
}


@pytest.mark.parametrize(
    "line",
    [
        "acquire T",
        "acquire -t T --count 1 -w 0 -q --guard-pid 1 --release-after 20m --output names",
        "release --all",
    ],
)
def test_a_plain_acquire_or_release_loads_nothing_that_it_does_not_use(cli: Cli, line: str) -> None:
    cli.pool("T")
    script = (
        "import os, sys\n"
        "before, me = set(sys.modules), os.getpid()\n"
        "def end(code):\n"
        "    if os.getpid() == me:\n"  # and not what starts the keeper
        "        sys.stderr.write(' '.join(set(sys.modules) - before))\n"
        "        sys.stderr.flush()\n"
        "    leave(code)\n"
        "leave, os._exit = os._exit, end\n"
        "from leasectl.cli.app import main\n"
        "main()\n"
    )
    finished = cli.spawn([sys.executable, "-c", script, *line.split()]).finish()
    assert finished.code == 0
    loaded = set(finished.err.split())
    ours = {f"leasectl.{room}.{each}" for room, names in OURS.items() for each in names.split()}
    ours |= {"leasectl", *(f"leasectl.{room}" for room in OURS)}
    assert {each for each in loaded if each.startswith("leasectl")} <= ours
    standard = {each.partition(".")[0] for each in loaded if not each.startswith("leasectl")}
    assert {each for each in standard if not each.startswith("_")} <= STANDARD


# Each command that takes something from a server starts a keeper beside itself, and ends by sending
# what happened: what these load is waited for as much as its own.
@pytest.mark.parametrize("module", ["leasectl.keeper.loop", "leasectl.system.afterwards"])
def test_what_goes_on_beside_a_command_loads_nothing_that_it_does_not_use(module: str) -> None:
    dear = {"dataclasses", "datetime", "inspect", "json", "queue", "signal", "sqlite3", "ssl"}
    assert loaded_by(f"import {module}") & dear == set()


def test_what_is_forbidden_would_be_noticed() -> None:
    assert loaded_by("import httpx") >= {"httpx", "json", "ssl"}
