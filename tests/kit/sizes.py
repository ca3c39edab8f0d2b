"""How much of a long test is done: a part of it in CI, all of it on request."""

from __future__ import annotations

import os

# Of what is killed at each of its steps: every one of them, where a sweep else takes every n-th.
EVERY_KILL = bool(os.environ.get("LEASECTL_TEST_EVERY_KILL"))
# Of what many do at once: as many as people may have.
FULL_SIZE = bool(os.environ.get("LEASECTL_TEST_FULL_SIZE"))
