"""Work that one of several processes or threads does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import leasectl
from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli
from tests.kit.waits import eventually, result_of
from tests.unit.client.conftest import Programs


def at_once(count: int, work: Callable[[int], object]) -> list[object]:
    """Call a function in so many threads; return what came of it, errors included."""

    def call(number: int) -> object:
        try:
            return work(number)
        except leasectl.LeaseError as error:
            return error
        except ValueError as error:
            return error

    with ThreadPoolExecutor(count) as threads:
        return [result_of(each) for each in [threads.submit(call, n) for n in range(count)]]


def waiting(client: leasectl.Client) -> int:
    """How many wait for a work."""
    return sum(len(each["queue"]) for each in client.status()["works"])


@pytest.mark.parametrize("place", ["local:", pytest.param("etcd", marks=pytest.mark.once)])
def test_one_does_the_work_and_all_get_its_result(
    client: leasectl.Client, place: str, prefix: str, request: pytest.FixtureRequest
) -> None:
    if place == "etcd":
        etcd: EtcdServer = request.getfixturevalue("etcd")
        client = leasectl.Client(f"{etcd.endpoints[0].replace('http', 'etcd')}{prefix}")
    done: list[int] = []

    def work(number: int) -> bytes:
        with client.once("key", inputs=["a", b"b"]) as work:
            if not work.is_done:
                done.append(number)
                assert work.lease is not None
                assert work.lease.is_held
                eventually(lambda: waiting(client) == 3)
                work.result = f"by {number}".encode()
        return work.result

    results = at_once(4, work)
    assert results == [f"by {done[0]}".encode()] * 4
    assert len(done) == 1
    client.close()


def test_the_command_line_shares_the_result(cli: Cli, client: leasectl.Client) -> None:
    with client.once("key", inputs=["a"]) as work:
        work.result = b"from python"
    assert cli.ok("once", "-q", "key", "--input", "a", "--", "false") == "from python"
    cli.ok("once", "other", "--", "echo", "from a command")
    with client.once("other") as work:
        assert (work.is_done, work.result, work.lease) == (True, b"from a command\n", None)
    assert cli.query("SELECT id FROM handle") == []


def test_its_lease_is_not_reacquired(client: leasectl.Client) -> None:
    with client.once("key") as work:
        assert work.lease is not None
        with pytest.raises(leasectl.InvalidRequest, match="work key can't be reacquired"):
            work.lease.reacquire()
        assert work.lease.is_held
        work.result = b"done"
    with client.once("key") as work:
        assert work.result == b"done"


def test_after_a_failure_the_next_does_it(client: leasectl.Client) -> None:
    failed = threading.Event()

    def work(number: int) -> bytes:
        with client.once("key") as work:
            if not work.is_done:
                if not failed.is_set():
                    eventually(lambda: waiting(client) == 2)
                    failed.set()
                    raise ValueError("no disk")
                work.result = b"done"
        return work.result

    results = at_once(3, work)
    assert sorted(map(repr, results)) == ["ValueError('no disk')", "b'done'", "b'done'"]


@pytest.mark.parametrize("keywords", [{"attempts": 1}, {"on_failure": "share"}])
def test_a_failure_may_be_shared(client: leasectl.Client, keywords: dict[str, object]) -> None:
    def work(number: int) -> None:
        with client.once("key", **keywords):  # type: ignore[arg-type]
            eventually(lambda: waiting(client) == 2)
            raise ValueError("no disk")

    results = at_once(3, work)
    shared = [each for each in results if isinstance(each, leasectl.WorkFailed)]
    assert len(shared) == 2
    assert "failed 1 time in other processes" in str(shared[0])
    assert "ValueError: no disk" in str(shared[0])
    assert shared[0].exit_code == 1


def test_a_killed_process_leaves_the_work_to_the_next(
    cli: Cli, client: leasectl.Client, programs: Programs
) -> None:
    started = programs.start(
        "with client.once('key') as work:\n    print('begun', flush=True)\n    time.sleep(1000)\n"
    )
    assert started.process.stdout is not None
    assert started.process.stdout.readline() == "begun\n"
    with pytest.raises(leasectl.NoLease, match="no result before the deadline"):
        client.once("key", wait=0).__enter__()
    started.kill()
    with client.once("key") as work:
        assert not work.is_done
        work.result = b"anew"
    assert cli.ok("once", "--show", "key") == "anew"


def test_a_lost_lease_records_nothing(cli: Cli, client: leasectl.Client) -> None:
    with pytest.raises(leasectl.LeaseLost), client.once("key") as work:
        assert work.lease is not None
        cli.ok("release", "--all", "--force")
        assert work.lease.lost.wait()
        work.result = b"late"
    with client.once("key", wait="1m") as work:
        assert not work.is_done


def test_a_result_that_is_too_large_is_refused(client: leasectl.Client) -> None:
    with pytest.raises(leasectl.LeaseError) as caught, client.once("key") as work:
        work.result = b"x" * (2 << 20)
    assert caught.value.exit_code == 65


@pytest.mark.parametrize("keywords", [{"attempts": 0}, {"keep": 0}, {"keep": "x"}, {"key": "\n"}])
def test_what_makes_no_sense_is_refused(
    client: leasectl.Client, keywords: dict[str, object]
) -> None:
    with pytest.raises(leasectl.InvalidRequest):
        client.once(**{"key": "key", **keywords})  # type: ignore[arg-type]
