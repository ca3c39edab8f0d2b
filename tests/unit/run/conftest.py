"""What tests of the parts of `run` work on; whole processes have a state directory of their own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from leasectl.state import keeper_process
from leasectl.system import signals as signals_module
from leasectl.system.process import this_process
from leasectl.system.signals import SignalDescriptor
from tests.kit.desk import desk as desk
from tests.kit.marks import marked_below

# What a child and a signal do differs between Pythons.
pytest_collection_modifyitems = marked_below(__file__, pytest.mark.processes)


@pytest.fixture
def keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keeper that lives, as far as `run` can tell."""
    monkeypatch.setattr(keeper_process, "running", lambda state: this_process())


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Iterator[SignalDescriptor]:
    """What `run` has of them; a process ends with its own, and later tests are to have none."""
    monkeypatch.setattr(signals_module, "_current", None)
    descriptor = SignalDescriptor((signal.SIGTERM, signal.SIGUSR1))
    yield descriptor
    signal.pthread_sigmask(signal.SIG_SETMASK, descriptor.mask_before)
    os.close(descriptor.fd)


@pytest.fixture
def signals_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`run` blocks signals for good, and whatever is started afterwards would inherit that."""
    monkeypatch.setattr(signals_module, "_current", None)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    yield
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
