"""A Boskos that tests share, each with a type of its own: a real one or the stand-in.

The real one is the one that `LEASECTL_TEST_BOSKOS` names. It has to have the types of
`CONFIG_TYPES`, with the resources that `config` writes down for it, and no reaper for them.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.boskos.process import Boskos
from tests.kit.boskos.ranch import OTHER_JOB
from tests.kit.boskos.raw_boskos import RawBoskos

# More than there are tests in half a minute, which is how long places in queues outlive a test.
CONFIG_TYPES = [f"leasectl-test-{number:02d}" for number in range(60)]
RESOURCES = 3

# Those with room for larger requests.
CONFIG_TYPES_OF_FOUR = [f"leasectl-pool-{number:02d}" for number in range(60)]
RESOURCES_OF_FOUR = 4

_STATES = ("leased", "busy", "dirty", "cleaning")
# What who asks is told, so that it asks again soon; one that forgets it later is no worse.
_QUEUE_TTL = "3s"


def config() -> str:
    """What a real one reads as its resources."""
    lines = ["resources:"]
    for pool_type in (*CONFIG_TYPES, *CONFIG_TYPES_OF_FOUR):
        lines += [f"- type: {pool_type}", "  state: free", "  names:"]
        lines += [f"  - {name}" for name in names(pool_type)]
    return "\n".join([*lines, ""])


def names(pool_type: str) -> list[str]:
    count = RESOURCES if pool_type in CONFIG_TYPES else RESOURCES_OF_FOUR
    return [f"{pool_type}--{number:02d}" for number in range(count)]


class AnyBoskos:
    """One type of a Boskos that others use at the same time, with nothing of it taken.

    Args:
        url: Of the server.
        pool_type: The type.

    Attributes:
        names: Of its resources.
    """

    def __init__(self, url: str, pool_type: str) -> None:
        self.url = url
        self.type = pool_type
        self.names = names(pool_type)
        self._clients = contextlib.ExitStack()
        self._free_all()

    def client(self, owner: str) -> RawBoskos:
        """A connection of one client."""
        made = RawBoskos(self.url, owner, pool_type=self.type)
        return self._clients.enter_context(made)

    def backend(self, expire: str = "30m", **words: str) -> str:
        """For `LEASECTL_BACKEND`; what its reaper is set to is only said."""
        more = "".join(f"&{word}={value}" for word, value in words.items())
        return f"boskos+{self.url}?expire={expire}&queue-ttl={_QUEUE_TTL}{more}"

    @property
    def owners(self) -> dict[str, str]:
        """The owner of each resource that has one."""
        with self._nobody() as client:
            owners = {name: client.owner_of(name) for name in self.names}
        return {name: owner for name, owner in owners.items() if owner}

    def occupy(self, count: int) -> None:
        """Let another have that many free ones, past the queue."""
        free = [name for name in self.names if name not in self.owners]
        with RawBoskos(self.url, OTHER_JOB, pool_type=self.type) as other:
            for name in free[:count]:
                assert other.acquire_names(name).status == 200

    def vacate(self) -> None:
        """Let it give back all that it has."""
        with RawBoskos(self.url, OTHER_JOB, pool_type=self.type) as other:
            for name, owner in self.owners.items():
                if owner == OTHER_JOB:
                    assert other.release(name).status == 200

    def reap(self, name: str) -> None:
        """Take one away, as the reaper does."""
        with RawBoskos(self.url, self.owners[name], pool_type=self.type) as its_owner:
            assert its_owner.release(name, "dirty").status == 200

    def reap_older(self, seconds: float) -> list[str]:
        """Take away all that wasn't renewed for so long, as the reaper does; returns the names."""
        with self._nobody() as client:
            taken: dict[str, str] = json.loads(client.reset("leased", f"{seconds}s", "dirty").text)
            return sorted(taken)

    def close(self) -> None:
        self._free_all()
        self._clients.close()

    def _nobody(self) -> RawBoskos:
        return RawBoskos(self.url, "leasectl-test", pool_type=self.type)

    def _free_all(self) -> None:
        with self._nobody() as client:
            for state in _STATES:
                client.reset(state, "0s", "free")
                for name in self.names:  # nobody's, and yet not free
                    if client.acquire_names(name, state=state).status == 200:
                        client.release(name)


class SharedBoskos:
    """The server, and its unused types.

    Args:
        url: Of the server.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._types = itertools.cycle(CONFIG_TYPES)
        self._types_of_four = itertools.cycle(CONFIG_TYPES_OF_FOUR)

    def one(self) -> AnyBoskos:
        """A type of one's own."""
        return AnyBoskos(self.url, next(self._types))

    def one_of_four(self) -> AnyBoskos:
        """One with four resources."""
        return AnyBoskos(self.url, next(self._types_of_four))


@pytest.fixture(scope="session")
def shared_boskos() -> Iterator[SharedBoskos]:
    """One for all tests that need no faults, no reaper and no restart of it."""
    real = os.environ.get("LEASECTL_TEST_BOSKOS")
    if real:
        yield SharedBoskos(real.rstrip("/"))
        return
    with tempfile.TemporaryDirectory() as folder:
        resources = [f"{each}={RESOURCES}" for each in CONFIG_TYPES]
        resources += [f"{each}={RESOURCES_OF_FOUR}" for each in CONFIG_TYPES_OF_FOUR]
        server = Boskos(
            Path(folder, "boskos"), resources, options=["--reaper-interval=0", "--request-ttl=3"]
        )
        try:
            yield SharedBoskos(server.url)
            assert server.history().problems() == []
        finally:
            server.close()


@pytest.fixture
def any_boskos(shared_boskos: SharedBoskos) -> Iterator[AnyBoskos]:
    """A type of one's own, of a real Boskos if `LEASECTL_TEST_BOSKOS` names one."""
    found = shared_boskos.one()
    yield found
    found.close()


if __name__ == "__main__":
    sys.stdout.write(config())
