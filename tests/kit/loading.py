"""Loading all code before anything is forked, so that forked processes needn't."""

from __future__ import annotations

import importlib
import pkgutil

import leasectl

# What modules of leasectl, or of those they import, load when they first need it.
_LATE = ("certifi", "ctypes", "difflib", "encodings.idna", "httpcore", "json", "pwd", "random")


def load_everything() -> None:
    """Import every module of leasectl, and what some import only when they need it.

    Else a process that is killed at each of its calls into the system is also killed while it
    imports, where nothing is at stake.
    """
    for module in pkgutil.walk_packages(leasectl.__path__, "leasectl."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    for name in _LATE:
        importlib.import_module(name)
