"""``leasectl doctor``: what is configured, reachable, stale."""

from __future__ import annotations

import os
from collections.abc import Sequence

from leasectl.backends.kinds import Context
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.described import option
from leasectl.cli.loaded import nothing_is_garbage
from leasectl.cli.rendering.output import show, show_json
from leasectl.cli.rendering.table import GREEN, RED, YELLOW, output_width, painted, shows_colour
from leasectl.doctor.examination import Examination
from leasectl.doctor.findings import Finding, exit_code
from leasectl.doctor.machine import Surroundings
from leasectl.leases.opening import caller, choose_backend, settings, state_directory
from leasectl.text.wording import counted, printable

_NAME_WIDTH = 17
_FIELDS = ("name", "status", "what", "advice", "fixed")
_COLOURS = {"ok": GREEN, "warn": YELLOW, "fail": RED}


@new_command()
@option("--fix", "Repair what can be repaired safely, and print what was done.")
@options.json_output
@options.backend
def command(*, fix: bool, as_json: bool, backend: str | None) -> int:
    """Check what leasectl needs here, and repair it with --fix.

    Each check passes, warns or fails, and says what to do. Without --fix nothing is changed. With
    it, doctor makes the state directory private, starts the keeper (leasectl's background
    process) if it is needed, removes orphaned files, frees resources whose records contradict each
    other, and releases the leases of dead holders. It never releases a lease that may still be in
    use; it prints the command for that instead.

    \b
    etcd          also checks members, pools, rights and claims
    Kubernetes    also checks the cluster, the account with its rights, and
                  objects that were edited or deleted
    lease proxy   also checks its answers, their delay and the token

    Exits with 0 if no check fails, else with the code of the worst failure. From worst to least:
    65, 66, 73, 69, 77, 64, 1.

    \b
    Examples:
      leasectl doctor
      leasectl doctor --fix
    """
    nothing_is_garbage()
    choice = choose_backend(backend)
    surroundings = Surroundings(
        directory=os.path.abspath(state_directory()),
        context=Context(choice.url, settings(), caller()),
        backend_reason=choice.reason,
        environment=os.environ,
    )
    width, colour = output_width(), shows_colour()
    found: list[Finding] = []
    for finding in Examination(surroundings, fix=fix).findings():
        found.append(finding)
        if not as_json:
            show(_text(finding, width, colour=colour))
    if as_json:
        checks = [{key: getattr(each, key) for key in _FIELDS} for each in found]
        show_json({"backend": choice.url, "checks": checks})
    else:
        show(_summary(found))
    return exit_code(found)


def _text(finding: Finding, width: int | None, *, colour: bool) -> str:
    name = f"{finding.name:<{_NAME_WIDTH - 1}} "  # a blank also behind a longer one
    lines = _wrapped(f"{finding.status:<6}{name}", finding.what, width)
    indent = " " * (6 + _NAME_WIDTH)
    if finding.advice is not None:
        lines += _wrapped(f"{indent}-> ", finding.advice, width)
    if finding.fixed is not None:
        lines += _wrapped(f"{indent}fixed: ", finding.fixed, width)
    if colour:
        status = painted(finding.status, _COLOURS[finding.status])
        lines[0] = lines[0].replace(finding.status, status, 1)
    return "".join(f"{line}\n" for line in lines)


def _wrapped(start: str, text: str, width: int | None) -> list[str]:
    text = printable(text, longest=10_000)
    if width is None:
        return [start + text]
    import textwrap

    return textwrap.wrap(
        start + text,
        max(width, 40),
        subsequent_indent=" " * (6 + _NAME_WIDTH),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(found: Sequence[Finding]) -> str:
    count = {
        status: sum(each.status == status for each in found) for status in ("ok", "warn", "fail")
    }
    fixed = sum(each.fixed is not None for each in found)
    mended = f", {fixed} fixed" if fixed else ""
    warnings, failures = counted(count["warn"], "warning"), counted(count["fail"], "failure")
    return f"\n{count['ok']} ok, {warnings}, {failures}{mended}\n"
