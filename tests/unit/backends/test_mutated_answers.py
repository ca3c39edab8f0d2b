"""Answers that no server should give end each command with a result or with one line of ours."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.kit.boskos.process import StartBoskos
from tests.kit.etcd.server import EtcdServer
from tests.kit.faults.process import StartFaultProxy
from tests.kit.killing import FULL_SIZE
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.mutations import mutated_answer
from tests.kit.relay import Relay, relay
from tests.kit.support import Cli, Finished

pytestmark = pytest.mark.once  # servers are there on one Python only: see scripts/test

TRIES = 300 if FULL_SIZE else 10
# Of DESIGN: done, or why not; never 1, which is for what nobody has thought of.
CODES = {0, 64, 65, 66, 69, 75, 77, 79}
# What Python says, and not we.
PYTHON = re.compile(
    r"unexpected failure|Traceback|[A-Z][a-z]+(Error|Exception)\b|object has no|object is not"
    r"|not iterable|int\(\)|float\(\)|indices must|unhashable|codec can't|Expecting |<class"
    r"|NoneType|b'"
)
READS = (("status",), ("status", "--json"), ("status", "T"))
HOLDS = (("acquire", "-q", "-t", "T", "-w", "2s"), ("release", "--all"), ("doctor",))
POOLS = (
    ("pool", "create", "{new}", "--count", "2"),
    ("pool", "show", "T"),
    ("pool", "add", "T", "--count", "1"),
    ("acquire", "-q", "-t", "T", "-c", "2", "--ttl", "60s", "-w", "2s"),
    ("acquire", "-q", "--type", "T", "--where", "a=b", "-w", "1s"),
    ("events", "--json"),
    ("stats", "--no-picture"),
    ("pool", "set", "T", "--pace", "0"),
    ("once", "key-{new}", "-w", "5s", "--", "true"),
    ("once", "--list"),
)


def judge(finished: Finished, what: object) -> None:
    assert finished.code in CODES, (what, finished)
    for line in finished.err.splitlines():
        assert line.isprintable(), (what, finished)
        assert not PYTHON.search(line), (what, finished)
    if finished.code and what != ("doctor",):
        last = finished.err.splitlines()[-1:]
        assert last and last[0].startswith("leasectl: "), (what, finished)


def run_all(cli: Cli, between: Relay, commands: tuple[tuple[str, ...], ...], *, seed: int) -> None:
    """Run commands one by one; one of the answers that each gets is changed."""
    chance = Random(seed)
    for number in range(TRIES):
        args = tuple(word.format(new=f"N{number}") for word in chance.choice(commands))
        at = len(between.paths) + chance.choice((1, 1, 2, 3, 4, 6))
        case = Random(chance.random())

        def change(of: int, data: bytes, at: int = at, case: Random = case) -> bytes:
            return mutated_answer(data, case) if of == at else data

        between.changed = change
        finished = cli(*args)
        between.changed = lambda of, data: data
        judge(finished, (seed, number, args) if args != ("doctor",) else args)
        cli("release", "--all")
    log = cli.state_dir / "keeper.log"
    assert not log.exists() or "unexpected failure" not in log.read_text(encoding="utf-8")


def test_of_a_lease_proxy(cli: Cli, fault_proxy: StartFaultProxy) -> None:
    with relay(fault_proxy("T=900").url) as between:
        cli.env["LEASECTL_BACKEND"] = between.endpoint
        run_all(cli, between, (*READS, *HOLDS, HOLDS[0]), seed=1)


def test_of_boskos(cli: Cli, boskos: StartBoskos) -> None:
    with relay(boskos("T=900").url) as between:
        cli.env["LEASECTL_BACKEND"] = f"boskos+{between.endpoint}"
        run_all(cli, between, (*READS, *HOLDS, HOLDS[0]), seed=2)


def test_of_etcd(cli: Cli, etcd: EtcdServer, between: Relay, prefix: str) -> None:
    cli.env["LEASECTL_BACKEND"] = between.endpoint.replace("http", "etcd") + prefix
    cli.ok("pool", "create", "T", "--count", "9")
    run_all(cli, between, (*READS, *HOLDS, *POOLS), seed=3)


def test_of_kubernetes(cli: Cli, namespace: Namespace, between_api: Relay, tmp_path: Path) -> None:
    through = namespace.account.kubeconfig(tmp_path / "through", server=between_api.endpoint)
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(through))
    cli.ok("pool", "create", "T", "--count", "9")
    run_all(cli, between_api, (*READS, *HOLDS, *POOLS), seed=4)


def test_boskos_with_an_infinite_count_still_says_what_may_be_leased(
    cli: Cli, boskos: StartBoskos
) -> None:
    body = b'{"type":"T","current":{"free":Infinity},"owner":{}}'
    metric = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    with relay(boskos("T=3").url) as between:
        between.after = lambda number, path: "/acquire" in path
        between.instead = lambda number, path: metric if "/metric" in path else None
        finished = cli(
            *("acquire", "-t", "T", "-w", "1s"), LEASECTL_BACKEND=f"boskos+{between.endpoint}"
        )
    assert finished.code in (69, 75)
    assert "a resource of T may be leased to " in finished.err
    judge(finished, "acquire")
