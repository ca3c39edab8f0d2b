"""What the history of a campaign on Kubernetes must show, beside what `tests.kit.history` checks.

Free is what nobody has, by the holders' own log: from when somebody has stopped using it, whether
the cluster knows of that or not. What a killed holder had is free when its time is over, as nobody
may have it before. Who was stopped, or had no server that answers, isn't counted among those who
wait. A wait is counted whole, whoever was killed or stopped in it while it was next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tests.kit.history import Event, Hold, expired_early, participant_of, uses, violations
from tests.kit.kubernetes.control_plane import Asked

# What hinders a keeper may have begun so long before, in nanoseconds.
_BEFORE = 30 * 10**9


class Counts(NamedTuple):
    """How much a history has to tell.

    Args:
        grants: Acquisitions that were granted.
        by_run: Of those, to commands.
        losses: Acquisitions whose holder stopped because it couldn't renew them, or had lost them.
        gave_up: Acquisitions that ended without a grant, by the error.
        not_released: Releases of which nobody knows, by the error.
        killed: Participants.
        longest_gap: Seconds without a grant while something was free and somebody could have it.
        longest_since_death: The same, as if it had been free from its holder's death on.
        median_gap: Half of the grants come after so many milliseconds or less.
    """

    grants: int
    by_run: int
    losses: int
    gave_up: dict[str, int]
    not_released: dict[str, int]
    killed: int
    longest_gap: float
    longest_since_death: float
    median_gap: float


def count(history: Iterable[Event], *, names: Sequence[str], most: int) -> Counts:
    """Count what happened.

    Args:
        history: All of it.
        names: The pool's resources.
        most: That anybody asks for at once.
    """
    events = sorted(history)
    granted = {e.handle: e.at for e in events if e.kind == "granted"}
    times = sorted(granted.values())
    gaps = sorted(later - earlier for earlier, later in zip(times, times[1:]))
    return Counts(
        grants=len(granted),
        by_run=sum("/run-" in handle for handle in granted),
        losses=len({e.handle for e in events if e.kind == "lost"}),
        gave_up=_by_name(events, "gave-up"),
        not_released=_by_name(events, "not-released"),
        killed=sum(e.kind == "died" and e.name == "killed" for e in events),
        longest_gap=_longest(gaps_in(events, names, most)),
        longest_since_death=_longest(gaps_in(events, names, most, since_death=True)),
        median_gap=round(gaps[len(gaps) // 2] / 1e6, 1) if gaps else 0.0,
    )


def all_violations(
    history: Iterable[Event],
    asked: Sequence[Asked],
    paths: Sequence[str],
    *,
    names: Sequence[str],
    most: int,
    longest_gap: float,
) -> list[str]:
    """Say what breaks a guarantee.

    Args:
        history: Of the participants, and of who made the faults.
        asked: What the servers were asked.
        paths: What was asked for by way of relays.
        names: The pool's resources.
        most: That anybody asks for at once.
        longest_gap: So many seconds nothing may be granted that somebody could have.
    """
    events = _without_late_releases(_without_orphans(sorted(history)))
    # There what such commands have is had, however long they use it.
    gaps = [gap for gap in gaps_in(sorted(history), names, most) if gap.seconds > longest_gap]
    return [
        *violations(events, capacity=len(names), counts_grants=False),
        *expired_early(events),
        *(f"{e.handle} {e.name}" for e in events if e.kind == "failed"),
        *(f"{gap.seconds:.1f}s without a grant, until {gap.until}" for gap in gaps),
        *_made_anew(asked),
        *_stale(paths),
    ]


def _without_orphans(events: Sequence[Event]) -> list[Event]:
    """Leave out what a command did whose `run` was stopped; or killed, and its keeper hindered.

    Where nobody can renew, nobody is left either who would end it in time: that is how it is.
    """
    orphaned = {e.handle: e.at for e in reversed(events) if e.kind == "orphaned"}
    hindered: dict[str, list[int]] = {}
    for e in events:
        if e.kind in ("disturbed", "hindered"):
            hindered.setdefault(e.handle, []).append(e.at)

    def is_left_out(e: Event) -> bool:
        since = orphaned.get(e.handle)
        if since is None or e.at <= since:
            return False
        return any(since - _BEFORE < at <= e.at for at in hindered.get(e.handle.split("/")[0], ()))

    return [e for e in events if not is_left_out(e)]


def _without_late_releases(events: Sequence[Event]) -> list[Event]:
    """Leave out what was over when it was released, and what somebody else had by the answer.

    Of the one somebody has told, or was killed before he could; and who hears nothing of a release
    and finds that another has given it back since can't tell.
    """
    until: dict[str, int] = {}
    for e in events:
        if e.kind in ("granted", "renewed"):
            until[e.handle] = max(e.until, until.get(e.handle, 0))
    begun = {e.lease: e.at for e in events if e.kind == "releasing"}
    had = [(e.name, e.at) for e in events if e.kind == "granted"]

    def counts(e: Event) -> bool:
        was_had = any(name == e.name and begun.get(e.lease, 0) < at < e.at for name, at in had)
        return e.at < until.get(e.handle, 0) and not was_had

    return [e for e in events if e.kind != "unreleased" or counts(e)]


def _by_name(events: Iterable[Event], kind: str) -> dict[str, int]:
    return dict(sorted(Counter(e.name for e in events if e.kind == kind).items()))


def _made_anew(asked: Iterable[Asked]) -> Iterator[str]:
    for each in asked:
        if each.verb == "update" and each.code == 201:
            yield f"a PUT has made {each.resource} {each.name}, which was gone"


def _stale(paths: Iterable[str]) -> list[str]:
    stale = sum("resourceVersion=0" in path and "watch=1" not in path for path in paths)
    return [f"{stale} reads of what may be long past"] if stale else []


class Gap(NamedTuple):
    """A time without a grant, in which there might have been one.

    Args:
        seconds: For how long.
        until: When it ended.
    """

    seconds: float
    until: int


class _Change(NamedTuple):
    """What changes at a time: who holds, who waits, who is disturbed."""

    at: int
    what: str
    who: str
    by: int


def _longest(gaps: Iterable[Gap]) -> float:
    return round(max((gap.seconds for gap in gaps), default=0.0), 1)


def gaps_in(
    events: Sequence[Event], names: Sequence[str], most: int, *, since_death: bool = False
) -> Iterator[Gap]:
    """Times without a grant, while so much was free that whoever was next could have had it.

    Args:
        events: In their order.
        names: The pool's resources.
        most: That anybody asks for at once.
        since_death: What a killed holder had counts as free from its death on.
    """
    holds = uses(events) if since_death else _leased(events)
    held: Counter[str] = Counter()
    disturbed: Counter[str] = Counter()
    waiting: dict[str, str] = {}  # what each wants
    wanted = {e.handle: e.name for e in events if e.kind == "asked"}
    since: int | None = None
    for change in sorted(_changes(events, holds)):
        if change.what == "held":
            held[change.who] += change.by
        elif change.what == "disturbed":
            disturbed[change.who] += change.by
        elif change.by > 0:
            waiting[change.who] = wanted[change.who]
        else:
            waiting.pop(change.who, None)
        free = {name for name in names if held[name] <= 0}
        is_possible = len(free) >= most and any(
            (want == "-" or want in free) and not _is_disturbed(handle, disturbed)
            for handle, want in waiting.items()
        )
        is_grant = change.what == "held" and change.by > 0
        if since is not None and (is_grant or not is_possible):
            yield Gap((change.at - since) / 1e9, change.at)
            since = None
        if is_possible and since is None:
            since = change.at


def _leased(events: Sequence[Event]) -> list[Hold]:
    """Every use, and if its holder was killed, what was left of its time."""
    lasting = uses([e for e in events if e.kind != "died"])
    until = {hold.event: hold.end for hold in lasting}
    return [hold._replace(end=until[hold.event] or hold.end) for hold in uses(events)]


def _is_disturbed(handle: str, disturbed: Counter[str]) -> bool:
    return disturbed[handle.partition("/")[0]] > 0 or disturbed[participant_of(handle)] > 0


def _changes(events: Sequence[Event], holds: Sequence[Hold]) -> Iterator[_Change]:
    for hold in holds:
        yield _Change(hold.start, "held", hold.event.name, 1)
        if hold.end is not None:
            yield _Change(hold.end, "held", hold.event.name, -1)
    died = {e.handle: e.at for e in events if e.kind == "died"}
    for e in events:
        if e.kind == "asked":
            yield _Change(e.at, "waits", e.handle, 1)
            if participant_of(e.handle) in died:
                yield _Change(died[participant_of(e.handle)], "died", e.handle, -1)
        elif e.kind in ("granted", "gave-up"):
            yield _Change(e.at, "waits", e.handle, -1)
        elif e.kind in ("disturbed", "calm"):
            yield _Change(e.at, "disturbed", e.handle, 1 if e.kind == "disturbed" else -1)
