"""A pool moves from Boskos to another server and back, by the lines of the page on Boskos.

Jobs lease all the while, wherever the pool is: each name is one job's at a time.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.kit.boskos.process import StartBoskos
from tests.kit.hosts import Hosts
from tests.kit.kubernetes.hosts import KubernetesHosts
from tests.kit.support import Cli, Finished, Started

pytestmark = pytest.mark.once

PAGE = Path(__file__).parents[3] / "docs" / "boskos.md"
LISTED = "resources: [{type: lab, state: free, names: [rack-7, rack-8]}]"
RACKS = ["rack-7", "rack-8"]
BUSY, NOT_FOUND, NOT_ALLOWED = 75, 66, 77


def lines_of_page() -> tuple[str, str]:
    """How it goes there, and how it comes back."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Moving a pool\n")[2]
    there, back = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return there, back


@pytest.fixture(params=["etcd", "kubernetes"])
def other(request: pytest.FixtureRequest) -> Cli:
    """Where the pool moves to."""
    if request.param == "etcd":
        hosts: Hosts = request.getfixturevalue("hosts")
        return hosts.new()
    on_kubernetes: KubernetesHosts = request.getfixturevalue("kubernetes_hosts")
    return on_kubernetes.new()


def take(cli: Cli, backend: str, *args: str) -> Finished:
    return cli("acquire", "-q", "lab", "-w", "0", "--backend", backend, *args)


def run_lines(cli: Cli, lines: str) -> Started:
    """Run lines of the page as a script."""
    path = f"{Path(sys.executable).parent}:{cli.env['PATH']}"
    return cli.spawn(["bash", "-euo", "pipefail", "-c", lines], PATH=path)


def test_a_pool_moves_from_boskos_to_another_server_and_back(
    boskos: StartBoskos, other: Cli
) -> None:
    server = boskos("lab=rack-7,rack-8", "stays=1")
    from_url, to_url = f"{server.backend}?expire=30m", other.env["LEASECTL_BACKEND"]
    assert to_url is not None
    (other.cwd / "boskos-resources.yaml").write_text(LISTED)
    there, back = (
        text.replace("boskos+http://boskos.ci?expire=30m", from_url).replace("local:", to_url)
        for text in lines_of_page()
    )
    held = take(other, from_url, "--name", "rack-7").handle

    server.configure("stays=1")
    moving = run_lines(other, there)
    assert moving.process.stdout is not None
    while "leased" not in moving.process.stdout.readline():
        assert moving.process.poll() is None
    assert take(other, from_url).code == BUSY
    assert take(other, to_url).code == NOT_FOUND
    other.ok("release", held)  # by its handle, which remembers where it came from
    moved = moving.finish()
    assert moved.code == 0, moved

    handles = [take(other, to_url, "--name", name).handle for name in RACKS]
    assert take(other, from_url).code == NOT_FOUND
    refused = run_lines(other, back).finish()
    assert refused.code == NOT_ALLOWED, refused
    other.ok("release", *handles)
    assert run_lines(other, back).finish().code == 0
    server.configure("lab=rack-7,rack-8", "stays=1")
    assert [take(other, from_url).code for _ in range(3)] == [0, 0, BUSY]
    assert sorted(server.owners) == RACKS
