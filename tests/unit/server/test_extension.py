"""The extension for leasectl's own clients, from a command to the server and back."""

from __future__ import annotations

import inspect
import json
import os
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leasectl.backends.serve.protocol import CALLS
from leasectl.server.extension import ServedCalls
from tests.kit.serving import Serving
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

TOKENS = {"ci": "use", "other": "use", "ops": "use,admin"}


class Team:
    """A server with tokens, and the machines that use it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.tokens = folder / "tokens"
        self.write_tokens(TOKENS)
        server = Cli(folder / "server", folder)
        self.serving = Serving(server, "--token-file", str(self.tokens), *options)
        self.machines = [server]

    def write_tokens(self, tokens: dict[str, str]) -> None:
        lines = [f"{name} {rights} secret-of-{name}" for name, rights in tokens.items()]
        self.tokens.write_text("\n".join(lines))
        self.tokens.chmod(0o600)
        for name in tokens:
            (self.folder / name).write_text(f"secret-of-{name}")
            (self.folder / name).chmod(0o600)

    def machine(self, job: str, token: str = "ci") -> Cli:
        """A machine of a job, with a state directory of its own."""
        cli = Cli(self.folder / f"machine-{len(self.machines)}", self.folder)
        cli.env.update(
            LEASECTL_BACKEND=f"leasectl+{self.serving.url}",
            LEASECTL_TOKEN_FILE=str(self.folder / token),
            JOB_NAME=job,
            BUILD_ID="1",
        )
        self.machines.append(cli)
        return cli

    def close(self) -> None:
        for each in reversed(self.machines):
            each.close()


@pytest.fixture
def team(tmp_path: Path) -> Iterator[Team]:
    team = Team(tmp_path, "--trusted-proxy", "127.0.0.1")
    team.machine("admin", "ops").ok("pool", "create", "T", "--count", "1")
    yield team
    team.close()


def test_only_a_token_with_the_right_changes_pools(team: Team) -> None:
    refused = team.machine("a")("pool", "create", "U", "--count", "1")
    assert (refused.code, "needs an admin token" in refused.err) == (77, True)
    assert [line.split()[0] for line in team.machine("a").ok("pool", "list").splitlines()] == [
        "POOL",
        "T",
    ]


def test_a_lease_shows_who_holds_it_with_which_token(team: Team) -> None:
    team.machine("a").ok("acquire", "-t", "T", "--label", "k=v")
    shown = json.loads(team.machine("b").ok("status", "--json", "-t", "T"))
    (held,) = shown["pools"][0]["resources"]
    assert (held["job"], held["build"]) == ("a", "1")
    assert held["labels"]["k"] == "v"
    assert held["labels"]["serve:token"] == "ci"
    assert held["lease_duration_seconds"] == 60.0


def test_a_client_that_is_gone_keeps_its_lease_for_a_ttl(team: Team) -> None:
    gone = team.machine("a")
    gone.ok("acquire", "-t", "T", "--ttl", "2s")
    team.machine("b").ok("acquire", "-t", "T", "-w", "10m")
    (ended,) = (each for each in events_of(team) if each["kind"] == "released")
    assert ended["by"] == "ttl"


def events_of(team: Team) -> list[dict[str, Any]]:
    lines = team.machine("a").ok("events", "--json").splitlines()
    return [json.loads(line) for line in lines]


def _post(team: Team, path: str, token: str = "other", **body: object) -> Any:
    """The answer to a request of a program with a token; a refusal's kind."""
    request = urllib.request.Request(
        f"{team.serving.url}/leasectl/v2/{path}",
        json.dumps(body).encode(),
        {"Authorization": f"Bearer secret-of-{token}"},
    )
    try:
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read())["result"]
    except urllib.error.HTTPError as refused:
        return json.loads(refused.read())["error"]


@pytest.mark.parametrize("form", ["{}/1", "={}..1", "{}..1"])
def test_a_claim_key_is_of_no_use_to_another_tokens_client(team: Team, form: str) -> None:
    handle = Path(team.machine("a").ok("acquire", "-t", "T").strip()).name
    key = form.format(handle)
    guard = {"is": "Guard", "claim_key": key, "name": "T--00", "fence": 1}
    change = {"is": "ValueChange", "key": "a/b/c", "content": None}
    for path, arguments in (
        ("call/engine.renew", {"claim_key": key}),
        ("call/engine.free", {"claim_key": key, "names": None}),
        ("call/engine.withdraw", {"claim_key": key}),
        ("call/values.change", {"changes": [change], "guard": guard}),
    ):
        assert _post(team, path, **arguments) == "NotAllowed", path
    if "/" in key:
        assert _post(team, "wait", claim_key=key, after=0) == "NotAllowed"
    assert _post(team, "call/engine.renew", "ci", claim_key=f"{handle}/1")["names"] == ["T--00"]


def test_names_are_added_to_a_pool_and_removed(team: Team) -> None:
    def change(call: str, *names: str, **more: Any) -> Any:
        return _post(team, f"call/pools.{call}", "ops", pool_type="T", names=names, **more)

    def there() -> list[str]:
        (pool,) = _post(team, "call/pools.pools", pool_type="T")
        return [each["name"] for each in pool["resources"]]

    assert change("add_resources", "b", "a") is None
    assert change("add_resources", "c", "a") == "InvalidRequest"
    assert there() == ["T--00", "a", "b"]
    assert change("remove_resources", "a", "nowhere") == "NotFound"
    team.machine("a").ok("acquire", "-t", "T", "--name", "a")
    assert change("remove_resources", "b", "a") == "NotAllowed"
    assert change("remove_resources", "b", "a", force=True) is None
    assert there() == ["T--00"]


def test_another_tokens_client_neither_ends_nor_joins_a_wait(team: Team) -> None:
    team.machine("a").ok("acquire", "-t", "T")
    waiter = team.machine("b").start("acquire", "-t", "T")

    def queue() -> Any:
        return _post(team, "call/pools.pools", pool_type="T")[0]["queue"]

    eventually(queue)
    (place,) = queue()
    key, handle = place["claim_key"], place["claim_key"].partition("/")[0]
    assert _post(team, "call/engine.withdraw", claim_key=handle) == "NotAllowed"
    with team.serving.connect() as client:
        client.release(Authorization="Bearer secret-of-other", Idempotency_Key=handle)
    again = {
        "claim_key": key,
        "holder_identity": place["holder_identity"],
        "request": {"is": "Request", "type": "T", "ttl_seconds": 60.0},
        "wait_seconds": 0,
    }
    assert _post(team, "acquire", **again) == "NotAllowed"
    assert queue() == [place]
    team.machine("a").ok("release", "--names", "T--00", "--force", "--now")
    assert waiter.finish().code == 0


def test_only_the_holders_token_answers_a_reclaim(team: Team) -> None:
    holder = team.machine("a")
    holder.ok("acquire", "-t", "T", "--on-reclaim", "answer")
    mark = {"id": "0", "asked_by": "x", "state": "marked", "seconds": 60.0, "made_at": 0.0}
    asked, ready = json.dumps(mark), json.dumps({**mark, "state": "ready"})

    def change(token: str, before: str | None, after: str) -> Any:
        note = {"is": "NoteChange", "type": "T", "name": "T--00", "fence": 1}
        changes = [{**note, "before": before, "after": after}]
        return _post(team, "call/notes.change", token, changes=changes)

    def free(text: str) -> Any:
        note = {"is": "Note", "type": "T", "name": "T--00", "fence": 1, "text": text}
        return _post(team, "call/notes.free", notes=[note], by="reclaim")

    assert change("other", None, ready) == [False]
    assert change("other", None, asked) == [True]
    assert free(asked) == []
    assert change("other", asked, ready) == [False]
    assert change("ci", asked, ready) == [True]
    assert free(ready) == ["T--00"]


def test_a_client_gives_itself_no_label_of_the_server(team: Team) -> None:
    labels = [["serve:token", "ci"], ["serve:client", "::"], ["serve:key", "k"], ["mine", "v"]]
    wanted = {"is": "Request", "type": "T", "ttl_seconds": 60.0, "labels": labels}
    granted = _post(
        team, "acquire", claim_key="h/1", holder_identity="a/1/h/h", request=wanted, wait_seconds=0
    )
    assert granted["leases"][0]["labels"] == [
        ["mine", "v"],
        ["serve:client", "127.0.0.1"],
        ["serve:token", "other"],
    ]


def test_a_client_adds_no_event_of_a_pool(team: Team) -> None:
    change = {"is": "ValueChange", "key": "a/b/c", "content": None}
    event = {"is": "Event", "number": 0, "time": 1.0, "kind": "granted", "type": "T"}
    assert _post(team, "call/values.change", changes=[change], event=event) == "NotAllowed"
    assert team.machine("a").ok("once", "-q", "key", "--", "echo", "done") == "done\n"
    assert "work done" in {each["kind"] for each in events_of(team)}


def test_nothing_is_left_on_record_of_a_work_that_is_done(team: Team) -> None:
    team.machine("a").ok("once", "-q", "key", "--", "true")
    team.machines[0].ok("doctor")


def test_hup_reads_the_tokens_again(team: Team) -> None:
    client = team.machine("a")
    client.ok("pool", "list")
    team.write_tokens({"new": "use"})
    os.kill(team.serving.pid, signal.SIGHUP)
    eventually(lambda: client("pool", "list").code == 77)
    team.machine("a", "new").ok("pool", "list")


def test_a_server_without_the_extension_is_refused_with_its_address(
    tmp_path: Path, team: Team
) -> None:
    client = team.machine("a")
    client.env["LEASECTL_BACKEND"] = f"leasectl+{team.serving.url}/not-here"
    refused = client("acquire", "-t", "T", "-w", "0")
    assert (refused.code, "http:// address" in refused.err) == (64, True)


@pytest.mark.parametrize("scheme", ["leasectl+http", "http", "boskos+http", "etcd"])
def test_a_server_that_has_never_answered_is_unreachable_when_the_wait_ends(
    cli: Cli, scheme: str
) -> None:
    finished = cli("acquire", "-t", "T", "-w", "1", "--backend", f"{scheme}://127.0.0.1:9")
    assert (finished.code, "127.0.0.1:9" in finished.err) == (69, True)


def test_rules_for_clients_that_speak_only_the_proxys_protocol(tmp_path: Path) -> None:
    team = Team(
        tmp_path, "--lease-limit", "2s", "--strict-release", "--trusted-proxy", "127.0.0.0/8"
    )
    ops = team.machine("admin", "ops")
    ops.ok("pool", "create", "T", "--count", "1")
    with team.serving.connect() as client:
        client.start_acquire(
            "T",
            1,
            Authorization="Bearer secret-of-ci",
            Idempotency_Key="mine",
            X_Forwarded_For="203.0.113.9, 198.51.100.7",
            Leasectl_Holder="nightly/7",
        )
        assert client.read_answer().names == ["T--00"]
    shown = json.loads(ops.ok("status", "--json", "-t", "T"))
    labels = shown["pools"][0]["resources"][0]["labels"]
    assert labels["serve:client"] == "198.51.100.7"
    assert labels["serve:unverified-holder"] == "nightly/7"
    with team.serving.connect() as client:
        assert client.release("T--00", Authorization="Bearer secret-of-ci").status == 500
    assert team.machine("b")("acquire", "-t", "T", "-w", "10m").code == 0  # it ends by itself
    team.close()


def test_each_call_of_the_protocol_is_there_with_its_parameters(cli: Cli) -> None:
    """They are found by name, so a method that is renamed elsewhere would be missed only here."""
    with cli.service() as service:
        for name, parameters in CALLS.items():
            side, _, method = name.partition(".")
            special = getattr(ServedCalls, f"{side}_{method}", None)
            call = special or getattr(getattr(service, side), method)
            assert set(parameters) <= set(inspect.signature(call).parameters), name
