"""Many clients, a server, and a network that loses one request in five.

In CI they are fewer; LEASECTL_TEST_FULL_SIZE=1 has 512 pairs from 32 processes.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.kit.faults.process import StartFaultProxy
from tests.kit.fork_server import load_everything
from tests.kit.forking import end_all, ending, fork, leasectl
from tests.kit.killing import FULL_SIZE
from tests.kit.serving import Serve, held, waiting
from tests.kit.support import Cli
from tests.kit.waits import eventually

PROCESSES, ROUNDS = (32, 16) if FULL_SIZE else (12, 7)
PAIRS = PROCESSES * ROUNDS
FAULTS = "reset-before|reset-after|half|garbage|not-json|500|delay|drip|close-keepalive rate=0.2"


class _Client:
    """One participant: takes a lease, makes sure it is the only one to have it, gives it back.

    Args:
        directory: Its state directory, shared with the others.
        folder: Where it writes what it saw.
        url: The server's, as it is reached through the bad network.
    """

    def __init__(self, directory: Path, folder: Path, url: str) -> None:
        self._directory = directory
        self._folder = folder
        self._url = url
        self._output = folder / f"output-{os.getpid()}"

    def take_and_give_back(self) -> None:
        code, out = self._run("acquire", "-q", "-t", "T", "--backend", self._url)
        if code == 69:  # it gave up, so there is no lease
            assert out == ""
            self._note("gave up")
            return
        assert code == 0, self._errors()
        name = Path(out).read_text()
        # Nobody else has it, or this would be there.
        mine = os.open(self._folder / f"held-{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.close(mine)
        self._note("pair")
        (self._folder / f"held-{name}").unlink()
        while True:
            code, printed = self._run("release", "--handle", out)
            if code == 0:
                break
            assert code == 69, self._errors()
            self._note("not released at once")
        # By nobody, if an earlier try's answer was lost.
        assert printed in (name, "")
        assert Path(out).read_text() == ""

    def _run(self, *args: str) -> tuple[int, str]:
        code = ending(fork(lambda: leasectl(self._directory, self._output, *args)))
        return code, self._output.read_text().rstrip("\n")

    def _errors(self) -> str:
        return Path(f"{self._output}.err").read_text()

    def _note(self, what: str) -> None:
        with open(self._folder / "notes", "a", encoding="ascii") as notes:
            notes.write(f"{what}\n")


def test_many_pairs_of_many_processes_lose_nothing_whatever_the_network_loses(
    cli: Cli, serve: Serve, fault_proxy: StartFaultProxy, tmp_path: Path
) -> None:
    cli.pool("T", *(f"T--{number}" for number in range(PROCESSES // 2)))
    server = serve()
    relay = fault_proxy(upstream=server.url, faults=(FAULTS,))
    load_everything()
    clients = Cli(tmp_path / "clients", tmp_path)
    folder = tmp_path / "notes"
    folder.mkdir()

    def work() -> None:
        client = _Client(clients.state_dir, folder, relay.url)
        for _ in range(ROUNDS):
            client.take_and_give_back()

    before = time.monotonic()
    try:
        pids = [fork(work) for _ in range(PROCESSES)]
        assert [ending(pid) for pid in pids] == [0] * PROCESSES
    finally:
        end_all()
        clients_said = (folder / "notes").read_text().splitlines()
        print({each: clients_said.count(each) for each in sorted(set(clients_said))})
        print(f"{time.monotonic() - before:.1f} s")
    eventually(lambda: held(cli, "T") == [], what="what was given up is undone")
    eventually(lambda: clients.query("SELECT id FROM handle WHERE state <> 'released'") == [])
    clients.close()
    eventually(lambda: waiting(cli, "T") == 0)
    assert cli.query("SELECT id FROM handle") == []
    history = relay.history()
    assert history.problems() == []
    assert history.leased == set()
    # The faults were there, and most of the pairs came about all the same.
    faulty = [each for each in history.of("request") if each["fault"] is not None]
    assert len(faulty) > len(history.of("request")) / 8
    assert clients_said.count("pair") >= PAIRS * 0.95
