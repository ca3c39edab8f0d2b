"""What programs that are servers with scripted faults have in common: options, begin and end."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Callable

from tests.kit.faults.control_port import ControlPort
from tests.kit.faults.log import Log
from tests.kit.faults.script import Rule, Script, parse_rule
from tests.kit.faults.server import LeaseProxy, Source


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add what each of them is told: where to write what, what goes wrong, when to end."""
    add = parser.add_argument
    add("--port-file", required=True, metavar="F", help="where the URL is written to")
    add("--port", type=int, default=0, metavar="N", help="the port; by default one that is free")
    add("--resources", action="append", default=[], metavar="T=N|T=A,B", help="may be repeated")
    add("--log", metavar="F", help="the log; by default the port file's name and .log")
    add("--script", default="[]", metavar="F|JSON", help="a list of rules, or a file with it")
    add("--fault", action="append", default=[], metavar="RULE", help="a rule; may be repeated")
    add("--seed", type=int, default=1, help="what chance is drawn from")
    add("--parent", type=int, default=os.getppid(), metavar="PID", help="ends when that ends")


def parse_rules(arguments: argparse.Namespace) -> list[Rule]:
    """The rules that the options name.

    Raises:
        ValueError: One of them is none.
    """
    text: str = arguments.script
    if not text.lstrip().startswith("["):
        text = Path(text).read_text(encoding="utf-8")
    rules = json.loads(text)
    if not isinstance(rules, list):
        raise ValueError("a script is a list of rules")
    return [parse_rule(rule) for rule in [*rules, *arguments.fault]]


async def serve(
    arguments: argparse.Namespace,
    rules: list[Rule],
    source: Callable[[Log], Source],
    **facts: object,
) -> None:
    """Serve until told to end, or until the parent has ended.

    Args:
        arguments: As `add_server_options` has them.
        rules: What goes wrong.
        source: Makes what requests do, with the log.
        facts: What the log's first line says besides.
    """
    over = asyncio.Event()
    _end_with_parent(arguments.parent, over)
    for signum in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signum, over.set)
    log = Log(arguments.log or f"{arguments.port_file}.log")
    log.write("start", **facts, command=sys.argv[1:], seed=arguments.seed)
    proxy = LeaseProxy(source(log), Script(arguments.seed, rules), log, port=arguments.port)
    control = ControlPort(proxy, log)
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
    """Write a file that no reader sees in part."""
    part = f"{path}.part"
    Path(part).write_text(f"{text}\n", encoding="ascii")
    os.replace(part, path)
