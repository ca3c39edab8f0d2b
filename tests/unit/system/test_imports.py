"""Modules are found with less ado: the same ones, made of the same source, or none."""

from __future__ import annotations

import importlib.util
import inspect
import os
import py_compile
import subprocess
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Callable

import pytest

from leasectl.system.imports import _Finder, _Loader
from tests.kit.support import clean_environment

NAME = "leasectl.made_up"


def compiled(folder: Path, text: str, *, package: bool = False) -> Path:
    """A module that was compiled; returns its source."""
    source = folder / "made_up" / "__init__.py" if package else folder / "made_up.py"
    source.parent.mkdir(exist_ok=True)
    source.write_text(text, encoding="utf-8")
    py_compile.compile(str(source), doraise=True)
    return source


def found(folder: Path) -> ModuleSpec | None:
    return _Finder.find_spec(NAME, [str(folder)])


def run(spec: ModuleSpec | None) -> ModuleType:
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", [False, True])
def test_what_is_found_is_as_python_finds_it(tmp_path: Path, package: bool) -> None:
    compiled(tmp_path, "def f():\n    return 5\n", package=package)
    ours, theirs = found(tmp_path), PathFinder.find_spec(NAME, [str(tmp_path)])
    assert ours is not None
    assert theirs is not None
    for each in ("name", "origin", "cached", "has_location", "parent"):
        assert getattr(ours, each) == getattr(theirs, each)
    assert ours.submodule_search_locations == theirs.submodule_search_locations
    module, usual = run(ours), run(theirs)
    assert isinstance(ours.loader, _Loader)
    assert (module.f(), module.__file__, module.__cached__) == (
        5,
        usual.__file__,
        usual.__cached__,
    )
    assert inspect.getsource(module.f) == "def f():\n    return 5\n"
    assert ours.loader.get_code(NAME) == run(ours).__spec__.loader.get_code(NAME)  # type: ignore[union-attr]


def newer(source: Path) -> None:
    os.utime(source, (1, source.stat().st_mtime + 2))


def longer(source: Path) -> None:
    before = source.stat()
    source.write_text("x = 1000\n")
    os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))


def cache_of(source: Path) -> Path:
    return Path(importlib.util.cache_from_source(str(source)))


def damaged(at: int, data: bytes) -> Callable[[Path], None]:
    def damage(source: Path) -> None:
        content = bytearray(cache_of(source).read_bytes())
        content[at : at + len(data)] = data
        cache_of(source).write_bytes(content)

    return damage


def cut(to: int) -> Callable[[Path], None]:
    def change(source: Path) -> None:
        cache_of(source).write_bytes(cache_of(source).read_bytes()[:to])

    return change


@pytest.mark.parametrize(
    "change",
    [
        newer,
        longer,
        lambda source: cache_of(source).unlink(),
        lambda source: source.unlink(),
        damaged(0, b"\0\0"),
        damaged(4, b"\2"),
        damaged(4, b"\3"),  # valid if the source has that hash
        damaged(16, b"\xff"),
        damaged(16, bytes(1 << 18)),
        *(cut(to) for to in (0, 3, 8, 12, 16, 20)),
    ],
)
def test_what_isnt_as_it_was_compiled_is_left_to_python(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    source = compiled(tmp_path, "x = 1\n")
    assert run(found(tmp_path)).x == 1
    change(source)
    assert found(tmp_path) is None


def test_what_is_said_to_be_right_whatever_its_source_is_like_is_taken(tmp_path: Path) -> None:
    source = compiled(tmp_path, "x = 1\n")
    py_compile.compile(
        str(source), doraise=True, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    newer(source)
    longer(source)
    assert (run(found(tmp_path)).x, run(PathFinder.find_spec(NAME, [str(tmp_path)])).x) == (1, 1)


def test_only_modules_of_this_package_in_its_one_folder_are_found(tmp_path: Path) -> None:
    compiled(tmp_path, "x = 1\n")
    assert _Finder.find_spec("other.made_up", [str(tmp_path)]) is None
    assert _Finder.find_spec("made_up", [str(tmp_path)]) is None
    assert _Finder.find_spec(NAME) is None
    assert _Finder.find_spec(NAME, [str(tmp_path), str(tmp_path)]) is None


@pytest.mark.parametrize(
    ("options", "is_used"),
    [([], True), (["-O"], False), (["-X", "pycache_prefix=/nowhere"], False), (["-B"], True)],
)
def test_a_command_uses_it_where_python_keeps_what_it_compiles(
    tmp_path: Path, options: list[str], is_used: bool
) -> None:
    script = (
        "import os, sys\n"
        "leave, os._exit = os._exit, lambda code: print(sys.meta_path, flush=True) or leave(code)\n"
        "sys.argv[1:] = ['cat', '-h']\n"
        "from leasectl.__main__ import main\n"
        "main()\n"
    )
    # Nothing is written where that prefix is.
    argv = [sys.executable, "-B", *options, "-c", script]
    environment = {**clean_environment(), "LEASECTL_STATE_DIR": str(tmp_path)}
    out = subprocess.run(argv, capture_output=True, text=True, env=environment).stdout
    assert ("leasectl.system.imports" in out) is is_used
