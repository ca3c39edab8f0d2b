"""Leases from a Boskos that goes wrong: killed anywhere, and for as long as a script tears down."""

from __future__ import annotations

import math
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.pools import admin
from tests.crash.boskos_campaign import FREE_WITHIN_SECONDS, Campaign
from tests.crash.boskos_judge import Use, changed_ids, out_of_order, overlaps
from tests.crash.sweeping import kill_at_request, lose_answer
from tests.kit.boskos.history import BoskosHistory, Event
from tests.kit.boskos.process import Boskos, StartBoskos
from tests.kit.forking import ending, fork, leasectl
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, FULL_SIZE
from tests.kit.support import Cli
from tests.kit.waits import eventually

ROOT = Path(__file__).parents[2]
EXPIRE_SECONDS = 3.0  # the shortest that an address may say
MOST_REQUESTS = 30
COUNT = 3
VERBS = ("acquire", "release", "renew", "reacquire")
TYPES = [f"{verb}{number}" for verb in VERBS for number in range(2 * MOST_REQUESTS)]


def start(boskos: StartBoskos, *resources: str, expire: float = EXPIRE_SECONDS) -> Boskos:
    """One whose reaper is fast, and makes free what it takes."""
    return boskos(*resources, expire=expire, reaper_interval=0.2, target_state="free")


def backend(server: Boskos, expire: float = EXPIRE_SECONDS) -> str:
    return f"{server.backend}?expire={expire:g}s"


class Sweep:
    """Commands on one host that are killed, or hear nothing, each with a type of its own.

    Args:
        server: The Boskos.
        cli: The host.
        verb: The command.
    """

    def __init__(self, server: Boskos, cli: Cli, verb: str) -> None:
        self.kills = 0
        self._server, self._cli, self._verb = server, cli, verb
        self._backend = backend(server)
        self._turn = 0

    def arguments(self, pool_type: str) -> list[str]:
        """The command on this type; what it is about is there."""
        if self._verb == "acquire":
            asked = ["-t", pool_type, "-c", str(COUNT), "-w", "10s"]
            return ["acquire", "-q", "--backend", self._backend, *asked]
        with self._cli.service(owner="sweep@host", backend=self._backend) as service:
            request = Request(pool_type, count=COUNT)
            handle = acquire(service, request, patience=Patience(wait_seconds=10))
            announce(service, handle)
        quiet = ["-q"] if self._verb == "reacquire" else []
        return [self._verb, "--handle", handle.id, *quiet]

    def next_type(self) -> str:
        self._turn += 1
        return f"{self._verb}{self._turn}"

    def kill(self, number: int, *, after: bool) -> bool:
        """Run the command, KILL it at its request of that number; returns whether there was one."""
        pool_type = self.next_type()
        arguments = self.arguments(pool_type)

        def work() -> None:
            kill_at_request(number, after=after)
            leasectl(self._cli.state_dir, self._cli.cwd / "output", *arguments)

        code = ending(fork(work))
        assert code in (0, -signal.SIGKILL), (arguments, number, code)
        self.kills += code != 0
        self._give_back(f"{arguments} killed at request {number}")
        return code != 0

    def lose(self, number: int) -> bool:
        """Run it and lose the answer to its request of that number."""
        pool_type = self.next_type()
        arguments = self.arguments(pool_type)
        mark = self._cli.cwd / f"lost-{pool_type}"

        def work() -> None:
            lose_answer(number, seconds=0.0, mark=mark)
            leasectl(self._cli.state_dir, self._cli.cwd / "output", *arguments)

        code = ending(fork(work))
        said = (self._cli.cwd / "output.err").read_text()
        assert code == 0, (arguments, number, code, said)
        self.kills += mark.exists()
        self._give_back(f"{arguments} with answer {number} lost")
        return mark.exists()

    def _give_back(self, when: str) -> None:
        """Let another command run, see that all is well soon, and release what is held."""
        with self._cli.service(owner="sweep@host") as service:
            admin.show(service)
        # What was begun, the keeper ends: it gives back, or finds out what isn't there any more.
        eventually(lambda: not self._wrong(), what=f"{when}: all is well")
        with self._cli.service(owner="sweep@host") as service:
            for handle in service.handles.active():
                release(service, whole(handle))

    def _wrong(self) -> list[str]:
        found = [
            each
            for each in broken_invariants(self._cli.state_dir)
            # Boskos has the claims, and no fences that names could be ordered by.
            if "which None holds" not in each and "the record says" not in each
        ]
        with self._cli.service(owner="sweep@host") as service:
            owners = self._server.owners
            for handle in service.handles.active():
                file = Path(service.state.directory, "handles", handle.id)
                in_file = file.read_text().split() if file.exists() else []
                if sorted(in_file) != sorted(handle.names):
                    found.append(f"{handle.id} has other names in its file")
                if not handle.lost and not set(handle.names) <= set(owners):
                    found.append(f"{handle.id} has names that aren't leased")
        return found


@pytest.fixture
def server(boskos: StartBoskos) -> Iterator[Boskos]:
    """One with a type for each kill, of which nothing may stay leased."""
    server = start(boskos, *(f"{each}={COUNT + 3}" for each in TYPES))
    yield server
    eventually(lambda: server.owners == {}, "all is free again")


@pytest.mark.parametrize("verb", VERBS)
def test_commands_can_be_killed_around_each_request(server: Boskos, cli: Cli, verb: str) -> None:
    sweep = Sweep(server, cli, verb)
    for number in range(1, MOST_REQUESTS):
        # In part, before one request and after the next.
        sides = (False, True) if EVERY_KILL else (number % 2 == 0,)
        killed = [sweep.kill(number, after=after) for after in sides]
        if True not in killed:
            break
    else:
        raise AssertionError(f"still being killed after {MOST_REQUESTS} requests")
    assert sweep.kills >= COUNT  # each name has a request of its own
    print(f"{sweep.kills} kills")


# To reacquire is to release and to acquire, so that is for the whole sweep.
@pytest.mark.parametrize("verb", VERBS if EVERY_KILL else VERBS[:-1])
def test_each_answer_of_a_command_can_be_lost(server: Boskos, cli: Cli, verb: str) -> None:
    sweep = Sweep(server, cli, verb)
    number = 1
    while sweep.lose(number):
        number += 1
    assert sweep.kills >= COUNT
    print(f"{sweep.kills} answers lost")


# ---- a script that tears down

TEARDOWN_SECONDS = 4 * EXPIRE_SECONDS
SCRIPT = """
set -eu
trap 'sleep {seconds}; read -r up _ </proc/uptime; printf "%s\\n" "$up" >torn-down-{form}' EXIT
{lease}
exit 3
"""


def test_scripts_keep_their_leases_until_they_have_torn_down(boskos: StartBoskos, cli: Cli) -> None:
    server = start(boskos, "functions=1", "run=1")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    started = []
    for form in ("functions", "run"):
        lease = 'eval "$(leasectl init bash)"\nh=$(lease__acquire -t functions --scope=step)'
        script = SCRIPT.format(
            seconds=f"{TEARDOWN_SECONDS:g}", form=form, lease=lease if form == "functions" else ""
        )
        words = ["bash", "-c", script]
        if form == "run":
            words = cli.command("run", "-q", "run", "--", *words)
        started.append(cli.spawn(words, LEASECTL_BACKEND=backend(server), PATH=path))
    assert [each.finish().code for each in started] == [3, 3]
    eventually(lambda: server.owners == {})
    tenures = {each.name.partition("-")[0]: each for each in server.history().tenures}
    assert len(server.history().tenures) == 2
    for form, tenure in tenures.items():
        assert tenure.end == "release"
        until = (tenure.until or 0) / 1e9
        assert float((cli.cwd / f"torn-down-{form}").read_text()) <= until
        assert until - tenure.since / 1e9 > TEARDOWN_SECONDS


# ---- the install loop

TYPE = "openshift-org-azure--azure4--install-quota-slice"
# No reaper is to come between, however little of the processors the loop gets.
LOOP_EXPIRE_SECONDS = 30.0
INSTALLER = """#!/usr/bin/env bash
set -eu
read -r attempt <attempt || attempt=0
printf '%s\\n' "$((++attempt))" >attempt
if ((attempt == 3)); then
  until [[ -e given-back ]]; do sleep 0.1; done
  sleep 2
fi
read -r up _ </proc/uptime
printf '%s\\n' "$up" >"ended.$attempt"
((attempt < 3)) && exit 4 || exit 0
"""


@pytest.mark.parametrize("form", ["functions", "run"])
def test_the_install_loop_has_a_lease_for_each_attempt(
    boskos: StartBoskos, cli: Cli, form: str
) -> None:
    server = start(boskos, f"{TYPE}=2", expire=LOOP_EXPIRE_SECONDS)
    installer = cli.cwd / "openshift-install"
    installer.write_text(INSTALLER)
    installer.chmod(0o755)
    (cli.cwd / "attempt").write_text("0\n")
    environment = {
        "LEASECTL_BACKEND": backend(server, LOOP_EXPIRE_SECONDS),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "INSTALLER_BINARY": str(installer),
        "INSTALL_LEASE_RELEASE_AFTER": "2s",
        "CLUSTER_PROFILE_SET_NAME": "openshift-org-azure",
        "CLUSTER_PROFILE_NAME": "azure4",
        "SHARED_DIR": str(cli.cwd),
    }
    words = ["bash", str(ROOT / "scripts" / "install-cluster.sh")]
    words += [*(["--run"] if form == "run" else []), "--dir", "d"]
    started = cli.spawn(words, **environment)
    eventually(lambda: [each.end for each in server.history().tenures] == ["release"] * 3)
    (cli.cwd / "given-back").touch()
    finished = started.finish()
    assert finished.code == 0, finished
    eventually(lambda: server.owners == {})
    tenures = server.history().tenures
    assert len({each.owner for each in tenures}) == len(tenures) == 3
    assert [each.end for each in tenures] == ["release"] * 3
    # The last went back while the installer was still at work.
    ended = float((cli.cwd / "ended.3").read_text())
    assert tenures[2].until is not None and tenures[2].until / 1e9 < ended - 1


# ---- many at once


def test_nobody_has_what_another_has_whatever_goes_wrong(tmp_path: Path) -> None:
    size = (40, 4, 60.0) if FULL_SIZE else (8, 2, 5.0)
    free_within = FREE_WITHIN_SECONDS if FULL_SIZE else math.inf
    campaign = Campaign(tmp_path, processes=size[0], pool=size[1], free_within=free_within)
    outcome = campaign.run(size[2], uses=size[1])
    print(outcome.figures)
    assert outcome.problems == []
    # Few requests are made in part, and chance may spare them all.
    assert outcome.figures["kills"] > 0 and (outcome.figures["faults"] > 0 or not FULL_SIZE)


def test_nobody_has_what_another_has_by_way_of_a_server_that_is_killed(tmp_path: Path) -> None:
    size = (40, 4, 60.0) if FULL_SIZE else (8, 2, 8.0)
    campaign = Campaign(tmp_path, processes=size[0], pool=size[1], serve=True)
    outcome = campaign.run(size[2], uses=size[1])
    print(outcome.figures)
    assert outcome.problems == []
    assert outcome.figures["kills of serve"] >= 1


def test_the_judge_sees_what_cannot_be_true() -> None:
    uses = [Use("a", 0, 2_000_000_000, 1), Use("a", 1_000_000_000, 3_000_000_000, 2)]
    assert list(overlaps(uses)) == ["a was used by 1 and 2 for 1.000 s"]
    assert list(overlaps([uses[0], uses[1]._replace(name="b")])) == []
    assert list(overlaps(uses, forgotten_at=[500_000_000], within=2)) == []
    assert len(list(overlaps(uses, forgotten_at=[500_000_000], within=1))) == 1
    assert len(list(overlaps(uses, forgotten_at=[1_500_000_000], within=2))) == 1
    asks: list[Event] = [
        {"event": "ask", "at": 1.0, "free": 0, "request_id": "first"},
        {"event": "ask", "at": 2.0, "free": 1, "request_id": "second"},
        {"event": "grant", "name": "a", "request_id": "second"},
    ]
    history = BoskosHistory(asks)
    assert list(out_of_order(history, ttl_seconds=5)) == ["a was granted past 1, with 1 free"]
    assert list(out_of_order(history, ttl_seconds=0.5)) == []
    target = "/acquire?type=T&owner=o&request_id="
    changed: list[Event] = [
        {"event": "request", "path": "/acquire", "target": f"{target}{each}"} for each in "12"
    ]
    assert list(changed_ids(BoskosHistory(changed))) == [
        "o asked as 2 after 1, which had got nothing"
    ]
    changed.insert(1, {"event": "grant", "request_id": "1", "resource": {"owner": "another"}})
    assert list(changed_ids(BoskosHistory(changed))) == []
