"""The log of everything that happened: JSON lines, in the order in which it happened.

Each line has ``at`` (CLOCK_MONOTONIC in seconds, comparable between processes), ``seq`` (one up
from line to line) and ``event``. `history.py` reads it.
"""

from __future__ import annotations

import json
import os
import time


class Log:
    """An append-only file; what is in it survives any death of the writer.

    Args:
        path: Where it is appended to.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._seq = 0

    def write(self, event: str, **fields: object) -> None:
        """Append one event in one write."""
        self._seq += 1
        entry = {"at": round(time.monotonic(), 6), "seq": self._seq, "event": event, **fields}
        os.write(self._file, json.dumps(entry).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)
