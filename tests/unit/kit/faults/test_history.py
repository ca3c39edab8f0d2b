"""The history checker finds what is wrong, and nothing where nothing is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.history import Event, History, names_in_handles
from tests.kit.faults.raw_client import RawClient


def history(*events: Mapping[str, object]) -> History:
    """Events, numbered and with times as a log has them."""
    return History({"seq": seq, "at": float(seq), **event} for seq, event in enumerate(events, 1))


def request(number: int = 1, key: str | None = None, fault: str | None = None) -> Event:
    return {
        "event": "request",
        "request": number,
        "target": "/lease/acquire",
        "idempotency_key": key,
        "fault": fault,
    }


def grant(name: str = "a", number: int = 1) -> Event:
    return {"event": "grant", "request": number, "name": name}


def release(name: str = "a", number: int = 1) -> Event:
    return {"event": "release", "request": number, "name": name}


def not_released(name: str, reason: str) -> Event:
    return {"event": "not-released", "request": 1, "name": name, "reason": reason}


def answer(*names: str, number: int = 1, **fields: object) -> Event:
    whole = {"how": "whole", "status": 200, "written": True, "client_gone": False}
    return {"event": "answer", "request": number, "names": list(names), **whole, **fields}


def test_an_orderly_history_has_no_problems() -> None:
    found = history(
        request(1),
        grant(),
        answer("a"),
        release(),
        request(2),
        grant("a", 2),
        answer("a", number=2),
    )
    assert found.problems() == []
    assert found.leased == {"a"}
    assert found.lost == set()


@pytest.mark.parametrize(
    ("events", "problem"),
    [
        ([grant(), grant()], "a was granted to request 1 while request 1 had it"),
        ([release()], "a was released by 1 and wasn't leased"),
        ([grant(), release(), release()], "a was released by 1 and wasn't leased"),
        ([grant(number=7)], "a was granted to a request that nobody made"),
        ([answer("a")], "request 1 was told of a, which was never granted"),
        ([grant(), {"event": "occupy", "names": ["a"]}], "a was occupied while leased"),
        (
            [{"event": "occupy", "names": ["a"]}, grant()],
            "a was granted to request 1 while another job had it",
        ),
        (
            [grant(), release(), grant(), {**grant(), "event": "kept"}],
            "a went to request 1 and hadn't been released",
        ),
        ([{**grant(), "seq": 9}], "line 9 doesn't follow line 1"),
        ([{**grant(), "at": 0.5}], "line 2 doesn't follow line 1"),
    ],
)
def test_a_broken_history_is_rejected(events: list[Event], problem: str) -> None:
    assert history(request(), *events).problems() == [problem]


def test_other_jobs_may_have_a_resource_in_between() -> None:
    occupied = {"event": "occupy", "names": ["a"]}, {"event": "vacate", "names": ["a"]}
    assert history(request(), *occupied, grant(), release(), *occupied).problems() == []


@pytest.mark.parametrize(
    ("told", "lost"),
    [
        (answer("a"), False),
        (answer("a", how="drip"), False),
        (answer("a", how="half"), True),
        (answer("a", how="reset"), True),
        (answer("a", how="garbage"), True),
        (answer("a", status=500), True),
        (answer("a", written=False), True),
    ],
)
def test_a_grant_is_lost_when_no_answer_tells_of_it(told: Event, lost: bool) -> None:
    assert bool(history(request(), grant(), told).lost) is lost


def test_a_grant_is_lost_when_the_client_goes_while_the_answer_drips() -> None:
    dripping, cut = answer("a", how="drip"), answer("a", how="cut", status=None)
    assert history(request(), grant(), dripping, cut).lost == {"a"}


def test_a_grant_is_lost_when_the_answer_lies() -> None:
    assert history(request(fault="not-json"), grant(), answer("a")).lost == {"a"}


def test_what_was_told_to_a_client_that_had_gone_is_unsure() -> None:
    found = history(request(), grant(), answer("a", client_gone=True))
    assert (found.lost, found.unsure) == (set(), {"a"})


def test_a_lost_grant_that_was_told_later_or_given_back_is_not_lost() -> None:
    reset = answer("a", how="reset")
    assert history(request(), grant(), reset, answer("a")).lost == set()
    assert history(request(), grant(), reset, release()).lost == set()


def test_a_release_that_failed_is_told_from_one_of_what_was_not_leased() -> None:
    found = history(
        request(), grant(), not_released("a", "down"), not_released("b", "no resource name b")
    )
    assert found.forgotten == {"a"}
    assert found.released_unleased == ["b"]


def test_what_handles_say_is_compared_with_what_is_leased() -> None:
    found = history(request(), grant("a"), grant("b"), grant("c"))
    assert found.compare({"h": ["a"], "i": ["b", "c"]}) == []
    assert found.compare({"h": ["a", "d"], "i": ["b", "a"]}) == [
        "h holds d, which isn't leased",
        "a is in h and i",
        "c is in no handle; request 1 got it",
    ]
    assert found.compare({"h": ["a", "b"]}, without={"c"}) == []


def test_what_cannot_be_released_any_more_may_be_in_a_handle_or_not() -> None:
    found = history(request(), grant("a"), not_released("a", "down"))
    assert found.compare({"h": ["a"]}) == found.compare({}) == []


def test_who_gave_up_is_not_heard_of_again() -> None:
    found = history(
        request(1, "h/1/0"),
        {"event": "mark", "text": "gave up"},
        request(2, "other/1/0"),
        request(3, "h/2/0"),
        grant(number=3),
    )
    at = found.mark("gave up")
    assert [each["request"] for each in found.requests_after(at)] == [2, 3]
    assert [each["request"] for each in found.requests_after(at, key="h/")] == [3]
    assert [each["name"] for each in found.grants_after(at, key="h/")] == ["a"]
    assert found.requests_after(at, key="h/1/") == found.grants_after(at, key="o") == []
    with pytest.raises(ValueError, match="no mark 'never'"):
        found.mark("never")


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text('{"seq": 1, "at": 1, "event": "start"}\n{"seq": 2, "a')
    assert len(History.read(log).events) == 1


def test_names_are_read_from_handles_and_not_from_their_locks(tmp_path: Path) -> None:
    handles = tmp_path / "handles"
    handles.mkdir()
    for name, text in (("h", "a\nb"), ("h.lock", "x"), ("released", "")):
        (handles / name).write_text(text)
    assert names_in_handles(tmp_path) == {str(handles / "h"): ["a", "b"]}


def test_as_a_program_it_prints_what_is_wrong(fault_proxy: StartFaultProxy, tmp_path: Path) -> None:
    proxy = fault_proxy("T=3", faults=("reset-after nth=2",))
    with RawClient(proxy.url) as connection:
        connection.acquire()
        with pytest.raises(ConnectionResetError):
            connection.acquire(Idempotency_Key="h/1")
    proxy.mark("now")
    with RawClient(proxy.url) as connection:
        connection.release("nonsense")

    def run(*options: str) -> tuple[int, str]:
        program = Path(__file__).parents[3] / "kit" / "faults" / "history.py"
        command = [sys.executable, "-SE", str(program), str(proxy.log_path), *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=20)
        return done.returncode, done.stdout

    assert run() == (0, "")
    assert run("--holds", "T--00", "--holds", "T--01") == (0, "")
    assert run("--holds", "T--00", "--lost") == (0, "")
    assert run("--holds", "T--00") == (1, "T--01 is in no handle; request 2 got it\n")
    assert run("--state-dir", str(tmp_path), "--lost") == (
        1,
        "T--00 is in no handle; request 1 got it\n",
    )
    assert run("--quiet-after", "now", "--key", "h/") == (0, "")
    assert run("--quiet-after", "now") == (1, "request 3 came after that: /lease/release\n")
