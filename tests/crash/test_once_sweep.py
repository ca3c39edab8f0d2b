"""`once` is killed at each of its calls into the system, on etcd around each of its requests.

Whoever asks next gets a result, which is that of the one who was killed if that was recorded; no
command ever ran beside another, and nothing but the result is left, whether anybody asks again or
not. The same of who waits. On etcd each of its answers is lost, too, and its status is right.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from leasectl.engines.etcd.requests import read_all
from leasectl.once.work import work_of
from leasectl.pools import admin
from tests.crash.once_attempt import Attempt, lose, see_all_gone
from tests.crash.sweeping import UNHARMED, kill_at_request
from tests.kit.hosts import Hosts
from tests.kit.invariants import broken_invariants
from tests.kit.killing import EVERY_KILL, kill_at
from tests.kit.support import Cli
from tests.kit.waits import eventually

STRIDE = 1 if EVERY_KILL else 151
FIRST = 1 + sys.version_info[1] % STRIDE
LAST = 4000
MOST_REQUESTS = 160
REQUEST_STRIDE = 1 if EVERY_KILL else 17
ANSWER_STRIDE = 1 if EVERY_KILL else 11
WAITER_STRIDE = 1 if EVERY_KILL else 211
DOES = ': >"$1.began"; until [ -e "$1.may" ]; do sleep 0.01; done; echo result'
# What stays on etcd: events, results, and what is tidied when its time is over.
EXPECTED = re.compile(r"event|bucket/|values/once/|content/once/")


def is_over(cli: Cli) -> bool:
    """Whether nothing is held, waited for, or there for it, but what keeps the keeper."""
    active = cli.query("SELECT id FROM handle WHERE state <> 'released'")
    rest = cli.query("SELECT key FROM value WHERE key LIKE 'once/round/%'")
    rest += cli.query("SELECT type FROM made_pool")
    return len(active) == 1 and cli.query("SELECT type FROM pool") == [("kept",)] and not rest


def test_killed_at_any_call(cli: Cli) -> None:
    with cli.service() as service:
        service.pools.create_pool("kept", ["kept"])
    cli.ok("acquire", "-t", "kept", "--guard-pid", str(os.getpid()))  # there is a keeper
    kills = unharmed = 0
    for number in range(FIRST, LAST, STRIDE):
        attempt = Attempt(cli, f"k{number}")
        when = f"killed at event {number}"
        code, out = attempt.ask(partial(kill_at, number))
        eventually(partial(is_over, cli), what=when)  # its keeper sees to it: nobody has asked
        attempt.check(code, out, when)
        eventually(partial(is_over, cli), what=when)
        with cli.service() as service:  # beside the keeper, which may be at it
            admin.show(service)
        assert broken_invariants(cli.state_dir) == [], when
        kills, unharmed = kills + (code != 0), unharmed + 1 if code == 0 else 0
        if unharmed == UNHARMED:
            break
    else:
        raise AssertionError(f"still being killed after {LAST} events")
    assert kills
    print(f"{kills} kills")


def test_who_waits_is_killed_at_any_call(cli: Cli) -> None:
    """Whoever does the work goes on, and what it has got is the result."""
    with cli.service() as service:
        service.pools.create_pool("kept", ["kept"])
    cli.ok("acquire", "-t", "kept", "--guard-pid", str(os.getpid()))
    kills = unharmed = 0
    for number in range(FIRST, LAST, WAITER_STRIDE):
        attempt, when = Attempt(cli, f"k{number}"), f"killed at event {number}"
        words = (attempt.key, "--", "sh", "-c", DOES, "-", str(attempt.log))
        first = cli.start("once", *words)
        eventually(Path(f"{attempt.log}.began").exists)
        pid = attempt.begin(partial(kill_at, number))
        eventually(partial(has_ended_or_waits, cli, pid), what=when)
        Path(f"{attempt.log}.may").touch()
        code, out = attempt.finish(pid)
        assert code in (0, -signal.SIGKILL), when
        assert out in ("", "result\n"), when
        assert first.finish().out == "result\n", when
        eventually(partial(is_over, cli), what=when)
        assert attempt.ask() == (0, "result\n"), when
        assert not attempt.log.exists(), when
        assert broken_invariants(cli.state_dir) == [], when
        kills, unharmed = kills + (code != 0), unharmed + 1 if code == 0 else 0
        if unharmed == UNHARMED:
            break
    else:
        raise AssertionError(f"still being killed after {LAST} events")
    assert kills
    print(f"{kills} kills")


def has_ended_or_waits(cli: Cli, pid: int) -> bool:
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return ended is not None or bool(cli.waiting())


def leftovers(hosts: Hosts) -> list[str]:
    """What is below the prefix beside results, their contents and what is kept for a time."""
    start = hosts.access.keys.prefix
    (found,) = hosts.access.gateway.read(read_all(start, keys_only=True)).answers
    names = [each.key[len(start) :] for each in found.items]
    return [each for each in names if not EXPECTED.match(each)]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_request_on_etcd(hosts: Hosts, after: bool) -> None:
    cli = hosts.new()
    ttl = ("--ttl", "5s", "--backend", hosts.url)
    attempts: list[tuple[Attempt, int, str]] = []
    for number in range(1 + (4 if after else 0), MOST_REQUESTS, REQUEST_STRIDE):
        attempt = Attempt(cli, f"k{number}", ttl)
        code, out = attempt.ask(partial(kill_at_request, number, after=after))
        attempts.append((attempt, code, out))
        if [code for _, code, _ in attempts[-3:]] == [0, 0, 0]:
            break
    has_run = [attempt.log.exists() for attempt, code, _ in attempts if code != 0]
    # The first requests come before the command; its result is another request.
    assert set(has_run) == {False, True} if EVERY_KILL else has_run
    assert attempts[-1][1] == 0, f"still being killed at {attempts[-1][0].key}"
    see_all_gone(partial(leftovers, hosts))
    for attempt, code, out in attempts:
        attempt.check(code, out, f"killed at request of {attempt.key}")
    assert leftovers(hosts) == []
    print(f"{len(has_run)} kills")


@pytest.mark.parametrize("status", [0, 7])
def test_any_answer_lost_on_etcd(hosts: Hosts, status: int) -> None:
    """The command's status is ours if it was recorded; else it was not to be had, and is then."""
    cli = hosts.new()
    options = ("--ttl", "3s", "--backend", hosts.url, "--attempts", "1")
    codes = []
    for number in range(3 if EVERY_KILL else 8, MOST_REQUESTS, ANSWER_STRIDE):
        attempt = Attempt(cli, f"k{number}", options, status)
        mark = cli.cwd / f"lost-{number}"
        code, out = attempt.ask(partial(lose, number, mark))
        assert code in (status, 69), f"answer {number} lost"
        has_run = attempt.log.exists()
        if status:
            noted = f"once/failed/{work_of(attempt.key, []).digest}/"
            said = hosts.access.backend.values.read(noted)
            assert (code == status) == has_run == bool(said), f"answer {number} lost"
        else:
            assert (code == 0) == bool(out) == has_run, f"answer {number} lost"
        if not mark.exists():
            break  # it has asked for less than that
        codes.append(code)
    else:
        raise AssertionError(f"it asks for more than {MOST_REQUESTS} answers")
    see_all_gone(partial(leftovers, hosts))
    assert codes
    print(f"{len(codes)} lost, {codes.count(69)} in vain")
