"""``--start-jitter`` and ``--release-after 18m-22m``: what is granted at once is spread out."""

from __future__ import annotations

import re
import signal

import pytest

from leasectl.system.clock import boottime_seconds
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

# The code is the same on every Python, and waits in real time.
pytestmark = pytest.mark.once

USAGE, NO_LEASE, LOST = 64, 75, 79
LONG = ("--start-jitter", "3660d")


@pytest.fixture
def cli(cli: Cli) -> Cli:
    cli.pool("T")
    return cli


def held_back(cli: Cli, *args: str) -> Started:
    """Start a command that holds its lease back, and see it do so."""
    before = len(cli.held())
    started = cli.start(*args)
    eventually(lambda: len(cli.held()) > before)
    assert started.process.stderr is not None
    assert ": start in " in started.process.stderr.readline()
    return started


def under_way(cli: Cli, command: str) -> Started:
    """An ``acquire`` or a ``run`` that holds its lease back for long."""
    if command == "acquire":
        return held_back(cli, "acquire", "T", *LONG)
    return held_back(cli, "run", "T", *LONG, "--", "touch", "started")


def due(cli: Cli) -> list[float]:
    return [float(str(at)) for (at,) in cli.query("SELECT due FROM timer ORDER BY due")]


class TestStartJitter:
    def test_it_comes_after_the_grant_and_is_said(self, cli: Cli) -> None:
        for args in (
            ("acquire", "T", "--release-after", "1h"),
            ("run", "T", "--release-after", "1h", "--", "true"),
        ):
            finished = cli(*args[:2], "--start-jitter", "0.2", *args[2:])
            assert (finished.code, "--start-jitter" in finished.err) == (0, False)
        assert "guard_pid" in cli.ok("status", "--json")
        assert cli.ok("release", "--all") == "T--00\n"

    @pytest.mark.parametrize("command", ["acquire", "run"])
    def test_a_signal_ends_it_and_the_lease_goes_back(self, cli: Cli, command: str) -> None:
        started = under_way(cli, command)
        started.signal(signal.SIGTERM)
        finished = started.finish()
        assert (finished.code, finished.out, cli.held()) == (-signal.SIGTERM, "", {})
        assert not (cli.cwd / "started").exists()

    @pytest.mark.parametrize("command", ["acquire", "run"])
    def test_killed_in_it_nothing_stays_though_nobody_looks(self, cli: Cli, command: str) -> None:
        under_way(cli, command).kill()
        eventually(lambda: cli.held() == {})
        assert not (cli.cwd / "started").exists()

    @pytest.mark.parametrize(
        ("command", "force", "code"), [("acquire", (), NO_LEASE), ("run", ("--force",), LOST)]
    )
    def test_a_lease_that_goes_ends_it_at_once(
        self, cli: Cli, command: str, force: tuple[str, ...], code: int
    ) -> None:
        started = under_way(cli, command)
        cli.ok("release", "--names", "T--00", *force)
        finished = started.finish()
        assert (finished.code, finished.out) == (code, ""), finished.err
        assert finished.err.count("\n") == 1
        assert not (cli.cwd / "started").exists()
        eventually(lambda: cli.held() == {})

    def test_the_guards_end_ends_it(self, cli: Cli) -> None:
        guard = cli.spawn(["sleep", "1000"])
        started = held_back(cli, "acquire", "T", *LONG, "--guard-pid", str(guard.pid))
        guard.kill()
        assert started.finish().code == NO_LEASE
        assert cli.held() == {}

    def test_a_ttl_is_renewed_meanwhile(self, cli: Cli) -> None:
        started = held_back(cli, "acquire", "T", *LONG, "--ttl", "6s")
        ((before,),) = cli.query("SELECT expires_at FROM resource WHERE owner IS NOT NULL")

        def renewed() -> bool:
            rows = cli.query("SELECT expires_at FROM resource WHERE owner IS NOT NULL")
            return float(str(rows[0][0])) > float(str(before))

        eventually(renewed)
        assert started.process.poll() is None

    def test_a_delayed_release_counts_from_the_start_and_is_armed_with_the_grant(
        self, cli: Cli
    ) -> None:
        began = boottime_seconds()
        started = held_back(cli, "run", "T", *LONG, "--release-after", "10s", "--", "true")
        (at,) = due(cli)
        assert at > began + 60
        started.kill()
        eventually(lambda: cli.held() == {})

    def test_a_reacquire_has_it_too_and_gives_back_but_keeps_the_handle(self, cli: Cli) -> None:
        handle = cli("acquire", "T").handle
        cli.ok("release", handle)
        started = held_back(cli, "reacquire", handle, *LONG)
        started.signal(signal.SIGINT)
        assert started.finish().code == -signal.SIGINT
        assert cli.held() == {}
        cli.ok("reacquire", handle)


class TestRangeOfDelays:
    def test_so_can_be_a_later_delay_and_what_was_drawn_is_said(self, cli: Cli) -> None:
        handle = cli("acquire", "T").handle
        armed = cli("release", handle, "--delay", "18m-22m", "--detach")
        assert (armed.code, armed.out, armed.err.count("\n")) == (0, "", 1)
        told = re.search(r"T--00 will be released in (\d+)m(?:(\d+)s)?, at [0-9:]+ UTC", armed.err)
        assert told
        (first,) = due(cli)
        left = first - boottime_seconds()
        assert 17.5 * 60 <= left <= 22 * 60
        assert left == pytest.approx(int(told[1]) * 60 + int(told[2] or 0), abs=10)
        cli.ok("reacquire", handle)
        (second,) = due(cli)
        assert 17.5 * 60 <= second - boottime_seconds() <= 22 * 60
        assert second != first
        now = cli("release", "--delay", "0.01-0.02", handle)
        assert "waiting to release in 0s" in now.err
        assert now.out == "T--01\n"
        again = cli("release", "--delay", "18m-22m", "--detach", handle)
        assert (again.code, again.err) == (0, "")  # there is nothing left to release

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("22m-18m", "the first time is the longer; write it like 18m-22m"),
            ("18-22m", "give both times a unit, like 18m-22m"),
            ("18m-", '--release-after: invalid duration "18m-"; write it like 20m or 18m-22m'),
            ("-18m", 'invalid duration "-18m"'),
            ("1m-2m-3m", 'invalid duration "2m-3m"'),
        ],
    )
    def test_what_is_none_is_refused(self, cli: Cli, text: str, said: str) -> None:
        finished = cli("acquire", "T", f"--release-after={text}")
        assert (finished.code, finished.out, finished.err.count("\n")) == (USAGE, "", 1)
        assert said in finished.err
        assert cli.held() == {}

    def test_help_tells_the_two_jitters_apart(self, cli: Cli) -> None:
        said = re.sub(r"\s+", " ", cli.ok("run", "--help"))
        assert "--jitter D Sleep for a random time of up to D before queueing" in said
        assert "--start-jitter D Sleep for a random time of up to D after the grant" in said
