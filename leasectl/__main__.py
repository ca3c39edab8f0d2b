"""``python -m leasectl``, and what the installed command calls."""

from __future__ import annotations

import gc

TYPE_CHECKING = False  # that of `typing` takes long to import
if TYPE_CHECKING:
    from leasectl.typed.hints import NoReturn

# Whoever presses Ctrl-C while all is imported is to see no traceback: until the command is loaded
# INT ends this process, as it does everywhere. This is of what `signal` is made, which takes long.
_signal = __import__("_signal")
if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def main() -> NoReturn:
    """Run the command line of this process."""
    # Importing makes no garbage worth looking for, and the looking is a tenth of a short
    # command's time. It is turned on again once the command is loaded.
    gc.disable()
    from leasectl.system.imports import import_with_less_ado

    import_with_less_ado()
    from leasectl.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
