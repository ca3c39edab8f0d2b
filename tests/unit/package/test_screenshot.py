"""The script that makes the picture of the web page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.support import clean_environment

pytestmark = pytest.mark.once

SCRIPT = Path(__file__).parents[3] / "scripts" / "screenshot"


def test_script_makes_a_picture_of_the_page(tmp_path: Path) -> None:
    picture = tmp_path / "page.png"
    subprocess.run([sys.executable, SCRIPT, picture], env=clean_environment(), check=True)
    head = picture.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")) == (1280, 900)
