"""What comes to a simulated pool, and under which policies, as people write it."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from leasectl.engines.facts import PoolSettings
from leasectl.errors import InvalidRequest, NotFound
from leasectl.pools.simulation.jobs import (
    MOST_JOBS,
    Arrival,
    Arrivals,
    parse_arrivals,
    parse_arrivals_file,
    parse_holds,
    parse_holds_file,
)
from leasectl.pools.simulation.policies import (
    NO_POLICY,
    of_settings,
    parse_policies,
    parse_policy,
    with_pace,
)
from leasectl.pools.simulation.scenario import made_up, pool_of


def no_file(name: str) -> str:
    raise NotFound(f"{name}: no such file")


def times(text: str, seed: int = 1) -> list[float]:
    return [each.at for each in parse_arrivals(text, no_file).draw(Random(seed))]


def holds(text: str, number: int, seed: int = 1) -> list[float]:
    return list(itertools.islice(parse_holds(text, no_file).draw(Random(seed)), number))


class TestArrivals:
    def test_at_once(self) -> None:
        assert times("3") == [0, 0, 0]

    def test_in_bursts(self) -> None:
        assert times("3x2/15m") == [0, 0, 900, 900, 1800, 1800]

    def test_at_a_rate_they_come_at_random_for_that_long_and_about_as_many(self) -> None:
        came = times("2/m:8h")
        assert came == sorted(came)
        assert len(came) == pytest.approx(960, rel=0.1)
        assert came[0] > 0
        assert came[-1] < 8 * 3600
        assert came == times("2/m:8h")
        assert came != times("2/m:8h", seed=2)

    @pytest.mark.parametrize("unit", ["0.5/s:10m", "30/m:10m", "1800/h:10m", "43200/d:10m"])
    def test_a_rate_has_any_unit(self, unit: str) -> None:
        assert times(unit) == times("30/m:10m")

    def test_a_file_says_more(self) -> None:
        text = "at,hold,count,priority,name\n1m,20m,2,-3,\n# later\n\n30s,,,,T--07\n"
        assert parse_arrivals("jobs.csv", lambda _: text).draw(Random(1)) == [
            Arrival(30.0, name="T--07"),
            Arrival(60.0, 1200.0, 2, -3),
        ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("0", "have no job"),
            ("0x5/1m", "have no job"),
            (str(MOST_JOBS + 1), "too many"),
            ("999x99999/1m", "too many"),
            ("99999/s:10d", "too many"),
            ("0/m:8h", "no job ever comes"),
            ("-5", "negative"),
            ("5O", "no such file, and not a valid value"),
            ("2/m for 8h", "no such file, and not a valid value"),
            ("2/w:8h", "no such file, and not a valid value"),
            ("5x5/1w", "no such file, and not a valid value"),
            ("2/m:8.8.8h", "invalid duration"),
        ],
    )
    def test_what_can_not_be_meant_is_refused(self, text: str, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said):
            parse_arrivals(text, no_file)


class TestArrivalFiles:
    def test_without_a_first_line_there_are_only_times(self) -> None:
        assert parse_arrivals_file("90\n1m\n", "f") == [Arrival(60.0), Arrival(90.0)]

    def test_dates_count_from_the_first(self) -> None:
        text = "at\n2026-11-22T09:00:00Z\n2026-11-22T10:00:30+01:00\n2026-11-22T09:01:00.500\n"
        assert [each.at for each in parse_arrivals_file(text, "f")] == [0, 30, 60.5]

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    def test_the_line_of_the_columns_tells_what_separates_them(self, separator: str) -> None:
        lines = ('"at",hold,count', "1m,20m,", "2m,,3")
        text = "\r\n".join(line.replace(",", separator) for line in lines)
        assert parse_arrivals_file(text, "f") == [Arrival(60.0, 1200.0), Arrival(120.0, count=3)]

    def test_a_hold_may_be_a_range_of_which_each_seed_draws_its_own(self) -> None:
        (arrival,) = parse_arrivals_file("at,hold\n0,16m-24m\n", "f")
        assert arrival.hold_seconds == (960, 1440)
        arrivals = Arrivals("some", lambda _: [arrival] * 50)
        pool = pool_of("T", 1)
        drawn = [
            [job.longest_hold for job in made_up(arrivals, None, pool, count=1, seed=n).jobs]
            for n in (1, 1, 2)
        ]
        assert 960 <= min(drawn[0]) < 1000 < 1400 < max(drawn[0]) <= 1440
        assert drawn[0] == drawn[1] != drawn[2]

    def test_those_of_one_time_keep_their_order(self) -> None:
        text = "at,priority\n0,1\n0,2\n0,0\n"
        assert [each.priority for each in parse_arrivals_file(text, "f")] == [1, 2, 0]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "no job in it"),
            ("at\n", "no job in it"),
            ("when\n1m\n", 'f:1: unknown column "when"'),
            ("at,hodl\n1m,2\n", 'did you mean "hold"'),
            ("at,at\n1m,2\n", "f:1: .*twice"),
            ("hold\n1m\n", 'f:1: column "at" is missing'),
            ("at,hold\n1m\n", "f:2: 1 value for 2 columns"),
            ("1m\n2m,3\n", "f:2: 2 values for 1 column"),
            ("at;hodl\n1m;2\n", 'f:1: unknown column "hodl".*did you mean "hold"'),
            ("at,hold\n1m,20m+-20\n", "f:2: .*20 of what"),
            ("at,hold\n1m,9-20m\n", "f:2: .*give both times a unit"),
            ("at\n21.11.2026 08:00\n", "f:2: .*or as a date like 2026-11-21T08:00"),
            ("at,hold\n,1m\n", "f:2: no value in column"),
            ("at,hold\n1m,-5m\n", 'f:2: invalid duration "-5m"'),
            ("at\n1m\n\n-1m\n", 'f:4: invalid duration "-1m"'),
            ("at,count\n1m,0\n", "f:2: .*invalid number of resources"),
            ("at,count\n1m,1e3\n", "f:2: .*invalid number of resources"),
            ("at,priority\n1m,101\n", "f:2: .*-100 to 100"),
            ("at,priority\n1m,x\n", "f:2: .*-100 to 100"),
            ("at,name\n1m,../etc\n", "f:2: .*not allowed"),
            ("at,name,count\n1m,a,2\n", "f:2: .*with a name"),
            ("1m\n2026-11-22T09:00:00Z\n", "f:2: times are dates in some lines"),
            ("2026-13-22T09:00:00Z\n", "f:1: .*invalid duration"),
            ('at,name\n1m,"a\n', "f:2: these aren't comma-separated values"),
            ("at\n1m\x1b[2J\n", r"f:2: .*invalid duration"),
            ("at\n" + "1" * 20_000 + "\n", "f:2: this line is too long"),
        ],
    )
    def test_a_line_that_is_wrong_is_named(self, text: str, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said) as refused:
            parse_arrivals_file(text, "f")
        assert "\x1b" not in str(refused.value)

    def test_holds_have_a_line_each(self) -> None:
        assert parse_holds_file("hold\n20m\n# so\n90\n", "f") == [1200, 90]
        for text, said in (
            ("", "no hold time in it"),
            ("1,2\n", "f:1: write one"),
            ("1\nx\n", "f:2: "),
        ):
            with pytest.raises(InvalidRequest, match=said):
                parse_holds_file(text, "f")


class TestHolds:
    def test_fixed_from_a_range_or_of_a_file(self) -> None:
        assert holds("20m", 2) == [1200, 1200]
        for text in ("16m-24m", "20m+-20%", "20m±20%", "20m+-4m"):
            drawn = holds(text, 400)
            assert 960 <= min(drawn) < 980
            assert 1420 < max(drawn) <= 1440
            assert sum(drawn) / 400 == pytest.approx(1200, rel=0.03)
            assert drawn == holds("16m-24m", 400)
        of_file = parse_holds("f", lambda _: "1m\n2m\n")
        assert of_file.mean_seconds == 90
        assert list(itertools.islice(of_file.draw(Random(1)), 3)) == [60, 120, 60]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("-20m", "negative"),
            ("24m-16m", "the first time is the longer"),
            ("20m+-101%", "negative"),
            ("20m+-21m", "negative"),
            ("20m+-20", "20 of what[?] Write 20m[+]-20% or 20m[+]-20s"),
            ("20m+-1.2.3%", "not a number"),
            ("1.2.3m", "invalid duration"),
            ("twenty", "no such file, and not a valid value"),
        ],
    )
    def test_what_can_not_be_meant_is_refused(self, text: str, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said):
            parse_holds(text, no_file)


class TestPolicies:
    def test_what_each_means(self) -> None:
        assert parse_policy("none") == NO_POLICY
        assert parse_policy("jitter=15m").jitter_seconds == 900
        assert parse_policy("start-jitter=5m").start_jitter_seconds == 300
        assert parse_policy("release-after=18m-22m").release_after_seconds == (1080, 1320)
        assert parse_policy("release-after=18m").release_after_seconds == (1080, 1080)
        assert parse_policy("pace=20s,burst=2,aging=30m").settings == PoolSettings(20, 2, 1800)

    def test_that_of_a_pool_can_be_read_back(self) -> None:
        for settings in (PoolSettings(), PoolSettings(20.5, 3, 61), PoolSettings(100.25)):
            assert parse_policy(of_settings(settings).text).settings == settings

    def test_with_another_pace_the_rest_stays(self) -> None:
        changed = with_pace(parse_policy("jitter=1m,pace=20s,burst=2"), 7.0)
        assert (changed.settings.pace_seconds, changed.jitter_seconds) == (7.0, 60.0)
        assert parse_policy(changed.text)._replace(text="") == changed._replace(text="")

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "unknown policy"),
            ("jiter=5m", 'did you mean "jitter"'),
            ("wild", "write none, jitter"),
            ("jitter", "needs a value"),
            ("jitter=", "needs a value"),
            ("jitter=x", "invalid duration"),
            ("jitter=1m,jitter=2m", "twice"),
            ("none,pace=2s", "can't be combined"),
            ("pace=1ms", "invalid duration"),
            ("pace=0.01", "can be"),
            ("pace=20s,burst=0", "burst 0"),
            ("pace=20s,burst=x", "invalid number"),
            ("burst=2", "needs a pace"),
            ("release-after=22m-18m", "the first time is the longer"),
            ("pace=20s\x1b[2J", "invalid duration"),
        ],
    )
    def test_what_can_not_be_meant_is_refused(self, text: str, said: str) -> None:
        with pytest.raises(InvalidRequest, match=said) as refused:
            parse_policy(text)
        assert "\x1b" not in str(refused.value)

    def test_none_is_there_twice(self) -> None:
        with pytest.raises(InvalidRequest, match="twice"):
            parse_policies(["none", "pace=2s", "none"])
