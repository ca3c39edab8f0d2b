"""`leasectl run` under a lease of etcd, when nothing reaches etcd any more."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.model import Request
from leasectl.system.clock import boottime_seconds
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay
from tests.kit.support import Cli
from tests.kit.waits import eventually

TTL_SECONDS = 8.0  # of which the command has a part to end in, on a machine that is busy
USING = """#!/bin/bash
{reaction}
echo "fence $LEASECTL_FENCE" >>{log}
while read -r now _ </proc/uptime; do
  echo "using $now" >>{log}
  sleep 0.02
done
"""


@contextlib.contextmanager
def nothing_passes(between: Relay, *, silently: bool) -> Iterator[None]:
    """Cut the network, or have it keep what is sent for later."""
    flows = threading.Event()
    if silently:
        between.listen(before=lambda *_: not flows.wait(), after=lambda *_: not flows.wait())
    else:
        between.cut()
    yield
    flows.set()
    between.mend()


@pytest.mark.parametrize("network", ["cut", "silent"])
@pytest.mark.parametrize("on_term", ["ends", "goes on"])
def test_a_command_that_is_cut_off_is_gone_before_the_next_holder_comes(
    etcd: EtcdServer, between: Relay, cli: Cli, tmp_path: Path, network: str, on_term: str
) -> None:
    store = Access(etcd.endpoints, f"/test/{secrets.token_hex(8)}", state_id="next")
    store.pools.create_pool("T", ["T--0"])
    log, command = tmp_path / "log", tmp_path / "command"
    reaction = "trap '' TERM" if on_term == "goes on" else "trap 'echo term >>{log}; exit' TERM"
    command.write_text(USING.format(reaction=reaction.format(log=log), log=log))
    command.chmod(0o755)
    url = f"etcd://{between.endpoint.rpartition('/')[2]}{store.keys.prefix.rstrip('/')}"
    options = ["-t", "T", "--ttl", f"{TTL_SECONDS:g}s"]
    run = cli.start("run", *options, "--", str(command), LEASECTL_BACKEND=url)
    renewals = between.paths.count("/v3/lease/keepalive")
    eventually(lambda: between.paths.count("/v3/lease/keepalive") > renewals + 1, what="it renews")

    with nothing_passes(between, silently=network == "silent"):
        (lease,) = store.acquire("next", Request("T"))
        granted_at = boottime_seconds()
    finished = run.finish()

    assert finished.code == 79, finished
    assert store.engine.renew("next") == ("T--0",), "what arrived late has freed it"
    said = [line.partition(" ") for line in log.read_text().splitlines()]
    assert max(float(at) for word, _, at in said if word == "using") < granted_at
    assert ("term", "", "") in said or on_term == "goes on", (finished, said[-3:])
    (fence,) = [int(number) for word, _, number in said if word == "fence"]
    assert fence < lease.fence
