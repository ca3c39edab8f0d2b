"""A backend is its class and a line: with these two, everything knows of one more."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.backends.kinds import claim_key_of, kind_of, no_pools
from leasectl.leases.acquire import acquire
from leasectl.leases.release import release
from leasectl.leases.renew import renew
from leasectl.model import Request, whole
from leasectl.state import keeper_process
from tests.kit.desk import Desk
from tests.kit.made_up_backend import TYPES, MadeUpBackend, register_made_up
from tests.kit.recorded import watched
from tests.kit.support import Cli, Finished, ManualClock

URL = "madeup://here"


def with_one_more(cli: Cli, *args: str, **env: str | None) -> Finished:
    """Run a command where there is one backend more."""
    root = str(Path(__file__).parents[3])
    argv = [sys.executable, "-m", "tests.kit.made_up_backend", *args]
    return cli.spawn(argv, PYTHONPATH=root, COLUMNS="200", **env).finish()


def in_one_line(text: str) -> str:
    # A line may end at a hyphen.
    return " ".join(re.sub(r"-\n\s+", "-", text).split())


class TestOnTheCommandLine:
    def test_help_tells_of_it(self, cli: Cli) -> None:
        helped = in_one_line(with_one_more(cli, "help", "environment").out)
        assert "none: (no leases, a dry run) or madeup://HOST (for tests)." in helped
        helped = in_one_line(with_one_more(cli, "acquire", "--help").out)
        ttls = (
            "etcd: 60s; Kubernetes: 60s; leasectl serve: 60s; Boskos: from its URL; "
            "a made-up server: 7s."
        )
        assert f"Default: no expiry, except {ttls}" in helped
        serve = in_one_line(with_one_more(cli, "serve", "--help").out)
        assert (
            "The backend of the leases: local:, etcd://, kubernetes://, boskos+http:// or madeup://."
            in serve
        )

    def test_errors_offer_it(self, cli: Cli) -> None:
        unknown = with_one_more(cli, "acquire", "-t", "T", "--backend", "gopher:")
        assert unknown.code == 64
        assert (
            "lease proxy, leasectl+http://HOST:PORT, boskos+http://HOST or madeup://HOST with"
            in unknown.err
        )
        without_pools = with_one_more(cli, "pool", "list", "--backend", "none:")
        choices = (
            "local:, etcd://HOST:PORT, kubernetes://NAMESPACE, leasectl+http://HOST:PORT or "
            "madeup://HOST with"
        )
        assert choices in without_pools.err
        no_renew = with_one_more(cli, "acquire", "-t", "T", "--ttl", "9s", "--backend", "http://x")
        assert (
            "local:, etcd://, kubernetes://, leasectl+http:// and madeup:// can do it"
            in no_renew.err
        )

    def test_its_types_are_completed(self, cli: Cli) -> None:
        finished = with_one_more(
            cli,
            _LEASECTL_COMPLETE="bash_complete",
            COMP_WORDS=f"leasectl acquire --backend {URL} -t cra",
            COMP_CWORD="5",
        )
        assert finished.out.splitlines() == [f"plain,{each}" for each in TYPES]

    def test_its_pools_are_shown(self, cli: Cli) -> None:
        shown = json.loads(with_one_more(cli, "status", "--json", "--backend", URL).out)
        assert [pool["type"] for pool in shown["pools"]] == list(TYPES)

    def test_doctor_looks_at_it(self, cli: Cli) -> None:
        cli.pool("T")  # so that there are records
        finished = with_one_more(cli, "doctor", "--json", "--backend", URL)
        checks = {each["name"]: each for each in json.loads(finished.out)["checks"]}
        assert checks["backend"]["status"] == "ok"
        assert checks["a made-up server"]["what"] == f"{URL} works"

    def test_without_its_line_it_is_none(self, cli: Cli) -> None:
        assert f'unknown backend "{URL}"' in cli("acquire", "-t", "T", "--backend", URL).err


class TestTheVerbs:
    @pytest.fixture
    def desk(
        self, state_dir: Path, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[Desk]:
        monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
        register_made_up(monkeypatch)
        desk = Desk(state_dir, manual_clock)
        yield desk
        desk.close()

    def test_leases_come_from_it_as_its_class_says(self, desk: Desk) -> None:
        service = desk.as_caller(desk.caller, URL)
        handle = acquire(service, Request(TYPES[0]), patience=Patience(wait_seconds=0))
        assert handle.names == (f"{TYPES[0]}--00",)
        assert handle.request.ttl_seconds == MadeUpBackend.default_ttl_seconds
        assert claim_key_of(handle) == f"{handle.id}/1"
        assert watched(service.state) == [service.handles.require(handle.id)]
        assert renew(service, whole(handle)).names == handle.names
        assert release(service, whole(handle)) == handle.names
        assert service.pools.pools(TYPES[0])[0].held == 0

    def test_errors_know_it(self, desk: Desk) -> None:
        assert kind_of(URL) is MadeUpBackend
        assert "madeup://HOST" in str(no_pools("none:"))
