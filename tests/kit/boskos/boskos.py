"""A Boskos with scripted faults, as a program. README.md beside it says how to use it.

Its reaper and a janitor are in the same process. Writes its URL to the port file when it takes
connections, and the control port's to the same name with ``.control`` behind it. Ends on TERM or
INT, and when its parent ends.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable

# A program, run from anywhere and without site-packages.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kit.boskos.api import BoskosApi
from tests.kit.boskos.ranch import Ranch, Ranks
from tests.kit.boskos.raw_boskos import WORDINGS
from tests.kit.faults.ledger import parse_resources
from tests.kit.faults.log import Log
from tests.kit.faults.program import add_server_options, parse_rules, serve

_REAPED_STATES = ("busy", "cleaning", "leased")
_COMPARE_SECONDS = 0.2


def main() -> None:
    arguments = _parser().parse_args()
    try:
        resources = parse_resources(arguments.resources)
        grows = {each.partition("=")[0]: int(each.partition("=")[2]) for each in arguments.grows}
        rules = parse_rules(arguments)
    except ValueError as error:
        sys.exit(f"boskos: {error}")
    before = _read_log(arguments.log or f"{arguments.port_file}.log")

    def source(log: Log) -> BoskosApi:
        ranch = Ranch(
            log,
            Ranks(arguments.request_ttl, arguments.request_clearing),
            wording=WORDINGS[arguments.wording],
            seed=arguments.seed,
            view_seconds=arguments.view_lag,
            grows=grows,
        )
        if arguments.remembers != "nothing":
            ranch.restore(before, with_queues=arguments.remembers == "queues")
        ranch.make(resources)
        _start_reaper(ranch, arguments)
        _follow_file(ranch, Path(f"{arguments.port_file}.config"), log)
        return BoskosApi(
            ranch,
            prefix=arguments.prefix,
            user=arguments.user,
            target_state=arguments.target_state,
        )

    asyncio.run(serve(arguments, rules, source, resources=resources))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_server_options(parser)
    add = parser.add_argument
    add("--grows", action="append", default=[], metavar="T=MAX", help="a dynamic type")
    add("--request-ttl", type=float, default=30.0, metavar="SECONDS")
    add("--request-clearing", type=float, default=60.0, metavar="SECONDS")
    add("--reaper-interval", type=float, default=60.0, metavar="SECONDS", help="0: no reaper")
    add("--expire", type=float, default=1800.0, metavar="SECONDS", help="the reaper's")
    add("--target-state", default="dirty", help="the reaper's")
    add("--extra-source-states", default="", metavar="A,B", help="the reaper's")
    add("--janitor", type=float, default=0.0, metavar="SECONDS", help="makes dirty ones free")
    add("--wording", choices=WORDINGS, default="new", help="of what it says when it refuses")
    add("--view-lag", type=float, default=0.0, metavar="SECONDS", help="/metric is that old")
    add("--prefix", default="", metavar="PATH", help="which a proxy in front takes off")
    add("--user", metavar="NAME:PASSWORD", help="whom a proxy in front lets in")
    add(
        "--remembers",
        choices=("resources", "queues", "nothing"),
        default="resources",
        help="what of the log is still so: as with Kubernetes, more than that, as in memory",
    )
    return parser


def _read_log(path: str) -> list[Mapping[str, Any]]:
    log = Path(path)
    whole = log.read_text(encoding="utf-8").rpartition("\n")[0] if log.exists() else ""
    return [json.loads(line) for line in whole.split("\n") if line]


def _start_reaper(ranch: Ranch, arguments: argparse.Namespace) -> None:
    extra = [each for each in arguments.extra_source_states.split(",") if each]

    def reap() -> None:
        for pool_type in {each.type for each in ranch.resources.values()}:
            for state in (*_REAPED_STATES, *extra):
                dest = arguments.target_state
                ranch.reset(pool_type, state, arguments.expire, dest, why="reap")

    _each(arguments.reaper_interval, reap)
    _each(arguments.janitor, ranch.clean)


def _follow_file(ranch: Ranch, path: Path, log: Log) -> None:
    """Read at HUP which resources there are to be; compare that with those there are for good."""

    def read() -> None:
        ranch.list_only(parse_resources(path.read_text(encoding="utf-8").split()))
        log.write("config")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, read)
    _each(_COMPARE_SECONDS, ranch.drop_unlisted)


def _each(seconds: float, do: Callable[[], None]) -> None:
    def again() -> None:
        do()
        _each(seconds, do)

    if seconds:
        asyncio.get_running_loop().call_later(seconds, again)


if __name__ == "__main__":
    main()
