"""``python -m leasectl.keeper <state directory>``: what `leasectl.state.keeper_process` starts."""

from __future__ import annotations

import os
import sys

from leasectl.keeper.loop import main

if __name__ == "__main__":
    main(sys.argv[1], kept_events=os.environ.get("LEASECTL_KEEP_EVENTS", ""))
