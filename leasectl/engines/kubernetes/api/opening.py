"""From a URL to the API of its cluster."""

from __future__ import annotations

import time

from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.login import FileLogin
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.system.clock import Clock
from leasectl.typed.hints import Callable


def open_api(
    choice: ClusterChoice,
    *,
    clock: Clock,
    deadline_seconds: float = 10.0,
    attempt_seconds: float = 4.0,
    rest_seconds: float = 0.0,
    pause: Callable[[float], object] = time.sleep,
) -> Api:
    """Open a cluster's API; nothing is asked of it yet, and no file is read.

    Args:
        choice: As `choose` made it of an address, or `parse_choice` read it from a record.
        clock, deadline_seconds, attempt_seconds, rest_seconds, pause: As `Api` has them.
    """
    return Api(
        FileLogin(choice, clock=clock),
        clock=clock,
        deadline_seconds=deadline_seconds,
        attempt_seconds=attempt_seconds,
        rest_seconds=rest_seconds,
        pause=pause,
    )
