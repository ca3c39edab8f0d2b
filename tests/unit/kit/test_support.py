"""The helpers themselves, where a mistake of theirs would let other tests pass."""

from __future__ import annotations

import pytest

from tests.kit.support import Cli, ManualClock, eventually


def test_eventually_returns_what_the_condition_says() -> None:
    answers = iter([None, 0, "yes"])
    assert eventually(lambda: next(answers)) == "yes"


def test_eventually_fails_when_the_time_is_over() -> None:
    with pytest.raises(AssertionError, match="a miracle"):
        eventually(lambda: False, timeout=0.01, what="a miracle")


def test_a_manual_clock_moves_only_by_hand(manual_clock: ManualClock) -> None:
    clock = manual_clock.clock
    before = clock.elapsed(), clock.wall()
    manual_clock.advance(1.5)
    assert (clock.elapsed() - before[0], clock.wall() - before[1]) == (1.5, 1.5)


def test_a_command_line_of_its_own_sees_no_job_that_the_tests_run_in(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASECTL_BACKEND", "none:")
    clean = Cli(cli.state_dir, cli.cwd)
    assert "LEASECTL_BACKEND" not in clean.env
    assert clean.env["LEASECTL_STATE_DIR"] == str(cli.state_dir)


def test_the_end_of_a_test_ends_the_keeper_that_it_made(cli: Cli) -> None:
    cli.pool("T")
    cli.ok("acquire", "-t", "T", "--release-after", "1h")
    assert len(eventually(cli.keepers)) == 1
    cli.close()
    eventually(lambda: not cli.keepers())
