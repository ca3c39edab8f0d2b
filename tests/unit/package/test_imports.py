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

PACKAGE = Path(leasectl.__file__).parent

# From the ground up: a module imports only from its own layer and those before it.
LAYERS = (
    ("errors", "model", "text", "system"),
    ("state", "http"),
    ("engines",),
    ("backends",),
    ("leases",),
    ("pools", "run"),
    ("keeper", "doctor", "server"),
    ("shell", "cli", "__main__"),
    ("pyz",),
)
LAYER_OF = {part: number for number, parts in enumerate(LAYERS) for part in parts}


def module_name(path: Path) -> str:
    return ".".join(("leasectl", *path.relative_to(PACKAGE).with_suffix("").parts))


def part_of(module: str) -> str:
    """The module or package right below leasectl."""
    return module.split(".")[1] if "." in module else ""


MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def own_imports(source: str) -> Iterator[str]:
    """The modules of leasectl that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("leasectl."))
        elif isinstance(node, ast.ImportFrom) and node.module == "leasectl":
            yield from (f"leasectl.{a.name}" for a in node.names if not a.name.startswith("__"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("leasectl."):
            yield str(node.module)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path: Path) -> None:
    module = module_name(path)
    assert part_of(module) in LAYER_OF, f"say in LAYERS where {module} belongs"
    upward = [
        imported
        for imported in own_imports(path.read_text(encoding="utf-8"))
        if LAYER_OF[part_of(imported)] > LAYER_OF[part_of(module)]
    ]
    assert upward == []


def test_an_import_that_points_the_wrong_way_would_be_noticed() -> None:
    source = "def f():\n    from leasectl.leases.service import Service\n"
    source += "    from leasectl import state\n"
    assert list(own_imports(source)) == ["leasectl.leases.service", "leasectl.state"]
    assert LAYER_OF["leases"] > LAYER_OF[part_of("leasectl.engines.local.engine")]


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


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_only_the_command_line_prints_exits_and_reads_the_environment(path: Path) -> None:
    module = module_name(path)
    if part_of(module) in ("cli", "__main__", "pyz"):
        return
    allowed = {
        "leasectl.state.keeper_process": {"os.environ"},  # what it passes on to the keeper
        "leasectl.keeper.__main__": {"sys.argv"},
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


FORBIDDEN = {
    "asyncio",
    "ctypes",
    "difflib",
    "filelock",
    "httpx",
    "json",
    "logging",
    "multiprocessing",
    "random",
    "shlex",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "tenacity",
    "unittest",
    "urllib",
    "yaml",
}


def test_an_acquire_loads_nothing_that_it_does_not_use() -> None:
    by_click = loaded_by("import click")
    assert not by_click & {"httpx", "tenacity", "filelock", "json", "asyncio"}
    loaded = loaded_by("import leasectl.cli.app, leasectl.cli.acquire")
    assert loaded & FORBIDDEN <= by_click


def test_the_commands_of_other_modules_are_not_loaded() -> None:
    script = "import leasectl.cli.app, leasectl.cli.acquire, sys\nprint(*sys.modules)"
    out = subprocess.check_output([sys.executable, "-c", script], text=True)
    ours = {name for name in out.split() if name.startswith("leasectl.")}
    assert not ours & {"leasectl.keeper.loop", "leasectl.run.runner", "leasectl.cli.run"}


def test_a_whole_acquire_and_release_loads_nothing_more(cli: Cli) -> None:
    cli.pool("T")
    script = (
        "import os, sys\n"
        "before = set(sys.modules)\n"
        "def end(code):\n"
        "    sys.stderr.write(' '.join(set(sys.modules) - before))\n"
        "    sys.stderr.flush()\n"
        "    leave(code)\n"
        "leave, os._exit = os._exit, end\n"
        "from leasectl.cli.app import main\n"
        "main()\n"
    )
    by_click = loaded_by("import click")
    # Not -t: to find that it is no long option, click looks for what it may resemble.
    for args in (["acquire", "--type", "T"], ["release", "--all"]):
        finished = cli.spawn([sys.executable, "-c", script, *args]).finish()
        assert finished.code == 0
        loaded = {name.partition(".")[0] for name in finished.err.split()}
        assert "leasectl" in loaded
        assert loaded & FORBIDDEN <= by_click


def test_what_is_forbidden_would_be_noticed() -> None:
    assert loaded_by("import httpx") >= {"httpx", "json", "ssl"}
