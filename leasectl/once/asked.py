"""What `once` is to do, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from leasectl.errors import LeaseError
from leasectl.model import Request
from leasectl.once.results import Kept
from leasectl.once.rounds import Round, Terms
from leasectl.once.work import Work
from leasectl.run.child import Ending
from leasectl.run.plan import Plan
from leasectl.text.durations import format_seconds
from leasectl.text.naming import work_label
from leasectl.typed.tuples import NamedTuple


class TooLarge(LeaseError):
    """A result is larger than what can be kept."""

    exit_code = 65


@dataclass(frozen=True)
class Asked:
    """What `once` is to do.

    Args:
        work: Which.
        command: What does it, and its arguments.
        terms: What its round goes by, if this is its first ticket.
        ttl_seconds: Of the lease; None for the backend's.
        verify: A shell command that tells whether a kept result can be used; None for any can.
        result_file: The file with the result; None for stdout.
        environ: The commands' environment.
    """

    work: Work
    command: Sequence[str]
    terms: Terms
    ttl_seconds: float | None = None
    verify: str | None = None
    result_file: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The lease under which it is done."""
        return Request(
            self.work.pool_type,
            ttl_seconds=self.ttl_seconds,
            labels=(work_label(self.work.key),),
        )

    @property
    def plan(self) -> Plan:
        """How the command is run under it."""
        return Plan(self.command, self.request, environ=self.environ)


class Outcome(NamedTuple):
    """What has come of it: a result, or how it has failed.

    Args:
        content: The result; None where there is none.
        kept: What is known of it.
        is_ours: Our command has got it; else it is another's.
        ending: How our command has failed; None where it hasn't, or hasn't run.
        status: What others' commands ended with, that have failed; None where none has.
        times: How often they did.
    """

    content: bytes | None = None
    kept: Kept | None = None
    is_ours: bool = False
    ending: Ending | None = None
    status: int | None = None
    times: int = 0


def terms_of(found: Round, asked: Asked) -> Terms:
    """By which terms a round goes."""
    return found.terms or asked.terms


def terms_text(terms: Terms) -> str:
    """Terms as the options that say the same."""
    parts = [
        f"--keep {format_seconds(terms.keep_seconds)}",
        f"--attempts {terms.attempts}",
        f"--on-failure {'share' if terms.shares else 'next'}",
    ]
    if terms.run_limit_seconds is not None:
        parts.append(f"--run-limit {format_seconds(terms.run_limit_seconds)}")
    return " ".join(parts)
