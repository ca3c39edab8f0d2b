"""`once` on Kubernetes: killed around each of its requests, each of its answers lost, and the race.

Whoever asks next gets a result, which is that of the one who was killed if that was recorded; no
command ever ran beside another. Once the keepers have seen to it, nothing is left but what says
which results there are, which works have failed of late, and the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from leasectl.engines.kubernetes.names import KEPT
from leasectl.once.work import work_of
from tests.crash.once_attempt import Attempt, lose, see_all_gone
from tests.crash.once_race import Race
from tests.crash.sweeping import kill_at_request
from tests.crash.test_once_race import KEYS, RUNS, TTL_SECONDS, judge
from tests.kit.killing import EVERY_KILL, FULL_SIZE
from tests.kit.kubernetes.access import Access
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.support import Cli

BACKEND = "kubernetes://"
MOST_REQUESTS = 100
KILL_STRIDE = 1 if EVERY_KILL else 13
ANSWER_STRIDE = 1 if EVERY_KILL else 11


@pytest.fixture
def hosts(kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Cli]]:
    """State directories of several hosts on one namespace."""
    monkeypatch.setenv("LEASECTL_KUBECONFIG", str(kubeconfig))
    clis = []
    for number in range(3):
        folder = tmp_path / f"host-{number}"
        folder.mkdir()
        clis.append(Cli(folder / "state", folder))
        clis[-1].env["LEASECTL_BACKEND"] = BACKEND
        clis[-1].env["LEASECTL_KUBECONFIG"] = str(kubeconfig)
    yield clis
    for each in clis:
        each.close()


def leftovers(namespace: Namespace) -> list[str]:
    """What is there beside results, contents that these point to, and what is kept for a time."""
    found = []
    contents = set()
    leases = namespace.all_leases()  # as of one instant
    for lease in leases:
        name = lease["metadata"]["name"]
        notes = lease["metadata"]["annotations"]
        kind = lease["metadata"]["labels"]["leasectl.dev/kind"]
        if kind == "values":
            kept = json.loads(notes[KEPT])
            said = set(kept["said"])
            if any(each == "round" for each in said) or not said:
                found.append(f"{name}: {kept}")
            fence = json.loads(notes.get("value.leasectl.dev/result", "{}")).get("fence")
            if set(kept["contents"]) - {str(fence)}:
                found.append(f"{name}: {kept}")
            contents |= {f"{name}.content.{word}" for word in kept["contents"]}
        elif kind != "content":
            found.append(name)
    names = {each["metadata"]["name"] for each in leases}
    names = {each for each in names if ".content." in each}
    return found + sorted(names ^ contents)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_request(namespace: Namespace, hosts: list[Cli], after: bool) -> None:
    attempts: list[tuple[Attempt, int, str]] = []
    options = ("--ttl", "5s", "--backend", BACKEND)
    for number in range(1 + (6 if after else 0), MOST_REQUESTS, KILL_STRIDE):
        attempt = Attempt(hosts[0], f"k{number}", options)
        code, out = attempt.ask(partial(kill_at_request, number, after=after))
        attempts.append((attempt, code, out))
        if [code for _, code, _ in attempts[-2:]] == [0, 0]:
            break
    has_run = [attempt.log.exists() for attempt, code, _ in attempts if code != 0]
    # The first requests come before the command; its result is another request.
    assert set(has_run) == {False, True} if EVERY_KILL else has_run
    assert attempts[-1][1] == 0, f"still being killed at {attempts[-1][0].key}"
    see_all_gone(partial(leftovers, namespace))
    for attempt, code, out in attempts:
        attempt.check(code, out, f"killed at request of {attempt.key}")
    see_all_gone(partial(leftovers, namespace))
    print(f"{len(has_run)} kills")


@pytest.mark.parametrize("status", [0, 7])
def test_any_answer_lost(
    namespace: Namespace, hosts: list[Cli], kubeconfig: Path, status: int
) -> None:
    """The command's status is ours if it was recorded; else it was not to be had, and is then."""
    values = Access(kubeconfig).backend.values
    options = ("--ttl", "3s", "--backend", BACKEND, "--attempts", "1")
    codes = []
    for number in range(1 if EVERY_KILL else 6, MOST_REQUESTS, ANSWER_STRIDE):
        attempt = Attempt(hosts[0], f"k{number}", options, status)
        mark = hosts[0].cwd / f"lost-{number}"
        code, out = attempt.ask(partial(lose, number, mark))
        assert code in (status, 69), f"answer {number} lost"
        has_run = attempt.log.exists()
        if status:
            digest = work_of(attempt.key, []).digest
            said = [each for each in values.read("once/failed/") if digest in each.key]
            assert (code == status) == has_run == bool(said), f"answer {number} lost"
        else:
            assert (code == 0) == bool(out) == has_run, f"answer {number} lost"
        if not mark.exists():
            break  # it has asked for less than that
        codes.append(code)
    else:
        raise AssertionError(f"it asks for more than {MOST_REQUESTS} answers")
    see_all_gone(partial(leftovers, namespace))
    assert codes
    print(f"{len(codes)} lost, {codes.count(69)} in vain")


def test_the_race(namespace: Namespace, hosts: list[Cli], tmp_path: Path) -> None:
    folder = tmp_path / "said"
    folder.mkdir()
    ttl = ("--ttl", f"{TTL_SECONDS}s")
    race = Race(hosts, folder, "once", keys=KEYS, seed=5, work_seconds=0.05, options=ttl)
    found = race.go(RUNS)
    judge(found)
    if FULL_SIZE:  # a measurement, on a machine with nothing else to do
        assert max(found.takeovers(), default=0.0) < TTL_SECONDS + 4
    see_all_gone(partial(leftovers, namespace))
