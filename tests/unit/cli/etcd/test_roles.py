"""The two roles of the documentation: jobs use pools, and only admins change them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.etcd.server import EtcdServer, etcd_server
from tests.kit.support import Cli

DOCUMENT = Path(__file__).parents[4] / "docs" / "etcd-users.md"


def etcdctl(server: EtcdServer, *args: str) -> None:
    subprocess.run(
        ["etcdctl", "--endpoints", server.endpoints[0], *args],
        env={**os.environ, "ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
    )


def documented() -> str:
    """What the documentation has an administrator do."""
    blocks = re.findall(r"```bash\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (block,) = (each for each in blocks if "role add leasectl-jobs" in each)
    return str(block)


@pytest.fixture(scope="module")
def server() -> Iterator[EtcdServer]:
    with etcd_server() as started:
        subprocess.run(
            ["bash", "-euc", documented()],
            env={**os.environ, "ETCDCTL_API": "3", "ETCDCTL_ENDPOINTS": started.endpoints[0]},
            check=True,
            capture_output=True,
        )
        for user in ("jobs", "admins"):
            etcdctl(started, "user", "add", f"{user}:password")
            etcdctl(started, "user", "grant-role", user, f"leasectl-{user}")
        etcdctl(started, "user", "add", "root:password")
        etcdctl(started, "role", "add", "root")
        etcdctl(started, "user", "grant-role", "root", "root")
        etcdctl(started, "auth", "enable")
        yield started


def test_jobs_use_pools_and_only_admins_change_them(
    cli: Cli, server: EtcdServer, tmp_path: Path
) -> None:
    users = {}
    for name in ("jobs", "admins"):
        file = tmp_path / name
        file.write_text(f"{name}:password")
        users[name] = {"LEASECTL_USER_FILE": str(file)}
    jobs, admins = users["jobs"], users["admins"]
    cli.env["LEASECTL_BACKEND"] = f"{server.endpoints[0].replace('http', 'etcd')}/ci"
    cli.ok("pool", "create", "T", "--count", "2", **admins)
    cli.ok("pool", "set", "T", "--pace", "1s", **admins)
    handle = cli.ok("acquire", "-q", "T", "--ttl", "1h", **jobs).rstrip()
    for options in ((), ("--priority", "3"), ("-c", "1")):
        cli.ok("run", "-q", "T", *options, "--", "true", **jobs)
    cli.ok("status", **jobs)
    cli.ok("events", **jobs)
    cli.ok("renew", handle, **jobs)
    for words in (
        ("pool", "delete", "T", "--force"),
        ("pool", "set", "T", "--pace", "1h"),
        ("pool", "create", "U", "--count", "1"),
        ("pool", "add", "T", "--count", "1"),
        ("release", "--names", "T--00", "--force"),
    ):
        refused = cli(*words, **jobs)
        assert refused.code == 77, (words, refused)
        assert len(refused.err.splitlines()) == 1
    cli.ok("release", handle, **jobs)
    cli.ok("pool", "delete", "T", **admins)
