"""Participants that are forked from a process in which other tests have left something."""

from __future__ import annotations

from pathlib import Path

import pytest

from leasectl.system import afterwards
from tests.kit.forking import ending, fork


def test_what_was_left_to_be_done_is_nothing_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tmp_path / "done"
    monkeypatch.setattr(afterwards, "_left", done.touch)
    assert ending(fork(afterwards.finish)) == 0
    assert not done.exists()
    afterwards.finish()
    assert done.exists()
