"""``python -m leasectl``, and what the installed command calls."""

from __future__ import annotations

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process."""
    # Importing makes no garbage worth looking for, and the looking is a tenth of a short
    # command's time. It is turned on again once the command is loaded.
    gc.disable()
    from leasectl.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
