"""--plot: pictures in files, whole or not at all, whatever names say."""

from __future__ import annotations

import math
import os
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from leasectl.cli.rendering.plot import parse_plot_file, plot, replace_file
from leasectl.errors import InvalidRequest, NotSupported, StateUnwritable
from leasectl.pools.chart_axes import COLOURS
from leasectl.pools.lease_bars import LeaseBar
from leasectl.pools.statistics import PictureRow, Window
from leasectl.pools.timeline import timelines
from leasectl.state.event import Event
from leasectl.text.naming import escape_word

# Matplotlib is installed where the tests run that run on one Python only.
pytestmark = pytest.mark.once

START = 1_700_000_000.0
HOSTILE = "$\\frac{x</text><script>alert(1)</script>\x1b[31m\n漢字$"


def row(title: str) -> PictureRow:
    events = [
        Event(1, START, "pool made", "T", count=2),
        Event(2, START, "queued", "T", handle="a", acquisition=1),
        Event(3, START + 5, "granted", "T", ("T--0",), (), "a", 1, wait_seconds=5.0),
        Event(4, START + 60, "released", "T", ("T--0",), (), "a", 1, hold_seconds=55.0),
    ]
    return PictureRow(title, timelines(events)["T"], Window(START, START + 120))


@pytest.fixture
def matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="the extra is not installed: pip install '.[plot]'")


@pytest.mark.usefixtures("matplotlib")
class TestDrawing:
    def test_an_svg_has_what_it_shows_as_text(self, tmp_path: Path) -> None:
        path = tmp_path / "T.SVG"
        rows = [row("none"), row(HOSTILE)]
        plot(rows, parse_plot_file(str(path)), title=HOSTILE, elapsed=True, same_scale=True)
        texts = [
            each.text or "" for each in ElementTree.parse(path).iter() if each.tag.endswith("}text")
        ]
        assert {"none", "held, of 2", "waiting", "starts in a minute", "30s"} <= set(texts)
        assert sum("</text><script>alert(1)</script>\\x1b[31m" in text for text in texts) == 2
        assert b"<script" not in path.read_bytes()

    def test_one_pool_has_a_bar_for_each_lease_with_its_job(self, tmp_path: Path) -> None:
        path = tmp_path / "T.svg"
        bars = (
            LeaseBar("T--0", START + 5, START + 60, START, "nightly/1/host/T-a"),
            LeaseBar(
                "T--1", START - 99, math.inf, START - 99, f"{escape_word(HOSTILE)}/1/host/T-b"
            ),
        )
        plot([row("T")], parse_plot_file(str(path)), title="T", bars=bars)
        said = "".join(ElementTree.parse(path).getroot().itertext())
        assert all(each in said for each in ("T--0", "T--1", "nightly", "who held which"))
        assert b"<script" not in path.read_bytes()
        assert COLOURS["held"] in path.read_text() and COLOURS["waiting"] in path.read_text()

    def test_the_same_picture_is_the_same_bytes(self, tmp_path: Path) -> None:
        paths = [tmp_path / f"{n}.svg" for n in range(2)]
        for path in paths:
            plot([row("T")], parse_plot_file(str(path)), title="T")
        assert paths[0].read_bytes() == paths[1].read_bytes()

    @pytest.mark.parametrize(
        "name", ["T", "T.pdf", ".svg", "T.svg.gz", "T.png/", "", "/dev/stdout"]
    )
    def test_a_name_has_to_say_of_what_kind_it_is(self, name: str) -> None:
        with pytest.raises(InvalidRequest, match=r"ends in \.svg or \.png") as caught:
            parse_plot_file(name)
        assert caught.value.exit_code == 64


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NotSupported, match=r"pip install '\.\[plot\]'") as caught:
        parse_plot_file("T.svg")
    assert caught.value.exit_code == 64


def test_a_file_is_replaced_whole_and_keeps_what_links_to_it(tmp_path: Path) -> None:
    path, link = tmp_path / "T.svg", tmp_path / "link.svg"
    path.write_bytes(b"before")
    link.symlink_to(path)
    replace_file(str(link), b"after")
    assert (path.read_bytes(), link.is_symlink()) == (b"after", True)
    assert sorted(os.listdir(tmp_path)) == ["T.svg", "link.svg"]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "folder.svg").mkdir()
    os.mkfifo(tmp_path / "pipe.svg")
    for path in (tmp_path / "folder.svg", tmp_path / "pipe.svg", tmp_path / "no" / "T.svg"):
        with pytest.raises(StateUnwritable, match="can't write") as caught:
            replace_file(str(path), b"after")
        assert caught.value.exit_code == 73
    assert sorted(os.listdir(tmp_path)) == ["folder.svg", "pipe.svg"]


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(fd: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "T.svg"
    path.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(StateUnwritable, match="No space left"):
        replace_file(str(path), b"after")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"before", ["T.svg"])
