"""A lease proxy with scripted faults, as a program. README.md beside it says how to use it.

Writes its URL to the port file when it takes connections, and the control port's to the same name
with ``.control`` behind it. Ends on TERM or INT, and when its parent ends.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

# A program, run from anywhere and without site-packages; the other modules are beside it.
sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.kit.faults.lease_api import LeaseApi
from tests.kit.faults.ledger import Ledger, parse_resources
from tests.kit.faults.log import Log
from tests.kit.faults.program import add_server_options, parse_rules, serve
from tests.kit.faults.relay import Relay
from tests.kit.faults.server import Source


def main() -> None:
    arguments = _parser().parse_args()
    try:
        resources = parse_resources(arguments.resources)
        rules = parse_rules(arguments)
    except ValueError as error:
        sys.exit(f"lease_proxy: {error}")
    source = lambda log: _source(arguments, resources, log)  # noqa: E731
    asyncio.run(serve(arguments, rules, source, resources=resources))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    add_server_options(parser)
    add = parser.add_argument
    add("--idempotent", action="store_true", help="honour Idempotency-Key")
    add("--upstream", metavar="URL", help="pass requests on to this server, faults apart")
    add("--poll", type=float, metavar="SECONDS", help="waiters ask this often; the real one's 3")
    add("--acquire-timeout", type=float, default=7200.0, metavar="SECONDS")
    add("--ghosts", type=float, metavar="SECONDS", help="Boskos' queue keeps places; its 30")
    add("--reaped", type=float, default=14.0, metavar="SECONDS", help="to find a lease reaped")
    return parser


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


if __name__ == "__main__":
    main()
