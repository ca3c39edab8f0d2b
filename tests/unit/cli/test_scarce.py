"""Few descriptors, a full disk, paths that are no text: one clear line, or no trouble at all."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    for files in (6, 8, 10, 12):
        finished = limited(cli, files, *command)
        assert finished.code in (0, UNWRITABLE), finished
        if finished.code:
            assert finished.err.count("\n") == 1
            assert "Too many open files; raise the limit" in finished.err
            assert f"{files} here: ulimit -n" in finished.err
    assert limited(cli, 6, *command).code == UNWRITABLE
    cli.ok("status")
    assert set(cli.held().values()) <= {path.name for path in (cli.state_dir / "handles").iterdir()}


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
    assert "the current folder, which is gone" in finished.err


@pytest.fixture
def tiny(cli: Cli, tmp_path: Path) -> Iterator[Cli]:
    """Commands whose state directory is on a small disk of its own."""
    mount = tmp_path / "tiny"
    mount.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=160k tmpfs {mount} 2>&-") != 0:
        pytest.skip("needs root, to mount a file system")
    yield Cli(mount / "state", cli.cwd)
    assert os.system(f"umount -l {mount}") == 0


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
