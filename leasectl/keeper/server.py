"""Which server a job is for, and the code that asking it takes."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import sys
from typing import NamedTuple

from leasectl.backends.kinds import kind_of, kind_of_handle
from leasectl.errors import InvalidRequest
from leasectl.model import Handle

# Packages and modules that a keeper may need at any time, and those for leases on any server.
_OWN = ("leasectl.keeper", "leasectl.state", "leasectl.system", "leasectl.leases")
_ON_SERVERS = (
    "leasectl.http",
    "leasectl.backends.release_tries",
    "leasectl.backends.unanswered",
    "leasectl.pools.joining",
)
_loaded: set[str] = set()  # modules of backends, with all code that a keeper may need for them


class Server(NamedTuple):
    """A server with the settings to talk to it; each has a thread of its own.

    Args:
        url: Of the backend.
        settings: How to talk to it, as a record has them.
    """

    url: str
    settings: str


def server_of(handle: Handle | None) -> Server | None:
    """Return the server that a handle's leases come from; None if there is none."""
    if handle is None or not kind_of_handle(handle).remote:
        return None
    return Server(handle.backend, handle.settings)


def load_code_for(url: str) -> None:
    """Load all code that a keeper may need for a backend: later, the installation may be gone."""
    try:
        name = "".join(kind_of(url).__module__.split(".")[2:3])
    except InvalidRequest:  # a damaged record; another job reports it
        return
    if name in _loaded:
        return
    _loaded.add(name)
    is_local = name == "local"
    needed = _OWN if is_local else _ON_SERVERS
    for each in (*needed, f"leasectl.backends.{name}", f"leasectl.engines.{name}"):
        _load(each)
    # All of each engine that has begun to load: one may be built on another.
    for each in {".".join(each.split(".")[:3]) for each in list(sys.modules)}:
        if each.startswith("leasectl.engines."):
            _load(each)
    if not is_local:
        with contextlib.suppress(ImportError):
            importlib.import_module("tenacity")  # the backends import it where they use it


def _load(name: str) -> None:
    """Import a module, and all below it if it is a package; most of it may not be needed."""
    with contextlib.suppress(ImportError):
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not each.name.endswith(".__main__"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(each.name)
