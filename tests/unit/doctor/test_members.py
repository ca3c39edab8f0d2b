"""What is said of names in pools and can't be so: how doctor finds it, and puts it right."""

from __future__ import annotations

import pytest

from tests.kit.doctor_reports import CORRUPT, database, doctor
from tests.kit.support import Cli
from tests.kit.waits import eventually


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
