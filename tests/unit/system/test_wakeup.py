"""The wakeup that ends another thread's sleep."""

from __future__ import annotations

import os

import pytest

from leasectl.system.wakeup import Wakeup


class TestWakeup:
    def test_set_twice_it_wakes_once_and_then_no_more(self) -> None:
        wakeup = Wakeup()
        wakeup.set()
        wakeup.set()
        assert wakeup.wait(0)
        wakeup.clear()
        assert not wakeup.wait(0)
        wakeup.close()

    def test_one_that_is_closed_does_not_write_to_who_got_its_number(self) -> None:
        wakeup = Wakeup()
        wakeup.close()
        read_fd, write_fd = os.pipe2(os.O_NONBLOCK)
        wakeup.set()
        with pytest.raises(BlockingIOError):
            os.read(read_fd, 1)
        os.close(read_fd)
        os.close(write_fd)

    def test_a_pipe_does_where_there_is_no_eventfd(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(os, "eventfd", raising=False)
        self.test_set_twice_it_wakes_once_and_then_no_more()
        self.test_one_that_is_closed_does_not_write_to_who_got_its_number()
