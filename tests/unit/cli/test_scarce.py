"""Few descriptors, a full disk, paths that are no text: one clear line, or no trouble at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.pools.history import parse_event
from leasectl.state.event import Event
from tests.kit.story import story_of
from tests.kit.support import Cli, Finished

UNWRITABLE = 73


def limited(cli: Cli, files: int, *args: str) -> Finished:
    """A command that may have so many files open."""
    script = f'ulimit -n {files}; exec "$@"'
    return cli.spawn(["bash", "-c", script, "-", *cli.command(*args)]).finish()


@pytest.mark.parametrize(
    "command", [["status"], ["acquire", "-t", "T"], ["run", "-t", "T", "true"]]
)
def test_too_few_descriptors_are_named(cli: Cli, command: list[str]) -> None:
    cli.pool("T")
    for files in (8, 10, 12):
        finished = limited(cli, files, *command)
        assert finished.code in (0, UNWRITABLE), finished
        if finished.code:
            assert finished.err.count("\n") == 1
            assert "Too many open files; raise the limit" in finished.err
            assert f"{files} here: ulimit -n" in finished.err
    assert limited(cli, 6, *command).code == UNWRITABLE
    cli.ok("status")
    assert set(cli.held().values()) <= {path.name for path in (cli.state_dir / "handles").iterdir()}


def test_a_caller_that_can_not_be_looked_at_has_not_ended(cli: Cli) -> None:
    cli.pool("T")
    command = cli.command("run", "T", "--", "true")
    for files in range(5, 10):
        script = f'ulimit -n {files}; timeout 60 "$@"; exit $?'
        finished = cli.spawn(["bash", "-c", script, "-", *command]).finish()
        assert finished.code == UNWRITABLE, finished
        assert f"Too many open files; raise the limit, which is {files} here" in finished.err


def test_a_state_directory_that_is_no_text_works(cli: Cli, tmp_path: Path) -> None:
    directory = os.fsencode(tmp_path) + b"/stat\xe9"
    env = {"LEASECTL_STATE_DIR": os.fsdecode(directory)}
    cli.ok("pool", "create", "T", "-c", "1", **env)
    argv = ["bash", "-c", 'h=$("$@" acquire -t T) && cat "$h" && "$@" release --handle "$h"']
    finished = cli.spawn([*argv, "-", *cli.command()], **env).finish()
    assert (finished.code, finished.out, finished.err) == (0, "T--00T--00\n", "")
    assert cli.ok("run", "-q", "-t", "T", "--", "sh", "-c", 'cat "$LEASECTL_HANDLE"', **env)
    for command in (["status"], ["status", "--json"], ["doctor"], ["acquire", "-t", "T", "--json"]):
        cli.ok(*command, **env)
    cli.ok("release", "--all", **env)


def test_a_folder_that_is_gone_is_said_to_be(cli: Cli, tmp_path: Path) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    argv = ["bash", "-c", script, "-", *cli.command("status")]
    finished = cli.spawn(argv, LEASECTL_STATE_DIR="state").finish()
    assert finished.code == UNWRITABLE
    assert "the current directory, which was removed" in finished.err


def test_a_container_without_dev_null_grants_nothing_that_needs_a_keeper(cli: Cli) -> None:
    cli.pool("T")
    if os.geteuid() != 0 or os.system("unshare -m true 2>&-") != 0:
        pytest.skip("needs root, to mount a file system")
    # The state directory may be in /dev/shm.
    script = "mount --bind /dev/shm /mnt && mount -t tmpfs tmpfs /dev && mkdir /dev/shm"
    script += ' && mount --bind /mnt /dev/shm && exec "$@"'
    command = cli.command("acquire", "T", "--release-after", "1s")
    finished = cli.spawn(["unshare", "-m", "sh", "-c", script, "-", *command]).finish()
    assert (finished.code, finished.out) == (1, "")
    said = "leasectl: can't start the keeper: there is no /dev/null; mount /dev in this container\n"
    assert finished.err == said
    assert cli.held() == {}


@contextlib.contextmanager
def on_a_disk_of(size: str, cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    mount = tmp_path / "disk"
    mount.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size={size} tmpfs {mount} 2>&-") != 0:
        pytest.skip("needs root, to mount a file system")
    try:
        yield Cli(mount / "state", cli.cwd)
    finally:
        assert os.system(f"umount -l {mount}") == 0


@pytest.fixture
def tiny(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """Commands whose state directory is on a tiny disk of its own."""
    with on_a_disk_of("160k", cli, tmp_path) as tiny:
        yield tiny


@pytest.fixture
def small(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """The same on a disk that has room for events."""
    with on_a_disk_of("6m", cli, tmp_path) as small:
        yield small


def fill(folder: Path) -> None:
    with contextlib.suppress(OSError), open(folder / "ballast", "wb", buffering=0) as ballast:
        while ballast.write(b"x" * 512) == 512:
            pass


def test_status_shows_what_is_there_on_a_full_disk(tiny: Cli) -> None:
    tiny.pool("T", "T--00")
    handle = tiny.ok("acquire", "-t", "T").strip()
    with tiny.service():
        pass  # whoever closes it last writes the log back, and removes it with its index
    assert not (tiny.state_dir / "state.db-shm").exists()
    fill(tiny.state_dir.parent)
    assert Path(handle).name in tiny.ok("status", "-t", "T")
    # And with a log, but no room to take away what a dead waiter left.
    (tiny.state_dir.parent / "ballast").unlink()
    waiter = tiny.start("acquire", "-q", "-t", "T")
    while not tiny.waiting():
        pass
    waiter.kill()
    fill(tiny.state_dir.parent)
    assert Path(handle).name in tiny.ok("status", "-t", "T")
    assert shutil.disk_usage(tiny.state_dir).free < 4096


def test_leases_go_on_without_events_while_there_is_no_room_and_with_them_afterwards(
    small: Cli,
) -> None:
    def told() -> list[Event]:
        return [parse_event(line) for line in small.ok("events", "--json").splitlines()]

    small.pool("T")
    before = small.ok("acquire", "-t", "T").strip()
    at_first = told()
    ballast = small.state_dir.parent / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(small.state_dir).free - (1 << 20)))
    meanwhile = small("acquire", "-t", "T")
    others = [small("release", "--handle", before), small("run", "-t", "T", "true")]
    for finished in (meanwhile, *others):
        assert finished.code == 0
        (line,) = finished.err.splitlines()
        assert line.endswith("(the disk is all but full); leases work without them")
    assert told() == at_first
    assert list(small.held().values()) == [Path(meanwhile.handle).name]
    ballast.unlink()
    later = small("acquire", "-t", "T")
    assert small("release", "--handle", meanwhile.handle).err == ""
    assert later.err == ""
    new = told()[len(at_first) :]
    assert [each.kind for each in new] == ["queued", "granted", "released"]
    assert story_of(new, begins_anew=True) == ([], small.held(), set())


def leave(disk: Cli, kibibytes: int) -> Path:
    """Have so much room left on the disk; returns the file that has the rest."""
    ballast = disk.state_dir.parent / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk.state_dir).free - (kibibytes << 10)))
    return ballast


@pytest.mark.parametrize(
    ("left", "code", "runs"),
    [
        *[(each, UNWRITABLE, False) for each in (200, 4000)],
        *[(each, UNWRITABLE, True) for each in (4300, 6000)],
        (6200, 0, True),
    ],
)
def test_a_result_leaves_room_for_leases_or_is_not_kept(
    cli: Cli, tmp_path: Path, left: int, code: int, runs: bool
) -> None:
    large = ("once", "large", "--", "sh", "-c", "echo >>ran; head -c 1000000 /dev/zero")
    with on_a_disk_of("8m", cli, tmp_path) as disk:
        disk.pool("T")
        handle = disk.ok("acquire", "-t", "T").strip()
        ballast = leave(disk, left)
        finished = disk(*large)
        assert (finished.code, len(finished.out)) == (code, 0 if code else 1000000)
        assert (disk.cwd / "ran").exists() is runs
        if code:
            what = "result of work large isn't kept" if runs else "command of work large wasn't run"
            assert finished.err.splitlines()[-1].startswith(f"leasectl: the {what}: no room for ")
        disk.ok("release", "--handle", handle)
        assert len(disk.ok("run", "-t", "T", "--", "echo", "x")) == 2
        assert disk.held() == {}
        ballast.unlink()
        assert len(disk.ok(*large)) == 1000000
