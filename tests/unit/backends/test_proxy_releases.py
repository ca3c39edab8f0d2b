"""Giving back to a lease proxy, answer by answer: in made-up time, and without a server."""

from __future__ import annotations

import re
import time
from typing import Any, Callable, cast

import pytest

from leasectl.backends.kinds import Context
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.releases import Releases
from leasectl.backends.release_tries import AWAY_SECONDS, Unaccounted
from leasectl.backends.unanswered import Late, Loss, NotSent, Refused
from leasectl.errors import AccessRefused, BackendUnreachable, NotAllowed
from leasectl.http.messages import Answer
from tests.kit.support import ManualClock

SECONDS = 10.0
KEY = "T-1/1"
DONE = Answer(204, "", {})
BUSY = Answer(500, "busy", {})


class Proxy:
    """Answers each request by one step, and in the end always by the last.

    Attributes:
        asked: Names, key, and how many seconds each request was given.
        warnings: What people were told.
    """

    def __init__(self, *steps: object) -> None:
        self.time = ManualClock(elapsed=1000.0)
        self.steps = list(steps)
        self.asked: list[tuple[list[str], str | None, float]] = []
        self.warnings: list[str] = []
        self.is_up = True

    def tell(
        self, path: str, body: dict[str, Any], *, headers: dict[str, str], seconds: float
    ) -> Answer:
        assert path == "/lease/release"
        self.asked.append((body["names"], headers.get("Idempotency-Key"), seconds))
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        if callable(step):
            step = step(seconds)
        if isinstance(step, BaseException):
            raise step
        assert isinstance(step, Answer)
        return step

    def look(self, path: str, *, seconds: float) -> Answer:
        if not self.is_up:
            raise Late("no answer")
        return Answer(405, "POST requests only", {})

    def hangs(self, seconds: float) -> Exception:
        """A step: it lets all the time pass that it is given."""
        self.time.advance(seconds)
        return Loss("no answer")

    def names(self) -> list[str]:
        return [",".join(names) for names, _, _ in self.asked]


@pytest.fixture(autouse=True)
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it slept; time is what the proxy's clock says."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


def releases(
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch | None = None,
    *,
    seconds: float | None = SECONDS,
) -> Releases:
    if monkeypatch is not None:
        monkeypatch.setattr(time, "sleep", proxy.time.advance)
    connection = cast(Connection, proxy)
    context = Context(
        "http://proxy",
        release_seconds=seconds,
        warn=proxy.warnings.append,
        clock=proxy.time.clock,
    )
    return Releases(context, connection)


def given_back(found: Releases, *names: str, key: str = KEY) -> tuple[list[str], str]:
    """What was given back, and why not all of it."""
    done: list[str] = []
    try:
        for name in found.release(key, names):
            done.append(name)
    except BackendUnreachable as error:
        return done, str(error)
    return done, ""


class TestNames:
    def test_each_is_a_request_with_the_key(self) -> None:
        proxy = Proxy(DONE)
        assert given_back(releases(proxy), "a", "b") == (["a", "b"], "")
        assert proxy.asked == [(["a"], KEY, SECONDS / 2), (["b"], KEY, SECONDS)]

    @pytest.mark.parametrize("error", [NotSent("refused"), Loss("reset"), BUSY])
    def test_one_that_fails_is_tried_again(
        self, error: object, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(error, error, DONE)
        assert given_back(releases(proxy, monkeypatch), "a") == (["a"], "")
        assert len(proxy.asked) == 3

    def test_one_that_hangs_keeps_none_from_being_released_and_has_another_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy()
        proxy.steps = [proxy.hangs, DONE, DONE]
        assert given_back(releases(proxy, monkeypatch), "a", "b") == (["b", "a"], "")
        assert proxy.names() == ["a", "b", "a"]

    def test_what_couldnt_be_given_back_is_said_with_the_time_that_it_took(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(BUSY)
        done, why = given_back(releases(proxy, monkeypatch), "a", "b")
        assert done == []
        assert why.startswith("not released within ")
        assert why.endswith(": http://proxy answered 500: busy")
        spent = proxy.time.clock.elapsed() - 1000
        assert 0.5 * SECONDS < spent <= SECONDS

    def test_without_time_nothing_is_asked(self) -> None:
        proxy = Proxy(DONE)
        with pytest.raises(Refused, match="no time was left to release a"):
            releases(proxy).give_back("a", KEY, until=1000.0)
        assert proxy.asked == []


class TestWhatBoskosHasTakenBack:
    GONE = Answer(500, "Failed to release lease a: no resource name a\nReleased: ", {})

    def taken_back(self, proxy: Proxy) -> Callable[[float], object]:
        """As the real proxy answers: late, and with 401."""

        def answer(seconds: float) -> object:
            if seconds < 14:
                proxy.time.advance(seconds)
                return Loss("no answer")
            proxy.time.advance(14)
            return Answer(500, "Failed to release lease a: statusCode 401 releasing a", {})

        return answer

    def test_is_done_and_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = Proxy()
        proxy.steps = [self.taken_back(proxy)]
        assert given_back(releases(proxy, monkeypatch, seconds=None), "a") == (["a"], "")
        assert len(proxy.asked) == 1
        (said,) = proxy.warnings
        assert said.startswith("a was no longer leased to us: http://proxy answered 500: ")
        assert "statusCode 401" in said

    def test_of_many_leases_each_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = Proxy()
        proxy.steps = [self.taken_back(proxy)]
        names = [f"n{number}" for number in range(5)]
        done = given_back(releases(proxy, monkeypatch, seconds=None), *names)
        assert done == (names, "")
        assert proxy.names() == names

    def test_but_not_when_somebody_has_said_for_how_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy()
        proxy.steps = [self.taken_back(proxy)]
        given_back(releases(proxy, monkeypatch, seconds=20), *"abcde")
        assert proxy.time.clock.elapsed() - 1000 <= 20

    def test_the_proxy_may_not_know_it_any_more(self) -> None:
        proxy = Proxy(self.GONE)
        assert given_back(releases(proxy), "a") == (["a"], "")
        (said,) = proxy.warnings
        assert said.endswith(": no resource name a")

    def test_after_a_lost_answer_that_was_our_own_release(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(Loss("reset"), self.GONE)
        assert given_back(releases(proxy, monkeypatch), "a") == (["a"], "")
        assert proxy.warnings == []

    def test_after_a_refusal_it_may_be_leased_still(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = Proxy(BUSY, self.GONE)
        assert given_back(releases(proxy, monkeypatch), "a") == (["a"], "")
        (said,) = proxy.warnings
        assert said.startswith(
            "a isn't known to the lease proxy; Boskos may keep it leased for half an hour: "
            "http://proxy answered 500: busy; then "
        )

    def test_a_first_refusal_that_takes_long_is_remembered(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse_late(seconds: float) -> Answer:
            proxy.time.advance(11)
            return Answer(500, "Failed to release lease a: statusCode 503 releasing a", {})

        proxy = Proxy(refuse_late, self.GONE)
        assert given_back(releases(proxy, monkeypatch, seconds=None), "a") == (["a"], "")
        (said,) = proxy.warnings
        assert isinstance(said, Unaccounted)
        assert "answered 500: Failed to release lease a: statusCode 503 releasing a; then" in said

    def test_a_server_that_heeds_keys_knows_what_it_has(self) -> None:
        proxy = Proxy(self.GONE._replace(headers={"idempotency-key": KEY}))
        assert given_back(releases(proxy), "a") == (["a"], "")
        (said,) = proxy.warnings
        assert said.startswith("a was no longer leased to us: ")

    def test_busy_server_that_is_up_is_given_two_minutes_more(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy()

        def locked(seconds: float) -> object:
            """Answer once 83 s are over, which renewals of what Boskos took back last."""
            left = 1083 - proxy.time.clock.elapsed()
            proxy.time.advance(min(left, seconds))
            return Late("no answer") if left > seconds else DONE

        proxy.steps = [locked]
        assert given_back(releases(proxy, monkeypatch, seconds=None), "a", "b") == (["a", "b"], "")
        assert proxy.names() == ["a", "b", "a", "b"]
        assert proxy.warnings == [
            "http://proxy is up and busy: waiting for its answer for up to 2m more"
        ]

    @pytest.mark.parametrize(("is_up", "seconds"), [(False, None), (True, 20.0)])
    def test_other_servers_are_not(
        self, is_up: bool, seconds: float | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy()
        proxy.is_up = is_up

        def hang(given: float) -> Exception:
            proxy.time.advance(given)
            return Late("no answer")

        proxy.steps = [hang]
        assert given_back(releases(proxy, monkeypatch, seconds=seconds), "a")[0] == []
        assert proxy.time.clock.elapsed() - 1000 <= 30

    def test_a_server_that_is_away_is_no_reason_to_wait_as_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(NotSent("refused"))
        assert given_back(releases(proxy, monkeypatch, seconds=None), "a")[0] == []
        assert 0.5 * AWAY_SECONDS < proxy.time.clock.elapsed() - 1000 <= AWAY_SECONDS


@pytest.mark.parametrize("names", [["a"], []])
def test_who_may_not_release_is_told_at_once(names: list[str]) -> None:
    proxy = Proxy(AccessRefused(NotAllowed("401; set it")))
    with pytest.raises(AccessRefused, match=r"^401; set it$") as refused:
        list(releases(proxy).release(KEY, names))
    assert (refused.value.exit_code, len(proxy.asked)) == (77, 2 if names else 1)


class TestWhatAKeyWasGranted:
    HEEDED = Answer(204, "", {"idempotency-key": KEY})

    def test_a_server_that_heeds_keys_has_undone_it(self) -> None:
        proxy = Proxy(self.HEEDED)
        assert releases(proxy).undo(KEY) is True
        assert proxy.asked == [([], KEY, SECONDS)]

    def test_as_long_as_a_release_may_take(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = Proxy(BUSY)
        with pytest.raises(Refused):
            releases(proxy, monkeypatch).undo(KEY)
        assert 0.5 * SECONDS < proxy.time.clock.elapsed() - 1000 <= SECONDS

    def test_or_once_where_somebody_wants_to_end(self, slept: list[float]) -> None:
        proxy = Proxy(BUSY)
        with pytest.raises(Refused):
            releases(proxy).undo(KEY, seconds=0.3)
        assert [seconds for _, _, seconds in proxy.asked] == [pytest.approx(0.3)]
        assert slept == []

    def test_which_says_in_how_long_it_was_not_done(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = Proxy(BUSY)
        done, why = given_back(releases(proxy, monkeypatch))
        assert done == []
        assert re.fullmatch(r"not released within [0-9.]+s: http://proxy/?.* 500.*busy.*", why), why
        assert float(why.split()[3][:-2]) > 0.5 * SECONDS
