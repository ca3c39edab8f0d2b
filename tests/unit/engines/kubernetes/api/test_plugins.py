"""Programs that say as whom, and all that they can do instead."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.credentials import (
    Credential,
    Plugin,
    PluginCredential,
    read_plugin,
)
from leasectl.engines.kubernetes.api.kubeconfig import read_kubeconfigs
from leasectl.errors import BackendUnreachable, NotAllowed
from leasectl.system.clock import Clock, rfc3339
from tests.kit.support import ManualClock
from tests.unit.engines.kubernetes.api.scripted import write_kubeconfig

V1 = "client.authentication.k8s.io/v1"
V1BETA1 = "client.authentication.k8s.io/v1beta1"
Make = Callable[..., Plugin]


def printed(version: str = V1, **status: object) -> str:
    said = json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": status})
    return f"cat << 'END'\n{said}\nEND"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A plugin that is a script, as a kubeconfig beside it has it."""

    def make(script: str, cluster: dict[str, object] | None = None, **fields: Any) -> Plugin:
        program = tmp_path / "plugin"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        user = {"exec": {"apiVersion": V1, "command": "./plugin", **fields}}
        path = write_kubeconfig(tmp_path / "config", "https://there", user, **(cluster or {}))
        found = read_kubeconfigs([str(path)], named_by="it", all_there=True)
        context = found.context(None)
        entry, where = found.user(context).plugin, found.cluster(context)
        assert entry is not None
        ca = None if where.ca is None else where.ca.read()
        return read_plugin(entry, where, ca)

    return make


def ask(plugin: Plugin, *, seconds: float = 20.0, clock: Clock | None = None) -> Credential:
    return PluginCredential(plugin, {}, clock or Clock()).current(seconds)


@pytest.mark.parametrize("version", [V1, V1BETA1])
def test_a_token_is_taken_in_the_form_that_was_asked_for(version: str, make: Make) -> None:
    plugin = make(printed(version, token="abc"), apiVersion=version)
    assert ask(plugin) == Credential("abc", None, None, None)


def test_a_certificate_is_taken_with_its_key(make: Make) -> None:
    got = ask(make(printed(clientCertificateData="CERT", clientKeyData="KEY")))
    assert got.token is None
    assert got.certificate is not None and got.key is not None
    assert (got.certificate.content, got.key.content) == (b"CERT", b"KEY")


def test_it_has_arguments_and_variables_and_hears_what_for(make: Make, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    script = f'printf "%s\\n" "$1|$A|$HOME|$KUBERNETES_EXEC_INFO" > {heard}\n{printed(token="t")}'
    extension = {
        "name": "client.authentication.k8s.io/exec",
        "extension": {"a": [1, "1", None, "b"]},
    }
    cluster: dict[str, object] = {
        "certificate-authority-data": base64.b64encode(b"CA").decode(),
        "tls-server-name": "name",
        "extensions": [extension],
    }
    plugin = make(
        script,
        cluster,
        args=["one two"],
        env=[{"name": "A", "value": "x y"}],
        provideClusterInfo=True,
        interactiveMode="IfAvailable",
    )
    PluginCredential(plugin, {"HOME": "/kept"}, Clock()).current(20)
    argument, variable, home, info = heard.read_text().split("|")
    assert (argument, variable, home) == ("one two", "x y", "/kept")
    assert json.loads(info) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {
            "interactive": False,
            "cluster": {
                "server": "https://there",
                "tls-server-name": "name",
                "certificate-authority-data": base64.b64encode(b"CA").decode(),
                "config": {"a": [1, "1", None, "b"]},
            },
        },
    }


def test_what_it_hears_is_only_what_it_should(make: Make, tmp_path: Path) -> None:
    heard = tmp_path / "heard"
    ask(make(f'echo "$KUBERNETES_EXEC_INFO" > {heard}\n{printed(token="t")}'))
    assert json.loads(heard.read_text())["spec"] == {"interactive": False}


class Counted:
    """A program that counts how often it was asked."""

    def __init__(self, tmp_path: Path) -> None:
        self._file = tmp_path / "count"

    def script(self, **status: object) -> str:
        return f"echo >> {self._file}\n{printed(**status)}"  # type: ignore[arg-type]

    @property
    def times(self) -> int:
        return len(self._file.read_text()) if self._file.exists() else 0


def test_it_is_asked_once_until_its_credential_ends(
    make: Make, tmp_path: Path, manual_clock: ManualClock
) -> None:
    counted, clock = Counted(tmp_path), manual_clock.clock
    ends = rfc3339(clock.wall() + 100)
    credential = PluginCredential(
        make(counted.script(token="t", expirationTimestamp=ends)), {}, clock
    )
    for _ in range(3):
        credential.current(20)
    manual_clock.advance(90)
    credential.current(20)
    assert counted.times == 1
    manual_clock.advance(6)  # it ends in four seconds, and the request takes time, too
    credential.current(20)
    assert counted.times == 2


def test_one_without_an_end_is_good_until_it_is_refused(make: Make, tmp_path: Path) -> None:
    counted = Counted(tmp_path)
    credential = PluginCredential(make(counted.script(token="t")), {}, Clock())
    for _ in range(3):
        credential.current(20)
    assert counted.times == 1
    credential.forget()
    credential.current(20)
    assert counted.times == 2


def test_one_that_fails_is_asked_again_after_pauses_that_double(
    make: Make, tmp_path: Path, manual_clock: ManualClock
) -> None:
    counted, here = Counted(tmp_path), tmp_path / "logged-in"
    script = f"{counted.script(token='t')}\n[ -e {here} ] || exit 1"
    credential = PluginCredential(make(script), {}, manual_clock.clock)
    asked_at: list[float] = []
    begun = manual_clock.clock.elapsed()
    while len(asked_at) < 7:
        before = counted.times
        with pytest.raises(NotAllowed, match="exited with 1"):
            credential.current(20)
        if counted.times > before:
            asked_at.append(manual_clock.clock.elapsed() - begun)
        manual_clock.advance(0.5)
    assert asked_at == [0, 1, 3, 7, 15, 30, 45]
    here.touch()
    manual_clock.advance(15)
    assert credential.current(20).token == "t"
    here.unlink()
    credential.forget()
    with pytest.raises(NotAllowed):
        credential.current(20)
    manual_clock.advance(2)
    with pytest.raises(NotAllowed):
        credential.current(20)
    assert counted.times == 10


def test_nor_is_one_asked_all_the_time_that_says_what_no_server_takes(
    make: Make, tmp_path: Path, manual_clock: ManualClock
) -> None:
    counted = Counted(tmp_path)
    credential = PluginCredential(make(counted.script(token="t")), {}, manual_clock.clock)
    for _ in range(10):  # seconds, each with requests that are refused
        for _ in range(5):
            credential.current(20)
            credential.forget()
        manual_clock.advance(1)
    assert counted.times == 5  # the first, and after 0, 1, 3, 7 seconds


@pytest.mark.parametrize(
    "timestamp",
    ["2039-01-01T00:00:00Z", "2039-01-01T00:00:00.123456789Z", "2039-01-01T01:00:00+01:00"],
)
def test_an_end_is_read_in_each_of_its_forms(timestamp: str, make: Make) -> None:
    now = Clock(elapsed=lambda: 0.0, wall=lambda: 2177452800.0 - 1000)
    assert ask(make(printed(token="t", expirationTimestamp=timestamp)), clock=now).until == 995.0


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("echo oh; echo no >&2; exit 3", "exited with 3 (no)"),
        ("exit 1", "exited with 1;"),
        ("kill -9 $$", "was ended by signal 9"),
        (":", "printed something other than JSON"),
        ("echo s3cret; echo why >&2", "than JSON (why)"),
        ("echo '[]'", "didn't print an ExecCredential"),
        ('echo \'{"kind": "Pod"}\'', "didn't print an ExecCredential"),
        (printed(V1BETA1, token="t"), f"of {V1BETA1} instead of one of {V1}"),
        (printed(), "neither a token nor a certificate"),
        (printed(token=""), "neither a token nor a certificate"),
        (printed(token=3), "printed a token that is not text"),
        (printed(token="s3cret and more\x07"), "printed an invalid token"),
        (printed(clientCertificateData="s3cret"), "printed a certificate without a key"),
        (printed(token="t", clientKeyData="s3cret"), "or a key without a certificate"),
        (printed(token="t", expirationTimestamp="2020-01-01T00:00:00Z"), "ago, by this machine's"),
        (printed(token="t", expirationTimestamp="2h"), "expirationTimestamp that is not a time"),
        (printed(token="t", expirationTimestamp=3), "expirationTimestamp that is not a time"),
        ("yes s3cret", "printed more than 1 MiB"),
        ("printf '\\033[2J\\n' >&2; exit 1", r"(\x1b[2J)"),
    ],
)
def test_what_is_no_credential_is_said_and_not_shown(script: str, line: str, make: Make) -> None:
    with pytest.raises(NotAllowed) as raised:
        ask(make(script))
    said = str(raised.value)
    assert line in said
    assert 'exec of user "u" in' in said
    assert "s3cret" not in said
    assert said.isprintable()


def test_one_that_hangs_has_its_time(make: Make) -> None:
    with pytest.raises(BackendUnreachable) as raised:
        ask(make("echo waiting for somebody >&2; sleep 1000"), seconds=5.0)
    assert "printed no credential within 5s (waiting for somebody); try it by hand" in str(
        raised.value
    )


def test_one_that_is_not_there_says_how_to_have_it(make: Make) -> None:
    plugin = make(":", command="nonesuch-tool", installHint="see\nhttps://nonesuch")
    with pytest.raises(NotAllowed, match=r'"nonesuch-tool", which can\'t be found; see\\nhttps'):
        ask(plugin)


def test_one_that_may_not_be_executed_says_so(make: Make, tmp_path: Path) -> None:
    plugin = make("")
    (tmp_path / "plugin").chmod(0o600)
    with pytest.raises(NotAllowed, match=r'names "/.*/plugin", which can\'t be executed; '):
        ask(plugin)


def test_one_that_is_no_program_says_so(make: Make, tmp_path: Path) -> None:
    plugin = make("")
    (tmp_path / "plugin").write_bytes(b"\x7fELF rubbish")
    with pytest.raises(NotAllowed, match="can't be started: Exec format error"):
        ask(plugin)


def test_a_name_is_looked_up_and_a_path_is_seen_from_the_kubeconfig(
    make: Make, tmp_path: Path
) -> None:
    assert make(":", command="tool").path == "tool"
    assert make(":", command="bin/tool").path == str(tmp_path / "bin/tool")
    assert make(":", command="/bin/tool").path == "/bin/tool"
    plugin = make(printed(token="t"), command="plugin", env=[{"name": "PATH", "value": "/bin"}])
    kept = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with pytest.raises(NotAllowed):  # by the PATH that it has
        PluginCredential(plugin, kept, Clock()).current(20)
    without = plugin._replace(environment=())
    assert PluginCredential(without, kept, Clock()).current(20).token == "t"


@pytest.mark.parametrize("folder", ["", ".", "bin"])
def test_one_that_path_has_where_we_happen_to_be_is_not_run(
    folder: str, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    program = tmp_path / folder / "tool"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n{printed(token='t')}\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    path = [{"name": "PATH", "value": f"{folder}:/bin"}]
    with pytest.raises(NotAllowed, match=r'names "tool", which PATH finds only in the current'):
        ask(make(":", command="tool", env=path))
    assert not (tmp_path / "was-run").exists()


def test_what_stands_without_quotes_is_what_it_looks_like(make: Make, tmp_path: Path) -> None:
    make(":", provideClusterInfo=True)
    config = tmp_path / "config"
    extension = "{name: client.authentication.k8s.io/exec, extension: {a: [b, 1, true, ~]}}"
    config.write_text(
        config.read_text().replace('"https://there"', f'"https://there", extensions: [{extension}]')
    )
    found = read_kubeconfigs([str(config)], named_by="it", all_there=True)
    context = found.context(None)
    entry = found.user(context).plugin
    assert entry is not None
    plugin = read_plugin(entry, found.cluster(context), None)
    (info,) = (value for name, value in plugin.environment if name == "KUBERNETES_EXEC_INFO")
    assert json.loads(info)["spec"]["cluster"]["config"] == {"a": ["b", 1, True, None]}
