"""What has become of a work so far, and what whoever has its turn is to do: pure functions.

A failure concerns those who waited when it happened, told by their tickets, and nobody who comes
later. Nor has a runner failed that died, or was ended: others take over. But if those who waited
see that happen again and again, something is wrong with the work.
"""

from __future__ import annotations

import json

from leasectl.errors import CorruptState
from leasectl.text.fields import MALFORMED, read_number
from leasectl.typed.tuples import NamedTuple

MOST_DEATHS = 5  # in a row, before those who waited for all of them give up


class Terms(NamedTuple):
    """What is agreed on in a round: as its first ticket said.

    Args:
        keep_seconds: How long its result is kept.
        attempts: How often the command may fail for who waits.
        shares: A failure is one for all who wait then, and isn't tried again for them.
        run_limit_seconds: How long the command may take; None for no limit.
    """

    keep_seconds: float
    attempts: int
    shares: bool
    run_limit_seconds: float | None


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
        last_ticket: That belongs to it, as far as that was looked at.
        terms: What is agreed on; None where nobody has begun.
        key: Of the work, for people.
    """

    failures: tuple[Failure, ...] = ()
    deaths: tuple[int, ...] = ()
    running: int | None = None
    last_ticket: int = 0
    terms: Terms | None = None
    key: str = ""


class Verdict(NamedTuple):
    """What whoever has its turn is to do, if not run.

    Args:
        status: To exit with as the command did; None where too many have died.
        times: How often it has failed, or how many have died.
    """

    status: int | None
    times: int


def of_ticket(found: Round, ticket: int) -> Round:
    """The round that a ticket belongs to: what was found, or a new one.

    Whoever comes after all is over that the others waited for begins a new one. Where a runner
    has died, nobody knows when: all who come to know of it belong to its round.
    """
    is_over = found.running is None and ticket > found.last_ticket
    return Round() if is_over else found


def verdict(found: Round, ticket: int, *, attempts: int) -> Verdict | None:
    """Whether a ticket that has its turn shares what has happened; None when it is to run.

    Args:
        found: What has become of the work.
        ticket: Its number.
        attempts: How often the command may fail for who waits.
    """
    mine = [each for each in found.failures if each.up_to >= ticket]
    if mine and (mine[-1].is_final or len(mine) >= attempts):
        return Verdict(mine[-1].status, len(mine))
    died = sum(up_to >= ticket for up_to in found.deaths)
    return Verdict(None, died) if died >= MOST_DEATHS else None


def died(found: Round, last_ticket: int) -> Round:
    """What has become of it when somebody has its turn; a runner that left no word has died.

    Args:
        found: What was there.
        last_ticket: The last that waits, or has its turn.
    """
    if found.running is None:
        return found
    deaths = (*found.deaths, last_ticket)
    return found._replace(deaths=deaths, running=None, last_ticket=last_ticket)


def begun(found: Round, fence: int, last_ticket: int, terms: Terms) -> Round:
    """What has become of it when a runner begins.

    Args:
        found: What was there.
        fence: Of the runner.
        last_ticket: The last that waits, or has its turn.
        terms: Of the runner, which count if it is the first.
    """
    found = died(found, last_ticket)
    return found._replace(running=fence, last_ticket=last_ticket, terms=found.terms or terms)


def failed(found: Round, status: int, last_ticket: int, *, is_final: bool) -> Round:
    """What has become of it when a runner's command has failed."""
    failures = (*found.failures, Failure(last_ticket, status, is_final))
    return found._replace(failures=failures, deaths=(), running=None, last_ticket=last_ticket)


def stopped(found: Round, last_ticket: int) -> Round:
    """What has become of it when a runner gives up that was asked to."""
    return found._replace(running=None, last_ticket=last_ticket)


def of_those_who_wait(found: Round, first_ticket: int | None) -> Round | None:
    """What of it concerns anybody; the rest needn't be kept.

    Args:
        found: What has become of the work.
        first_ticket: The first that waits; None when nobody does.

    Returns:
        None where nothing needs to be kept.
    """
    if first_ticket is None:
        return None if found.running is None else found._replace(failures=(), deaths=())
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
        running, terms = record["running"], record["terms"]
        return Round(
            tuple(Failure(int(a), int(b), bool(c)) for a, b, c in record["failures"]),
            tuple(int(read_number(each)) for each in record["deaths"]),
            None if running is None else int(read_number(running)),
            int(read_number(record["last_ticket"])),
            None if terms is None else _parse_terms(terms),
            str(record["key"]),
        )
    except MALFORMED as error:
        raise CorruptState(f"what is kept of a work can't be read: {error!r}") from error


def _parse_terms(record: list[object]) -> Terms:
    keep, attempts, shares, limit = record
    return Terms(
        read_number(keep),
        int(read_number(attempts)),
        bool(shares),
        None if limit is None else read_number(limit),
    )
