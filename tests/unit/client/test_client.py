"""The library on the embedded pool."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

import leasectl
from tests.kit.descriptors import leaving_open, open_descriptors
from tests.kit.support import Cli, kill
from tests.kit.waits import eventually, wait_set
from tests.unit.client.conftest import Programs


def elapsed() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lease_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("leasectl-lease")]


class TestHolding:
    def test_a_block_holds_what_was_asked_for(self, cli: Cli, client: leasectl.Client) -> None:
        with client.acquire("T", count=2, labels={"url": "https://ci/1"}) as lease:
            assert lease.names == ("T--00", "T--01")
            assert lease.fences == (1, 2)
            assert (lease.type, lease.backend, lease.deadline) == ("T", "local:", None)
            assert (lease.is_held, lease.is_lost) == (True, False)
            assert set(cli.held()) == {"T--00", "T--01"}
            assert cli.ok("cat", lease.handle) == "T--00\nT--01\n"
            with pytest.raises(leasectl.InvalidRequest, match="2 resources"):
                assert lease.name
        assert not lease.is_held
        assert cli.held() == {}

    def test_the_module_has_a_shortcut(self, cli: Cli, client: leasectl.Client) -> None:
        with leasectl.lease("T", name="T--01", wait=0, ttl=timedelta(minutes=1)) as lease:
            assert (lease.name, lease.fence) == ("T--01", 1)
            assert lease.deadline is not None
            assert lease.deadline - elapsed() <= 60
        assert cli.held() == {}

    def test_properties_choose_and_are_shown(self, cli: Cli, client: leasectl.Client) -> None:
        cli.ok("pool", "set", "T", "--names", "T--01", "--property", "region=eastus")
        with client.acquire("T", where={"region": "eastus"}) as lease:
            assert lease.properties == {"T--01": {"region": "eastus"}}
        with client.acquire("T", where=["region!=eastus"]) as lease:
            assert lease.name == "T--00"

    def test_a_lease_with_a_ttl_is_renewed_until_it_is_released(
        self, client: leasectl.Client
    ) -> None:
        lease = client.acquire("T", ttl="3s")
        first = lease.deadline
        assert first is not None
        eventually(lambda: (lease.deadline or 0) > first + 3)
        assert lease.is_held
        assert lease.release() == ("T--00",)
        assert lease.release() == ()

    def test_a_renewal_moves_the_deadline(self, client: leasectl.Client) -> None:
        with client.acquire("T", ttl="10m") as lease:
            first = lease.deadline
            lease.renew()
            assert first is not None
            assert (lease.deadline or 0) > first
        with pytest.raises(leasectl.NotAllowed, match="was released"):
            lease.renew()

    @pytest.mark.parametrize("is_released", [False, True])
    def test_reacquire_takes_the_same_again(
        self, cli: Cli, client: leasectl.Client, is_released: bool
    ) -> None:
        with client.acquire("T", count=2) as lease:
            before = lease.fences
            if is_released:
                lease.release()
            lease.reacquire(wait="10m")
            assert min(lease.fences) > max(before)
            assert lease.is_held
        assert cli.held() == {}

    def test_a_refused_reacquire_releases(self, cli: Cli, client: leasectl.Client) -> None:
        cancel = threading.Event()
        cancel.set()
        lease = client.acquire("T", ttl="1m")
        with pytest.raises(leasectl.Cancelled):
            lease.reacquire(cancel=cancel)
        assert not lease.is_held
        assert cli.held() == {}
        lease.reacquire()
        assert cli.held()
        lease.release()

    def test_a_reacquire_with_a_wrong_argument_changes_nothing(
        self, client: leasectl.Client
    ) -> None:
        with client.acquire("T", ttl="1m") as lease:
            with pytest.raises(leasectl.InvalidRequest):
                lease.reacquire(wait="soon")
            assert lease.is_held
            assert lease.deadline is not None

    def test_a_lease_that_nobody_renews_is_not_held(
        self, cli: Cli, client: leasectl.Client
    ) -> None:
        import fcntl

        with client.acquire("T", ttl="1m") as lease:
            with open(cli.state_dir / "state.lock", "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # so it can't be released either
                with pytest.raises(leasectl.NoLease, match="was held all the time"):
                    lease.reacquire(wait=0)
            assert cli.held()
            assert not lease.is_held
        assert cli.held() == {}

    def test_a_failed_reacquire_of_another_process_keeps_its_lease(
        self, cli: Cli, client: leasectl.Client
    ) -> None:
        cancel = threading.Event()
        cancel.set()
        with client.acquire("T") as lease:
            cli.ok("reacquire", lease.handle)
            with pytest.raises(leasectl.Cancelled):
                lease.reacquire(cancel=cancel)
            assert not lease.is_held
        assert cli.held()

    def test_a_delayed_release_is_the_keepers(self, cli: Cli, client: leasectl.Client) -> None:
        lease = client.acquire("T")
        assert lease.release(delay="1s") == ()
        assert cli.held()
        eventually(lambda: not cli.held())
        assert (lease.is_held, lease.is_lost) == (False, False)
        eventually(lambda: not lease_threads())


class TestWaiting:
    @pytest.fixture(autouse=True)
    def all_held(self, cli: Cli, programs: Programs) -> None:
        for _ in range(2):
            cli.hold("T")

    def test_a_wait_ends_in_time(self, client: leasectl.Client) -> None:
        with pytest.raises(leasectl.NoLease) as caught:
            client.acquire("T", wait=0)
        assert caught.value.exit_code == 75
        with pytest.raises(leasectl.NoLease):
            client.acquire("T", wait=timedelta(seconds=0.1))

    def test_another_thread_cancels_a_wait(self, cli: Cli, client: leasectl.Client) -> None:
        cancel = threading.Event()
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(client.acquire, "T", cancel=cancel)
            eventually(cli.waiting)
            cancel.set()
            with pytest.raises(leasectl.Cancelled, match="was cancelled"):
                waiting.result()
        assert cli.waiting() == []
        assert cli.query("SELECT id FROM handle WHERE state = 'acquiring'") == []

    def test_progress_is_reported(self, cli: Cli, client: leasectl.Client) -> None:
        told: list[leasectl.Progress] = []
        with pytest.raises(leasectl.NoLease):
            client.acquire("T", wait="0.2s", progress=told.append)
        assert [(each.position, each.held, each.capacity) for each in told] == [(1, 2, 2)]

    def test_an_interrupt_ends_a_wait_and_leaves_nothing(
        self, cli: Cli, programs: Programs
    ) -> None:
        started = programs.start(
            "before = open('/proc/self/status').read().split('SigCgt:')[1].split()[0]\n"
            "try:\n    client.acquire('T', wait='1h')\n"
            "except KeyboardInterrupt:\n"
            "    after = open('/proc/self/status').read().split('SigCgt:')[1].split()[0]\n"
            "    assert before == after\n"
            "    print(threading.active_count(), flush=True)\n"
            "    sys.stdin.read()\n"
            "    time.sleep(1000)\n"
        )
        eventually(cli.waiting)
        started.signal(signal.SIGINT)
        assert started.process.stdout is not None
        assert started.process.stdout.readline() == "1\n"
        assert cli.waiting() == []
        assert len(cli.query("SELECT id FROM handle")) == 2

    def test_a_stopped_process_with_the_lock_delays_only_as_long_as_the_wait(
        self, cli: Cli, client: leasectl.Client
    ) -> None:
        import fcntl

        with open(cli.state_dir / "state.lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(leasectl.NoLease, match="was held all the time"):
                client.acquire("T", wait=0)


class TestLoss:
    def test_force_is_told_at_once_with_its_reason(self, cli: Cli, client: leasectl.Client) -> None:
        called = threading.Event()
        lost = pytest.raises(leasectl.LeaseLost, match="stuck")
        with lost as caught, client.acquire("T") as lease:
            lease.lost.call(called.set)
            assert not lease.lost.wait(0)
            assert client.release(names=["T--00"], force=True, reason="stuck") == ("T--00",)
            assert lease.lost.wait()
            assert lease.is_lost
            assert not lease.is_held
            wait_set(called)
            # It isn't granted to another as long as this process may use it.
            assert cli("acquire", "T", "--name", "T--00", "-w", "0").code == 75
        assert caught.value.exit_code == 79
        assert cli("acquire", "T", "--name", "T--00", "-w", "0").code == 0

    def test_another_exception_is_not_replaced(self, client: leasectl.Client) -> None:
        with pytest.raises(ZeroDivisionError), client.acquire("T") as lease:
            client.release(names=lease.names, force=True)
            assert lease.lost.wait()
            raise ZeroDivisionError

    def test_a_callback_may_release_and_one_that_fails_is_logged(
        self, cli: Cli, client: leasectl.Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        released = threading.Event()
        lease = client.acquire("T")

        def release() -> None:
            lease.release()
            released.set()

        lease.lost.call(lambda: 1 / 0)
        lease.lost.call(release)
        client.release(names=lease.names, force=True)
        wait_set(released)
        assert cli("acquire", "T", "-c", "2", "-w", "0").code == 0
        assert "a callback for a lost lease failed" in caplog.text

    def test_a_process_that_was_stopped_too_long_finds_its_lease_lost(
        self, cli: Cli, programs: Programs
    ) -> None:
        started = programs.start(
            "try:\n"
            "    with client.acquire('T', ttl='3s') as lease:\n"
            "        print('held', flush=True)\n"
            "        lease.lost.wait()\n"
            "        assert lease.is_lost\n"
            "except leasectl.LeaseLost:\n    print('lost')\n"
        )
        assert started.process.stdout is not None
        assert started.process.stdout.readline() == "held\n"
        from tests.kit.support import stop

        stop(started.pid, cli.state_dir)
        eventually(lambda: cli("acquire", "T", "-c", "2", "-w", "0").code == 0)
        started.signal(signal.SIGCONT)
        assert started.finish().out == "lost\n"

    def test_a_lost_lease_can_be_reacquired(self, client: leasectl.Client) -> None:
        with client.acquire("T") as lease:
            client.release(names=lease.names, force=True)
            assert lease.lost.wait()
            lease.reacquire()
            assert not lease.is_lost
            assert lease.is_held


class TestGuard:
    HOLD = "lease = client.acquire('T', guard={})\nprint('held', flush=True)\n"

    @pytest.mark.parametrize("end", ["sys.exit()", "os._exit(1)", "time.sleep(1000)"])
    def test_a_lease_goes_back_with_its_process(
        self, cli: Cli, programs: Programs, end: str
    ) -> None:
        started = programs.start(self.HOLD.format("'self'") + end)
        assert started.process.stdout is not None
        assert started.process.stdout.readline() == "held\n"
        if "sleep" in end:
            started.signal(signal.SIGKILL)
        started.finish()
        eventually(lambda: not cli.held())

    def test_without_a_guard_it_stays(self, cli: Cli, programs: Programs) -> None:
        programs.run(self.HOLD.format("None"))
        keeper = cli.keepers()
        cli.ok("status")
        assert set(cli.held()) == {"T--00"}
        for each in keeper:
            kill(each)
        cli.ok("status")
        assert set(cli.held()) == {"T--00"}

    def test_it_ends_with_another_guard(self, cli: Cli, client: leasectl.Client) -> None:
        guard = cli.spawn(["sleep", "1000"])
        lease = client.acquire("T", guard=guard.pid)
        assert f"pid {guard.pid}" in cli.ok("status", "--wide")
        guard.kill()
        assert lease.lost.wait()
        assert lease.lost.reason == f"guard {guard.pid} has ended"
        eventually(lambda: not cli.held())
        with pytest.raises(leasectl.InvalidRequest, match="no such process"):
            client.acquire("T", guard=guard.pid)

    def test_in_a_forked_child_it_is_the_parents(self, cli: Cli, client: leasectl.Client) -> None:
        lease = client.acquire("T")
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                for use in (lease.release, lease.renew, lambda: lease.is_lost, lease.reacquire):
                    with pytest.raises(leasectl.NotAllowed, match="from which this process was"):
                        use()
                with client.acquire("T") as own:
                    assert own.name == "T--01"
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert lease.is_held
        assert cli.held().keys() == {"T--00"}
        lease.release()


class TestMany:
    def test_threads_share_a_client(self, cli: Cli, client: leasectl.Client) -> None:
        holders: dict[str, str] = {}
        lock = threading.Lock()

        def work(number: int) -> int:
            done = 0
            for _ in range(3):
                with client.acquire("T", wait="5m", ttl=None if number % 2 else "1m") as lease:
                    with lock:
                        assert lease.name not in holders
                        holders[lease.name] = threading.current_thread().name
                    done += lease.is_held
                    with lock:
                        del holders[lease.name]
            return done

        with ThreadPoolExecutor(32) as threads:
            assert sum(threads.map(work, range(32))) == 96
        assert cli.held() == {}
        assert cli.query("SELECT id FROM handle") == []
        assert lease_threads() == []

    def test_a_hundred_leases_leave_nothing(self, cli: Cli, client: leasectl.Client) -> None:
        def hold(times: int) -> None:
            for number in range(times):
                with client.acquire("T", ttl="1m" if number % 2 else None):
                    pass

        hold(2)
        with leaving_open(0):
            hold(100)
        assert lease_threads() == []
        assert cli.query("SELECT id FROM handle") == []
        assert os.listdir(cli.state_dir / "handles") == []
        before = open_descriptors()
        client.close()
        assert open_descriptors() < before


INTERRUPTED = """
import random, signal, sqlite3

def interrupt(_, frame):
    if not may_interrupt: return
    # Between the call and the block, and before the block's end has begun, nothing can undo it.
    if frame.f_code.co_name not in ("<module>", "acquire", "__enter__", "__exit__"):
        raise KeyboardInterrupt
    signal.setitimer(signal.ITIMER_REAL, 0.0001)

signal.signal(signal.SIGALRM, interrupt)
random.seed(3)
interrupts = 0
with client.acquire("T"): pass
for number in range(100):
    try:
        may_interrupt = True
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0005, 0.03))
        with client.acquire("T", wait="1m", ttl="1m" if number % 2 else None): pass
        may_interrupt = False
    except KeyboardInterrupt:
        interrupts += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    (pool,) = client.status("T")["pools"]
    assert (pool["held"], pool["queue"]) == (0, []), number
assert interrupts
with client.acquire("T", count=2, wait=0): pass
"""


def test_interrupts_at_any_moment_leave_nothing_leased(programs: Programs) -> None:
    finished = programs.start(INTERRUPTED).finish()
    assert finished.code == 0, finished


class TestErrors:
    @pytest.mark.parametrize(
        ("keywords", "error", "text"),
        [
            ({"type": "nope"}, leasectl.NotFound, 'no pool "nope"'),
            ({"type": "T", "wait": "soon"}, leasectl.InvalidRequest, "wait: invalid duration"),
            ({"type": "T", "wait": -1}, leasectl.InvalidRequest, "wait: invalid duration -1"),
            ({"type": "T", "count": 0}, leasectl.InvalidRequest, "count"),
            ({"type": "T", "count": 1.5}, leasectl.InvalidRequest, "count 1.5: use a whole"),
            ({"type": "T", "priority": 101}, leasectl.InvalidRequest, "priority 101: use a whole"),
            ({"type": "T", "priority": 0.5}, leasectl.InvalidRequest, "priority 0.5: use a whole"),
            ({"type": "T", "count": 3, "wait": 0}, leasectl.InvalidRequest, "3"),
            ({"type": "T/"}, leasectl.InvalidRequest, "T/"),
            ({"type": ()}, leasectl.InvalidRequest, "type is empty"),
            ({"type": "T", "labels": {"a b": "c"}}, leasectl.InvalidRequest, "a b"),
            ({"type": "T", "release_after": "x"}, leasectl.InvalidRequest, "release_after: "),
        ],
    )
    def test_a_refused_request_says_why(
        self,
        cli: Cli,
        client: leasectl.Client,
        keywords: dict[str, object],
        error: type[leasectl.LeaseError],
        text: str,
    ) -> None:
        with pytest.raises(error, match=text):
            client.acquire(**keywords)  # type: ignore[arg-type]
        assert cli.query("SELECT id FROM handle") == []

    def test_a_backend_that_there_is_not_is_refused_at_once(self, environment: None) -> None:
        with pytest.raises(leasectl.InvalidRequest, match="ftp"):
            leasectl.Client("ftp://host")

    def test_a_server_that_is_away_is_told(self, client: leasectl.Client) -> None:
        with pytest.raises(leasectl.BackendUnreachable) as caught:
            leasectl.lease("T", backend="etcd://127.0.0.1:1", wait=0, connect_timeout=0)
        assert caught.value.exit_code == 69

    def test_a_state_directory_that_can_not_be_made_is_told(
        self, environment: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LEASECTL_STATE_DIR", "/proc/nope")
        with pytest.raises(leasectl.StateUnwritable, match="/proc/nope"):
            leasectl.lease("T")

    def test_a_state_directory_that_was_removed_is_made_again(
        self, cli: Cli, client: leasectl.Client
    ) -> None:
        import shutil

        with client.acquire("T"):
            pass
        for each in cli.keepers():
            kill(each)
        shutil.rmtree(cli.state_dir)
        with pytest.raises(leasectl.NotFound):
            client.acquire("T")

    def test_release_needs_something_to_release(self, client: leasectl.Client) -> None:
        for keywords in ({}, {"names": "T--00"}, {"names": ["T--00"], "reason": "x"}):
            with pytest.raises(leasectl.InvalidRequest):
                client.release(**keywords)


class TestOthers:
    def test_leases_of_the_command_line_are_released(
        self, cli: Cli, client: leasectl.Client
    ) -> None:
        handle = cli.ok("acquire", "T").strip()
        assert client.release(handle=handle) == ("T--00",)
        assert client.release(handle=handle) == ()
        cli.ok("acquire", "T")
        assert client.release(names=["--01"]) == ("T--01",)

    def test_status_is_that_of_the_command_line(self, cli: Cli, client: leasectl.Client) -> None:
        import json

        with client.acquire("T", labels={"a": "b"}):
            shown, of_cli = client.status("T"), json.loads(cli.ok("status", "T", "--json"))
        assert shown.keys() == of_cli.keys()
        (pool,) = of_cli["pools"]
        assert pool["resources"][0]["labels"] == {"a": "b"}
        assert [each["free"] for each in shown["pools"]] == [1]

    def test_priority_is_that_of_the_variable_unless_it_is_given(
        self, cli: Cli, client: leasectl.Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LEASECTL_PRIORITY", "5")
        with client.acquire("T") as lease, leasectl.Client() as later:
            assert json.loads(cli.ok("cat", lease.handle, "--json"))["priority"] == 0
            for given, priority in ((None, 5), (0, 0)):
                with later.acquire("T", priority=given) as other:
                    said = json.loads(cli.ok("cat", other.handle, "--json"))
                    assert said["priority"] == priority
        monkeypatch.setenv("LEASECTL_PRIORITY", "101")
        with pytest.raises(leasectl.InvalidRequest, match="LEASECTL_PRIORITY 101: use a whole"):
            leasectl.Client()


class TestPackage:
    def test_importing_it_loads_nothing(self) -> None:
        import subprocess

        script = "import sys; n = set(sys.modules); import leasectl; print(set(sys.modules) - n)"
        out = subprocess.check_output(
            [sys.executable, "-S", "-c", f"import sys; sys.path += {sys.path!r}\n{script}"],
            text=True,
        )
        assert out == "{'leasectl'}\n"

    def test_its_names_are_listed(self) -> None:
        assert set(leasectl.__all__) <= set(dir(leasectl))
        for name in leasectl.__all__:
            assert getattr(leasectl, name).__doc__
        with pytest.raises(AttributeError):
            leasectl.nothing  # type: ignore[attr-defined]  # noqa: B018
