"""Open the API for a URL."""

from __future__ import annotations

import time
from collections.abc import Callable

from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.login import FileLogin
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.system.clock import Clock


def open_api(
    choice: ClusterChoice,
    *,
    clock: Clock,
    deadline_seconds: float = 10.0,
    attempt_seconds: float = 4.0,
    busy_seconds: float | None = None,
    rest_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> Api:
    """Open a cluster's API; nothing is asked of it yet, and no file is read.

    Args:
        choice: As `choose` made it of an address, or `parse_choice` read it from a record.
        clock, deadline_seconds, attempt_seconds, busy_seconds, rest_seconds, pause: As `Api` has
            them.
    """
    return Api(
        FileLogin(choice, clock=clock),
        clock=clock,
        deadline_seconds=deadline_seconds,
        attempt_seconds=attempt_seconds,
        busy_seconds=busy_seconds,
        rest_seconds=rest_seconds,
        pause=pause,
    )
