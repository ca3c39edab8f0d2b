"""Ctrl-C while Python is still importing: no traceback, and the end that a signal makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.support import Cli
from tests.kit.waits import end_of

# Runs before anything else: presses Ctrl-C once a module is imported.
INTERRUPTS = """
import os, signal, sys
def interrupt(event, args):
    if event == "import" and args[0] == os.environ.get("INTERRUPTED_AT"):
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(interrupt)
"""
INSTALLED = [os.path.join(os.path.dirname(sys.executable), "leasectl")]
MODULE = [sys.executable, "-m", "leasectl"]
# What is in the archive, unpacked into the current folder.
FROM_ARCHIVE = [sys.executable, "archive"]
PACKAGE = Path(__file__).parents[3] / "leasectl"


@pytest.fixture
def early(cli: Cli, tmp_path: Path) -> Cli:
    """Commands that press Ctrl-C themselves while they start."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)
    cli.env["PYTHONPATH"] = str(tmp_path)
    archive = tmp_path / "archive"
    archive.mkdir()
    (archive / "leasectl").symlink_to(PACKAGE)
    (archive / "__main__.py").symlink_to(PACKAGE / "pyz" / "start.py")
    return cli


@pytest.mark.parametrize(
    ("command", "line", "module"),
    [
        (INSTALLED, "release --all", "leasectl.cli.app"),
        (INSTALLED, "status", "click"),
        (MODULE, "release --help", "click"),
        (MODULE, "release --all", "leasectl.cli.described"),
        (MODULE, "release --all", "leasectl.leases.service"),
        (FROM_ARCHIVE, "release --all", "leasectl.__main__"),
    ],
)
def test_an_interrupt_while_it_starts_ends_it_without_a_word(
    early: Cli, command: list[str], line: str, module: str
) -> None:
    code_folder = str(early.cwd / "code")
    argv = [*command, *line.split()]
    finished = early.spawn(argv, INTERRUPTED_AT=module, LEASECTL_CODE_DIR=code_folder).finish()
    assert (finished.code, finished.out, finished.err) == (-signal.SIGINT, "", "")


# Prints what is loaded, but by `import signal`, once SIGINT is set.
LOADED_BY_THEN = """
import sys
before = set(sys.modules)
import signal
before |= set(sys.modules)
def show(*args):
    print(*(set(sys.modules) - before - set(sys.builtin_module_names)))
signal.signal = show
import leasectl.__main__
"""


def test_until_then_nothing_is_imported_but_signal() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", LOADED_BY_THEN], capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) == {"__future__", "leasectl", "leasectl.__main__"}


def test_who_ignores_it_on_entry_is_not_interrupted(early: Cli) -> None:
    early.pool("T")
    script = f"trap '' INT; exec {' '.join(MODULE)} status"
    finished = early.spawn(["bash", "-c", script], INTERRUPTED_AT="click").finish()
    assert finished.code == 0
    assert "T" in finished.out


def test_once_a_command_runs_it_is_interrupted_as_ever(cli: Cli) -> None:
    cli.pool("T")
    argv = cli.command("status", "--watch", "-t", "T")
    with subprocess.Popen(argv, env=cli.env, cwd=cli.cwd, stdout=subprocess.PIPE) as watching:
        assert watching.stdout is not None
        watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert end_of(watching) in (0, -signal.SIGINT)
