"""Whether another version has been put in the place of the one that runs."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from leasectl.keeper.installed import Installed
from leasectl.system.clock import Clock


class Site:
    """A package's file, and a clock to set."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "__init__.py"
        self.path.write_text("1")
        self.now = time.time() + 1000
        self.installed = Installed(clock=Clock(wall=lambda: self.now), path=str(self.path))

    def install(self, text: str) -> None:
        fresh = self.path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.path)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_one_that_was_there_is_no_other(site: Site) -> None:
    assert not site.installed.is_another()


def test_another_one_is_told_of_once(site: Site) -> None:
    site.install("2")
    assert site.installed.is_another()
    assert not site.installed.is_another()


def test_one_that_is_only_just_being_installed_is_waited_for(site: Site) -> None:
    site.install("2")
    site.now = time.time() + 1
    assert not site.installed.is_another()
    site.now += 5
    assert site.installed.is_another()


def test_one_that_was_removed_is_no_other(site: Site) -> None:
    site.path.unlink()
    assert not site.installed.is_another()
