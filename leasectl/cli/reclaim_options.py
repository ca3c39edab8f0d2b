"""What commands that take leases back have in common: how patiently."""

from __future__ import annotations

from leasectl.cli.described import WAITING, option
from leasectl.text.durations import parse_duration

delay = option(
    "--delay",
    "delay_seconds",
    group=WAITING,
    type=parse_duration,
    metavar="D",
    default="180s",
    show_default=True,
    help="Ask for what has been in excess for this long; a use in between, as far as it can be "
    "seen, begins it anew, and so does an answer keep.",
)
wait = option(
    "-w",
    "--wait",
    "wait_seconds",
    group=WAITING,
    type=parse_duration,
    metavar="WAIT",
    help="Wait for answers for this long. Default: one --delay.",
)
