"""Boskos' protocol: what is granted, refused and counted, in which words.

All of it holds against a real one as well, which `LEASECTL_TEST_BOSKOS` names.
"""

from __future__ import annotations

import json
import re

import pytest

from tests.kit.boskos.any_boskos import AnyBoskos
from tests.kit.boskos.raw_boskos import RawBoskos


@pytest.fixture
def mine(any_boskos: AnyBoskos) -> RawBoskos:
    return any_boskos.client("me")


@pytest.fixture
def other(any_boskos: AnyBoskos) -> RawBoskos:
    return any_boskos.client("other")


def test_a_grant_says_all_of_the_resource(mine: RawBoskos) -> None:
    got = mine.acquire()
    assert (got.status, got.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    granted = json.loads(got.text)
    assert re.fullmatch(rf"{mine.type}--0[012]", granted.pop("name"))
    # In whole seconds, but with `--in_memory`.
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", granted.pop("lastupdate"))
    assert granted == {"type": mine.type, "state": "leased", "owner": "me", "userdata": {}}


def test_when_none_is_free_it_is_404(mine: RawBoskos) -> None:
    assert len({mine.get() for _ in range(3)}) == 3
    got = mine.acquire()
    assert got.status == 404
    assert got.text == f"Acquire failed: no available resource {mine.type}, try again later.\n"


def test_an_unknown_type_is_404_in_other_words(mine: RawBoskos) -> None:
    got = mine.acquire(pool_type="nonesuch")
    assert got.status == 404
    assert got.text == 'Acquire failed: resource type "nonesuch" does not exist\n'


@pytest.mark.parametrize("missing", ["type", "state", "dest", "owner"])
def test_an_acquire_that_misses_something_is_400(mine: RawBoskos, missing: str) -> None:
    words = {"type": mine.type, "state": "free", "dest": "leased", "owner": "me", missing: ""}
    got = mine.post("acquire", **words)
    assert got.status == 400
    assert got.text.startswith("Bad request: Type: ")


@pytest.mark.parametrize("path", ["acquirebystate", "update", "release", "reset"])
def test_what_misses_everything_is_400(mine: RawBoskos, path: str) -> None:
    got = mine.post(path)
    assert got.status == 400
    assert got.text.endswith("all of them must be set in the request.\n")


def test_each_path_has_its_method(mine: RawBoskos) -> None:
    got = mine.raw.ask("GET", "/acquire?type=T")
    assert (got.status, got.text) == (405, "Method GET, /acquire only accepts POST.\n")
    got = mine.raw.ask("POST", "/metric?type=T")
    assert (got.status, got.text) == (405, "/metric only accepts GET\n")


def test_it_says_yes_to_a_path_that_it_does_not_know(mine: RawBoskos) -> None:
    assert mine.post("boskos/acquire", type="T")[:2] == (200, "")


def test_only_the_owner_renews(mine: RawBoskos, other: RawBoskos) -> None:
    name = mine.get()
    assert mine.update(name)[:2] == (200, "")
    got = other.update(name)
    assert got.status == 401
    wrong = "owner mismatch request by other, currently owned by me"
    assert got.text == f"Update failed: {name} - leased (other): {wrong}\n"


def test_nobody_renews_what_is_nobodys(mine: RawBoskos) -> None:
    got = mine.update(f"{mine.type}--00")
    assert got.status == 401
    assert got.text.endswith("owner mismatch request by me, currently owned by \n")


def test_a_renewal_in_another_state_is_409(mine: RawBoskos) -> None:
    name = mine.get()
    got = mine.post("update", name=name, owner="me", state="busy")
    assert got.status == 409
    assert got.text.endswith("state mismatch - expected leased, current busy\n")


def test_an_unknown_name_is_404(mine: RawBoskos) -> None:
    for got in (mine.update("nonesuch"), mine.release("nonesuch")):
        assert got.status == 404
        assert got.text.endswith("no available resource nonesuch, try again later.\n")


def test_a_second_release_is_401(mine: RawBoskos) -> None:
    name = mine.get()
    assert mine.release(name)[:2] == (200, "")
    got = mine.release(name)
    assert got.status == 401
    wrong = "owner mismatch request by me, currently owned by "
    assert got.text == f"Done failed: {name} - free (from me): {wrong}\n"


def test_only_the_owner_releases(mine: RawBoskos, other: RawBoskos) -> None:
    assert other.release(mine.get()).status == 401


def test_what_is_released_to_another_state_is_not_free(mine: RawBoskos) -> None:
    for name in [mine.get() for _ in range(3)]:
        mine.release(name, "dirty")
    assert mine.acquire().status == 404
    assert json.loads(mine.metric().text)["current"] == {"dirty": 3}


def test_metric_counts_states_and_owners_nobody_included(mine: RawBoskos, other: RawBoskos) -> None:
    mine.get()
    other.get()
    got = mine.metric()
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    assert json.loads(got.text) == {
        "type": mine.type,
        "current": {"free": 1, "leased": 2},
        "owner": {"": 1, "me": 1, "other": 1},
    }


def test_metric_of_an_unknown_type_is_404(mine: RawBoskos) -> None:
    got = mine.metric("nonesuch")
    assert (got.status, got.text) == (404, "no available resource nonesuch, try again later.\n")


def test_the_very_one_is_had_by_its_name(mine: RawBoskos) -> None:
    got = mine.acquire_names(f"{mine.type}--01")
    assert got.status == 200
    assert [each["name"] for each in json.loads(got.text)] == [f"{mine.type}--01"]


def test_of_several_names_what_could_be_had_stays_taken(mine: RawBoskos, other: RawBoskos) -> None:
    names = [f"{mine.type}--0{number}" for number in range(3)]
    assert other.acquire_names(names[2]).status == 200
    got = mine.acquire_names(*names)
    assert got.status == 404
    assert got.text == "AcquireByState: no available resource free, try again later.\n"
    assert json.loads(mine.metric().text)["owner"] == {"me": 2, "other": 1}


def test_a_reset_takes_from_everybody_what_is_old_enough(mine: RawBoskos, other: RawBoskos) -> None:
    had = {mine.get(): "me", other.get(): "other"}
    assert json.loads(mine.reset("leased", "1h", "dirty").text) == {}
    assert json.loads(mine.reset("busy", "0s", "dirty").text) == {}
    assert json.loads(mine.reset("leased", "0s", "dirty").text) == had
    assert mine.update(next(iter(had))).status == 401


def test_a_duration_that_is_none_is_400(mine: RawBoskos) -> None:
    got = mine.reset("leased", "soon", "dirty")
    assert (got.status, got.text) == (400, 'time: invalid duration "soon"\n')


def test_a_renewal_keeps_what_others_noted_at_a_resource(mine: RawBoskos) -> None:
    name = mine.get()
    assert mine.update(name, '{"secret": "x"}').status == 200
    assert mine.update(name).status == 200
    mine.release(name)
    got = mine.acquire_names(name)
    assert json.loads(got.text)[0]["userdata"] == {"secret": "x"}
    assert mine.update(name, '{"secret": ""}').status == 200


def test_data_that_is_no_json_is_400(mine: RawBoskos) -> None:
    assert mine.update(mine.get(), "{").status == 400


# ---- the queue


def test_whoever_asked_first_gets_it_first(mine: RawBoskos, other: RawBoskos) -> None:
    names = [mine.get() for _ in range(3)]
    assert mine.acquire(request_id="first").status == 404
    assert other.acquire(request_id="second").status == 404
    mine.release(names[0])
    assert other.acquire(request_id="second").status == 404
    assert mine.acquire(request_id="first").status == 200


def test_the_second_may_have_the_second_free_one(mine: RawBoskos, other: RawBoskos) -> None:
    names = [mine.get() for _ in range(3)]
    assert mine.acquire(request_id="first").status == 404
    assert other.acquire(request_id="second").status == 404
    mine.release(names[0])
    mine.release(names[1])
    assert other.acquire(request_id="second").status == 200


def test_who_asks_without_an_id_is_behind_all_who_wait(mine: RawBoskos, other: RawBoskos) -> None:
    names = [mine.get() for _ in range(3)]
    assert mine.acquire(request_id="waits").status == 404
    mine.release(names[0])
    assert other.acquire().status == 404
    mine.release(names[1])
    assert other.acquire().status == 200


def test_the_place_goes_with_the_grant(mine: RawBoskos, other: RawBoskos) -> None:
    names = [mine.get() for _ in range(3)]
    assert mine.acquire(request_id="a").status == 404
    assert other.acquire(request_id="b").status == 404
    mine.release(names[0])
    assert mine.acquire(request_id="a").status == 200
    mine.release(names[1])
    assert mine.acquire(request_id="a").status == 404  # behind the other one now
    assert other.acquire(request_id="b").status == 200
