"""The format number of pools in etcd and Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leasectl.errors import CorruptState
from leasectl.text.wording import printable

# docs/etcd.md and docs/kubernetes-objects.md describe it.
FORMAT = 1


def check_format(settings: Mapping[str, Any], where: str) -> None:
    """Check that a pool is in the format of this version.

    Args:
        settings: Of the pool, as they were read.
        where: What they were read from.

    Raises:
        CorruptState: The pool is in another format.
    """
    found = settings.get("format")
    if found != FORMAT or found is True:
        raise CorruptState(
            f"{where} has format {printable(str(found), longest=20)}, this version of leasectl "
            f"reads {FORMAT}; use the version that created the pool, or create it again elsewhere"
        )
