"""Rows of scripts/bench about pools in etcd: a member of its own on loopback, etcdctl beside it.

What tests have for etcd is used here as well, so the clone has to be on the path.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable

from scripts.bench_rows import Row, ratios, row_of

if TYPE_CHECKING:  # httpx and the like are only there in the second start
    from tests.kit.etcd.access import Access

_HAND_OFF = "hand-off on etcd: release -> next waiter's grant"
_AGAINST = "the same against etcdctl lock"
_GRANTS = "grants on etcd, 64 processes on 4 resources"
_GRANTS_TO_FEW = "grants on etcd, 8 processes on 4 resources"
_REQUESTS = "requests per waiter and minute on etcd, ttl 60 s"
_UNITS = {
    _HAND_OFF: "ms",
    _AGAINST: "x",
    _GRANTS: "per s",
    _GRANTS_TO_FEW: "per s",
    _REQUESTS: "requests",
}


def measure(rounds: int) -> list[Row]:
    """All rows.

    Args:
        rounds: How many hand-offs; the others depend on it.
    """
    missing = [program for program in ("etcd", "etcdctl") if not shutil.which(program)]
    if missing:
        why = f" (not measured: no {' and no '.join(missing)} here)"
        return [Row(what + why, None, unit, None, True) for what, unit in _UNITS.items()]
    from tests.kit.etcd.server import etcd_server

    with etcd_server() as server:
        (endpoint,) = server.endpoints
        return [
            *hand_off(endpoint, rounds),
            throughput(endpoint, _GRANTS, processes=64, rounds=max(1, rounds // 4)),
            throughput(endpoint, _GRANTS_TO_FEW, processes=8, rounds=2 * rounds),
            requests(endpoint, waiters=20, seconds=60),
        ]


def hand_off(endpoint: str, rounds: int) -> list[Row]:
    """A process that has been waiting, and etcdctl's in turns with it, so that noise hits both."""
    with waiting_process(endpoint) as ours, waiting_etcdctl(endpoint) as theirs:
        pairs = [(ours(), theirs()) for _ in range(rounds + 1)][1:]  # the first one warms up
    mine, their = zip(*pairs)
    return [
        row_of(_HAND_OFF, [each * 1e3 for each in mine], "ms", None),
        row_of(_AGAINST, ratios(mine, their), "x", 1.5),
    ]


@contextlib.contextmanager
def waiting_process(endpoint: str) -> Iterator[Callable[[], float]]:
    """What measures one hand-off to another process, in seconds."""
    from leasectl.model import Request

    holder = access(endpoint, "/hand-off", resources=1)
    go_read, go_write = os.pipe()
    granted_read, granted_write = os.pipe()

    def take_when_told() -> None:
        os.close(go_write)
        waiter = access(endpoint, "/hand-off")
        while os.read(go_read, 1):
            leases = waiter.acquire("waiter", Request("T"))
            granted = time.perf_counter_ns()
            waiter.engine.free("waiter", [lease.name for lease in leases])
            os.write(granted_write, granted.to_bytes(8, "little"))

    child = forked(take_when_told)
    os.close(go_read)

    def once() -> float:
        leases = holder.acquire("holder", Request("T"))
        os.write(go_write, b"!")
        wait_until(lambda: holder.queue() == ["waiter"])
        time.sleep(0.05)  # for it to listen
        start = time.perf_counter_ns()
        holder.engine.free("holder", [lease.name for lease in leases])
        return (int.from_bytes(os.read(granted_read, 8), "little") - start) / 1e9

    try:
        yield once
    finally:
        os.close(go_write)
        os.waitpid(child, 0)


@contextlib.contextmanager
def waiting_etcdctl(endpoint: str) -> Iterator[Callable[[], float]]:
    """What measures one hand-off from etcdctl to etcdctl: the signal, until the next one prints."""
    command = ["etcdctl", "--endpoints", endpoint, "lock", "/etcdctl"]
    environment = {**os.environ, "ETCDCTL_API": "3"}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)

    running = [start()]
    said(running[0])

    def once() -> float:
        running.append(start())
        time.sleep(0.1)  # for it to listen
        holder, waiter = running[-2:]
        since = time.perf_counter_ns()
        holder.send_signal(signal.SIGTERM)
        said(waiter)
        taken = time.perf_counter_ns() - since
        holder.wait()
        return taken / 1e9

    try:
        yield once
    finally:
        for each in running:
            each.terminate()
            each.wait()
            if each.stdout:
                each.stdout.close()


def said(process: subprocess.Popen[bytes]) -> bytes:
    """Wait for its next line."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "etcdctl lock ended without the lock"
    return line


def throughput(endpoint: str, what: str, *, processes: int, rounds: int) -> Row:
    """Grants per second inside long-lived processes; the order of grants is checked.

    Each has had a lease before, or what is measured would be imports, too.
    """
    from leasectl.model import Request

    prefix = f"/grants-{processes}"
    access(endpoint, prefix, resources=4)
    gate_read, gate_write = os.pipe()
    ready_read, ready_write = os.pipe()
    grants_read, grants_write = os.pipe()

    def take_turns() -> None:
        os.close(gate_write)
        mine, owner = access(endpoint, prefix), f"p{os.getpid()}"
        (lease,) = mine.acquire(owner, Request("T"))
        mine.engine.free(owner, [lease.name])
        os.write(ready_write, b"!")
        os.read(gate_read, 1)
        for _ in range(rounds):
            (lease,) = mine.acquire(owner, Request("T"))
            os.write(grants_write, f"{lease.grant} {lease.ticket}\n".encode())
            mine.engine.free(owner, [lease.name])

    children = [forked(take_turns) for _ in range(processes)]
    os.close(gate_read)
    os.close(grants_write)
    for _ in children:
        os.read(ready_read, 1)
    start = time.perf_counter()
    os.close(gate_write)
    with open(grants_read) as file:
        seen = sorted(tuple(map(int, line.split())) for line in file)
    seconds = time.perf_counter() - start
    for child in children:
        os.waitpid(child, 0)
    assert len(seen) == processes * rounds, "grants are missing"
    tickets = [ticket for _, ticket in seen]
    assert tickets == sorted(tickets), "grants are not in the order of their tickets"
    return Row(what, len(seen) / seconds, "per s", None, False)


def requests(endpoint: str, *, waiters: int, seconds: float) -> Row:
    """What those cost who only wait; their keep-alives are one each in a third of the ttl."""
    from leasectl.backends.contract import Patience
    from leasectl.model import Claimant, Request
    from tests.kit.recorded import NoJournal
    from tests.kit.relay import relay

    access(endpoint, "/requests", resources=1).acquire("holder", Request("T"))
    with relay(endpoint) as between:
        mine, waiting = access(between.endpoint, "/requests"), []
        for number in range(waiters):
            claimant = Claimant(f"w{number}", "bench", Request("T", ttl_seconds=60))
            waiting.append(mine.backend.turn(claimant, NoJournal(), Patience()))
            next(waiting[-1])
        time.sleep(1)  # for the stream to be there
        before = len(between.paths)
        time.sleep(seconds)
        made = len(between.paths) - before
        for steps in reversed(waiting):
            steps.close()
    return Row(_REQUESTS, made / waiters * 60 / seconds, "requests", 3, True)


def access(endpoint: str, prefix: str, *, resources: int = 0) -> Access:
    """Access to a pool ``T``, which is made if it is to have resources."""
    from tests.kit.etcd.access import Access

    found = Access([endpoint], prefix)
    if resources:
        found.pools.create_pool("T", [f"T--{number:02d}" for number in range(resources)])
    return found


def forked(work: Callable[[], None]) -> int:
    """Do something in a process of its own, which ends with it."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
        finally:
            os._exit(1)
    return pid


def wait_until(condition: Callable[[], bool], *, limit_seconds: float = 30) -> None:
    deadline = time.monotonic() + limit_seconds
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("what was waited for didn't happen")
        time.sleep(0.001)
