"""Giving back to a lease proxy, answer by answer: in made-up time, and without a server."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest

from leasectl.backends.proxy.connection import Connection, Loss, NotSent
from leasectl.backends.proxy.protocol import Refused
from leasectl.backends.proxy.releases import Releases
from leasectl.errors import BackendUnreachable
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
    """

    def __init__(self, *steps: object) -> None:
        self.time = ManualClock(elapsed=1000.0)
        self.steps = list(steps)
        self.asked: list[tuple[list[str], str | None, float]] = []

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


def releases(proxy: Proxy, monkeypatch: pytest.MonkeyPatch | None = None) -> Releases:
    if monkeypatch is not None:
        monkeypatch.setattr(time, "sleep", proxy.time.advance)
    connection = cast(Connection, proxy)
    return Releases("http://proxy", connection, seconds=SECONDS, clock=proxy.time.clock)


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

    def test_without_a_key_none_is_sent(self) -> None:
        proxy = Proxy(DONE)
        assert given_back(releases(proxy), "a", key="") == (["a"], "")
        assert proxy.asked[0][1] is None

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
        with pytest.raises(Refused, match="given no time to release a"):
            releases(proxy).give_back("a", KEY, until=1000.0)
        assert proxy.asked == []


class TestWhatAKeyWasGranted:
    HEEDED = Answer(204, "", {"idempotency-key": KEY})

    def test_a_server_that_heeds_keys_has_undone_it(self) -> None:
        proxy = Proxy(self.HEEDED)
        assert releases(proxy).undo(KEY) is True
        assert proxy.asked == [([], KEY, SECONDS)]

    def test_another_has_not(self) -> None:
        assert releases(Proxy(DONE)).undo(KEY) is False

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

    def test_a_release_of_no_names_is_that(self) -> None:
        proxy = Proxy(self.HEEDED)
        assert given_back(releases(proxy)) == ([], "")
        assert proxy.names() == [""]

    def test_and_nothing_where_no_key_is_known(self) -> None:
        proxy = Proxy(DONE)
        assert given_back(releases(proxy), key="") == ([], "")
        assert proxy.asked == []
