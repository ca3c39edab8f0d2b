"""A lease proxy with scripted faults, as a program. README.md beside it says how to use it.

Writes its URL to the port file when it takes connections, and the control port's to the same name
with ``.control`` behind it. Ends on TERM or INT, and when its parent ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

# A program, run from anywhere and without site-packages; the other modules are beside it.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kit.faults.control_port import ControlPort
from tests.kit.faults.lease_api import LeaseApi
from tests.kit.faults.ledger import Ledger, parse_resources
from tests.kit.faults.log import Log
from tests.kit.faults.relay import Relay
from tests.kit.faults.script import Rule, Script, parse_rule
from tests.kit.faults.server import LeaseProxy, Source


def main() -> None:
    arguments = _parser().parse_args()
    try:
        resources = parse_resources(arguments.resources)
        rules = [*_read_script(arguments.script), *map(parse_rule, arguments.fault)]
    except ValueError as error:
        sys.exit(f"lease_proxy: {error}")
    asyncio.run(_run(arguments, resources, rules))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--port-file", required=True, metavar="F", help="where the URL is written to")
    add("--log", metavar="F", help="the log; by default the port file's name and .log")
    add("--resources", action="append", default=[], metavar="T=N|T=A,B", help="may be repeated")
    add("--script", default="[]", metavar="F|JSON", help="a list of rules, or a file with it")
    add("--fault", action="append", default=[], metavar="RULE", help="a rule; may be repeated")
    add("--seed", type=int, default=1, help="what chance is drawn from")
    add("--idempotent", action="store_true", help="honour Idempotency-Key")
    add("--upstream", metavar="URL", help="pass requests on to this server, faults apart")
    add("--poll", type=float, metavar="SECONDS", help="waiters ask this often; the real one's 3")
    add("--acquire-timeout", type=float, default=7200.0, metavar="SECONDS")
    add("--ghosts", type=float, metavar="SECONDS", help="Boskos' queue keeps places; its 30")
    add("--reaped", type=float, default=14.0, metavar="SECONDS", help="to find a lease reaped")
    add("--parent", type=int, default=os.getppid(), metavar="PID", help="ends when that ends")
    return parser


def _read_script(source: str) -> list[Rule]:
    text = source if source.lstrip().startswith("[") else Path(source).read_text(encoding="utf-8")
    rules = json.loads(text)
    if not isinstance(rules, list):
        raise ValueError("a script is a list of rules")
    return [parse_rule(rule) for rule in rules]


def _source(arguments: argparse.Namespace, resources: dict[str, list[str]], log: Log) -> Source:
    if arguments.upstream is not None:
        return Relay(arguments.upstream, log)
    return LeaseApi(
        Ledger(resources),
        log,
        acquire_timeout_seconds=arguments.acquire_timeout,
        poll_seconds=arguments.poll,
        ghost_seconds=arguments.ghosts,
        reaped_seconds=arguments.reaped,
        idempotent=arguments.idempotent,
    )


async def _run(
    arguments: argparse.Namespace, resources: dict[str, list[str]], rules: list[Rule]
) -> None:
    over = asyncio.Event()
    _end_with_parent(arguments.parent, over)
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, over.set)
    log = Log(arguments.log or f"{arguments.port_file}.log")
    source = _source(arguments, resources, log)
    proxy = LeaseProxy(source, Script(arguments.seed, rules), log)
    control = ControlPort(proxy, log)
    log.write("start", resources=resources, command=sys.argv[1:], seed=arguments.seed)
    proxy.accept()
    control.listener.open()
    _write_whole(f"{arguments.port_file}.control", control.listener.url)
    _write_whole(arguments.port_file, proxy.listener.url)
    await over.wait()
    log.write("stop")


def _end_with_parent(pid: int, over: asyncio.Event) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        over.set()
        return
    asyncio.get_running_loop().add_reader(pidfd, over.set)


def _write_whole(path: str, text: str) -> None:
    """Write a file that nobody sees half of."""
    part = f"{path}.part"
    Path(part).write_text(f"{text}\n", encoding="ascii")
    os.replace(part, path)


if __name__ == "__main__":
    main()
