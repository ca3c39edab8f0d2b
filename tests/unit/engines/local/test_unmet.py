"""leasectl.engines.local.members: requests that a pool can't meet now."""

from __future__ import annotations

import pytest

from leasectl.engines.rules.membership import cordon
from leasectl.model import Request, Where
from tests.kit.desk import Desk
from tests.kit.desk import desk as desk
from tests.unit.engines.local.waiting import Line
from tests.unit.engines.local.waiting import line as line

EU: Where = (("zone", "eu", True),)


@pytest.fixture(autouse=True)
def pools(desk: Desk) -> None:
    """Three in T, of which the first is in Europe, and another pool."""
    desk.pool(3)
    desk.pool(1, "U")
    desk.service.members.update(
        ["T--00"], lambda each, _: each._replace(properties=(("zone", "eu"),))
    )


def to_cordon(desk: Desk, *names: str, back: bool = False) -> None:
    desk.service.members.update(names, lambda each, _: cordon(each, is_cordoned=not back))


@pytest.mark.parametrize("held", [0, 3])
def test_who_queues_again_is_not_refused_but_waits(desk: Desk, line: Line, held: int) -> None:
    if held:
        desk.acquire(Request("T", held))
    waiter = line.waiter("h", Request("T", 4))
    with line.engine.atomic():
        waiter.enqueue(again=True)
    outlook = line.look("h")
    assert outlook.impossible == (
        'pool "T" has 3 resources (not counting cordoned or leaving ones), '
        "so a request for 4 can't be met"
    )
    assert (outlook.leases, outlook.is_head, outlook.is_behind) == (None, False, False)
    assert line.passed() == ["h"]


class TestAsAPoolHasLess:
    """Who waits is asked anew: those behind may go on."""

    @pytest.fixture
    def line(self, desk: Desk, line: Line) -> Line:
        """All is held, and some wait."""
        desk.acquire(Request("T", 3))
        line.come("three", Request("T", 3))
        line.come("named", Request("T", name="T--00"))
        line.come("europe", Request("T", where=EU))
        line.come("other", Request("T", name="T--01"))
        line.come("two", Request("T", 2))
        line.woken()
        return line

    def test_those_are_passed_whom_it_can_meet_no_more_and_all_look(
        self, desk: Desk, line: Line
    ) -> None:
        to_cordon(desk, "T--00")
        assert line.passed() == ["three", "named", "europe"]
        assert line.woken() == ["three", "named", "europe", "other", "two", "witness"]
        assert line.look("three").impossible is not None
        assert "T--00" in (line.look("named").impossible or "")
        assert '"zone" property' in (line.look("europe").impossible or "")
        assert line.watched("europe") == []
        assert line.look("other").impossible is None
        assert line.look("two").is_behind

    def test_those_are_looked_at_who_were_passed_as_it_has_more_again(
        self, desk: Desk, line: Line
    ) -> None:
        to_cordon(desk, "T--00")
        for key in ("three", "named", "europe"):
            line.look(key)
        line.woken()
        to_cordon(desk, "T--00", back=True)
        assert set(line.woken()) >= {"three", "named", "europe"}
        assert line.look("three").impossible is None
        assert line.passed() == ["named", "europe"]  # they haven't looked yet
        assert line.look("named").is_behind

    def test_whom_others_pass_anyway_is_let_be(self, desk: Desk, line: Line) -> None:
        to_cordon(desk, "T--00")
        line.woken()
        to_cordon(desk, "T--01")
        assert line.passed() == ["three", "named", "europe", "other", "two"]
        assert line.woken() == ["three", "named", "europe", "other", "two", "witness"]
