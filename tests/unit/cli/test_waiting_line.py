"""The line that says how a wait is going, with the names of a real CI."""

from __future__ import annotations

import signal

import pytest

from leasectl.cli.waiting_line import fit_line
from leasectl.text.width import cells
from tests.kit.support import Cli
from tests.kit.terminal import CTRL_C, terminal

TYPE = "openshift-org-azure--azure4--install-quota-slice"
HOLDER = (
    "periodic-ci-openshift-release-master-nightly-4.19-e2e-azure-ovn-upgrade/1894762183746583552"
    f"/e2e-azure-ovn-upgrade-ipi-install-install/{TYPE}-aB3xYz"
)
TIMES = ("waited 12m3s", "gives up in 17m57s")


def told(subject: str, *, place: bool = True, longest: bool = True) -> list[str]:
    if not place:
        return [f"waiting for {subject}: {TIMES[0]}", TIMES[1]]
    parts = [f"waiting for {subject}: place 3", "4/4 held", *TIMES]
    return [*parts, f"longest 1h12m by {HOLDER}"] if longest else parts


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (59, "openshif…a-slice: place 3, waited 12m3s, gives up in 17m57s"),
        (79, "openshift-org…-quota-slice: place 3, 4/4 held, waited 12m3s, gives up in 17m57s"),
        (
            119,
            "waiting for openshif…a-slice: place 3, 4/4 held, waited 12m3s, gives up in 17m57s, "
            "longest 1h12m by periodic-ci-opensh…",
        ),
        (1000, ", ".join(told(TYPE))),
    ],
)
def test_with_real_names(width: int, line: str) -> None:
    assert fit_line(told(TYPE), TYPE, width) == line


@pytest.mark.parametrize("subject", ["T", TYPE, "x" * 200, f"{TYPE} or {'y' * 200}", "資" * 100])
@pytest.mark.parametrize("place", [True, False])
@pytest.mark.parametrize("longest", [True, False])
def test_it_fits_and_says_how_long(subject: str, place: bool, longest: bool) -> None:
    parts = told(subject, place=place, longest=longest)
    for width in range(20, 400):
        line = fit_line(parts, subject, width)
        assert cells(line) <= width
        if width >= 45:
            assert TIMES[0] in line
        if width >= 79:
            assert TIMES[1] in line
            assert not place or "place 3, 4/4 held" in line


def test_what_fits_is_left_alone() -> None:
    parts = told("lab", longest=False)
    assert fit_line(parts, "lab", len(", ".join(parts))) == ", ".join(parts)


@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_on_a_terminal(cli: Cli, term: str) -> None:
    cli.pool(TYPE, f"{TYPE}--00")
    cli.ok("acquire", "-t", TYPE, JOB_NAME="j" * 100, BUILD_ID="1")
    command = cli.command("acquire", "-t", TYPE, "-w", "1h")
    env = {**cli.env, "TERM": term}
    with terminal(command, env, cli.cwd) as there:
        shown = there.until(r"gives up in (1h|59m\d*s?)")
        there.type(CTRL_C)
        ended = there.ending()
    assert ended == -signal.SIGINT
    if term == "dumb":
        # As in a log: whole, and nothing that a dumb terminal would show as it is.
        assert "\x1b" not in shown.string
        assert f"waiting for {TYPE}: place 1, 1/1 held, waited 0s, " in shown.string
    else:
        assert "\r\x1b[K" in shown.string
        assert ": place 1, 1/1 held, waited 0s, " in shown.string


@pytest.mark.once
@pytest.mark.parametrize("options", [("-w", "2s", "--optional"), ("-w", "1h")], ids=["none", "got"])
def test_it_is_gone_before_the_command_says_anything(cli: Cli, options: tuple[str, ...]) -> None:
    cli.pool("T", "a")
    held = cli("acquire", "-t", "T").handle
    command = cli.command("run", "-t", "T", *options, "--", "/bin/echo", "said")
    with terminal(command, {**cli.env, "TERM": "xterm"}, cli.cwd) as there:
        there.until("place 1, 1/1 held")
        if "1h" in options:
            cli.ok("release", "--handle", held)
        before = there.until(r"\r\nsaid\r\n").string.partition("\r\nsaid\r\n")[0]
        assert there.ending() == 0
    *_, last = before.split("\r\x1b[K")
    assert last.startswith("leasectl: ")
