"""The results of `once`: list, print, forget."""

from __future__ import annotations

import time

from leasectl.cli.context import open_service
from leasectl.cli.shown.output import emit_bytes, note, show, show_json
from leasectl.cli.shown.table import Column, output_width, table
from leasectl.errors import NotFound
from leasectl.once.results import Kept, Results
from leasectl.once.results import forget as forget_kept
from leasectl.once.work import Work
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration
from leasectl.text.naming import as_given


def print_all(backend: str | None, *, as_json: bool) -> int:
    """Print which results are kept, and what is known of each."""
    results = Results(open_service(backend, to_show=True).values)
    found = results.all_kept()
    results.tidy()
    found.sort(key=lambda kept: (kept.work.key, kept.written_at))
    if as_json:
        show_json([_facts(each) for each in found])
    elif found:
        columns = [
            Column("WORK", shrinks=2, at_least=16),
            Column("INPUTS"),
            Column("DONE", right=True),
        ]
        columns += [Column("KEPT FOR", right=True), Column("TOOK", right=True)]
        columns += [Column("BYTES", right=True), Column("BY", shrinks=1, at_least=10)]
        rows = [_row(each, time.time()) for each in found]
        show(table(columns, rows, output_width()).text)
    else:
        note("no results are kept")
    return 0


def print_one(work: Work, backend: str | None, *, as_json: bool, quiet: bool) -> int:
    """Print the result that is kept of a work, or as JSON what is known of it.

    Raises:
        NotFound: None is kept.
    """
    results = Results(open_service(backend, to_show=True).values)
    kept = results.kept(work)
    content = None if kept is None else results.content(kept)
    if kept is None or content is None:
        raise not_kept(results, work)
    if as_json:
        show_json(_facts(kept))
        return 0
    if not quiet:
        note(whose(kept))
    emit_bytes(content)
    return 0


def forget(work: Work, backend: str | None, *, quiet: bool) -> int:
    """Keep the result of a work no longer.

    Raises:
        NotFound: None is kept.
        NotAllowed: The work is under way.
    """
    service = open_service(backend)
    if not forget_kept(service, work):
        raise not_kept(Results(service.values), work)
    if not quiet:
        note(f"forgot the result of work {work.key}")
    return 0


def whose(kept: Kept) -> str:
    """Whose a result is, and how old."""
    age = format_duration(max(0.0, time.time() - kept.written_at))
    took = format_duration(kept.seconds)
    holder = as_given(kept.holder_identity)
    return f"work {kept.work.key} was done {age} ago by {holder}, in {took}"


def not_kept(results: Results, work: Work) -> NotFound:
    """The error for a work of which no result is kept."""
    others = sum(each.work.key == work.key for each in results.all_kept())
    hint = (
        f"; with other inputs there {'is' if others == 1 else 'are'} {others}, which takes the "
        "same --input and --input-file"
        if others
        else "; see what is kept with: leasectl once --list"
    )
    return NotFound(f"no result of work {work.key} is kept with these inputs{hint}")


def _row(kept: Kept, now: float) -> list[str]:
    left = kept.written_at + kept.keep_seconds - now
    return [
        kept.work.key,
        kept.work.digest[:12],
        f"{format_duration(max(0.0, now - kept.written_at))} ago",
        format_duration(max(0.0, left)),
        format_duration(kept.seconds),
        str(kept.size),
        as_given(kept.holder_identity),
    ]


def _facts(kept: Kept) -> dict[str, object]:
    return {
        "key": kept.work.key,
        "digest": kept.work.digest,
        "holder_identity": kept.holder_identity,
        "fence": kept.fence,
        "done_time": rfc3339(kept.written_at),
        "kept_until": rfc3339(kept.written_at + kept.keep_seconds),
        "seconds": round(kept.seconds, 3),
        "bytes": kept.size,
    }
