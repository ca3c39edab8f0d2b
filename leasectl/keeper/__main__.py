"""``python -m leasectl.keeper DIRECTORY``."""

from __future__ import annotations

import gc
import os
import sys

if __name__ == "__main__":
    gc.disable()  # importing makes no garbage worth looking for
    from leasectl.keeper.loop import main

    gc.freeze()
    gc.enable()

    main(sys.argv[1], kept_events=os.environ.get("LEASECTL_KEEP_EVENTS", ""))
