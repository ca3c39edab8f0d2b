"""kubeconfig files: what clients get, and what somebody's own says."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.kit.certificates import Certificate
from tests.kit.kubernetes.api import Api, Credentials


def write_kubeconfig(
    path: Path, *, server: str, ca_file: str, user: Mapping[str, object], namespace: str
) -> Path:
    """Write a file with one context, and return its path.

    Args:
        path: Of the file. It is JSON, and so YAML.
        server: The address of the API server.
        ca_file: Of the CA that it is believed by.
        user: What a user in it may have: `token`, `tokenFile`, `exec`, `client-certificate` ...
        namespace: That the context is for.
    """
    cluster = {"server": server, "certificate-authority": ca_file}
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": dict(user)}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    path.chmod(0o600)
    return path


def api_of(kubeconfig: str, folder: Path) -> Api:
    """What the current context of somebody's kubeconfig gives access to.

    Args:
        kubeconfig: The path of the file. Its user has a client certificate or a token.
        folder: Where the certificates are put that stand in it.
    """
    view = ["kubectl", "config", "view", "--raw", "--minify", "--flatten", "--output", "json"]
    said = subprocess.run(
        [*view, f"--kubeconfig={kubeconfig}"], check=True, capture_output=True, text=True
    )
    config = json.loads(said.stdout)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]

    def file(name: str, data: str) -> str:
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(data))
        return str(path)

    certificate = None
    if "client-certificate-data" in user:
        certificate = Certificate(
            file("client.pem", user["client-certificate-data"]),
            file("client.key", user["client-key-data"]),
        )
    return Api(
        cluster["server"],
        file("ca.pem", cluster["certificate-authority-data"]),
        Credentials(certificate, user.get("token")),
    )
