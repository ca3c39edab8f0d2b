"""The results of `once`: list, print, forget."""

from __future__ import annotations

import time

from leasectl.cli.context import open_service
from leasectl.cli.rendering.output import emit_bytes, note, show, show_json
from leasectl.cli.rendering.table import Column, number, output_width, table
from leasectl.once.results import Kept, Results
from leasectl.once.results import forget as forget_kept
from leasectl.once.work import Work
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given

_COLUMNS = (
    Column("ID"),
    Column("WORK", shrinks=2, at_least=16),
    Column("INPUTS", shrinks=2, at_least=16),
    number("DONE"),
    number("KEPT FOR"),
    number("TOOK"),
    number("BYTES"),
    Column("BY", shrinks=1, at_least=10),
)


def print_all(backend: str | None, *, as_json: bool) -> None:
    """Print which results are kept, and what is known of each."""
    results = Results(open_service(backend, to_show=True).values)
    found = results.all_kept()
    results.tidy()
    found.sort(key=lambda kept: (kept.work.key, kept.written_at))
    if as_json:
        show_json([_facts(each) for each in found])
    elif found:
        rows = [_row(each, time.time()) for each in found]
        show(table(_COLUMNS, rows, output_width()).text)
    else:
        note("no results are kept")


def print_one(work: Work, backend: str | None, *, as_json: bool, quiet: bool) -> None:
    """Print a kept result, or the facts about it as JSON.

    Args:
        work: The work, or one whose key is the id of another work (`Results.find_named`).
        backend: As ``--backend`` says.
        as_json: Print facts instead of the result.
        quiet: Print the result only.

    Raises:
        NotFound: No result is kept.
    """
    results = Results(open_service(backend, to_show=True).values)
    kept = results.find_named(work)
    content = None if kept is None else results.content(kept)
    if kept is None or content is None:
        raise results.not_kept(work)
    if as_json:
        show_json(_facts(kept))
        return
    if not quiet:
        note(whose(kept))
    emit_bytes(content)


def forget(work: Work, backend: str | None, *, quiet: bool) -> None:
    """Forget a kept result.

    Args:
        work: The work, or one whose key is the id of another work (`Results.find_named`).
        backend: As ``--backend`` says.
        quiet: Print nothing.

    Raises:
        NotFound: No result is kept.
        NotAllowed: The work is running.
    """
    service = open_service(backend)
    results = Results(service.values)
    kept = results.find_named(work)
    named = work if kept is None else kept.work
    if not forget_kept(service, named):
        raise results.not_kept(work)
    if not quiet:
        note(f"forgot the result of work {named.title}")


def whose(kept: Kept) -> str:
    """Whose a result is, and how old."""
    age = format_duration(max(0.0, time.time() - kept.written_at))
    took = format_duration(kept.seconds)
    holder = as_given(kept.holder_identity)
    return f"work {kept.work.title} was done {age} ago by {holder}; it took {took}"


def _row(kept: Kept, now: float) -> list[str]:
    left = kept.written_at + kept.keep_seconds - now
    return [
        kept.work.id,
        kept.work.key,
        kept.work.inputs or "-",
        f"{format_duration(max(0.0, now - kept.written_at))} ago",
        format_duration(max(0.0, left)),
        format_duration(kept.seconds),
        str(kept.size),
        as_given(kept.holder_identity),
    ]


def _facts(kept: Kept) -> dict[str, object]:
    return {
        "key": kept.work.key,
        "inputs": kept.work.inputs,
        "id": kept.work.id,
        "digest": kept.work.digest,
        "holder_identity": kept.holder_identity,
        "fence": kept.fence,
        "done_time": rfc3339(kept.written_at),
        "kept_until": rfc3339(kept.written_at + kept.keep_seconds),
        "seconds": round(kept.seconds, 3),
        "bytes": kept.size,
    }
