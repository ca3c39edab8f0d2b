"""Read, record and forget results and rounds of work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import claim_key_of
from leasectl.engines.values import CONTENT, Guard, Value, ValueChange, Values
from leasectl.errors import (
    CorruptState,
    InvalidRequest,
    LeaseError,
    NoLease,
    NotAllowed,
    NotFound,
)
from leasectl.leases.acquire import acquire
from leasectl.leases.on_demand import PoolOnDemand, is_needed, round_key
from leasectl.leases.release import finish
from leasectl.leases.service import Service
from leasectl.model import Handle, Request
from leasectl.once.error_output import safe_lines
from leasectl.once.work import Work, is_work_id
from leasectl.run.child import Ending
from leasectl.run.plan import Plan
from leasectl.state.event import Event
from leasectl.text.durations import format_seconds
from leasectl.text.naming import FOLLOWER_LABEL, LONGEST_KEY
from leasectl.text.properties import (
    MALFORMED,
    read_json,
    read_number,
    read_text,
    reason_of,
)
from leasectl.text.wording import listed, printable

_LONGEST_KEEP_SECONDS = 3650 * 86400.0
MOST_DEATHS = 5  # in a row, before those who waited for all of them give up


class Terms(NamedTuple):
    """The retry rules of a round, as its first ticket set them.

    Args:
        keep_seconds: How long its result is kept.
        attempts: After how many failures of the command a waiter gives up.
        shares: A failure counts for all who wait then, and isn't tried again for them.
        run_limit_seconds: How long the command may take; None for no limit.
    """

    keep_seconds: float
    attempts: int
    shares: bool
    run_limit_seconds: float | None


class Failure(NamedTuple):
    """A failure of a runner's command.

    Args:
        up_to: The number of the last ticket that was waiting then.
        status: The command's exit status.
        is_final: It is shared at once with all who waited, and not tried again for them.
        lines: The last that the command wrote to stderr; only of the latest failure.
    """

    up_to: int
    status: int
    is_final: bool
    lines: str = ""


class Round(NamedTuple):
    """What has happened to a work since its last result.

    Args:
        failures: In their order.
        deaths: For each runner that died since the last failure, the last ticket that waited then.
        running: The fence of the runner, also of one that died; None for no runner.
        last_ticket: The last ticket of this round, as far as it was looked at.
        terms: The retry rules that the waiters agreed on; None before the first runner.
        key: Of the work, for people.
    """

    failures: tuple[Failure, ...] = ()
    deaths: tuple[int, ...] = ()
    running: int | None = None
    last_ticket: int = 0
    terms: Terms | None = None
    key: str = ""


class Verdict(NamedTuple):
    """What the waiter whose turn it is has to do, other than run the command.

    Args:
        status: The failed command's, to exit with; None where too many runners have died.
        times: How often the command has failed, or how many runners have died.
        lines: The last that the failed command wrote to stderr.
    """

    status: int | None
    times: int
    lines: str = ""


@dataclass(frozen=True)
class Asked:
    """The work that `once` was asked for, and how to do it.

    Args:
        work: The work.
        command: The command that does it, with its arguments.
        terms: The retry rules, if this is the first ticket of a round.
        ttl_seconds: Of the lease; None for the backend's.
        verify: A shell command that checks whether a kept result can be used; None to use any.
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
        """The request for the work's lease."""
        return Request(
            self.work.pool_type,
            ttl_seconds=self.ttl_seconds,
            labels=self.work.labels,
        )

    @property
    def following_request(self) -> Request:
        """The request of a runner whose command failed, while others may still succeed."""
        return self.request._replace(labels=(*self.request.labels, FOLLOWER_LABEL))

    @property
    def plan(self) -> Plan:
        """The plan to run the command under the lease."""
        return Plan(self.command, self.request, environ=self.environ)


class Outcome(NamedTuple):
    """The outcome of a work: a result, or how it has failed.

    Args:
        content: The result; None if there is none.
        kept: The facts about the result.
        is_ours: Our command has produced it; else another's has.
        ending: How our command has failed; None if it hasn't, or hasn't run.
        error: Why our command failed, if its ending doesn't tell.
        status: The exit status of others' failed commands; None if none has failed.
        times: How often they failed.
        lines: The last that the latest of them wrote to stderr.
    """

    content: bytes | None = None
    kept: Kept | None = None
    is_ours: bool = False
    ending: Ending | None = None
    error: LeaseError | None = None
    status: int | None = None
    times: int = 0
    lines: str = ""

    @property
    def has_failed(self) -> bool:
        """Whether our own command has run and failed."""
        return self.ending is not None or self.error is not None


def check_terms(terms: Terms) -> None:
    """Refuse terms that no round can have, with InvalidRequest."""
    if not 1 <= terms.keep_seconds <= _LONGEST_KEEP_SECONDS:
        keep = format_seconds(terms.keep_seconds)
        raise InvalidRequest(f"--keep {keep}: use a time from 1s to 3650d")
    if terms.run_limit_seconds is not None and terms.run_limit_seconds <= 0:
        raise InvalidRequest("invalid --run-limit 0; omit it for no limit")


def terms_of(found: Round, asked: Asked) -> Terms:
    """Return the retry rules of a round."""
    return found.terms or asked.terms


def terms_text(terms: Terms) -> str:
    """Return retry rules as the options that set them."""
    parts = [
        f"--keep {format_seconds(terms.keep_seconds)}",
        f"--attempts {terms.attempts}",
        f"--on-failure {'share' if terms.shares else 'next'}",
    ]
    if terms.run_limit_seconds is not None:
        parts.append(f"--run-limit {format_seconds(terms.run_limit_seconds)}")
    return " ".join(parts)


def of_ticket(found: Round, ticket: int) -> Round:
    """Return the round that a ticket belongs to: the round that was found, or a new one.

    A ticket that is drawn after the end of the round that the others waited for begins a new one.
    When a runner died isn't known: all waiters who see its death belong to its round.
    """
    is_over = found.running is None and ticket > found.last_ticket
    return Round() if is_over else found


def verdict(found: Round, ticket: int, *, attempts: int) -> Verdict | None:
    """Return the verdict for a ticket that has its turn; None if it has to run the command.

    Args:
        found: The round.
        ticket: The ticket's number.
        attempts: After how many failures of the command a waiter gives up.
    """
    mine = [each for each in found.failures if each.up_to >= ticket]
    if mine and (mine[-1].is_final or len(mine) >= attempts):
        return Verdict(mine[-1].status, len(mine), mine[-1].lines)
    died = sum(up_to >= ticket for up_to in found.deaths)
    return Verdict(None, died) if died >= MOST_DEATHS else None


def died(found: Round, last_ticket: int) -> Round:
    """Return the round at the start of a turn; a runner that left no outcome has died.

    Args:
        found: The round as it was stored.
        last_ticket: The last that waits, or has its turn.
    """
    if found.running is None:
        return found
    deaths = (*found.deaths, last_ticket)
    return found._replace(deaths=deaths, running=None, last_ticket=last_ticket)


def begun(found: Round, fence: int, last_ticket: int, terms: Terms) -> Round:
    """Return the round after a runner has begun.

    Args:
        found: The round before.
        fence: Of the runner.
        last_ticket: The last that waits, or has its turn.
        terms: Of the runner, which count if it is the first.
    """
    found = died(found, last_ticket)
    return found._replace(running=fence, last_ticket=last_ticket, terms=found.terms or terms)


def failed(
    found: Round, status: int, last_ticket: int, *, is_final: bool, lines: str = ""
) -> Round:
    """Return the round after a runner's command has failed."""
    before = [each._replace(lines="") for each in found.failures]  # the store is small
    failures = (*before, Failure(last_ticket, status, is_final, lines))
    return found._replace(failures=failures, deaths=(), running=None, last_ticket=last_ticket)


def stopped(found: Round, last_ticket: int) -> Round:
    """Return the round after a runner was told to end and gave up."""
    return found._replace(running=None, last_ticket=last_ticket)


def of_those_who_wait(found: Round, first_ticket: int | None) -> Round | None:
    """Return the part of a round that still concerns a waiter; the rest can be forgotten.

    Args:
        found: The round.
        first_ticket: The first that waits; None when none waits.

    Returns:
        None where nothing has to be kept.
    """
    if first_ticket is None:
        return None if found.running is None else found._replace(failures=(), deaths=())
    return found._replace(
        failures=tuple(each for each in found.failures if each.up_to >= first_ticket),
        deaths=tuple(each for each in found.deaths if each >= first_ticket),
    )


def encode_round(found: Round) -> bytes:
    """Write a round; `parse_round` reads it back."""
    return json.dumps(found._asdict()).encode()


def parse_round(content: bytes) -> Round:
    """Read the text of `encode_round`.

    Raises:
        CorruptState: It is something else.
    """
    try:
        record = read_json(content)
        running, terms = record["running"], record["terms"]
        return Round(
            tuple(_parse_failure(*each) for each in record["failures"]),
            tuple(int(read_number(each)) for each in record["deaths"]),
            None if running is None else int(read_number(running)),
            int(read_number(record["last_ticket"])),
            None if terms is None else _parse_terms(terms),
            str(record["key"]),
        )
    except MALFORMED as error:
        raise CorruptState(f"a record of work can't be read: {reason_of(error)}") from error


def _parse_failure(up_to: object, status: object, is_final: object, lines: object) -> Failure:
    last, code = int(read_number(up_to)), int(read_number(status))
    return Failure(last, code, bool(is_final), safe_lines(read_text(lines)))


def _parse_terms(record: list[object]) -> Terms:
    keep, attempts, shares, limit = record
    return Terms(
        read_number(keep),
        int(read_number(attempts)),
        bool(shares),
        None if limit is None else read_number(limit),
    )


POINTERS, _CONTENTS, _FAILURES = "once/result/", f"once/{CONTENT}/", "once/failed/"
# Longer than a runner repeats a request to a server that doesn't answer.
_FAILURE_KEPT_SECONDS = 3600.0
# A content is written before its pointer, and must not expire before it.
_KEPT_LONGER_SECONDS = 3600.0


class Kept(NamedTuple):
    """A kept result.

    Args:
        work: The work.
        fence: Of the lease under which it was produced.
        holder_identity: Of that lease's holder.
        seconds: How long the command took.
        size: Of the content, in bytes.
        written_at: When, wall clock, in seconds since the epoch.
        keep_seconds: How long it is kept from then on.
        version: Unique among all results.
    """

    work: Work
    fence: int
    holder_identity: str
    seconds: float
    size: int
    written_at: float = 0.0
    keep_seconds: float = 0.0
    version: int = 0


class Results:
    """The results and rounds that a store keeps.

    Args:
        values: Of the store.
    """

    def __init__(self, values: Values) -> None:
        self._values = values

    def kept(self, work: Work) -> Kept | None:
        """Return the result of a work, if one is kept."""
        found = self._values.get(POINTERS + work.digest)
        return None if found is None else _parse_pointer(found)

    def content(self, kept: Kept) -> bytes | None:
        """Return the content of a result; None if it has gone meanwhile."""
        found = self._values.get(_content_key(kept.work, kept.fence))
        return None if found is None else found.content

    def all_kept(self) -> list[Kept]:
        """Return all kept results."""
        return kept_in(self._values.read(POINTERS))

    def find_named(self, work: Work) -> Kept | None:
        """Find the kept result that a command line means.

        A result of exactly this key and these inputs comes first. Otherwise a key without inputs
        may be an id as ``--list`` shows it, or a longer part of the digest.
        """
        kept = self.kept(work)
        if kept is not None or work.inputs or not is_work_id(work.key):
            return kept
        found = [each for each in self.all_kept() if each.work.digest.startswith(work.key)]
        return found[0] if len(found) == 1 else None

    def not_kept(self, work: Work) -> NotFound:
        """Return the error for a work without a kept result; it names those of other inputs."""
        others = [each.work for each in self.all_kept() if each.work.key == work.key]
        which = work.title if work.inputs else f"{work.title} without inputs"
        hint = "list all with: leasectl once --list"
        if others:
            known = listed(others, lambda each: f"{each.id} ({each.inputs or 'no inputs'})")
            hint = f"results with other inputs, by id: {known}"
        return NotFound(f"no kept result of work {which}; {hint}")

    def round(self, work: Work) -> Round:
        """Return what has happened to a work since its last result."""
        found = self._values.get(round_key(work.pool_type))
        return Round() if found is None else parse_round(found.content)

    def has_failed(self, work: Work, fence: int) -> bool:
        """Return whether a runner's failure was recorded."""
        return self._values.get(_failure_key(work, fence)) is not None

    def tidy(self) -> None:
        """Remove expired values, if the store doesn't do so by itself."""
        self._values.tidy()


def kept_in(values: Iterable[Value]) -> list[Kept]:
    """Return the results whose pointers were read under `POINTERS`."""
    return [_parse_pointer(each) for each in values]


def to_keep_content(kept: Kept, content: bytes) -> ValueChange:
    """Return the change that writes a content, before any pointer to it."""
    seconds = kept.keep_seconds + _KEPT_LONGER_SECONDS
    return ValueChange(_content_key(kept.work, kept.fence), content, keep_seconds=seconds)


def to_point_at(kept: Kept) -> ValueChange:
    """Return the change that makes a stored result the current one of its work."""
    return ValueChange(
        POINTERS + kept.work.digest, encode_pointer(kept), keep_seconds=kept.keep_seconds
    )


def to_forget(kept: Kept) -> list[ValueChange]:
    """Return the change that forgets a result, unless a newer one has replaced it."""
    pointer = ValueChange(POINTERS + kept.work.digest, None, kept.version)
    return [pointer, to_drop_content(kept.work, kept.fence)]


def to_find_none(work: Work) -> ValueChange:
    """Return a change that writes nothing and fails if there is a result by now."""
    return ValueChange(POINTERS + work.digest, None, 0)


def to_drop_content(work: Work, fence: int) -> ValueChange:
    """Return the change that removes what a runner may have left behind."""
    return ValueChange(_content_key(work, fence), None)


def to_keep_round(work: Work, found: Round | None) -> ValueChange:
    """Return the change that stores a round, or removes it if it is None."""
    content = None if found is None else encode_round(found._replace(key=work.key))
    return ValueChange(round_key(work.pool_type), content)


def to_note_failure(work: Work, fence: int) -> ValueChange:
    """Return the change that notes a runner's failure; later it shows that this was stored."""
    return ValueChange(_failure_key(work, fence), b"", keep_seconds=_FAILURE_KEPT_SECONDS)


def encode_pointer(kept: Kept) -> bytes:
    """Write a pointer; `_parse_pointer` reads it back."""
    return json.dumps(
        {
            "key": kept.work.key,
            "inputs": kept.work.inputs,
            "fence": kept.fence,
            "holder": kept.holder_identity,
            "seconds": kept.seconds,
            "size": kept.size,
            "keep": kept.keep_seconds,
        }
    ).encode()


def _parse_pointer(value: Value) -> Kept:
    try:
        record = read_json(value.content)
        return Kept(
            Work(
                _read_shown(record["key"]),
                value.key[len(POINTERS) :],
                _read_shown(record.get("inputs", "")),
            ),
            int(read_number(record["fence"])),
            read_text(record["holder"]),
            read_number(record["seconds"]),
            int(read_number(record["size"])),
            value.written_at,
            read_number(record["keep"]),
            value.version,
        )
    except MALFORMED as error:
        raise CorruptState(
            f"the result kept under {value.key} can't be read: {reason_of(error)}"
        ) from error


def _read_shown(value: object) -> str:
    return printable(read_text(value), longest=LONGEST_KEY)


def _content_key(work: Work, fence: int) -> str:
    return f"{_CONTENTS}{work.digest}/{fence}"


def _failure_key(work: Work, fence: int) -> str:
    return f"{_FAILURES}{work.digest}/{fence}"


_TRIES = 20


def forget(service: Service, work: Work) -> bool:
    """Forget the result of a work, under its lease.

    Args:
        service: Where it is kept.
        work: Which.

    Returns:
        Whether there was one.

    Raises:
        NotAllowed: A command does the work, or waits for it.
    """
    results = Results(service.values)
    if results.kept(work) is None:
        if is_needed(service.pools, work.pool_type):
            raise _under_way(work)
        return False
    pool = PoolOnDemand(service, work.pool_type)
    pool.need()
    try:
        handle = _acquire(service, work, pool)
        try:
            kept = results.kept(work)
            (lease,) = handle.leases
            guard = Guard(claim_key_of(handle), lease.name, lease.fence)
            return kept is not None and service.values.change(
                to_forget(kept), guard=guard, event=_event(service, work)
            )
        finally:
            finish(service, handle)
    finally:
        pool.leave()


def _acquire(service: Service, work: Work, pool: PoolOnDemand) -> Handle:
    request = Request(work.pool_type, labels=work.labels)
    no_wait, name = Patience(wait_seconds=0), f"once-{work.id}"
    for _ in range(_TRIES):
        try:
            return acquire(service, request, patience=no_wait, called=name)
        except NotFound:
            pool.make()
        except NoLease:
            break
    raise _under_way(work) from None


def _event(service: Service, work: Work) -> Event:
    return Event(
        0,
        service.clock.wall(),
        "work forgotten",
        work.pool_type,
        work.names,
        holder_identity=service.caller.identity,
    )


def _under_way(work: Work) -> NotAllowed:
    return NotAllowed(
        f"work {work.title} is running, so its result can't be forgotten; see who runs it with: "
        "leasectl status"
    )
