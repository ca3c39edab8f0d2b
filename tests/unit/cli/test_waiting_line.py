"""The line that says how a wait is going, with the names of a real CI."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import cast

import pytest

from leasectl.backends.contract import Progress
from leasectl.cli.rendering.waiting_facts import Opened, WaitingFacts
from leasectl.cli.rendering.waiting_line import Said, fit_line
from leasectl.errors import BackendUnreachable
from leasectl.leases.service import Service
from leasectl.model import Request
from leasectl.state.event import Event, EventFilter
from leasectl.text.wording import cells
from tests.kit.support import Cli
from tests.kit.terminal import CTRL_C, terminal

TYPE = "openshift-org-azure--azure4--install-quota-slice"
HOLDER = (
    "periodic-ci-openshift-release-master-nightly-4.19-e2e-azure-ovn-upgrade/1894762183746583552"
    f"/e2e-azure-ovn-upgrade-ipi-install-install/{TYPE}-aB3xYz"
)
BUILD = "1894762183746583552"
TIMES = ("waited 12m3s", "gives up in 17m57s")


def told(
    subject: str, *, place: bool = True, longest: bool = True, likely: bool = False
) -> list[Said]:
    waited, gives_up = Said(TIMES[0]), Said(TIMES[1], goes=5)
    if not place:
        return [Said(f"waiting for {subject}: {TIMES[0]}"), gives_up]
    parts = [Said(f"waiting for {subject}: position 3"), Said("4/4 held", goes=3), waited]
    if likely:
        parts.append(Said("likely 20m more", goes=4))
    parts.append(gives_up)
    by = Said(f"oldest lease 1h12m by {HOLDER}", goes=1, short=f"oldest 1h12m by {BUILD}")
    return [*parts, by] if longest else parts


def whole(parts: list[Said]) -> str:
    return ", ".join(part.text for part in parts)


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (59, "opensh…-slice: position 3, waited 12m3s, gives up in 17m57s"),
        (79, "openshift-o…quota-slice: position 3, 4/4 held, waited 12m3s, gives up in 17m57s"),
        (
            119,
            "waiting for openshi…-slice: position 3, 4/4 held, waited 12m3s, gives up in 17m57s, "
            f"oldest 1h12m by {BUILD}",
        ),
        (1000, whole(told(TYPE))),
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
            assert not place or "position 3, 4/4 held" in line


def test_at_80_columns_who_holds_longest_has_its_turn_and_is_whole() -> None:
    lines = [fit_line(told(TYPE, likely=True), TYPE, 79, turn=turn) for turn in range(4)]
    times = "openshif…a-slice: position 3, waited 12m3s, likely 20m more, gives up in 17m57s"
    holder = f"openshif…a-slice: position 3, waited 12m3s, oldest 1h12m by {BUILD}"
    assert lines == [times, times, holder, times]
    parts = [part for part in told("azure--install", likely=True) if part.text != TIMES[1]]
    assert fit_line(parts, "azure--install", 79, turn=2) == (
        f"azure--install: position 3, waited 12m3s, oldest 1h12m by {BUILD}"
    )


def test_at_80_columns_the_next_grant_has_its_turn_and_a_holder_outside_of_a_job() -> None:
    slices = "us-east-1--aws-quota-slice"
    progress = Progress(
        723.0,
        position=3,
        held=4,
        capacity=5,
        longest_holder=f"root@{'e2e-aws-ovn-upgrade-'.ljust(63, 'x')}/pod/{slices}-aB3xYz",
        longest_held_seconds=4320.0,
        pace_seconds=20.0,
        next_grant_in_seconds=14.0,
    )
    events = Events(1200.0, 9)
    parts = WaitingFacts(Request(slices), 1800.0, at(events)).tell(progress)
    assert [fit_line(parts, slices, 79, turn=turn) for turn in range(3)] == [
        "us-east-…a-slice: position 3, waited 12m3s, likely 21m more, gives up in 17m57s",
        "us-east…-slice: position 3, waited 12m3s, next grant in 14s, gives up in 17m57s",
        "us-east…a-slice: position 3, waited 12m3s, oldest 1h12m by root@e2e-a…xxxxxxxxx",
    ]
    soon = progress._replace(position=1, next_grant_in_seconds=None, pace_seconds=0.0)
    parts = WaitingFacts(Request(slices), 1800.0, at(events)).tell(soon)
    assert fit_line(parts, slices, 79) == (
        "us-east-…a-slice: position 1, waited 12m3s, likely <1m more, gives up in 17m57s"
    )


class Events:
    """As many holds of the same time as there are."""

    def __init__(self, seconds: float, number: int) -> None:
        self._released = Event(1, 0.0, "released", "T", hold_seconds=seconds)
        self._number = number
        self.reads = 0

    def latest(self, wanted: EventFilter, number: int, *, only_recent: bool = False) -> list[Event]:
        self.reads += 1
        return [self._released] * self._number


def at(events: object) -> Opened:
    """Return what opens a service that holds nothing here; None for no events, none at all."""
    service = SimpleNamespace(events=events, handles=SimpleNamespace(active=list))
    return lambda: None if events is None else cast(Service, service)


class TestWhatIsTold:
    PROGRESS = Progress(
        5.0,
        position=2,
        held=4,
        capacity=4,
        longest_holder=HOLDER,
        longest_held_seconds=600.0,
    )

    def tell(
        self, progress: Progress, request: Request | None = None, events: object = None
    ) -> list[str]:
        facts = WaitingFacts(request or Request("T"), None, at(events))
        return [part.text for part in facts.tell(progress)][:-1]

    def test_how_long_it_is_likely_to_be_by_what_was_held_lately(self) -> None:
        said = self.tell(self.PROGRESS, events=Events(1200.0, 9))
        assert said == ["waiting for T: position 2", "4/4 held", "waited 5s", "likely 13m more"]
        for progress, request, events in (
            (self.PROGRESS, None, None),
            (self.PROGRESS, None, Events(1200.0, 0)),
            (self.PROGRESS, Request("T", name="T--01"), Events(1200.0, 9)),
            (self.PROGRESS, Request("T", other_types=("U",)), Events(1200.0, 9)),
            (self.PROGRESS, Request("T", where=(("k", "v", True),)), Events(1200.0, 9)),
            (Progress(5.0), None, Events(1200.0, 9)),
        ):
            assert not [each for each in self.tell(progress, request, events) if "likely" in each]

    def test_when_it_gives_up_for_another_reason_than_its_limit(self) -> None:
        for wait, gives_up, said in ((None, 7.2, "8s"), (60.0, 7.2, "8s"), (6.0, 7.2, "1s")):
            facts = WaitingFacts(Request("T"), wait, lambda: None)
            parts = facts.tell(Progress(5.0, gives_up_in_seconds=gives_up))
            assert parts[-1].text == f"gives up in {said}"

    def test_what_has_to_be_so_keeps_it_from_what_is_free(self) -> None:
        free = self.PROGRESS._replace(position=1, held=2)
        where = (("region", "eu", True), ("size", "x" * 1000, False))
        (*_, said) = self.tell(free, Request("T", where=where))
        assert said.startswith("only region=eu size!=x") and said.endswith("x will do")
        assert len(said) == len("only  will do") + 40

    def test_who_waits_for_the_pace_is_told_when_that_is_over(self) -> None:
        free = self.PROGRESS._replace(position=1, held=2, next_grant_in_seconds=13.2)
        assert self.tell(free, events=Events(1200.0, 9))[3:] == ["next grant in 14s"]
        # Behind others the pace is one thing of several.
        behind = free._replace(position=3, pace_seconds=60.0)
        assert self.tell(behind, events=Events(1200.0, 9))[3:] == [
            "next grant in 14s",
            "likely 10m more",
        ]

    def test_events_are_read_seldom_and_no_failure_of_that_is_the_waits(self) -> None:
        events = Events(1200.0, 9)
        facts = WaitingFacts(Request("T"), None, at(events))
        for _ in range(50):
            facts.tell(self.PROGRESS)
        assert events.reads == 1

        def away() -> Service:
            raise BackendUnreachable("away")

        assert len(WaitingFacts(Request("T"), None, away).tell(self.PROGRESS)) == 4


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
        assert f"waiting for {TYPE}: position 1, 1/1 held, waited 0s, " in shown.string
    else:
        assert "\r\x1b[K" in shown.string
        assert ": position 1, 1/1 held, waited 0s, " in shown.string


@pytest.mark.once
@pytest.mark.parametrize("options", [("-w", "2s", "--optional"), ("-w", "1h")], ids=["none", "got"])
def test_it_is_gone_before_the_command_says_anything(cli: Cli, options: tuple[str, ...]) -> None:
    cli.pool("T", "a")
    held = cli("acquire", "-t", "T").handle
    command = cli.command("run", "-t", "T", *options, "--", "/bin/echo", "said")
    with terminal(command, {**cli.env, "TERM": "xterm"}, cli.cwd) as there:
        there.until("position 1, 1/1 held")
        if "1h" in options:
            cli.ok("release", "--handle", held)
        before = there.until(r"\r\nsaid\r\n").string.partition("\r\nsaid\r\n")[0]
        assert there.ending() == 0
    *_, last = before.split("\r\x1b[K")
    assert last.startswith("leasectl: ")
