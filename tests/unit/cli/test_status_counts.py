"""``leasectl status`` of a server that only counts."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.kit.boskos.any_boskos import AnyBoskos
from tests.kit.boskos.process import StartBoskos
from tests.kit.support import Cli, Started
from tests.kit.waits import eventually

pytestmark = pytest.mark.once


def next_pools(watch: Started) -> Any:
    assert watch.process.stdout is not None
    return json.loads(watch.process.stdout.readline())["pools"]


def test_server_that_is_away_is_noticed_where_no_type_is_known(
    cli: Cli, boskos: StartBoskos
) -> None:
    server = boskos("T=1")
    cli.env["LEASECTL_BACKEND"] = server.backend
    assert "name a pool" in cli("status").err
    server.kill()
    refused = cli("status")
    assert (refused.code, "can't reach" in refused.err) == (69, True)


class TestWatch:
    def test_it_prints_again_when_something_has_changed(
        self, cli: Cli, any_boskos: AnyBoskos
    ) -> None:
        cli.env["LEASECTL_BACKEND"] = any_boskos.backend()
        watch = cli.start("status", any_boskos.type, "--watch", "--json")
        assert next_pools(watch)[0]["free"] == 3
        handle = Path(cli("acquire", "-q", any_boskos.type).handle)
        (pool,) = next_pools(watch)
        assert (pool["free"], pool["owners"][0]["handle"]) == (2, handle.name)

    def test_an_unknown_type_ends_it(self, cli: Cli, any_boskos: AnyBoskos) -> None:
        cli.env["LEASECTL_BACKEND"] = any_boskos.backend()
        assert cli("status", "nope", "--watch").code == 66

    def test_a_server_that_is_away_is_waited_for(self, cli: Cli, boskos: StartBoskos) -> None:
        server = boskos("T=1")
        cli.env["LEASECTL_BACKEND"] = server.backend
        watch = cli.start("status", "T", "--watch", "--json")
        assert next_pools(watch)[0]["free"] == 1
        server.kill()
        assert watch.process.stderr is not None
        assert "can't reach" in watch.process.stderr.readline()
        server.start()
        assert next_pools(watch)[0]["free"] == 1

    def test_a_signal_ends_it_while_the_server_is_silent(
        self, cli: Cli, boskos: StartBoskos
    ) -> None:
        server = boskos("T=1", faults=("delay seconds=60 path=metric nth=2",))
        cli.env["LEASECTL_BACKEND"] = server.backend
        watch = cli.start("status", "T", "--watch", "--json")
        next_pools(watch)
        eventually(lambda: len(server.history().asked("/metric")) == 2)
        watch.signal(signal.SIGINT)
        finished = watch.finish()
        assert (finished.code, finished.err) == (-signal.SIGINT, "")
