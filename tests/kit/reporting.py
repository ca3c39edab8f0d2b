"""Report what keeps many tests from passing once: a missing tool, a server that hangs."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from tests.kit import waits

_MOST_GIVEN_UP = 3


class ReportOnce:
    """A plugin of pytest.

    Not hooks of a conftest: pytest doesn't ask those of a folder about fixtures of the session.
    """

    def __init__(self) -> None:
        self._failed: dict[str, str] = {}  # fixtures, each with the test that reported it

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object]
    ) -> Generator[None, object, object]:
        """Note a server that doesn't start, or whose program is missing."""
        try:
            return (yield)
        except pytest.skip.Exception:
            raise
        except BaseException:
            if fixturedef.scope == "session":
                test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
                self._failed.setdefault(fixturedef.argname, test)
            raise

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip tests that need what didn't start: the first that needed it has failed."""
        for name in getattr(item, "fixturenames", ()):
            if name in self._failed:
                pytest.skip(f"fixture {name} failed for {self._failed[name]}, and so for all tests")

    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Stop a run that hangs at something that all its tests would wait for."""
        if len(waits.given_up) >= _MOST_GIVEN_UP:
            item.session.shouldfail = "stopped, as waits gave up: " + "; ".join(waits.given_up)
