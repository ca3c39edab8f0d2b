"""``python -m leasectl``, and what the installed command calls."""

from __future__ import annotations

import os
import sys


def _search_pythonpath_last() -> None:
    """Let the modules of this installation come before those of PYTHONPATH.

    That is for the script's own programs, and may name another click. They get it unchanged.
    """
    named = os.environ.get("PYTHONPATH")
    if not named:
        return
    library = os.path.dirname(os.__file__)
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    foreign = {_absolute(each) for each in named.split(os.pathsep)} - {own}
    last = [each for each in sys.path if each in foreign and not each.startswith(library)]
    sys.path[:] = [each for each in sys.path if each not in last] + last


def _absolute(path: str) -> str:
    try:
        return os.path.abspath(path)
    except OSError:  # the working directory is gone
        return path


_search_pythonpath_last()

import signal  # noqa: E402

# Ctrl-C during the imports below ends the process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import gc  # noqa: E402
from typing import NoReturn  # noqa: E402


def main() -> NoReturn:
    """Run the command line of this process."""
    # Importing makes no garbage worth looking for, and the looking is a tenth of a short
    # command's time. It is turned on again once the command is loaded.
    gc.disable()
    from leasectl.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
