"""Kubeconfigs: merged as kubectl does, and refused in one line whatever is wrong with them."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.address import KubernetesAddress, leases
from leasectl.engines.kubernetes.api.choice import choose
from leasectl.engines.kubernetes.api.kubeconfig import Kubeconfig, read_kubeconfigs
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import LeaseError
from leasectl.system.clock import Clock

GOOD: dict[str, Any] = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "current-context": "x",
}
HELLO = base64.b64encode(b"hello").decode()
SERVER = {"server": "https://127.0.0.1:1"}


def with_user(**fields: object) -> str:
    return json.dumps({**GOOD, "users": [{"name": "u", "user": fields}]})


def with_cluster(**fields: object) -> str:
    return json.dumps({**GOOD, "clusters": [{"name": "c", "cluster": fields}]})


def with_context(**fields: object) -> str:
    return json.dumps({**GOOD, "contexts": [{"name": "x", "context": fields}]})


def with_top(**fields: object) -> str:
    return json.dumps({**GOOD, **fields})


def with_exec(**fields: object) -> str:
    given = {"apiVersion": "client.authentication.k8s.io/v1", "command": "true", **fields}
    return with_user(exec=given)


def bomb() -> str:
    lines = ["a0: &a0 [lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    return "\n".join([*lines, "clusters: *a59"])


def exec_bomb() -> str:
    """What few bytes stand for that a program is to be told."""
    info = "[{name: client.authentication.k8s.io/exec, extension: *a59}]"
    cluster = "{server: 'https://127.0.0.1:1', extensions: " + info + "}"
    program = "{apiVersion: client.authentication.k8s.io/v1, command: x, provideClusterInfo: true}"
    return (
        bomb().rpartition("\n")[0]
        + f"\nclusters: [{{name: c, cluster: {cluster}}}]"
        + f"\nusers: [{{name: u, user: {{exec: {program}}}}}]"
        + "\ncontexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x"
    )


BAD: list[tuple[str | bytes, int, str]] = [
    ("", 65, "has no contexts"),
    ("null", 65, "has no contexts"),
    ("[]", 65, "is not a kubeconfig"),
    ("hello", 65, "is not a kubeconfig"),
    (b"\xff\xfe\x00\x01", 65, "isn't a text in UTF-8"),
    ("a\x00b", 65, '"\\x00" can\'t be in YAML'),
    ("a: b\n\tc: d", 65, ":2: found a tab"),
    ('{"a": [', 65, "did not find expected node content"),
    (bomb(), 65, "has clusters[0] without a name"),
    ("[" * 100_000, 65, "nested more than 100 deep"),
    ("a: " + "x" * (5 << 20), 65, "has more than 4 MiB"),
    ("a: 1\n---\nb: 2", 65, "a second document begins"),
    ("a: !!python/object/apply:os.system [id]", 65, "tags such as"),
    (with_top(**{"current-context": ""}), 64, "has no current context; name one"),
    (with_top(**{"current-context": ["x"]}), 64, "has no current context"),
    (with_top(**{"current-context": "y"}), 64, 'has no context "y"'),
    (with_top(**{"current-context": "xx"}), 64, 'did you mean "x"?'),
    (with_top(contexts={"x": 1}), 65, "has contexts that aren't a list"),
    (with_top(clusters={"a": 1}), 65, "has clusters that aren't a list"),
    (with_top(clusters=[{"cluster": {}}]), 65, "has clusters[0] without a name"),
    (with_top(clusters=[1]), 65, "has clusters[0] without a name"),
    (with_top(users=[{"name": "u", "user": "me"}]), 65, 'user "u" in'),
    (with_context(user="u"), 65, "names no cluster"),
    (with_context(cluster="q", user="u"), 65, 'names the cluster "q", which doesn\'t exist'),
    (with_context(cluster="c", user="q"), 65, 'names the user "q", which doesn\'t exist'),
    (with_context(cluster=["c"], user="u"), 65, "has a cluster that is not text"),
    (with_cluster(), 65, "has no server"),
    (with_cluster(server=["x"]), 65, "has a server that is not text"),
    (with_cluster(server="127.0.0.1:6443"), 65, "not an address like https://host:port"),
    (with_cluster(server="ftp://x"), 65, "not an address like"),
    (with_cluster(server="https://x:99999"), 65, "not an address like"),
    (with_cluster(server="https://x:y"), 65, "not an address like"),
    (with_cluster(server="https://x/?a=b"), 65, "not an address like"),
    (with_cluster(server="https://me:s3cret@x"), 65, "has a server URL with a user"),
    (with_cluster(**SERVER, **{"certificate-authority-data": "!"}), 65, "isn't in base64"),
    (with_cluster(**SERVER, **{"certificate-authority-data": HELLO}), 65, "holds no certificate"),
    (with_cluster(**SERVER, **{"certificate-authority": "gone"}), 64, "gone: No such file"),
    (with_cluster(**SERVER, **{"certificate-authority": "/"}), 64, "Is a directory"),
    (with_cluster(**SERVER, **{"insecure-skip-tls-verify": "so"}), 65, "neither true nor false"),
    (
        with_cluster(
            **SERVER, **{"insecure-skip-tls-verify": True, "certificate-authority-data": HELLO}
        ),
        65,
        "has both certificate-authority and insecure-skip-tls-verify",
    ),
    (with_cluster(**SERVER, **{"proxy-url": "socks5://s3cret@x:1"}), 64, "has a proxy-url that is"),
    (
        with_cluster(**SERVER, **{"proxy-url": "http://x", "tls-server-name": "y"}),
        64,
        "which can't be combined",
    ),
    (with_user(username="me", password="s3cret"), 64, "has username, which isn't supported"),
    (with_user(**{"auth-provider": {"name": "gcp"}}), 64, "has auth-provider, which isn't"),
    (with_user(wizard="s3cret"), 64, 'has the unknown field "wizard"'),
    (with_user(token=["s3cret"]), 65, "has a token that is not text"),
    (with_user(token="s3cret\nX: y"), 65, "has an invalid token"),
    (with_user(token="sécret"), 65, "has an invalid token"),
    (with_user(tokenFile="gone"), 64, "gone: No such file"),
    (with_user(tokenFile="/dev/null"), 65, "/dev/null holds no bearer token"),
    (with_user(**{"client-certificate-data": HELLO}), 65, "holds no certificate in PEM form"),
    (with_user(**{"client-certificate": "gone", "client-key": "k"}), 64, "gone: No such file"),
    (with_user(**{"client-key-data": HELLO}), 65, "has a client-key but no client-certificate"),
    (with_user(**{"as-groups": ["g"]}), 65, 'but not "as", the name'),
    (with_user(**{"as": "a\r\nX: y"}), 65, "an invalid value for Impersonate-User"),
    (
        with_user(**{"as": "a", "as-groups": "g"}),
        65,
        "has an invalid as-groups, which must be a list of strings",
    ),
    (with_user(**{"as": "a", "as-user-extra": {"a": ["b"]}}), 64, "has as-user-extra, which isn't"),
    (with_user(exec=[]), 65, "has an exec that names no command"),
    (with_user(exec={}), 64, "has apiVersion none"),
    (with_exec(apiVersion="client.authentication.k8s.io/v1alpha1"), 64, "v1alpha1"),
    (with_exec(command=""), 65, "names no command"),
    (with_exec(interactiveMode="Always"), 64, "leasectl can't ask anybody"),
    (with_exec(wizard=1), 64, 'has the unknown field "wizard"'),
    (with_exec(args="x"), 65, "has an invalid args, which must be a list of strings"),
    (with_exec(args=[["x"]]), 65, "has an invalid args, which must be a list of strings"),
    (with_exec(env=[{"name": "s3cret"}]), 65, "has an env[0] without a name and a value"),
    (with_exec(env=[{"name": "a=b", "value": "c"}]), 65, "has an env[0] with an invalid name"),
    (with_exec(provideClusterInfo="so"), 65, "neither true nor false"),
    (with_user(tokenFile="s3cret\0"), 65, "has a character in tokenFile that isn't allowed"),
    (with_user(tokenFile="s3cret\ud800"), 65, "has a character in tokenFile that isn't"),
    (with_cluster(**SERVER, **{"certificate-authority": "a\0"}), 65, "in certificate-authority"),
    (with_cluster(server="https://x:" + "9" * 5000), 65, "not an address like"),
    (with_cluster(server="https://x/\x1b[2J"), 65, "not an address like"),
    (with_cluster(**SERVER, **{"tls-server-name": ".x"}), 65, "an invalid tls-server-name"),
    (with_cluster(**SERVER, **{"tls-server-name": "x\x1b"}), 65, "an invalid tls-server-name"),
    (with_cluster(**SERVER, **{"proxy-url": "http://s3cret:x"}), 64, "has a proxy-url that is"),
    (with_cluster(**SERVER, **{"proxy-url": "http://[s3cret"}), 64, "has a proxy-url that is"),
    (with_cluster(**SERVER, **{"proxy-url": "http://s3cret@x\x01"}), 64, "has a proxy-url that is"),
    (with_exec(args=["s3cret\0"]), 65, "has a character in args that isn't allowed"),
    (with_exec(args=["s3cret\ud800"]), 65, "has a character in args that isn't allowed"),
    (with_exec(env=[{"name": "a", "value": "s3cret\0"}]), 65, "has a character in env that"),
    (with_exec(env=[{"name": "", "value": "s3cret"}]), 65, "has an env[0] with an invalid name"),
    (exec_bomb(), 64, 'the exec extension of cluster "c" in'),
]


@pytest.mark.parametrize(("content", "code", "line"), BAD, ids=[line for _, _, line in BAD])
def test_a_bad_one_gives_one_line_and_no_secret(
    content: str | bytes, code: int, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(LeaseError) as raised:
        choice = choose(KubernetesAddress(), {"LEASECTL_KUBECONFIG": str(path)})
        Api(choice, clock=Clock(), deadline_seconds=1).list(leases("ns"))
    said = str(raised.value)
    assert (raised.value.exit_code, line in said) == (code, True), said
    assert said.isprintable()
    assert "s3cret" not in said
    assert "sécret" not in said
    assert str(tmp_path) in said
    assert "LEASECTL_KUBECONFIG" in said or "in the address" in said or "must name" in said


Entries = dict[str, str]


def config(
    *, clusters: Entries, contexts: Entries | None = None, current: str | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": n, "cluster": {"server": s}} for n, s in clusters.items()],
        "users": [{"name": n, "user": {"token": n}} for n in clusters],
        "contexts": [
            {"name": n, "context": {"cluster": c, "user": c}} for n, c in (contexts or {}).items()
        ],
        "current-context": current,
    }


FILES = [
    config(clusters={"a": "https://first"}),
    config(clusters={"a": "https://second", "b": "https://b"}, contexts={"x": "a"}, current="x"),
    config(clusters={"c": "https://c"}, contexts={"x": "c", "y": "b"}, current="y"),
]


def merged(paths: list[str]) -> Kubeconfig:
    return read_kubeconfigs(paths, named_by="KUBECONFIG", all_there=False)


def what_kubectl_makes(paths: list[str]) -> dict[str, Any]:
    said = subprocess.run(
        ["kubectl", "config", "view", "--raw", "-o", "json"],
        env={**os.environ, "KUBECONFIG": ":".join(paths)},
        check=True,
        capture_output=True,
        text=True,
    )
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@pytest.mark.skipif(not shutil.which("kubectl"), reason="there is no kubectl")
@pytest.mark.parametrize("order", ["012", "021", "210", "102", "2", "0", "1x2", "x1"])
def test_several_are_merged_as_kubectl_does(order: str, tmp_path: Path) -> None:
    for number, content in enumerate(FILES):
        (tmp_path / str(number)).write_text(json.dumps(content))
    paths = [str(tmp_path / each) for each in order]  # "x" isn't there
    ours, kubectls = merged(paths), what_kubectl_makes(paths)
    assert (ours.current or "") == kubectls["current-context"]
    servers = {each["name"]: each["cluster"]["server"] for each in kubectls["clusters"] or ()}
    assert {name: entry.text("server") for name, entry in ours.clusters.items()} == servers
    clusters = {each["name"]: each["context"]["cluster"] for each in kubectls["contexts"] or ()}
    assert {name: entry.text("cluster") for name, entry in ours.contexts.items()} == clusters


Read = Callable[[str], str]


def test_yaml_with_comments_and_numbers_is_one(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(
        "# made by hand\napiVersion: v1\nkind: Config\npreferences: {}\n"
        "clusters:\n- name: c\n  cluster:\n    server: https://there:6443/k8s/clusters/c-1/\n"
        "    extensions:\n    - {name: e, extension: {a: 1}}\n"
        "users:\n- {name: u, user: {token: 12345}}\n"
        "contexts:\n- context: {cluster: c, user: u, namespace: ci}\n  name: x\n"
        'current-context: "x"\n'
    )
    found = merged([str(path)])
    context = found.context(None)
    assert context.text("namespace") == "ci"
    assert found.cluster(context).server == "https://there:6443/k8s/clusters/c-1"
    assert found.user(context).token == "12345"


def test_paths_in_one_are_seen_from_it(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(with_user(tokenFile="tokens/mine", **{"client-certificate": "/abs"}))
    found = merged([str(path)])
    user = found.user(found.context(None))
    assert user.token_file == str(tmp_path / "tokens/mine")
    assert user.certificate is not None
    assert user.certificate.path == "/abs"


def test_a_context_without_a_user_is_nobody(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(with_context(cluster="c"))
    found = merged([str(path)])
    assert found.user(found.context(None)).token is None
