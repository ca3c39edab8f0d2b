"""The stand-in for Boskos: its reaper, its memory, what can be made to go wrong, and its log."""

from __future__ import annotations

import base64
import json
import time

import pytest

from tests.kit.boskos.fixture import StartBoskos
from tests.kit.boskos.history import BoskosHistory
from tests.kit.boskos.ranks import Queue, Ranks
from tests.kit.boskos.raw_boskos import RawBoskos
from tests.kit.support import ManualClock, eventually

QUEUE = Queue("T", "free")


def test_a_ghost_is_counted_until_its_time_is_over(manual_clock: ManualClock) -> None:
    ranks = Ranks(30, 60, manual_clock.clock.elapsed)
    assert [ranks.rank(QUEUE, each) for each in ("a", "b", "")] == [1, 2, 3]
    manual_clock.advance(29)
    assert ranks.rank(QUEUE, "b") == 2
    manual_clock.advance(2)
    assert ranks.rank(QUEUE, "b") == 1
    # Until a clearing, who asks again is where he was.
    assert ranks.rank(QUEUE, "a") == 1
    assert ranks.rank(QUEUE, "b") == 2


def test_a_clearing_forgets_the_places_of_those_who_were_silent(manual_clock: ManualClock) -> None:
    ranks = Ranks(30, 60, manual_clock.clock.elapsed)
    assert [ranks.rank(QUEUE, each) for each in ("a", "b")] == [1, 2]
    for _ in range(4):
        manual_clock.advance(20)
        ranks.rank(QUEUE, "b")
    assert ranks.rank(QUEUE, "a") == 2


def test_a_queue_is_of_a_type_in_a_state() -> None:
    ranks = Ranks()
    assert ranks.rank(QUEUE, "a") == ranks.rank(Queue("T", "dirty"), "b") == 1
    assert ranks.rank(Queue("U", "free"), "c") == 1


def test_the_reaper_takes_what_is_not_renewed(boskos: StartBoskos) -> None:
    # Times are in whole seconds: what was renewed just now may be a second old by them.
    server = boskos("T=2", expire=2, reaper_interval=0.1)
    with RawBoskos(server.url) as client:
        kept, lost = client.get(), client.get()
        while server.owners != {kept: "me"}:
            assert client.update(kept).status == 200
        assert client.update(lost).status == 401
    [tenure] = [each for each in server.history().tenures if each.end == "reap"]
    assert tenure[:2] == (lost, "me")
    states = {each["name"]: each["state"] for each in server.state()["resources"]}  # type: ignore[attr-defined]
    assert states == {kept: "leased", lost: "dirty"}


def test_the_reaper_looks_at_states_of_ones_own_if_it_is_told_to(boskos: StartBoskos) -> None:
    server = boskos("T=2", expire=0, reaper_interval=0.1, extra_source_states="mine")
    with RawBoskos(server.url, leased="mine") as mine:
        mine.get()
    with RawBoskos(server.url, leased="theirs") as theirs:
        name = theirs.get()
    eventually(lambda: server.owners == {name: "me"})


def test_a_janitor_makes_free_what_is_dirty(boskos: StartBoskos) -> None:
    server = boskos("T=1", janitor=0.1)
    with RawBoskos(server.url) as client:
        client.release(client.get(), "dirty")
        eventually(lambda: client.acquire().status == 200)


def test_a_restart_forgets_the_queue_and_keeps_the_resources(boskos: StartBoskos) -> None:
    server = boskos("T=1")
    with RawBoskos(server.url) as client:
        name = client.get()
        assert client.acquire("first").status == 404
    server.restart()
    assert server.owners == {name: "me"}
    with RawBoskos(server.url) as client:
        assert client.acquire("second").status == 404
        client.release(name)
        assert client.acquire("first").status == 404
        assert client.acquire("second").status == 200


def test_one_that_remembers_its_queue(boskos: StartBoskos) -> None:
    server = boskos("T=1")
    with RawBoskos(server.url) as client:
        name = client.get()
        assert client.acquire("first").status == 404
    server.restart(remembers="queues")
    with RawBoskos(server.url) as client:
        assert client.acquire("second").status == 404
        client.release(name)
        assert client.acquire("second").status == 404


def test_one_that_has_all_in_memory_gives_everything_away_again(boskos: StartBoskos) -> None:
    server = boskos("T=1")
    with RawBoskos(server.url) as client:
        client.get()
    server.restart(remembers="nothing")
    assert server.owners == {}


def test_a_lost_answer_is_a_grant_all_the_same(boskos: StartBoskos) -> None:
    server = boskos("T=1", faults=("reset-after path=acquire nth=1",))
    with RawBoskos(server.url) as client:
        client.start_acquire()
        with pytest.raises(OSError):
            client.raw.read_answer()
    assert list(server.owners.values()) == ["me"]


def test_a_late_request_is_done_when_its_client_has_gone(boskos: StartBoskos) -> None:
    server = boskos("T=1", faults=("late path=acquire seconds=0.3",))
    with RawBoskos(server.url) as client:
        client.start_acquire()
        eventually(lambda: server.history().asked("/acquire"))
        client.raw.reset()
    assert server.owners == {}
    eventually(lambda: list(server.owners.values()) == ["me"])


def test_metric_may_lag(boskos: StartBoskos) -> None:
    server = boskos("T=1", view_lag=0.3)
    with RawBoskos(server.url) as client:
        client.get()
        assert json.loads(client.metric().text)["owner"] == {"": 1}
        eventually(lambda: json.loads(client.metric().text)["owner"] == {"me": 1})


def test_what_was_granted_just_now_may_be_called_nobodys(boskos: StartBoskos) -> None:
    server = boskos("T=1", view_lag=0.3)
    with RawBoskos(server.url) as client:
        name = client.get()
        assert client.update(name)[:1] == client.release(name)[:1] == (401,)
        eventually(lambda: client.update(name).status == 200)
        eventually(lambda: client.release(name).status == 200)
    assert server.owners == {}


def test_older_words_and_ones_to_come(boskos: StartBoskos) -> None:
    for wording, none_free, no_type in (
        ("old", "no available resource T, try again later.", "resource type U does not exist"),
        ("other", "Acquire failed: nothing of T to hand out", "Acquire failed: never heard of U"),
    ):
        with RawBoskos(boskos("T=1", wording=wording).url) as client:
            client.get()
            assert client.acquire()[:2] == (404, f"{none_free}\n")
            assert client.acquire(pool_type="U")[:2] == (404, f"{no_type}\n")


def test_what_stands_in_front_asks_who_it_is(boskos: StartBoskos) -> None:
    server = boskos("T=1", user="me:secret")
    secret = base64.b64encode(b"me:secret").decode()
    with RawBoskos(server.url) as client:
        got = client.metric()
        assert (got.status, got.headers["www-authenticate"]) == (401, 'Basic realm="boskos"')
        got = client.raw.ask("GET", "/metric?type=T", Authorization=f"Basic {secret}")
        assert got.status == 200


def test_what_stands_in_front_may_have_it_below_a_path(boskos: StartBoskos) -> None:
    server = boskos("T=1", prefix="/a/b")
    with RawBoskos(f"{server.url}/a/b") as client:
        assert client.acquire().status == 200
    with RawBoskos(server.url) as client:
        assert client.acquire().status == 404


def test_a_dynamic_type_grows_when_somebody_new_asks(boskos: StartBoskos) -> None:
    server = boskos("T=1", grows="T=2")
    with RawBoskos(server.url) as client:
        client.get()
        assert client.acquire("a").status == 404
        assert client.acquire("a").status == 200
        assert [client.acquire("b").status for _ in range(2)] == [404, 404]


def test_its_log_says_who_had_what_from_when_to_when(boskos: StartBoskos) -> None:
    server = boskos("T=1")
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    with RawBoskos(server.url, "one") as client:
        client.release(client.get())
    with RawBoskos(server.url, "two") as client:
        client.get()
    first, second = server.history().tenures
    assert (first.owner, first.end, second.owner, second.until) == ("one", "release", "two", None)
    assert before < first.since < (first.until or 0) < second.since
    assert [each["rank"] for each in server.history().of("grant")] == [1, 1]


def grant(owner: str, rank: int = 1, free: int = 1) -> list[dict[str, object]]:
    resource = {"type": "T", "name": "a", "state": "leased", "owner": owner}
    return [
        {"event": "ask", "request": 1, "owner": owner, "rank": rank},
        {"event": "grant", "request": 1, "rank": rank, "free": free, "name": "a"}
        | {"boottime_ns": 1, "resource": resource},
    ]


def test_the_judge_sees_what_went_wrong() -> None:
    assert BoskosHistory(grant("one")).problems() == []
    twice = BoskosHistory([*grant("one"), *grant("two")]).problems()
    assert twice == ["a went to two while one had it"]
    assert BoskosHistory(grant("one", 2)).problems() == ["a was granted to rank 2"]


def test_after_a_restart_with_another_seed_others_go_wrong(boskos: StartBoskos) -> None:
    server = boskos("T=1", faults=("500 rate=0.5",))

    def statuses() -> list[int]:
        with RawBoskos(server.url, "me") as client:
            return [client.metric().status for _ in range(30)]

    first = statuses()
    server.restart()
    assert statuses() == first
    server.restart(seed=2)
    assert statuses() != first
