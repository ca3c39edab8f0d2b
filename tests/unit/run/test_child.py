"""leasectl.run.child: what a command begins with."""

from __future__ import annotations

import os
import signal

import pytest

from leasectl.run.child import Child, Ending
from leasectl.system.signals import SignalDescriptor


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.default_int_handler])
def test_sigint_stays_ignored_if_it_was(
    signals: SignalDescriptor, handler: signal.Handlers
) -> None:
    """As of what a shell has in the background: Ctrl-C isn't meant for it."""
    before = signal.signal(signal.SIGINT, handler)
    read, write = os.pipe()
    argv = ("/bin/sh", "-c", "grep SigIgn /proc/self/status")
    child = Child(argv[0], argv, dict(os.environ), signals, stdout=write)
    signal.signal(signal.SIGINT, before)
    os.close(write)
    child.start()
    assert child.reap() == Ending(0)
    with os.fdopen(read) as said:
        ignored = int(said.read().split()[1], 16)
    assert bool(ignored & 1 << signal.SIGINT - 1) == (handler is signal.SIG_IGN)
