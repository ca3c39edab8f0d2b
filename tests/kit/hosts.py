"""Several machines on one cluster: state directories whose leases come from the same pools."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from leasectl.engines.etcd.address import EtcdAddress
from leasectl.engines.etcd.events import EtcdEvents
from leasectl.engines.etcd.gateway import Gateway
from leasectl.engines.etcd.requests import read_all
from leasectl.state.event import Kept
from leasectl.system.clock import Clock
from tests.kit.etcd.access import Access
from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli, Started
from tests.kit.waits import PATIENCE_SECONDS, eventually

_prefixes = itertools.count()


class Hosts:
    """State directories on one prefix of a cluster, and a look at the pools from aside.

    Args:
        endpoint: A member's address.
        folder: Where the state directories are made.

    Attributes:
        url: What `LEASECTL_BACKEND` says on all of them.
        access: The pools, as a participant without a state directory has them.
    """

    def __init__(self, endpoint: str, folder: Path) -> None:
        self._endpoint = endpoint
        self._prefix = f"/hosts-{os.getpid()}-{next(_prefixes)}"
        self._folder = folder
        self._clis: list[Cli] = []
        self.url = self.url_at(endpoint)
        self.access = Access([endpoint], self._prefix, state_id="looks-on")

    def url_at(self, endpoint: str) -> str:
        """The same pools by way of another address."""
        return f"etcd://{urlsplit(endpoint).netloc}{self._prefix}"

    def pool(self, *names: str, pool_type: str = "T") -> None:
        """Make a pool."""
        self.access.pools.create_pool(pool_type, names)

    def keep_events(self, kept: Kept) -> None:
        """Say how long events are kept, to all who don't say so themselves; before the first."""
        events = EtcdEvents(self.access.gateway, kept=kept, clock=Clock())
        events.next_bucket(None)

    def new(self, *, through: str | None = None, **env: str) -> Cli:
        """One more state directory.

        Args:
            through: The address by which it reaches the cluster; its own, if not given.
            env: Further environment variables.
        """
        folder = self._folder / f"host-{len(self._clis)}"
        folder.mkdir()
        cli = Cli(folder / "state", folder)
        cli.env["LEASECTL_BACKEND"] = self.url if through is None else self.url_at(through)
        cli.env.update(env)
        self._clis.append(cli)
        return cli

    def held(self, pool_type: str = "T") -> list[str]:
        """The names that are held now."""
        return [each.name for each in self.access.pool(pool_type).resources if each.lease]

    def waiting(self, pool_type: str = "T") -> int:
        """How many wait."""
        return len(self.access.pool(pool_type).queue)

    def start_waiting(self, cli: Cli, *args: str, **env: str) -> Started:
        """Start a command that has to wait, and see it in the queue."""
        before = self.waiting()
        started = cli.start(*args, **env)
        eventually(lambda: self.waiting() > before, what=f"{args} is in the queue")
        return started

    def is_free(self, pool_type: str = "T") -> bool:
        """Whether there are no holders and no waiters."""
        pool = self.access.pool(pool_type)
        return not pool.held and not pool.queue

    def revoke_all(self) -> None:
        """End all claims of the pool T, as an administrator might."""
        revoke_claims(self._endpoint, self._prefix, "T")

    def close(self) -> None:
        for cli in self._clis:
            cli.close()


@pytest.fixture
def hosts(etcd: EtcdServer, tmp_path: Path) -> Iterator[Hosts]:
    """State directories on pools of the test's own; there is none yet."""
    found = Hosts(etcd.endpoints[0], tmp_path)
    yield found
    found.close()


def etcdctl(endpoint: str, *args: str) -> str:
    """Run etcd's own client; returns what it prints."""
    return subprocess.run(
        ["etcdctl", f"--endpoints={endpoint}", *args],
        env={**os.environ, "ETCDCTL_API": "3"},
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    ).stdout


def revoke_claims(endpoint: str, prefix: str, pool_type: str) -> None:
    """End the etcd leases of all that is held of a pool below a prefix."""
    gateway = Gateway(EtcdAddress((endpoint,), prefix), clock=Clock())
    alive = gateway.keys.alive(pool_type, "resource/")
    for kv in gateway.read(read_all(alive)).answers[0].items:
        gateway.revoke(kv.etcd_lease_id)
    gateway.close()


class Line(NamedTuple):
    """What a script said.

    Args:
        at: CLOCK_BOOTTIME in seconds, to the hundredth.
        words: The rest.
    """

    at: float
    words: tuple[str, ...]


class Script:
    """A command that writes down what it goes through, and when.

    Args:
        folder: Where it and what it wrote are.
        body: Bash; ``say WORD…`` appends a line to what it `said`, ``await WORD`` waits for
            `tell` to have told it so.
    """

    def __init__(self, folder: Path, body: str) -> None:
        self._folder = folder / f"script-{time.monotonic_ns()}"
        self._folder.mkdir()
        self.path = self._folder / "script"
        self._log = self._folder / "said"
        self.path.write_text(
            "#!/bin/bash\n"
            f'say() {{ local up; read -r up _ </proc/uptime; echo "$up $*" >>{self._log}; }}\n'
            f"await() {{ until [[ -e {self._folder}/$1 ]]; do sleep 0.01; done; }}\n"
            f"{body}\n"
        )
        self.path.chmod(0o755)

    def tell(self, word: str) -> None:
        """Let what awaits this word go on."""
        (self._folder / word).touch()

    @property
    def said(self) -> list[Line]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [Line(float(at), tuple(words)) for at, *words in map(str.split, lines)]

    def times(self, word: str) -> list[float]:
        """When it has said a word."""
        return [line.at for line in self.said if line.words[:1] == (word,)]

    def wait_for(self, word: str, *, times: int = 1) -> None:
        """Wait until it has said a word so often."""
        eventually(lambda: len(self.times(word)) >= times, f"{word}: {self.said}")


def catted(cli: Cli, handle: str) -> Any:
    """What ``cat`` tells of a handle."""
    return json.loads(cli.ok("cat", "--handle", handle, "--format", "json"))


def fence(cli: Cli, handle: str) -> int:
    """The fence of the one lease that a handle holds."""
    (lease,) = catted(cli, handle)["leases"]
    number: int = lease["fence"]
    return number
