"""leasectl.leases.targets: from a path, names or a scope to what a release is about."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller, Patience
from leasectl.backends.kinds import Context
from leasectl.errors import CorruptState, NotAllowed, NotFound
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.paths import read_names
from leasectl.leases.release import release
from leasectl.leases.request import new_handle
from leasectl.leases.service import Service
from leasectl.leases.targets import targets_at, targets_of_everything, targets_of_names
from leasectl.model import Handle, Process, ReleaseTarget, Request, whole
from leasectl.state.directory import State
from leasectl.system.process import identify, this_process
from leasectl.text.naming import reserved_type
from tests.kit.descriptors import leaving_open
from tests.kit.support import Cli
from tests.kit.waits import PATIENCE_SECONDS

CALLER = Caller("job/1", "host")


@pytest.fixture
def held(cli: Cli) -> Handle:
    """A handle that holds T--00 and T--01, of this very job and build."""
    cli.pool("T", "T--00", "T--01", "T--02")
    return cli.hold(Request("T", count=2), owner=CALLER.owner)


@pytest.fixture
def state(held: Handle, cli: Cli) -> Iterator[State]:
    state = State.open(str(cli.state_dir))
    yield state
    state.close()


@pytest.fixture
def service(state: State) -> Service:
    return Service(state, Context("local:", caller=CALLER))


class TestPaths:
    def test_a_path_in_the_state_directory_is_a_handle(
        self, service: Service, held: Handle, state: State
    ) -> None:
        assert targets_at(service, state.names_path(held.id)) == [ReleaseTarget(held.id, 1)]
        assert targets_at(service, held.id) == [whole(held)]

    @pytest.mark.parametrize("detour", ["handles/../handles", "./handles", "handles/."])
    def test_the_path_may_take_a_detour(
        self, service: Service, held: Handle, state: State, detour: str
    ) -> None:
        assert targets_at(service, f"{state.directory}/{detour}/{held.id}") == [whole(held)]

    def test_the_path_may_be_relative_or_through_a_link(
        self,
        service: Service,
        held: Handle,
        state: State,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(state.path("handles"))
        assert targets_at(service, f"./{held.id}") == [whole(held)]
        (tmp_path / "link").symlink_to(state.path("handles"))
        assert targets_at(service, f"{tmp_path}/link/{held.id}") == [whole(held)]

    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("T--00", "write-ahead log.* leasectl release --names T--00"),
            ("gone--00", "the database and its pools were lost.* leasectl pool apply"),
        ],
    )
    def test_a_handle_without_a_record_is_damage_and_its_file_is_not_believed(
        self, service: Service, state: State, name: str, advice: str
    ) -> None:
        Path(state.names_path("T-forged")).write_text(name)
        with pytest.raises(CorruptState, match=advice):
            targets_at(service, state.names_path("T-forged"))

    @pytest.mark.parametrize("is_bare", [True, False])
    def test_so_it_is_by_its_id_alone_and_where_a_file_has_its_name(
        self,
        service: Service,
        state: State,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        is_bare: bool,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        Path(state.names_path("T-forged")).write_text("T--00")
        if not is_bare:
            Path("T-forged").write_text("T--01")
        with pytest.raises(CorruptState, match=r"T-forged lists T--00, but .* has no record"):
            targets_at(service, "T-forged" if is_bare else state.names_path("T-forged"))

    @pytest.mark.parametrize(
        ("name", "text"), [("T-odd", ""), ("T-odd", "no name!"), ("an odd one", "T--00")]
    )
    def test_a_file_there_is_no_handle_unless_it_lists_names_and_has_one(
        self, service: Service, state: State, name: str, text: str
    ) -> None:
        Path(state.names_path(name)).write_text(text)
        with pytest.raises(NotFound, match=name):
            targets_at(service, state.names_path(name))

    def test_a_copy_means_its_names(
        self, service: Service, held: Handle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "copy").write_text("T--01\nT--02\n")
        wanted = [ReleaseTarget(held.id, 1, ("T--01",))]
        assert targets_at(service, str(tmp_path / "copy")) == wanted
        monkeypatch.chdir(tmp_path)
        assert targets_at(service, "copy") == targets_at(service, "./copy") == wanted

    def test_a_bare_id_is_the_handle_also_where_a_file_has_that_name(
        self, service: Service, held: Handle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / held.id).write_text("T--00")
        monkeypatch.chdir(tmp_path)
        assert targets_at(service, held.id) == [whole(held)]


class TestNames:
    def test_names_mean_the_handles_that_hold_them(self, service: Service, held: Handle) -> None:
        assert targets_of_names(service, ["T--01"]) == [ReleaseTarget(held.id, 1, ("T--01",))]
        assert targets_of_names(service, ["T--01", "T--00", "T--01"]) == [whole(held)]

    def test_an_unknown_one_is_refused(self, service: Service) -> None:
        with pytest.raises(NotFound, match='no resource "U--00"'):
            targets_of_names(service, ["T--00", "U--00"])

    def test_anothers_is_refused(self, state: State, held: Handle) -> None:
        other = Service(state, Context("local:", caller=Caller("job/2", "host")))
        with pytest.raises(NotAllowed, match=f"{held.holder_identity}.*not by your job and build"):
            targets_of_names(other, ["T--02", "T--00"])


def test_everything_leaves_grants_to_clients_of_serve_to_force(
    service: Service, held: Handle, state: State
) -> None:
    with state.transaction() as db:
        db.execute("UPDATE handle SET served = 1")
    own, others = targets_of_everything(service)
    assert (own, [each.id for each in others]) == ([], [held.id])


def test_everything_leaves_other_jobs_handles_to_force(state: State, held: Handle) -> None:
    other = Service(state, Context("local:", caller=Caller("job/2", "host")))
    own, others = targets_of_everything(other)
    assert (own, [each.id for each in others]) == ([], [held.id])


def test_everything_is_what_is_not_released(service: Service, held: Handle, cli: Cli) -> None:
    with cli.service() as its_service:
        release(its_service, whole(cli.hold("T")))
    other = cli.hold("T")
    own, others = targets_of_everything(service)
    assert sorted([*own, *map(whole, others)]) == sorted([whole(held), whole(other)])


def test_of_everything_those_come_first_that_would_get_what_the_others_give_back(
    state: State, service: Service, held: Handle
) -> None:
    waiting = [new_handle(service, Request("T"), handle_id) for handle_id in ("A-1", "Z-1")]
    with state.transaction():
        for each in waiting:
            service.handles.create(each, remote=False)
    assert targets_of_everything(service)[0] == [*map(whole, waiting), whole(held)]


def test_those_who_mean_a_name_at_once_mean_one_handle(held: Handle, cli: Cli) -> None:
    """Each would release it else, and the second after somebody else has got it."""
    together = threading.Barrier(6)

    def mean(name: str) -> str:
        with contextlib.closing(State.open(str(cli.state_dir))) as state:
            service = Service(state, Context("http://127.0.0.1:9", caller=CALLER))
            together.wait(PATIENCE_SECONDS)
            (target,) = targets_of_names(service, [name])
            return target.handle_id

    with ThreadPoolExecutor(6) as threads:
        for name in ("a", "b", "c", "d"):
            assert len(set(threads.map(mean, [name] * 6))) == 1


class TestWork:
    """What holds for the lease under which a work's command runs: it ends with the command."""

    @pytest.fixture
    def work(self, held: Handle, cli: Cli) -> str:
        work = reserved_type("0" * 64)
        cli.pool(work, work)
        return work

    def handle(
        self, cli: Cli, work: str, runner: Process | None, guard: Process | None = None
    ) -> Handle:
        with cli.service(owner=CALLER.owner) as service:
            handle = acquire(service, Request(work), patience=Patience(wait_seconds=0))
            announce(service, handle, runner=runner, guard=guard)
            return service.handles.require(handle.id)

    def test_of_a_command_that_runs_it_is_nobody_elses_to_release(
        self, service: Service, held: Handle, cli: Cli, work: str
    ) -> None:
        handle = self.handle(cli, work, this_process())
        told = f"{handle.id} belongs to leasectl once, pid {os.getpid()}, .*: kill {os.getpid()}"
        with pytest.raises(NotAllowed, match=told):
            targets_at(service, handle.id)
        with pytest.raises(NotAllowed, match=told):
            targets_of_names(service, [work])
        assert targets_of_everything(service)[0] == [whole(held)]

    def test_whose_command_has_ended_it_is_like_any(
        self, service: Service, held: Handle, cli: Cli, work: str
    ) -> None:
        handle = self.handle(cli, work, this_process()._replace(start_time=1))
        assert targets_at(service, handle.id) == [whole(handle)]
        assert sorted(targets_of_everything(service)[0]) == sorted([whole(held), whole(handle)])

    def test_whose_guard_is_still_ending_the_command_is_nobody_elses_to_release(
        self, service: Service, held: Handle, cli: Cli, work: str
    ) -> None:
        guard = cli.spawn(["sleep", "60"]).process
        dead = this_process()._replace(start_time=1)
        handle = self.handle(cli, work, dead, identify(guard.pid))
        told = f"leasectl once, pid {os.getpid()}, .* ends; pid {guard.pid} is ending it"
        with pytest.raises(NotAllowed, match=told):
            targets_at(service, handle.id)
        assert targets_of_everything(service)[0] == [whole(held)]
        guard.kill()
        guard.wait()
        assert targets_at(service, handle.id) == [whole(handle)]

    def test_of_which_nobody_knows_who_does_it_may_be_under_way(
        self, service: Service, cli: Cli, work: str
    ) -> None:
        handle = self.handle(cli, work, None)
        with pytest.raises(NotAllowed, match="leasectl once, which releases it"):
            targets_at(service, handle.id)


class TestNamesFiles:
    def test_a_link_to_ones_own_file_is_fine(self, tmp_path: Path) -> None:
        (tmp_path / "copy").write_text("a")
        (tmp_path / "link").symlink_to("copy")
        assert read_names(str(tmp_path / "link")) == ["a"]

    @pytest.mark.parametrize("text", ["a\n\nb", "\n", "a b", "a\n\x1b[2J\n", "a\r\n"])
    def test_what_lists_something_else_is_none(self, tmp_path: Path, text: str) -> None:
        path = tmp_path / "copy"
        path.write_bytes(text.encode())
        with pytest.raises(CorruptState, match="something other than resource names"):
            read_names(str(path))

    def test_a_file_of_a_mebibyte_is_too_long_whatever_it_lists(self, tmp_path: Path) -> None:
        path = tmp_path / "long"
        names = ["a" * 63] * (1 << 14)
        text = "\n".join(names)
        path.write_text(text)
        assert read_names(str(path)) == names
        path.write_text(text + "\n")
        with pytest.raises(CorruptState):
            read_names(str(path))

    def test_anothers_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "copy"
        path.write_text("a")
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(NotAllowed, match=f"belongs to user {os.getuid()}"):
            read_names(str(path))

    def test_a_huge_file_is_refused_unread(self, tmp_path: Path) -> None:
        path = tmp_path / "huge"
        with path.open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(CorruptState, match="something other than resource names"):
            read_names(str(path))

    def test_a_named_pipe_keeps_nobody_waiting_and_no_descriptor_is_left_open(
        self, tmp_path: Path
    ) -> None:
        os.mkfifo(tmp_path / "pipe")
        with leaving_open(0):
            for path in (tmp_path, tmp_path / "pipe", Path("/dev/null"), tmp_path / "missing"):
                with pytest.raises(NotFound):
                    read_names(str(path))
