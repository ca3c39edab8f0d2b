"""Pictures in a terminal: what they show, of which characters, and that they fit."""

from __future__ import annotations

import pytest

from leasectl.cli.rendering.charts import (
    ASCII,
    BLOCKS,
    Charset,
    PictureLook,
    look_of_pictures,
    picture,
)
from leasectl.pools.chart_axes import time_ticks
from leasectl.pools.statistics import PictureRow, Window
from leasectl.pools.timeline import Timeline, timelines
from leasectl.state.event import Event
from leasectl.text.wording import cells

START = 1_700_006_400.0  # 2023-11-15, midnight in UTC
HOUR = 3600.0


def wave() -> Timeline:
    """Four resources and eight jobs at once, an hour each."""
    events = [Event(0, START, "pool made", "T", count=4)]
    for n in range(8):
        handle, at = f"T-{n}", START + (n // 4) * HOUR
        events.append(Event(0, START, "queued", "T", handle=handle, acquisition=1))
        events.append(Event(0, at, "granted", "T", (f"T--{n % 4}",), (), handle, 1))
        events.append(Event(0, at + HOUR, "released", "T", (f"T--{n % 4}",), (), handle, 1))
    return timelines(events)["T"]


def rows(*titles: str) -> list[PictureRow]:
    return [PictureRow(title, wave(), Window(START, START + 4 * HOUR)) for title in titles]


def test_a_picture_shows_how_things_went() -> None:
    shown = picture(rows("T"), width=21, look=PictureLook(ASCII)).splitlines()
    assert shown[:6] == [
        "     held, of 4, pea…",
        "   4|########",
        "    |########",
        "    |########",
        "    |########",
        "   0|########",
    ]
    assert shown[9] == "   4|####"
    assert shown[17] == "   4|#   #"
    assert shown[-1] == "time in UTC; each column"[:20] + "…"


def test_a_bar_has_as_many_steps_as_its_characters() -> None:
    events = [Event(0, START, "pool made", "T", count=40)]
    for n in range(40):  # one more in each step
        events.append(Event(0, START + n, "granted", "T", (f"T--{n}",), (), f"T-{n}", 1))
    row = PictureRow("T", timelines(events)["T"], Window(START, START + 40))
    shown = picture([row], width=45, look=PictureLook(BLOCKS)).splitlines()
    assert shown[1] == "  40│" + " " * 32 + "▁▂▃▄▅▆▇█"
    assert shown[5] == "   0│▁▂▃▄▅▆▇" + "█" * 33


def test_the_least_there_is_shows() -> None:
    events = [
        Event(0, START, "pool made", "T", count=1000),
        Event(0, START, "granted", "T", ("T--0",), (), "T-0", 1),
    ]
    row = PictureRow("T", timelines(events)["T"], Window(START, START + 60))
    for charset in (ASCII, BLOCKS):
        shown = picture([row], width=40, look=PictureLook(charset)).splitlines()
        assert shown[5] == f"   0{charset.side}" + charset.bars[0] * 35


def test_what_is_compared_has_one_scale() -> None:
    events = [Event(0, START, "granted", "T", (f"T--{n}",), (), f"T-{n}", 1) for n in range(100)]
    big = PictureRow("big", timelines(events)["T"], Window(START, START + HOUR))
    small = PictureRow("small", wave(), Window(START, START + HOUR))
    own = picture([big, small], width=80, look=PictureLook(ASCII))
    one = picture([big, small], width=80, look=PictureLook(ASCII), same_scale=True)
    assert own.count(" 100|") == 2
    assert one.count(" 100|") == 4


@pytest.mark.parametrize("charset", [ASCII, BLOCKS])
@pytest.mark.parametrize("titles", [("T",), ("T", "漢字" * 30), ()])
def test_no_line_is_wider_than_there_is_room(charset: Charset, titles: tuple[str, ...]) -> None:
    for width in (1, 5, 12, 13, 20, 40, 59, 60, 61, 80, 133, 400):
        for line in picture(rows(*titles), width=width, look=PictureLook(charset)).splitlines():
            assert cells(line) <= width


def labels(since: float, until: float, at_most: int = 5, *, elapsed: bool = False) -> list[str]:
    ticks = time_ticks(since, until, at_most=at_most, elapsed=elapsed)
    assert all(0 <= mark.at_seconds <= until - since for mark in ticks)
    assert len(ticks) <= at_most + 1
    return [mark.label for mark in ticks]


def test_marks_of_time_are_round() -> None:
    assert labels(START + 100, START + 2 * HOUR) == ["00:30", "01:00", "01:30", "02:00"]
    assert labels(START, START + 20) == ["11-15", "00:00:05", "00:00:10", "00:00:15", "00:00:20"]
    assert labels(START, START + 7 * 86400) == ["11-15", "11-17", "11-19", "11-21"]
    assert labels(START, START + 3 * HOUR, elapsed=True) == ["0", "1h", "2h", "3h"]
    assert labels(START + 5, START + 5 + 200 * 60, elapsed=True) == ["0", "1h", "2h", "3h"]


@pytest.mark.parametrize(
    ("environment", "charset"),
    [
        ({}, BLOCKS),
        ({"LANG": "de_DE.UTF-8"}, BLOCKS),
        ({"LANG": "C.utf8"}, BLOCKS),
        ({"LANG": "C"}, ASCII),
        ({"LANG": "de_DE.ISO-8859-1"}, ASCII),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, ASCII),  # which Python sets for itself
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, BLOCKS),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, ASCII),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, BLOCKS),
        ({"LANG": "en_US.UTF-8", "TERM": "dumb"}, ASCII),
    ],
)
def test_locale_and_terminal_say_what_can_be_shown(
    environment: dict[str, str], charset: Charset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LANG", "LC_ALL", "LC_CTYPE", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert look_of_pictures().charset is charset
