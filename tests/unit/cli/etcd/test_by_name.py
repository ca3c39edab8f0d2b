"""Scope ``test`` and releases by name: by whoever is of the same job and build, wherever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.hosts import Hosts
from tests.kit.support import Cli

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77

NewStep = Callable[..., Cli]


@pytest.fixture
def step(hosts: Hosts, tmp_path: Path) -> NewStep:
    """Makes a step of a job: a container of its own, with what the job's steps share."""

    def new(job: str = "job", build: str = "1") -> Cli:
        shared = tmp_path / f"shared-{job}-{build}"
        shared.mkdir(exist_ok=True)
        return hosts.new(JOB_NAME=job, BUILD_ID=build, SHARED_DIR=str(shared))

    hosts.pool("a", "b")
    return new


def listed(cli: Cli) -> list[str]:
    return Path(cli.env["SHARED_DIR"], "leases").read_text().split()


def state_of(hosts: Hosts) -> object:
    """All that is in the cluster of the pools, but for how much of a ttl is left."""
    return [
        pool._replace(
            resources=tuple(each._replace(expires_in_seconds=None) for each in pool.resources)
        )
        for pool in hosts.access.pools.pools()
    ]


ACQUIRE = ("acquire", "-t", "T", "--scope", "test", "--ttl", "1m")


def test_a_later_step_releases_by_name(hosts: Hosts, step: NewStep) -> None:
    step().ok(*ACQUIRE, "-c", "2")
    later = step()
    assert later.ok("release", "--names", "a") == "a\n"
    assert listed(later) == ["b"]
    assert hosts.held() == ["b"]
    assert later.ok("release", "--names", "a,b") == "b\n"
    assert hosts.is_free()


def test_another_job_may_not_release_by_name(hosts: Hosts, step: NewStep) -> None:
    step().ok(*ACQUIRE)
    before = state_of(hosts)
    for stranger in (step("other", "1"), step("job", "2")):
        stranger.ok("release", "--all")  # makes its state directory
        records = stranger.snapshot()
        refused = stranger("release", "--names", "a")
        assert (refused.code, refused.out) == (NOT_ALLOWED, "")
        assert '"a" is held by job/1/' in refused.err
        assert refused.err.count("\n") == 1
        assert stranger.snapshot() == records
        assert state_of(hosts) == before


def test_of_several_names_none_is_released_if_one_is_anothers(hosts: Hosts, step: NewStep) -> None:
    first, stranger = step(), step("other", "1")
    first.ok(*ACQUIRE, "--name", "b")
    stranger.ok("acquire", "-t", "T", "--name", "a")
    for cli, names in ((stranger, "a,b"), (step(), "b,a")):
        assert cli("release", "--names", names).code == NOT_ALLOWED
    assert hosts.held() == ["a", "b"]


def test_what_is_listed_and_by_now_anothers_is_left_alone(hosts: Hosts, step: NewStep) -> None:
    first, other = step(), step("other", "1")
    first.ok("acquire", "-t", "T", "-c", "2", "--scope", "test", "--ttl", "2s")
    other.ok("acquire", "-t", "T", "--name", "a")
    later = step()
    released = later("release", "--scope", "test")
    assert (released.code, released.out) == (0, "")
    assert "not released, because another job" in released.err
    assert hosts.held() == ["a"]
    assert listed(later) == []
