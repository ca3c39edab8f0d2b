"""``python -m leasectl.keeper <state directory>``: what `leasectl.state.keeper_process` starts."""

from __future__ import annotations

import gc
import os
import sys

from leasectl.system.imports import import_with_less_ado

if __name__ == "__main__":
    gc.disable()  # importing makes no garbage worth looking for
    import_with_less_ado()
    from leasectl.keeper.loop import main

    gc.freeze()
    gc.enable()

    main(sys.argv[1], kept_events=os.environ.get("LEASECTL_KEEP_EVENTS", ""))
