"""An acquisition from a lease proxy, answer by answer: in made-up time, and without a server."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from typing import Any, Callable, cast

import pytest

from leasectl.backends.contract import Patience, Progress
from leasectl.backends.proxy import status
from leasectl.backends.proxy.acquisition import Acquisition
from leasectl.backends.proxy.connection import Connection
from leasectl.backends.proxy.releases import Releases
from leasectl.backends.unanswered import Loss, NotSent, Refused, TimeOver
from leasectl.errors import BackendUnreachable, Interrupted, InvalidRequest, NoLease
from leasectl.http.messages import Answer
from leasectl.model import Lease, Request
from tests.kit.recorded import NoJournal
from tests.kit.support import ManualClock

KEY = "T-1/1"


def grant(*names: str, key: str | None = None) -> Answer:
    text = '{"names": [' + ", ".join(f'"{name}"' for name in names) + "]}"
    return Answer(200, text, {} if key is None else {"idempotency-key": key})


class Proxy:
    """Answers each request by one step; gives back what it is told to.

    Attributes:
        time: What steps may let pass.
        keys: The key of each request.
        counts: How many each says will be asked for in all; None where it doesn't.
        given_back: Names, each with the key that it was given back under.
        undone: Keys of which everything was to be undone; `heeds` says whether it was.
        echoes: Whether it sends a key back with an answer of no leases.
        looks: What it answers, before that, to requests for no leases.
    """

    def __init__(self, *steps: object) -> None:
        self.time = ManualClock(elapsed=1000.0)
        self.steps = iter(steps)
        self.keys: list[str] = []
        self.counts: list[str | None] = []
        self.given_back: list[tuple[str, str]] = []
        self.undone: list[tuple[str, float | None]] = []
        self.heeds: bool | Exception = False
        self.echoes = False
        self.looks: list[object] = []

    def ask(self, path: str, *, headers: dict[str, str], **more: Any) -> Answer:
        assert path == "/lease/acquire"
        self.keys.append(headers["Idempotency-Key"])
        self.counts.append(headers.get("Leasectl-Count"))
        step = next(self.steps)
        if callable(step):
            step = step(more)
        if isinstance(step, BaseException):
            raise step
        assert isinstance(step, Answer)
        return step

    def tell(self, path: str, body: object, *, headers: dict[str, str], seconds: float) -> Answer:
        assert (path, body) == ("/lease/acquire?type=T&count=0", {})
        if self.looks:
            look = self.looks.pop(0)
            if isinstance(look, Exception):
                raise look
            assert isinstance(look, Answer)
            return look
        return grant(key=headers["Idempotency-Key"] if self.echoes else None)

    def give_back(self, name: str, key: str) -> None:
        self.given_back.append((name, key))

    def undo(self, key: str, *, seconds: float | None) -> bool:
        self.undone.append((key, seconds))
        if isinstance(self.heeds, Exception):
            raise self.heeds
        return self.heeds


class Journal(NoJournal):
    """What is on record.

    Attributes:
        names: What has arrived.
        lost: How many answers are missing.
    """

    key = KEY

    def __init__(self, being_given_back: Iterable[str] = ()) -> None:
        self._being_given_back = list(being_given_back)
        self.names: list[str] = []
        self.lost = 0
        self.unsettled = False

    def arrived(self, name: str) -> Lease | None:
        if name in self._being_given_back:
            return None
        self.names.append(name)
        return Lease(name, 0, 0, 0, "T-1", 0, 0, None, 0)

    def returning(self, name: str) -> None:
        pass

    def returned(self, name: str) -> None:
        self.names.remove(name)

    def lost_reply(self) -> None:
        self.lost += 1

    def found(self) -> None:
        self.lost = 0

    def to_undo(self) -> None:
        self.unsettled = True


class Try:
    """One acquisition, and what was said of it."""

    def __init__(
        self,
        proxy: Proxy,
        *,
        count: int = 1,
        wait: float | None = None,
        connect_seconds: float | None = None,
        journal: Journal | None = None,
        reports: bool = True,
    ) -> None:
        self.journal = journal or Journal()
        self.warnings: list[str] = []
        self.reports: list[Progress] = []
        self.pauses: list[float] = []
        patience = Patience(
            wait_seconds=wait,
            connect_seconds=connect_seconds,
            report=self.reports.append if reports else None,
            report_seconds=60.0,
            warn=self.warnings.append,
        )
        self.acquisition = Acquisition(
            "http://proxy",
            cast(Connection, proxy),
            cast(Releases, proxy),
            request=Request("T", count),
            journal=self.journal,
            patience=patience,
            clock=proxy.time.clock,
        )

        def pause(seconds: float) -> None:
            self.pauses.append(seconds)
            proxy.time.advance(seconds)

        self.acquisition.pause = pause  # type: ignore[method-assign]

    def take(self) -> Sequence[str]:
        return [lease.name for lease in self.acquisition.take()]


class TestGrants:
    def test_each_request_has_a_key_of_its_own(self) -> None:
        proxy = Proxy(grant("T--00"), grant("T--01"))
        assert Try(proxy, count=2).take() == ["T--00", "T--01"]
        assert proxy.keys == [f"{KEY}/0", f"{KEY}/1"]

    def test_the_first_of_several_says_how_many_there_will_be(self) -> None:
        for count, said in ((3, ["3", None, None]), (2, ["2", None]), (1, [None])):
            proxy = Proxy(*(grant(f"T--0{number}") for number in range(count)))
            Try(proxy, count=count).take()
            assert proxy.counts == said

    @pytest.mark.parametrize("names", [("T--00", "T--01"), ("T--00/..",), ("a b", "T--00", "a b")])
    def test_what_wasnt_asked_for_goes_back_once(self, names: tuple[str, ...]) -> None:
        proxy, distinct = Proxy(grant(*names)), list(dict.fromkeys(names))
        acquisition = Try(proxy)
        with pytest.raises(BackendUnreachable, match="gives them back"):
            acquisition.take()
        named = [name for name in distinct if name.startswith("T--0") and "/" not in name]
        assert acquisition.journal.names == named  # for whoever has asked to give back
        others = [name for name in distinct if name not in named]
        assert proxy.given_back == [(name, f"{KEY}/0") for name in others]
        assert len(proxy.keys) == 1

    def test_what_cant_be_given_back_is_named_and_keeps_nothing_else(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = Proxy(grant("a b", "c d", "T--00"))

        def refuse(name: str, key: str) -> None:
            raise Refused("not now")

        monkeypatch.setattr(proxy, "give_back", refuse)
        acquisition = Try(proxy)
        with pytest.raises(BackendUnreachable, match="gives them back"):
            acquisition.take()
        assert acquisition.journal.names == ["T--00"]
        assert [each.partition(" may stay leased")[0] for each in acquisition.warnings] == [
            '"a b"',
            '"c d"',
        ]
        assert len(proxy.keys) == 1

    def test_one_name_twice_is_not_two_leases(self) -> None:
        proxy = Proxy(grant("T--00"), grant("T--00"))
        acquisition = Try(proxy, count=2)
        with pytest.raises(BackendUnreachable, match="granted T--00 twice"):
            acquisition.take()
        assert acquisition.journal.names == ["T--00"]  # for whoever has asked to give back

    @pytest.mark.parametrize(("key", "seconds"), [(None, 30.0), (f"{KEY}/0", 0.0)])
    def test_only_a_server_that_heeds_keys_has_no_ghosts(
        self, key: str | None, seconds: float
    ) -> None:
        acquisition = Try(Proxy(grant("T--00", key=key)))
        acquisition.take()
        assert acquisition.acquisition.ghost_seconds == seconds

    @pytest.mark.parametrize("capacity", [3, None])
    def test_who_heeds_keys_is_asked_once_how_many_there_are(
        self, monkeypatch: pytest.MonkeyPatch, capacity: int | None
    ) -> None:
        proxy = Proxy(*[grant(f"T--0{number}", key=f"{KEY}/{number}") for number in range(3)])
        asked_after: list[int] = []

        def capacity_of(*_: object) -> int | None:
            asked_after.append(len(proxy.keys))
            return capacity

        monkeypatch.setattr(status, "capacity_of", capacity_of)
        assert len(Try(proxy, count=3).take()) == 3
        assert asked_after == [1]

    def test_more_than_there_are_are_not_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(status, "capacity_of", lambda *_: 2)
        proxy = Proxy(grant("T--00", key=f"{KEY}/0"))
        with pytest.raises(InvalidRequest):
            Try(proxy, count=3).take()
        assert len(proxy.keys) == 1

    def test_a_refusal_ends_it(self) -> None:
        with pytest.raises(InvalidRequest, match="answered 400: no"):
            Try(Proxy(Answer(400, "no", {}))).take()


class TestLosses:
    def test_it_is_said_and_asked_again_with_the_same_key(self) -> None:
        proxy = Proxy(Loss("reset"), grant("T--00"))
        acquisition = Try(proxy)
        assert acquisition.take() == ["T--00"]
        assert proxy.keys == [f"{KEY}/0"] * 2
        assert acquisition.journal.lost == 1
        assert "a lease of T may have been granted" in acquisition.warnings[0]

    def cut_after(self, proxy: Proxy, seconds: float) -> Callable[[object], Exception]:
        """Return a step: the connection is cut after so many seconds of waiting."""

        def cut(_: object) -> Exception:
            proxy.time.advance(seconds)
            return Loss("answered 504")

        return cut

    @pytest.mark.parametrize("wait", [None, 3600.0])
    def test_read_timeout_in_front_of_server_that_heeds_keys_is_no_loss(
        self, wait: float | None
    ) -> None:
        proxy = Proxy()
        proxy.echoes = True
        proxy.steps = iter([self.cut_after(proxy, 60)] * 20 + [grant("T--00", key=f"{KEY}/0")])
        acquisition = Try(proxy, wait=wait)
        assert acquisition.take() == ["T--00"]
        assert proxy.keys == [f"{KEY}/0"] * 21
        assert (acquisition.warnings, acquisition.pauses) == ([], [])
        assert acquisition.journal.lost == 1  # so that a release withdraws the key

    def test_answers_lost_at_once_by_server_that_heeds_keys_end_in_ten_seconds(self) -> None:
        proxy = Proxy(*[Loss("answered 502")] * 1000)
        proxy.echoes = True
        acquisition = Try(proxy)
        with pytest.raises(BackendUnreachable, match="answered 502"):
            acquisition.take()
        assert 5 < proxy.time.clock.elapsed() - 1000 <= 10
        assert acquisition.warnings == ["trying again: answered 502"]

    @pytest.mark.parametrize(
        "outage",
        [NotSent("refused"), Loss("reset"), Answer(502, "", {}), Answer(503, ""), Answer(504, "")],
    )
    def test_answer_of_reverse_proxy_during_restart_is_no_loss(self, outage: object) -> None:
        proxy = Proxy(Loss("answered 502"), grant("T--00", key=f"{KEY}/0"))
        proxy.echoes, proxy.looks = True, [outage] * 20
        acquisition = Try(proxy, wait=3600)
        assert acquisition.take() == ["T--00"]
        assert len(acquisition.pauses) >= 20
        assert len(acquisition.warnings) == 1
        assert "trying again" in acquisition.warnings[0]

    def test_deadline_during_restart_is_no_lease_and_leaves_request_to_keeper(self) -> None:
        proxy = Proxy(Loss("answered 502"))
        proxy.looks, proxy.heeds = [Answer(502, "", {})] * 1000, BackendUnreachable("away")
        acquisition = Try(proxy, wait=60)
        with pytest.raises(NoLease, match=r'no lease of "T" within .*: .* answered 502'):
            acquisition.take()
        assert (acquisition.journal.lost, acquisition.journal.unsettled) == (1, True)

    def test_request_given_up_at_server_that_heeds_keys_leaves_its_queue(self) -> None:
        def give_up(more: dict[str, Any]) -> BaseException:
            more["late"](Answer(500, "context canceled", {"idempotency-key": f"{KEY}/0"}))
            return TimeOver("not in time")

        proxy = Proxy(give_up)
        with pytest.raises(NoLease):
            Try(proxy, wait=0.0).take()
        assert proxy.undone == [(f"{KEY}/0", 0.3)]

    def test_after_so_many_it_gives_up(self) -> None:
        proxy = Proxy(*[Loss("reset")] * 3, grant("T--00"))
        with pytest.raises(BackendUnreachable, match="reset, 3 times; gave up"):
            Try(proxy).take()
        assert len(proxy.keys) == 3
        proxy = Proxy(*[Loss("reset")] * 2, grant("T--00"))
        assert Try(proxy).take() == ["T--00"]

    def test_what_stands_before_a_server_that_restarts_is_given_time(self) -> None:
        acquisition = Try(Proxy(*[Loss("answered 502")] * 2, grant("T--00")))
        acquisition.take()
        assert acquisition.pauses == [0.3, 3.0]

    def test_no_more_time_than_there_is(self) -> None:
        acquisition = Try(Proxy(*[Loss("answered 502")] * 2, grant("T--00")), wait=1)
        acquisition.take()
        assert acquisition.pauses == pytest.approx([0.3, 0.5])

    @pytest.mark.parametrize(
        ("heeds", "lost", "unsettled"),
        [(True, 0, False), (False, 1, False), (BackendUnreachable("away"), 1, True)],
    )
    def test_when_it_fails_what_they_carried_is_undone_if_the_server_can(
        self, heeds: bool | Exception, lost: int, unsettled: bool
    ) -> None:
        proxy = Proxy(Loss("reset"), Answer(400, "no", {}))
        proxy.heeds = heeds
        acquisition = Try(proxy)
        with pytest.raises(InvalidRequest):
            acquisition.take()
        assert proxy.undone == [(KEY, 0.3)]
        assert (acquisition.journal.lost, acquisition.journal.unsettled) == (lost, unsettled)


class TestLateAnswers:
    """What comes when we have given up."""

    def late(self, answer: Answer | None, journal: Journal | None = None) -> tuple[Proxy, Try]:
        def give_up(more: dict[str, Any]) -> BaseException:
            more["late"](answer)
            return Interrupted(signal.SIGTERM)

        proxy = Proxy(give_up)
        acquisition = Try(proxy, journal=journal)
        with pytest.raises(Interrupted):
            acquisition.take()
        return proxy, acquisition

    def test_what_was_granted_is_on_record(self) -> None:
        proxy, acquisition = self.late(grant("T--00"))
        assert (acquisition.journal.names, proxy.given_back) == (["T--00"], [])

    def test_what_cant_be_a_name_is_given_back_at_once(self) -> None:
        proxy, acquisition = self.late(grant("a b", "T--00"))
        assert proxy.given_back == [("a b", f"{KEY}/0")]
        assert acquisition.journal.names == ["T--00"]

    def test_a_refusal_is_what_was_wanted(self) -> None:
        proxy, acquisition = self.late(Answer(500, '{"names": ["T--00"]}', {}))
        assert (proxy.given_back, acquisition.journal.names) == ([], [])
        assert (acquisition.journal.lost, acquisition.warnings) == (0, [])

    def test_none_is_a_loss(self) -> None:
        proxy, acquisition = self.late(None)
        assert acquisition.journal.lost == 1
        assert "didn't confirm that" in acquisition.warnings[0]
        assert proxy.undone == [(KEY, 0.3)]


class TestAServerThatIsAway:
    @pytest.fixture
    def chance(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
        """Decides how much of each pause is left out: 0 for nothing, 1 for all of it."""
        return lambda share: monkeypatch.setattr("leasectl.system.backoff.draw", lambda: share)

    @pytest.mark.parametrize("error", [NotSent("refused"), Refused("busy")])
    def test_is_tried_again_until_it_is_back(self, error: Exception) -> None:
        proxy = Proxy(error, error, error, grant("T--00"))
        acquisition = Try(proxy)
        assert acquisition.take() == ["T--00"]
        assert acquisition.warnings == [f"trying again: {error}"]  # once
        assert len(acquisition.pauses) == 3

    @pytest.mark.parametrize(("wait", "connect"), [(None, None), (None, 10.0), (7200.0, 10.0)])
    @pytest.mark.parametrize("first", [NotSent("refused"), Refused("busy")])
    def test_is_given_up_after_connect_timeout_or_ten_seconds(
        self,
        chance: Callable[[float], None],
        wait: float | None,
        connect: float | None,
        first: Exception,
    ) -> None:
        chance(0)
        acquisition = Try(
            Proxy(first, *[NotSent("refused")] * 100), wait=wait, connect_seconds=connect
        )
        with pytest.raises(NotSent):
            acquisition.take()
        assert acquisition.pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 3.6])  # to 9.8

    def test_that_never_was_there_is_waited_for_until_deadline(
        self, chance: Callable[[float], None]
    ) -> None:
        chance(0)
        acquisition = Try(Proxy(*[NotSent("refused")] * 100, grant("T--00")), wait=7200)
        assert acquisition.take() == ["T--00"]
        assert sum(acquisition.pauses) > 400

    def test_whose_certificate_is_wrong_is_given_up_after_ten_seconds(
        self, chance: Callable[[float], None]
    ) -> None:
        chance(0)
        distrusted = NotSent("certificate isn't trusted")
        distrusted.lasting = True
        acquisition = Try(Proxy(*[distrusted] * 100), wait=7200)
        with pytest.raises(NotSent):
            acquisition.take()
        assert sum(acquisition.pauses) == pytest.approx(9.8)

    def test_is_said_to_be_given_up_as_soon_as_it_will_be(
        self, chance: Callable[[float], None]
    ) -> None:
        chance(0)

        def fail(more: dict[str, Any]) -> Answer:
            proxy.time.advance(1.5)
            more["tick"](proxy.time.clock.elapsed())
            raise NotSent("refused")

        proxy = Proxy(NotSent("refused"), fail, grant("T--00"))
        acquisition = Try(proxy)
        acquisition.take()
        (report,) = acquisition.reports
        assert report.gives_up_in_seconds == pytest.approx(10 - 0.2 - 1.5)

    def test_with_a_deadline_pauses_are_five_seconds_at_last(
        self, chance: Callable[[float], None]
    ) -> None:
        chance(0)
        acquisition = Try(Proxy(Refused("busy"), *[NotSent("refused")] * 100), wait=60)
        with pytest.raises(NoLease, match=r'no lease of "T" within 1m: refused'):
            acquisition.take()
        assert acquisition.pauses == pytest.approx(
            [0.2, 0.4, 0.8, 1.6, 3.2] + [5.0] * 10 + [3.6, 0.2]  # to 60
        )

    @pytest.mark.parametrize("first", [Refused("busy"), Loss("reset"), grant("T--00")])
    def test_is_outlasted_for_as_long_as_the_deadline_once_it_was_there(
        self, chance: Callable[[float], None], first: object
    ) -> None:
        chance(0)
        proxy = Proxy(first, *[NotSent("refused")] * 10, grant("T--01"), grant("T--02"))
        acquisition = Try(proxy, count=2, wait=7200)
        assert len(acquisition.take()) == 2
        assert sum(acquisition.pauses) > 30

    @pytest.mark.parametrize(("wait", "seconds"), [(None, 10.0), (60.0, 60.0)])
    def test_is_given_up_at_that_very_moment(
        self, chance: Callable[[float], None], wait: float | None, seconds: float
    ) -> None:
        def fails_after(passed: float, error: Exception) -> Callable[[object], Exception]:
            def fails(_: object) -> Exception:
                proxy.time.advance(passed)
                return error

            return fails

        chance(1)
        refused = NotSent("refused")
        proxy = Proxy(
            fails_after(0, Refused("busy")),
            fails_after(seconds - 1, refused),
            fails_after(1, refused),
            fails_after(1, refused),
        )
        with pytest.raises(NotSent if wait is None else NoLease):
            Try(proxy, wait=wait).take()
        assert proxy.time.clock.elapsed() == 1000.0 + seconds

    @pytest.mark.parametrize("wait", [None, 3600.0])
    def test_one_whose_answers_take_long_fails_for_all_that(self, wait: float | None) -> None:
        """Boskos is away: the proxy tries for 160 s each time, and lets nobody wait."""

        def fails_late(more: dict[str, Any]) -> Exception:
            proxy.time.advance(160)
            return Refused("connection refused")

        proxy = Proxy(*[fails_late] * 100)
        acquisition = Try(proxy, wait=wait)
        with pytest.raises(Refused if wait is None else NoLease, match="connection refused"):
            acquisition.take()
        assert len(proxy.keys) == (2 if wait is None else pytest.approx(22, abs=1))

    def test_when_time_is_over_meanwhile_it_is_said_what_went_wrong(self) -> None:
        def time_is_over(more: dict[str, Any]) -> Exception:
            proxy.time.advance(60)
            return TimeOver("over")

        proxy = Proxy(Refused("connection refused"), time_is_over)
        with pytest.raises(NoLease, match=r'no lease of "T" within .*: connection refused'):
            Try(proxy, wait=60).take()

    def test_one_that_was_there_for_a_while_gets_all_that_time_anew(self) -> None:
        def goes_away_late(more: object) -> Exception:
            proxy.time.advance(10.1)
            return Refused("restarting")

        proxy = Proxy(goes_away_late, grant("T--00"))
        assert Try(proxy).take() == ["T--00"]

    @pytest.mark.parametrize(("wait", "echoes", "hints"), [(5, 0, 1), (35, 0, 0), (5, 1, 0)])
    def test_short_wait_says_that_it_leaves_its_place_in_the_queue(
        self, wait: float, echoes: bool, hints: bool
    ) -> None:
        def give_up(more: dict[str, Any]) -> BaseException:
            key = {"idempotency-key": f"{KEY}/0"} if echoes else {}
            more["late"](Answer(500, "context canceled", key))
            proxy.time.advance(wait)
            return TimeOver("not in time")

        proxy = Proxy(give_up)
        with pytest.raises(NoLease) as raised:
            Try(proxy, wait=wait).take()
        assert ("-w 35s or longer" in str(raised.value)) == hints


def test_it_reports_after_a_second_and_then_each_minute() -> None:
    ticks: list[float | None] = []

    def wait(more: dict[str, Any]) -> Answer:
        tick, now = more["tick"], proxy.time.clock.elapsed
        for seconds in (0.5, 0.5, 30.0, 30.0):
            proxy.time.advance(seconds)
            ticks.append(tick(now()))
        return grant("T--00")

    proxy = Proxy(wait)
    acquisition = Try(proxy)
    acquisition.take()
    first = 1001.0
    assert ticks == [first, first + 60, first + 60, first + 120]
    assert [each.waited_seconds for each in acquisition.reports] == [1.0, 61.0]
    assert [each.gives_up_in_seconds for each in acquisition.reports] == [None, None]
