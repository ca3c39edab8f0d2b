"""What is wanted of the warden of a command that ends with us, a line each.

Or a time of CLOCK_BOOTTIME in seconds: at that all is killed.
"""

from __future__ import annotations

FOR_GOOD = b"-"  # at no time
KILL = b"kill"  # all, now; it is answered with the same word
CONTINUE = b"continue"  # a stopped command
LET_GO = b"go"  # be gone, and leave what the command has left behind
