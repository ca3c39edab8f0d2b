"""As whom Boskos knows an acquisition: ``<job>/<build>/<host>/<type>-XXXXXX/<acquisition>``.

That is its claim key, as `leasectl.backends.kinds` makes it. No other acquisition has the same,
here or on another machine, so how many resources it owns tells what came of requests whose answers
were lost.
"""

from __future__ import annotations


def type_of(owner: str) -> str:
    """The type that an owner has asked for: what its handle is named after."""
    return owner.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
