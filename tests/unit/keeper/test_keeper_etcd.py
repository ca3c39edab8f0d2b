"""The keeper, when a server that it releases at doesn't answer."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.kit.etcd.server import etcd_server
from tests.kit.support import Cli
from tests.kit.waits import eventually

# Servers are there on one Python only: see scripts/test.
pytestmark = pytest.mark.once


def test_a_server_that_hangs_keeps_no_other_lease_from_being_renewed(cli: Cli) -> None:
    cli.pool("local")
    with etcd_server() as server:
        url = server.endpoints[0].replace("http", "etcd")
        cli.ok("pool", "create", "far", "--count", "2", "--backend", url)
        guard = cli.spawn(["sleep", "600"])
        guarded = ("--guard-pid", str(os.getpid()))
        near = cli.ok(
            "acquire", "-t", "local", "--ttl", "2s", *guarded, "--backend", "local:"
        ).rstrip()
        for _ in range(2):
            cli.ok("acquire", "-t", "far", "--guard-pid", str(guard.pid), "--backend", url)
        server.signal(0, signal.SIGSTOP)
        guard.kill()
        log = Path(cli.state_dir, "keeper.log")
        # Each is tried for several times the other lease's ttl.
        eventually(log.exists, what="there is a keeper")
        eventually(lambda: log.read_text().count("can't release far-") >= 1)
        server.signal(0, signal.SIGCONT)
        held = json.loads(cli.ok("cat", "--handle", near, "--format", "json"))
        assert (held["state"], held["acquisition"]) == ("held", 1)
        eventually(lambda: log.read_text().count("released far-") == 2)
