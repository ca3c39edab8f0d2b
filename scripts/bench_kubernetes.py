"""Rows of scripts/bench about pools in Kubernetes: an API server of its own on loopback.

What tests have for Kubernetes is used here as well, so the clone has to be on the path.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Optional

# As scripts/bench has it; measured is None where there is no API server.
Row = tuple[str, Optional[float], str, Optional[float], bool]

if TYPE_CHECKING:  # httpx and the like are only there in the second start
    from tests.kit.kubernetes.namespaces import Namespace
    from tests.kit.kubernetes.servers import Kubernetes

_PAIR = "acquire + release, Kubernetes, TLS on loopback"
_KUBECTL = "kubectl get lease, twice"
_REQUESTS = "requests per waiter and minute on Kubernetes, ttl 60 s"
_PROCESSES = 8
# By how many resources there are: how often the floor a hand-off may take.
_LIMITS = {1: 1.7, 4: 4.0}
_WAITERS = 20


def measure(rounds: int) -> list[Row]:
    """All rows.

    Args:
        rounds: Of the pair. Hand-offs are measured for a quarter of so many seconds: 240 is what
            was promised of them.
    """
    from tests.kit.kubernetes.control_plane import find_programs
    from tests.kit.kubernetes.servers import own_servers

    if find_programs() is None:
        why = " (not measured: no API server, tests/kit/kubernetes/apiserver/build makes one)"
        return [(what + why, None, unit, None, True) for what, unit in _units().items()]
    with own_servers(1) as servers:
        return [
            *pair(servers, rounds),
            *(row for size in _LIMITS for row in turns(servers, size, seconds=rounds / 4)),
            requests(servers),
        ]


def pair(servers: Kubernetes, rounds: int) -> list[Row]:
    """acquire + release as whole processes, and kubectl, in turns, so that noise hits both."""
    leasectl = os.path.join(os.path.dirname(sys.executable), "leasectl")
    kubectl = shutil.which("kubectl")
    bare, ours, theirs = [], [], []
    with place(servers) as (namespace, folder):
        kubeconfig = namespace.account.kubeconfig(folder / "kubeconfig")
        pool(kubeconfig, resources=4)
        environment = {
            **os.environ,
            "LEASECTL_STATE_DIR": str(folder / "state"),
            "LEASECTL_BACKEND": "kubernetes://",
            "LEASECTL_KUBECONFIG": str(kubeconfig),
            "KUBECONFIG": str(kubeconfig),
        }

        def timed(*argv: str) -> tuple[float, str]:
            start = time.perf_counter()
            done = subprocess.run(
                argv, stdout=subprocess.PIPE, check=True, text=True, env=environment
            )
            return time.perf_counter() - start, done.stdout.strip()

        for _ in range(rounds + 1):
            bare.append(timed(sys.executable, "-c", "pass")[0])
            acquiring, handle = timed(leasectl, "acquire", "-t", "T")
            ours.append(acquiring + timed(leasectl, "release", "--handle", handle)[0])
            if kubectl:
                each = [timed(kubectl, "get", "lease", "--output=name")[0] for _ in range(2)]
                theirs.append(sum(each))
    # The first round compiles and warms up.
    unit = statistics.median(bare[1:])
    kubectls = statistics.median(theirs[1:]) / unit if theirs else None
    what = _KUBECTL if theirs else f"{_KUBECTL} (not measured: no kubectl here)"
    return [
        (_PAIR, statistics.median(ours[1:]) / unit, "x bare", 9, True),
        (what, kubectls, "x bare", None, True),
    ]


def turns(servers: Kubernetes, resources: int, *, seconds: float) -> list[Row]:
    """What long-lived processes take that pass few resources on to each other; it is judged."""
    from tests.kit.kubernetes.contest import contest

    with place(servers) as (namespace, folder):
        found = contest(
            namespace, folder, processes=_PROCESSES, resources=resources, seconds=seconds
        )
    assert found.wrong == [], found.wrong
    hand_off, grants, requests = _turns(resources)
    return [
        (hand_off, found.times_floor, "x floor", _LIMITS[resources], True),
        (grants, found.grants_per_second, "per s", None, False),
        (requests, sum(found.requests.values()) / found.grants, "requests", None, True),
    ]


def requests(servers: Kubernetes) -> Row:
    """What those cost who only wait; their renewals are one each in a third of the ttl."""
    from tests.kit.kubernetes.crowd import crowd

    with place(servers) as (namespace, folder):
        found = crowd(namespace, folder, waiters=_WAITERS, ttl_seconds=60.0, idle_seconds=60.0)
    assert found.wrong == [], found.wrong
    return (_REQUESTS, sum(found.idle_requests.values()), "requests", 3, True)


@contextmanager
def place(servers: Kubernetes) -> Iterator[tuple[Namespace, Path]]:
    """A namespace and a folder in which nothing is yet."""
    from tests.kit.kubernetes.namespaces import new_namespace

    with new_namespace(servers) as namespace, tempfile.TemporaryDirectory() as folder:
        yield namespace, Path(folder)


def pool(kubeconfig: Path, *, resources: int) -> None:
    """Make a pool ``T``."""
    from tests.kit.kubernetes.access import Access

    names = [f"r{number}" for number in range(resources)]
    Access(kubeconfig).pools.create_pool("T", names)


def _turns(resources: int) -> tuple[str, str, str]:
    where = f"{_PROCESSES} processes on {resources} in Kubernetes"
    return f"hand-off, {where}", f"grants, {where}", f"requests a grant, {where}"


def _units() -> dict[str, str]:
    units = {_PAIR: "x bare", _KUBECTL: "x bare"}
    for resources in _LIMITS:
        units.update(zip(_turns(resources), ("x floor", "per s", "requests")))
    return {**units, _REQUESTS: "requests"}
