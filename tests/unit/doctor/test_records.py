"""Records that contradict each other: how doctor finds and settles them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kit.doctor_reports import (
    CORRUPT,
    database,
    doctor,
)
from tests.kit.support import Cli
from tests.kit.waits import eventually


class TestRecords:
    def held(self, cli: Cli) -> str:
        cli.pool("T", "a", "b")
        return os.path.basename(cli.ok("acquire", "-t", "T", "-c", "2").strip())

    def check(self, cli: Cli, *said: str) -> None:
        """The disagreement is reported, mended, and mended for good."""
        report = doctor(cli)
        assert (report.code, report["records"]["status"]) == (CORRUPT, "fail")
        for text in said:
            assert text in report["records"]["what"]
        report = doctor(cli, "--fix")
        assert (report.code, report["records"]["status"]) == (0, "ok")
        assert report["records"]["fixed"].startswith("settled: ")
        assert doctor(cli)["records"]["status"] == "ok"

    def test_a_resource_whose_owner_doesnt_know_of_it_is_freed(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM lease WHERE name = 'a'")
        self.check(cli, f"a is recorded as held by {handle}, which doesn't hold it")
        assert cli.held() == {"b": handle}
        assert cli.ok("cat", "--handle", handle) == "b\n"

    def test_a_lease_on_a_resource_that_is_anothers_is_dropped(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE resource SET owner = NULL WHERE name = 'a'")
        self.check(cli, f"{handle} claims a, which another handle holds")
        assert cli.held() == {"b": handle}
        assert Path(cli.state_dir / "handles" / handle).read_text() == "b"

    def test_a_handle_that_loses_its_last_lease_is_released(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM resource")
        self.check(cli, f"{handle} claims a", f"{handle} claims b", 'pool "T" records 2')
        assert cli.query("SELECT state, lost FROM handle") == [("released", 1)]

    def test_a_lease_of_no_handle_is_dropped_and_its_resource_freed(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM handle")
        self.check(cli, "but that handle holds nothing")
        assert cli.held() == {}
        assert cli.query("SELECT * FROM lease") == []

    def test_a_handle_that_is_held_and_holds_nothing_is_released(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("DELETE FROM lease")
            db.execute("UPDATE resource SET owner = NULL")
        self.check(cli, f"{handle} is recorded as holding leases, but has none")

    def test_a_fence_is_that_of_the_resource(self, cli: Cli) -> None:
        handle = self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE lease SET fence = 77 WHERE name = 'a'")
        self.check(cli, f"{handle} shows fence 77 for a, which has 1")
        assert cli.query("SELECT fence FROM lease WHERE name = 'a'") == [(1,)]

    def test_a_ticket_that_nobody_waits_with_is_taken_away(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("INSERT INTO ticket VALUES ('T', 7, 'T-ghost1', 'ghost', 1, 0, NULL, 'p')")
        self.check(cli, "T-ghost1 is in a queue, but isn't acquiring")
        assert cli.waiting() == []

    def test_a_capacity_is_counted_again(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("UPDATE pool SET capacity = 9")
        self.check(cli, 'pool "T" records 9 resources, but has 2')

    def test_a_use_of_what_is_not_held_is_ended(self, cli: Cli) -> None:
        handle_id = self.held(cli)
        with database(cli) as db:
            db.execute("INSERT INTO name_in_use VALUES (?, 7, 'T--00', NULL)", (handle_id,))
            db.execute(
                "INSERT INTO mark_seen VALUES (?, 1, 'T--09', 'a', 'ops', 5, 1)", (handle_id,)
            )
        self.check(cli, f"{handle_id} uses, or is asked to return, a resource that it doesn't hold")
        assert cli.query("SELECT name FROM name_in_use UNION SELECT name FROM mark_seen") == []

    def test_a_release_armed_for_nobody_is_taken_away(self, cli: Cli) -> None:
        self.held(cli)
        with database(cli) as db:
            db.execute("INSERT INTO timer VALUES ('T-ghost1', '', 1, 0)")
        self.check(cli, "a delayed release is recorded for T-ghost1, which doesn't exist")
        assert cli.query("SELECT * FROM timer") == []

    @pytest.mark.parametrize("content", [None, "", "other"])
    def test_a_names_file_is_written_anew(self, cli: Cli, content: str | None) -> None:
        handle = self.held(cli)
        path = cli.state_dir / "handles" / handle
        path.unlink()
        if content is not None:
            path.write_text(content)
        self.check(cli, f"{path} differs from what the handle holds")
        assert path.read_text() == "a\nb"


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        (
            "UPDATE resource SET closed = 1 WHERE name = 'a'",
            "a is marked unavailable for no recorded reason",
        ),
        ("UPDATE resource SET closed = 0 WHERE name = 'b'", "b can be granted although"),
        ("UPDATE member SET moves_to = 'gone' WHERE name = 'b'", "b is to move to a pool that"),
        (
            "DELETE FROM resource WHERE name = 'b'",
            "b is in no pool but still has a state",
        ),
    ],
)
def test_what_can_not_be_so_is_found_and_put_right(cli: Cli, mistake: str, said: str) -> None:
    cli.pool("T", "a", "b")
    cli.ok("pool", "cordon", "--names", "b")
    assert doctor(cli)["records"]["status"] == "ok"
    with database(cli) as db:
        db.execute(mistake)
    report = doctor(cli)
    assert (report.code, said in report["records"]["what"]) == (CORRUPT, True)
    report = doctor(cli, "--fix")
    assert (report.code, report["records"]["status"]) == (0, "ok")
    assert report["records"]["fixed"].startswith("settled: ")
    if "a is" in said:
        assert cli.ok("acquire", "-t", "T", "--output", "names") == "a\n"


def test_a_waiter_that_can_not_be_met_now_is_not_taken_for_one_that_has_stopped(cli: Cli) -> None:
    cli.pool("T", "a", "b")
    cli.ok("acquire", "-t", "T")
    waiter = cli.start("acquire", "-t", "T", "-c", "2", "-w", "1m")
    eventually(cli.waiting)
    cli.ok("pool", "cordon", "--names", "b")
    assert doctor(cli)["queues"]["status"] == "ok"
    waiter.kill()
