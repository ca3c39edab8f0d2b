"""Scope ``test`` and releases by name: by whoever is of the same job and build, wherever."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.hosts import Hosts, catted
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
    """All that is in the cluster of the pools."""
    return hosts.access.pools.pools()


ACQUIRE = ("acquire", "-t", "T", "--scope", "test", "--ttl", "1m")


def test_a_ttl_has_to_be_given(hosts: Hosts, step: NewStep) -> None:
    refused = step()("acquire", "-t", "T", "--scope", "test")
    assert (refused.code, refused.out) == (USAGE, "")
    assert "--ttl" in refused.err
    assert hosts.is_free()


def test_the_whole_ttl_is_left_after_a_wait(hosts: Hosts, step: NewStep) -> None:
    holder, waiter = step(), step()
    holder.ok(*ACQUIRE, "-c", "2")
    waiting = hosts.start_waiting(waiter, *ACQUIRE)
    holder.ok("release", "--scope", "test")
    (lease,) = catted(waiter, waiting.finish().handle)["leases"]
    assert lease["renew_time"] >= lease["acquire_time"]
    held = [each.lease for each in hosts.access.pool().resources if each.lease]
    assert [each.renew_time >= each.acquire_time for each in held] == [True]


def test_a_later_step_releases_what_is_listed(hosts: Hosts, step: NewStep) -> None:
    first, later = step(), step()
    first.ok(*ACQUIRE)
    assert listed(first) == ["a"]
    assert later.ok("release", "--scope", "test") == "a\n"
    assert hosts.is_free()
    assert listed(first) == []
    assert later.ok("release", "--scope", "test") == ""


def test_a_later_step_releases_by_name(hosts: Hosts, step: NewStep) -> None:
    step().ok(*ACQUIRE, "-c", "2")
    later = step()
    assert later.ok("release", "--names", "a") == "a\n"
    assert listed(later) == ["b"]
    assert hosts.held() == ["b"]
    assert later.ok("release", "--names", "a,b") == "b\n"
    assert hosts.is_free()


def test_a_later_step_releases_by_a_copied_names_file(hosts: Hosts, step: NewStep) -> None:
    first, later = step(), step()
    copy = later.cwd / "copy"
    shutil.copyfile(first(*ACQUIRE, "-c", "2").handle, copy)
    assert later.ok("release", "--handle", str(copy)).split() == ["a", "b"]
    assert hosts.is_free()


def test_whoever_had_it_learns_that_it_is_gone(hosts: Hosts, step: NewStep) -> None:
    first, later = step(), step()
    held = first(*ACQUIRE).handle
    later.ok("release", "--scope", "test")
    other = step("other", "1")
    other.ok("acquire", "-t", "T", "--name", "a")
    assert first.ok("release", "--handle", held) == ""
    assert hosts.held() == ["a"]


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
    assert "not released, as another job holds it now" in released.err
    assert hosts.held() == ["a"]
    assert listed(later) == []


def test_an_unknown_name_is_said_to_be_none(hosts: Hosts, step: NewStep) -> None:
    refused = step()("release", "--names", "nosuch")
    assert refused.code == NOT_FOUND
    assert 'no resource "nosuch"' in refused.err
