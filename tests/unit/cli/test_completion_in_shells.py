"""What a press of Tab makes of a line: in each shell itself, with the script that it is given."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.kit.support import Cli
from tests.unit.cli.zsh import zsh_line

# The scripts are the same on every Python.
pytestmark = pytest.mark.once


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"there is no {shell}")


@pytest.fixture
def cli(cli: Cli, tmp_path: Path) -> Cli:
    """With a handle called azure--…, a program to run, and the installed leasectl on PATH."""
    cli.pool("azure--install")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "leasectl-try").write_text("#!/bin/sh\n")
    (programs / "leasectl-try").chmod(0o755)
    (tmp_path / "some-file").touch()
    cli.env["PATH"] = f"{programs}:{Path(sys.executable).parent}:{cli.env['PATH']}"
    cli.env["HOME"] = str(tmp_path)
    return cli


def script(cli: Cli, shell: str) -> Path:
    path = cli.cwd / f"script.{shell}"
    path.write_text(cli.ok("completion", shell))
    return path


def bash(cli: Cli, *words: str) -> list[str]:
    """What bash offers for the last of some words, as it takes the line apart."""
    text = """
      set -u
      source "$1"
      shift
      COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
      compopt() { COMPREPLY=("compopt $*"); }
      _leasectl_completion leasectl
      printf '%s\\n' "${COMPREPLY[@]}"
    """
    argv = ["bash", "--norc", "-c", text, "-", str(script(cli, "bash")), *words]
    finished = cli.spawn(argv).finish()
    assert (finished.code, finished.err) == (0, ""), finished
    return finished.out.splitlines()


def fish(cli: Cli, line: str) -> list[str]:
    text = f"source {script(cli, 'fish')}; complete -C '{line}'"
    finished = cli.spawn(["fish", "-c", text]).finish()
    assert (finished.code, finished.err) == (0, ""), finished
    return finished.out.splitlines()


def zsh(cli: Cli, line: str) -> str:
    return zsh_line(line, script(cli, "zsh"), cli.env, cli.cwd).rstrip()


class TestBash:
    def test_a_value_behind_an_equals_sign(self, cli: Cli) -> None:
        handle = os.path.basename(cli.hold("azure--install").id)
        assert bash(cli, "leasectl", "cat", "--handle", "=", "az") == [handle]
        assert bash(cli, "leasectl", "cat", "--handle", "=") == [handle]
        cat = ("leasectl", "cat", "--format", "=", "csv", "--handle", "=", "az")
        assert bash(cli, *cat) == [handle]

    def test_commands_and_files_under_run(self, cli: Cli) -> None:
        assert bash(cli, "leasectl", "run", "T", "--", "leasectl-t") == ["leasectl-try"]
        assert bash(cli, "leasectl", "run", "T", "--", "cat", "some-f") == ["compopt -o default"]
        assert bash(cli, "leasectl", "run", "T", "--", "./x") == ["compopt -o default"]
        assert bash(cli, "leasectl", "run", "-t", "T", "cat", "so") == ["compopt -o default"]

    def test_the_key_of_a_work(self, cli: Cli) -> None:
        cli.ok("once", "import-4.21", "--", "true")
        assert bash(cli, "leasectl", "once", "--show", "im") == ["import-4.21"]
        assert bash(cli, "leasectl", "once", "k", "--", "leasectl-t") == ["leasectl-try"]

    def test_with_bash_completion_the_command_is_completed_as_its_own(self, cli: Cli) -> None:
        asked = script(cli, "bash")
        asked.write_text(asked.read_text() + '_command_offset() { COMPREPLY=("from $1"); }\n')
        text = f"""
          source {asked}
          COMP_WORDS=(leasectl run --type = T -- git --git-dir = x sta) COMP_CWORD=10
          _leasectl_completion leasectl
          printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        assert cli.spawn(["bash", "--norc", "-c", text]).finish().out == "from 6\n"


@needs("zsh")
class TestZsh:
    def test_a_value_behind_an_equals_sign_keeps_its_option(self, cli: Cli) -> None:
        handle = cli.hold("azure--install").id
        assert zsh(cli, "leasectl cat --handle=az") == f"leasectl cat --handle={handle}"

    def test_commands_and_files_under_run(self, cli: Cli) -> None:
        start = "leasectl run azure--install --"
        assert zsh(cli, f"{start} leasectl-t") == f"{start} leasectl-try"
        file = f"{start} cat {cli.cwd}/some-f"
        assert zsh(cli, file) == f"{file}ile"


@needs("fish")
class TestFish:
    def test_a_value_behind_an_equals_sign_keeps_its_option(self, cli: Cli) -> None:
        handle = cli.hold("azure--install")
        said = f"{handle.id}\t{handle.holder_identity}"
        assert fish(cli, "leasectl cat --handle=az") == [f"--handle={said}"]
        assert fish(cli, "leasectl cat az") == [said]

    def test_a_description_is_whole_whatever_is_in_it(self, cli: Cli) -> None:
        (said,) = fish(cli, "leasectl run --before")
        assert ", while no lease is held; " in said

    def test_commands_and_files_under_run(self, cli: Cli) -> None:
        start = "leasectl run azure--install --"
        (offered,) = fish(cli, f"{start} leasectl-t")
        assert offered.partition("\t")[0] == "leasectl-try"
        file = f"{cli.cwd}/some-f"
        assert fish(cli, f"{start} cat {file}") == [f"{file}ile"]
