"""In front of etcd that doesn't answer: what clients, probes and the operator are told."""

from __future__ import annotations

import json
import os
import signal
from urllib.parse import urlsplit

import pytest

from tests.kit.etcd.server import EtcdServer
from tests.kit.relay import Relay
from tests.kit.serving import Serve, Serving
from tests.kit.support import Cli
from tests.kit.waits import eventually

SILENCE = "no answer from etcd within "


def url_at(endpoint: str, prefix: str) -> str:
    return f"etcd://{urlsplit(endpoint).netloc}{prefix}"


@pytest.fixture
def server(cli: Cli, serve: Serve, between: Relay, prefix: str) -> Serving:
    """In front of a pool T of one resource, by way of what can be cut."""
    url = url_at(between.endpoint, prefix)
    cli.ok("pool", "create", "T", "--count", "1", "--backend", url)
    cli.env["LEASECTL_RELEASE_TIMEOUT"] = "1s"
    return serve("--backend", url)


def test_it_is_unwell_until_etcd_answers_again(server: Serving, between: Relay) -> None:
    with server.connect() as client:
        assert client.ask("GET", "/healthz")[:2] == (200, "ok\n")
        between.cut()
        got = client.ask("GET", "/healthz")
        assert got.status == 503
        assert got.text.startswith(SILENCE)
        assert between.endpoint in got.text
        assert got.text.count("\n") == 1
        between.mend()
        eventually(lambda: client.ask("GET", "/healthz").status == 200)


def test_the_page_says_why_it_shows_nothing_newer(server: Serving, between: Relay) -> None:
    with server.connect() as client:
        before = client.ask("GET", "/").text
        assert "problem" in before
        assert SILENCE not in before
        between.cut()
        eventually(lambda: SILENCE in client.ask("GET", "/").text)
        during = client.ask("GET", "/")
        assert during.status == 200
        assert 'data-key="T"' in during.text  # as it was
        between.mend()
        edition = during.text.split('data-edition="')[1].split('"')[0]
        got = client.ask("GET", f"/leasectl/page/changes?after={edition}")
        assert (got.status, json.loads(got.text)["problem"]) == (200, "")


def test_the_operator_is_told_once_of_what_all_clients_meet(
    server: Serving, between: Relay
) -> None:
    with server.connect() as holder, server.connect() as client:
        (name,) = holder.acquire("T").names
        between.cut()
        assert client.acquire("T").status == 500
        assert client.acquire("T").status == 500
        assert client.release(name).status == 500
        assert client.ask("GET", "/metrics").status == 503
        assert client.ask("GET", "/healthz").status == 503
        between.mend()
    told = server.end().err
    assert told.startswith(f"leasectl: POST /lease/acquire failed: {SILENCE}")
    assert told.count("\n") == 1


@pytest.mark.parametrize("path", ["/lease/release", "/metrics"])
def test_the_operator_is_told_whatever_it_was_that_met_it(
    server: Serving, between: Relay, path: str
) -> None:
    with server.connect() as client:
        (name,) = client.acquire("T").names
        between.cut()
        if path == "/lease/release":
            client.release(name)
        else:
            client.ask("GET", path)
        between.mend()
    assert f" {path} failed: {SILENCE}" in server.end().err


def test_the_operator_is_told_when_only_a_waiter_meets_it(
    cli: Cli, server: Serving, etcd: EtcdServer, between: Relay, prefix: str
) -> None:
    past_the_relay = url_at(etcd.endpoints[0], prefix)
    held = cli("acquire", "-q", "-t", "T", "--backend", past_the_relay).handle
    with server.waiter("T"):
        eventually(lambda: 'requests_waiting{type="T"} 1' in server.get("/metrics"))
        between.listen(after=lambda _, path: path == "/v3/kv/txn")
        cli.ok("release", "--handle", held)  # which the waiter is told, and asks
        told = server.complaint()
    assert told.startswith("leasectl: still waiting")
    assert SILENCE in told


def test_a_key_whose_request_was_not_answered_is_granted_once_it_can_be(
    cli: Cli, server: Serving, between: Relay, etcd: EtcdServer, prefix: str
) -> None:
    past_the_relay = url_at(etcd.endpoints[0], prefix)

    def lose_the_claim(_number: int, path: str) -> bool:
        """From the first transaction on: what it did is done, and nobody hears of it."""
        if path == "/v3/lease/grant":
            between.listen(after=lambda _, path: path == "/v3/kv/txn")
        return False

    with server.connect() as client:
        between.listen(after=lose_the_claim)
        assert client.acquire("T", Idempotency_Key="k").status == 500
        between.cut()
        assert client.acquire("T", Idempotency_Key="k").status == 500
        between.listen()
        between.mend()

        def granted() -> list[str]:
            got = client.acquire("T", Idempotency_Key="k")
            return got.names if got.status == 200 else []

        assert eventually(granted) == ["T--00"]
    (pool,) = json.loads(cli.ok("status", "--json", "--backend", past_the_relay))["pools"]
    assert (pool["held"], pool["waiting"]) == (1, 0)


def test_what_nobody_was_told_of_goes_back_once_it_can(
    cli: Cli, server: Serving, between: Relay
) -> None:
    def cut_once_told(_number: int, _path: str) -> None:
        """From when the grant is on record as told, all that is asked is for its return."""
        if cli.query("SELECT id FROM handle WHERE unconfirmed"):
            raise ConnectionResetError

    between.listen(before=cut_once_told)
    server.pause()
    server.waiter("T").reset()
    server.go_on()
    eventually(lambda: cli.query("SELECT due FROM timer"), what="the keeper is to release it")
    between.listen()
    eventually(lambda: cli.query("SELECT id FROM handle WHERE state = 'held'") == [])


def test_another_keeper_follows_one_that_is_killed(cli: Cli, server: Serving) -> None:
    with server.connect() as client:
        assert client.acquire("T").names == ["T--00"]
    (keeper,) = eventually(cli.keepers)
    os.kill(keeper, signal.SIGKILL)
    eventually(lambda: [pid for pid in cli.keepers() if pid != keeper], what="the next keeper")
