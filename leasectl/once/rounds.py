"""What has become of a work so far, and what whoever has its turn is to do: pure functions.

A failure concerns those who waited when it happened, told by their tickets, and nobody who comes
later. Nor has a runner failed that died, or was ended: others take over. But if those who waited
see that happen again and again, something is wrong with the work.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from leasectl.errors import CorruptState
from leasectl.text.fields import MALFORMED, read_number

MOST_DEATHS = 5  # in a row, before those who waited for all of them give up


class Failure(NamedTuple):
    """That a runner's command has failed.

    Args:
        up_to: The number of the last ticket that was waiting then.
        status: The command's.
        is_final: It is shared at once with all who waited, and not tried again for them.
    """

    up_to: int
    status: int
    is_final: bool


class Round(NamedTuple):
    """What has become of a work since its last result.

    Args:
        failures: In their order.
        deaths: For each runner that died since the last failure, the last ticket that waited then.
        running: The fence of who runs, or died doing it; None for nobody.
    """

    failures: tuple[Failure, ...] = ()
    deaths: tuple[int, ...] = ()
    running: int | None = None


class Verdict(NamedTuple):
    """What whoever has its turn is to do, if not run.

    Args:
        status: To exit with as the command did; None where too many have died.
    """

    status: int | None


def verdict(found: Round, ticket: int, *, attempts: int) -> Verdict | None:
    """Whether a ticket that has its turn shares what has happened; None when it is to run.

    Args:
        found: What has become of the work.
        ticket: Its number.
        attempts: How often the command may fail for who waits.
    """
    mine = [each for each in found.failures if each.up_to >= ticket]
    if mine and (mine[-1].is_final or len(mine) >= attempts):
        return Verdict(mine[-1].status)
    died = sum(up_to >= ticket for up_to in found.deaths)
    return Verdict(None) if died >= MOST_DEATHS else None


def begun(found: Round, fence: int, last_ticket: int) -> Round:
    """What has become of it when a runner begins; one that didn't say how it ended has died.

    Args:
        found: What was there.
        fence: Of the runner.
        last_ticket: The last that waits.
    """
    deaths = found.deaths if found.running is None else (*found.deaths, last_ticket)
    return found._replace(deaths=deaths, running=fence)


def failed(found: Round, status: int, last_ticket: int, *, is_final: bool) -> Round:
    """What has become of it when a runner's command has failed."""
    failure = Failure(last_ticket, status, is_final)
    return Round(failures=(*found.failures, failure))


def stopped(found: Round) -> Round:
    """What has become of it when a runner gives up that was asked to."""
    return found._replace(running=None)


def of_those_who_wait(found: Round, first_ticket: int | None) -> Round:
    """What of it concerns anybody; the rest needn't be kept.

    Args:
        found: What has become of the work.
        first_ticket: The first that waits; None when nobody does.
    """
    if first_ticket is None:
        return Round(running=found.running)
    return found._replace(
        failures=tuple(each for each in found.failures if each.up_to >= first_ticket),
        deaths=tuple(each for each in found.deaths if each >= first_ticket),
    )


def encode_round(found: Round) -> bytes:
    """Write it; `parse_round` reads it back."""
    return json.dumps(found._asdict()).encode()


def parse_round(content: bytes) -> Round:
    """Read what `encode_round` wrote.

    Raises:
        CorruptState: It is something else.
    """
    try:
        record = json.loads(content)
        running = record["running"]
        return Round(
            tuple(Failure(int(a), int(b), bool(c)) for a, b, c in record["failures"]),
            tuple(int(read_number(each)) for each in record["deaths"]),
            None if running is None else int(read_number(running)),
        )
    except MALFORMED as error:
        raise CorruptState(f"what is kept of a work can't be read: {error!r}") from error
