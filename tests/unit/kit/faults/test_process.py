"""The lease proxy of the tests as a process: how it begins and ends, and that it hides nothing."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.history import History
from tests.kit.faults.process import FaultProxy
from tests.kit.faults.raw_client import RawClient
from tests.kit.support import eventually


@pytest.fixture
def proxy(fault_proxy: StartFaultProxy) -> FaultProxy:
    return fault_proxy("T=3")


def start(port_file: Path, *options: str) -> subprocess.Popen[bytes]:
    program = Path(__file__).parents[3] / "kit" / "faults" / "lease_proxy.py"
    command = [sys.executable, "-SE", str(program), "--port-file", str(port_file), *options]
    with open(f"{port_file}.errors", "wb") as errors:
        process = subprocess.Popen(command, stderr=errors)
    eventually(lambda: port_file.exists() or process.poll() is not None)
    return process


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_told(tmp_path: Path, signum: int) -> None:
    process = start(tmp_path / "url", "--resources", "T=1")
    process.send_signal(signum)
    assert process.wait(10) == 0
    assert History.read(tmp_path / "url.log").of("stop")


def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(["sleep", "60"])
    process = start(tmp_path / "url", "--parent", str(parent.pid))
    assert process.poll() is None
    parent.kill()
    parent.wait()
    assert process.wait(10) == 0


def test_it_does_not_begin_without_its_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(["true"])
    parent.wait()
    assert start(tmp_path / "url", "--parent", str(parent.pid)).wait(10) == 0


@pytest.mark.parametrize("option", ["--resources=T", "--fault=explode", "--script=[1]"])
def test_what_it_cannot_do_it_refuses_to_begin_with(tmp_path: Path, option: str) -> None:
    assert start(tmp_path / "url", option).wait(10) == 1
    assert (tmp_path / "url.errors").read_text().startswith("lease_proxy: ")


def test_the_log_survives_a_kill(proxy: FaultProxy) -> None:
    with RawClient(proxy.url) as connection:
        connection.acquire()
        proxy.kill()
        assert proxy.history().leased == {"T--00"}


def test_a_paused_one_takes_connections_and_does_not_answer(proxy: FaultProxy) -> None:
    proxy.pause()
    with RawClient(proxy.url) as connection:
        connection.start_acquire()
        connection.socket.settimeout(0.05)
        with pytest.raises(socket.timeout):
            connection.socket.recv(1)
        proxy.go_on()
        connection.socket.settimeout(10)
        assert connection.read_answer().names == ["T--00"]


def test_the_control_port_says_what_it_does_not_know(proxy: FaultProxy) -> None:
    with pytest.raises(ValueError, match="explode"):
        proxy.faults("explode")
    with pytest.raises(ValueError, match="no type U"):
        proxy.occupy("U")
    assert proxy.state()["listening"] is True


def test_whatever_goes_wrong_the_log_and_the_state_agree(fault_proxy: StartFaultProxy) -> None:
    anything = "reset-before|reset-after|500|404|half|not-json|garbage|drip|names-hostile"
    proxy = fault_proxy("T=3", faults=(f"{anything} rate=0.4",), acquire_timeout_seconds=0.05)

    def use() -> None:
        for _ in range(20):
            try:
                with RawClient(proxy.url) as connection:
                    got = connection.acquire()
                    if got.status == 200:
                        connection.release(*got.names)
            except (OSError, http.client.HTTPException, ValueError, TypeError):
                continue

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(lambda: not proxy.state()["open_connections"])
    history = proxy.history()
    assert history.problems() == []
    assert sorted(history.leased) == proxy.leased
    assert len(history.of("request")) == proxy.state()["requests"]
    assert {each["fault"] for each in history.of("request")} == {None, *anything.split("|")}
