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

# Packages that the keeper of embedded pools may need at any time.
_OWN_PACKAGES = (
    "leasectl.keeper",
    "leasectl.state",
    "leasectl.system",
    "leasectl.leases",
    "leasectl.engines.local",
    "leasectl.engines.rules",
    "leasectl.backends.local",
)
# What releases and renewals on every server may need besides its backend and engine.
_SERVER_PACKAGES = (
    "leasectl.http",
    "leasectl.backends.release_tries",
    "leasectl.backends.unanswered",
)
_loaded: set[str] = set()  # packages, with all modules below them


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


def load_own_code() -> None:
    """Load what embedded pools and the records may need: later, the installation may be gone."""
    for each in _OWN_PACKAGES:
        _load(each)


def load_code_for(url: str) -> None:
    """Load what a backend may need, as soon as the keeper has something to do with it."""
    try:
        module = kind_of(url).__module__
    except InvalidRequest:  # a damaged record; another job reports it
        return
    name = "".join(module.split(".")[2:3])
    if f"leasectl.backends.{name}" not in _OWN_PACKAGES:
        engine = f"leasectl.engines.{name}"
        for each in (*_SERVER_PACKAGES, f"leasectl.backends.{name}", engine):
            _load(each)
        if engine in sys.modules:
            _load("leasectl.engines.cluster")
        with contextlib.suppress(ImportError):
            importlib.import_module("tenacity")  # the backends import it where they use it


def _load(name: str) -> None:
    """Import a package, and all that is below it, as far as it is there: most may not be needed."""
    if name in _loaded:
        return
    _loaded.add(name)
    with contextlib.suppress(ImportError):
        package = importlib.import_module(name)
        for each in pkgutil.walk_packages(getattr(package, "__path__", ()), f"{name}."):
            if not each.name.endswith(".__main__"):
                with contextlib.suppress(ImportError):
                    importlib.import_module(each.name)
