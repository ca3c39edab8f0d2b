"""Whatever is wrong: one line that says so, the documented code, and nothing has changed."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Callable

import pytest

from leasectl.state.database import FORMAT
from tests.kit.support import Cli, CliOfAnotherUser, Finished

FAILED, USAGE, CORRUPT, NOT_FOUND, UNWRITABLE, NO_LEASE, NOT_ALLOWED = 1, 64, 65, 66, 73, 75, 77
POOL = "azure--install"
LONG = "x" * 300
HOSTILE = {
    "slash": "a/b",
    "parent": "..",
    "newline": "a\nb",
    "substitution": "$(touch pwned)",
    "300 characters": LONG,
    "escape": "a\x1b[31mb",
    "empty": "",
    "blank": "a b",
    "dash": "-x",
    "not ASCII": "é",
    "not UTF-8": "\udcff",
}


@pytest.fixture
def cli(cli: Cli) -> Cli:
    """With a pool of two, one of them held."""
    cli.pool(POOL)
    cli.hold(POOL)
    return cli


def assert_refused(finished: Finished, code: int, *said: str) -> None:
    """One line on stderr, nothing on stdout, this exit code."""
    assert finished.out == ""
    assert finished.err.startswith("leasectl: "), finished
    assert finished.err.count("\n") == 1 and finished.err.endswith("\n"), finished
    assert finished.err[:-1].isprintable()
    for text in said:
        assert text in finished.err
    assert finished.code == code, finished


def assert_changes_nothing(cli: Cli, args: list[str], code: int, *said: str) -> None:
    before = cli.snapshot()
    assert_refused(cli(*args), code, *said)
    assert cli.snapshot() == before
    assert not (cli.cwd / "pwned").exists()


class TestTypesAndCounts:
    def test_an_unknown_type(self, cli: Cli) -> None:
        said = ('no pool "azure--instal"', f'did you mean "{POOL}"?', "leasectl pool list")
        assert_changes_nothing(cli, ["acquire", "-t", "azure--instal"], NOT_FOUND, *said)

    def test_an_unknown_type_to_run_under(self, cli: Cli) -> None:
        held, handles = cli.held(), os.listdir(cli.state_dir / "handles")
        finished = cli("run", "-t", "azure--instal", "--", "touch", "pwned")
        assert_refused(finished, NOT_FOUND, f'did you mean "{POOL}"?')
        assert (cli.held(), os.listdir(cli.state_dir / "handles")) == (held, handles)
        assert not (cli.cwd / "pwned").exists()

    @pytest.mark.parametrize(
        ("count", "said"),
        [
            ("0", "--count 0"),
            ("-1", "--count -1"),
            ("x", '--count "x": give a number'),
            ("", '--count "": give a number'),
            ("1.5", '--count "1.5": give a number'),
            ("3", "2 resources, so a request for 3 can never be met"),
            ("1" * 30, "use a whole number from 1 to"),
            ("9" * 5000, '9…": give a number'),
        ],
        ids=lambda value: value[:30],
    )
    def test_an_impossible_count(self, cli: Cli, count: str, said: str) -> None:
        assert_changes_nothing(cli, ["acquire", "-t", POOL, "-c", count], USAGE, said)

    def test_a_type_that_is_left_out(self, cli: Cli) -> None:
        assert_changes_nothing(cli, ["acquire", "-t"], USAGE, "-t needs a value")
        assert_changes_nothing(cli, ["acquire"], USAGE, "say which pool: leasectl acquire POOL")
        assert_changes_nothing(cli, ["acquire", "--type"], USAGE, "--type needs a value")

    @pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
    def test_a_hostile_type_or_name(self, cli: Cli, text: str) -> None:
        assert_changes_nothing(cli, ["acquire", f"--type={text}"], USAGE)
        assert_changes_nothing(cli, ["acquire", "-t", POOL, f"--name={text}"], USAGE)

    @pytest.mark.parametrize("text", ["../x", "a\nb"], ids=ascii)
    def test_a_hostile_type_or_name_elsewhere(self, cli: Cli, text: str) -> None:
        for args in (
            ["run", "-t", text, "--", "true"],
            ["pool", "create", "U", "--names", f"a,{text}"],
            ["pool", "create", text, "--count", "1"],
            ["pool", "add", POOL, "--names", text],
            ["status", "-t", text],
            ["release", "--names", f"{POOL}--00,{text}"],
        ):
            assert_changes_nothing(cli, args, USAGE)


class TestOptions:
    def test_an_unreadable_duration(self, cli: Cli) -> None:
        for args in (
            ["acquire", "-t", POOL, "--wait=x"],
            ["acquire", "-t", POOL, "--release-after="],
            ["acquire", "-t", POOL, "--ttl=-5"],
            ["acquire", "-t", POOL, "--jitter=nan"],
            ["release", "--all", "--delay=1h 3m"],
        ):
            assert_changes_nothing(cli, args, USAGE, "duration")

    @pytest.mark.parametrize(
        "args",
        [
            ["--guard-pid", "0"],
            ["--guard-pid", "-1"],
            ["--guard-pid", "x"],
            ["--guard-pid", "1" * 30],
            ["--ttl", "1s"],
            ["-E", "256"],
            ["-E", "x"],
            ["--scope", "job"],
            ["--scope", "test", "--guard-pid", "1"],
            ["--output", "xml"],
            ["--label", "novalue"],
            ["--label", "a/b=c"],
            ["--label", "a=b\nc"],
            ["--backend", "nowhere:"],
            ["--backend", "http://x\ny"],
            ["--no-such-option"],
            ["superfluous"],
        ],
        ids=" ".join,
    )
    def test_an_option_that_can_not_be_meant(self, cli: Cli, args: list[str]) -> None:
        assert_changes_nothing(cli, ["acquire", "-t", POOL, *args], USAGE)

    def test_a_guard_that_is_a_thread(self, cli: Cli) -> None:
        go_on = threading.Event()
        thread = threading.Thread(target=go_on.wait)
        thread.start()
        args = ["acquire", "-t", POOL, "--guard-pid", str(thread.native_id)]
        assert_changes_nothing(cli, args, USAGE, f"use its process: --guard-pid {os.getpid()}")
        go_on.set()
        thread.join()

    @pytest.mark.parametrize(
        ("args", "meant"),
        [
            (["acquire", "-t", POOL, "--timeout", "5s"], "--wait"),
            (["run", "--pool", POOL, "--", "true"], "--type"),
        ],
    )
    def test_an_option_by_the_name_that_it_has_elsewhere(
        self, cli: Cli, args: list[str], meant: str
    ) -> None:
        assert_changes_nothing(cli, args, USAGE, f"did you mean {meant}? See: leasectl {args[0]}")

    @pytest.mark.parametrize(
        "args",
        [
            ["release"],
            ["release", "--all", "--scope", "test"],
            ["release", "--handle", "x", "--names", "y"],
            ["release", "--all", "--detach"],
            ["release", "--scope", "step"],
            ["reacquire"],
            ["renew"],
            ["cat"],
            ["cat", "--handle", "x", "--format", "xml"],
            ["acquir", "-t", POOL],
            ["run", "-t", POOL],
            ["run", "-t", POOL, "--attempts", "2", "--", "true"],
            ["run", "-t", POOL, "--attempts", "0", "--retry-on", "4", "--", "true"],
            ["run", "-t", POOL, "--attempts", "2", "--retry-on", "4,x", "--", "true"],
            ["run", "-t", POOL, "--on-lost", "panic", "--", "true"],
            ["pool", "create", "U"],
            ["pool", "create", "U", "--count", "0"],
            ["pool", "create", "U", "--count", "1" * 20],
            ["pool", "create", "U", "--names", ""],
            ["pool", "create", "U", "--names", "a,a"],
            ["pool", "create", POOL, "--count", "1"],
            ["pool", "frobnicate"],
            ["init", "tcsh"],
        ],
        ids=" ".join,
    )
    def test_a_command_that_can_not_be_meant(self, cli: Cli, args: list[str]) -> None:
        assert_changes_nothing(cli, args, USAGE)

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            ("init zsh", 'SHELL "zsh": choose bash; see: leasectl init --help'),
            ("init", "SHELL is missing; choose bash; see: leasectl init --help"),
            ("pool create U 3", 'unexpected argument "3"; did you mean --count 3? See: leasectl'),
            ("status --hld", "no option --hld; did you mean --held? See: leasectl status"),
            ("status --held=x", "--held takes no value; see: leasectl status --help"),
            ("events -n x", '--lines "x": use a whole number of 0 or more; see: leasectl events'),
            ("acquire T -E 300", "--conflict-exit-code 300: use a whole number from 0 to 255"),
        ],
    )
    def test_what_click_refuses_is_told_in_our_words(self, cli: Cli, args: str, said: str) -> None:
        assert_changes_nothing(cli, args.split(), USAGE, said)

    @pytest.mark.parametrize("args", [["acquire", POOL], ["run", POOL, "--", "true"], ["status"]])
    def test_a_variable_that_is_no_duration_is_named(self, cli: Cli, args: list[str]) -> None:
        finished = cli(*args, LEASECTL_RELEASE_TIMEOUT="foo")
        assert_refused(
            finished, USAGE, 'LEASECTL_RELEASE_TIMEOUT: invalid duration "foo"; write it'
        )

    @pytest.mark.parametrize("value", ["v" * 201, "a\nb"], ids=["long", "lines"])
    def test_a_value_of_a_label_is_a_line_that_has_an_end(self, cli: Cli, value: str) -> None:
        args = ["acquire", "-t", POOL, "--label", f"url={value}"]
        assert_changes_nothing(cli, args, USAGE, "in one printable line of at most 200 characters")

    def test_an_empty_command(self, cli: Cli) -> None:
        assert_changes_nothing(cli, ["run", POOL, "--", ""], 127, "the command's name is empty")


# release makes do with a copy of the names, as cat does; reacquire needs the handle, as renew does.
@pytest.mark.parametrize(("command", "of_copy"), [("release", CORRUPT), ("reacquire", NOT_FOUND)])
def test_what_is_no_handle(cli: Cli, command: str, of_copy: int, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    copy = tmp_path / "copy"
    copy.write_bytes(b"$(id)\n")
    for path, code in (
        ("/nowhere/T-abcdef", NOT_FOUND),
        (cli.state_dir / "handles" / "T-abcdef", NOT_FOUND),
        (cli.state_dir / "handles", NOT_FOUND),
        ("/dev/zero", NOT_FOUND),
        (tmp_path / "pipe", NOT_FOUND),
        ("$(touch pwned)", NOT_FOUND),
        ("a\nb", NOT_FOUND),
        ("x" * 5000, NOT_FOUND),
        ("\udcff", NOT_FOUND),
        (copy, of_copy),
    ):
        assert_changes_nothing(cli, [command, "--handle", str(path)], code)


@pytest.mark.parametrize("command", ["cat", "renew"])
def test_a_handle_that_does_not_exist(cli: Cli, command: str) -> None:
    # Below its pool a terminal shows it without the type.
    for handle in ("T-abcdef", "abcdef"):
        said = (f'"{handle}"', "leasectl status --wide")
        assert_changes_nothing(cli, [command, "--handle", handle], NOT_FOUND, *said)


def damage_truncated(path: Path) -> None:
    os.truncate(path, 0)


def damage_garbage(path: Path) -> None:
    path.write_bytes(os.urandom(20000))


def damage_halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def damage_schema(path: Path) -> None:
    """In a table's definition, which SQLite quotes then, is what no UTF-8 has."""
    content = bytearray(path.read_bytes())
    at = content.find(b"CREATE TABLE pool (")
    content[at + 3], content[at + 13] = 0xFF, 0xFE
    path.write_bytes(content)


def damage_tickets(path: Path) -> None:
    """The page where tickets begin is overwritten."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ticket'")
        ((size,),) = db.execute("PRAGMA page_size")
    content = bytearray(path.read_bytes())
    content[(root - 1) * size : root * size] = b"U" * size
    path.write_bytes(content)


def damage_newer(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")


@pytest.mark.parametrize(
    "damage", [damage_truncated, damage_garbage, damage_halved, damage_schema, damage_newer]
)
def test_a_damaged_database(cli: Cli, damage: Callable[[Path], None]) -> None:
    commands = [["acquire", "-t", POOL], ["status"]]
    if damage is damage_garbage:
        commands += [
            ["release", "--all"],
            ["cat", "--handle", "T-abcdef"],
            ["run", "-t", POOL, "--", "true"],
            ["pool", "create", "U", "--count", "1"],
        ]
    assert_refused_as_damaged(cli, damage, commands)


def test_damaged_tickets(cli: Cli) -> None:
    commands = [["status"], ["status", "--json"], ["pool", "list"], ["stats"]]
    assert_refused_as_damaged(cli, damage_tickets, commands)


def assert_refused_as_damaged(
    cli: Cli, damage: Callable[[Path], None], commands: list[list[str]]
) -> None:
    path = cli.state_dir / "state.db"
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for leftover in cli.state_dir.glob("state.db-*"):
        leftover.unlink()
    damage(path)
    before = path.read_bytes()
    said = "newer version" if damage is damage_newer else "state.db"
    for args in commands:
        assert_refused(cli(*args), CORRUPT, said)
        assert path.read_bytes() == before


def test_doctor_names_a_database_whose_tables_cant_be_read(cli: Cli) -> None:
    with contextlib.closing(sqlite3.connect(cli.state_dir / "state.db")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    damage_schema(cli.state_dir / "state.db")
    finished = cli("doctor")
    assert (finished.code, finished.err) == (CORRUPT, "")
    assert "is damaged" in finished.out


class TestTheStateDirectory:
    COMMANDS = (["acquire", "-t", POOL], ["release", "--all"], ["status"])

    def test_one_that_is_a_symbolic_link(self, cli: Cli, tmp_path: Path) -> None:
        link = tmp_path / "link"
        link.symlink_to(cli.state_dir)
        before = cli.snapshot()
        for args in self.COMMANDS:
            assert_refused(cli(*args, LEASECTL_STATE_DIR=str(link)), UNWRITABLE, "symbolic link")
        assert cli.snapshot() == before

    def test_one_that_is_open_to_others(self, cli: Cli) -> None:
        for args, mode in zip(self.COMMANDS, (0o777, 0o755, 0o770)):
            cli.state_dir.chmod(mode)
            assert_changes_nothing(cli, args, UNWRITABLE, f"mode {mode:04o}", "chmod 700")

    def test_one_that_is_a_file(self, cli: Cli, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_text("x")
        finished = cli("acquire", "-t", POOL, LEASECTL_STATE_DIR=str(path))
        assert_refused(finished, UNWRITABLE, "not a directory")
        assert path.read_text() == "x"

    def test_one_that_can_not_be_made(self, cli: Cli) -> None:
        for path in ("/proc/state", "/nowhere/state", "x" * 300):
            finished = cli("acquire", "-t", POOL, LEASECTL_STATE_DIR=path)
            assert_refused(finished, UNWRITABLE, "LEASECTL_STATE_DIR")

    def test_one_whose_folder_is_not_there(self, cli: Cli, tmp_path: Path) -> None:
        parent = tmp_path / "not yet"
        finished = cli("acquire", "-t", POOL, LEASECTL_STATE_DIR=str(parent / "state"))
        make = f"mkdir -p '{parent}'"
        assert_refused(finished, UNWRITABLE, f"no directory {parent}; create it with: {make}, or")
        assert not parent.exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
    def test_one_that_is_anothers(self, cli: Cli) -> None:
        os.chown(cli.state_dir, 12345, -1)
        assert_refused(cli("acquire", "-t", POOL), UNWRITABLE, "belongs to user 12345")

    @pytest.mark.parametrize(
        "args", [["acquire", "-t", "T"], ["release", "--all"]], ids=lambda args: args[0]
    )
    def test_one_that_is_read_only(self, other_user: CliOfAnotherUser, args: list[str]) -> None:
        other_user.ok("pool", "create", "T", "--count", "1")
        other_user.ok("acquire", "-t", "T")
        paths = [other_user.state_dir, *other_user.state_dir.rglob("*")]
        for path in paths:
            path.chmod(0o500 if path.is_dir() else 0o400)
        assert_refused(other_user(*args), UNWRITABLE, "Permission denied", "LEASECTL_STATE_DIR")
        for path in paths:
            path.chmod(0o700 if path.is_dir() else 0o600)
        assert len(other_user.held()) == 1

    def test_one_that_is_full(self, cli: Cli) -> None:
        """No file may grow beyond what SQLite's shared memory needs; see also test_state.py."""
        full = f'ulimit -f 33; exec {shlex.join(cli.command())} "$@"'

        def on_a_full_disk(*args: str) -> Finished:
            return cli.spawn(["bash", "-c", full, "-", *args]).finish()

        names = ",".join(f"n{number:04d}" for number in range(3000))
        before = cli.snapshot()
        finished = on_a_full_disk("pool", "create", "U", "--names", names)
        assert_refused(finished, UNWRITABLE, "LEASECTL_STATE_DIR")
        assert cli.snapshot() == before

    def test_one_on_a_tiny_file_system(self, cli: Cli, tmp_path: Path) -> None:
        mount = tmp_path / "tiny"
        mount.mkdir()
        if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=160k tmpfs {mount} 2>&-") != 0:
            pytest.skip("needs root, to mount a file system")
        try:
            tiny = Cli(mount / "state", cli.cwd)
            tiny.ok("pool", "create", "T", "--count", "50")
            tiny.ok("acquire", "-t", "T", "-c", "9")
            with open(mount / "ballast", "wb", buffering=0) as ballast:
                try:
                    while ballast.write(b"x" * 512) == 512:
                        pass
                except OSError:
                    pass
            before = tiny.snapshot()
            finished = tiny("acquire", "-t", "T")
            while finished.code == 0:  # the log may have had some room left
                before = tiny.snapshot()
                finished = tiny("acquire", "-t", "T")
            assert_refused(finished, UNWRITABLE)
            assert tiny.snapshot() == before
            (mount / "ballast").unlink()
            assert tiny.ok("release", "--all").count("\n") >= 9
            assert tiny.held() == {}
        finally:
            assert os.system(f"umount -l {mount}") == 0


class TestTheSharedDirectory:
    ARGS = ("acquire", "-t", POOL, "--scope", "test")

    def test_one_that_is_not_set(self, cli: Cli) -> None:
        assert_changes_nothing(cli, list(self.ARGS), USAGE, "SHARED_DIR, which is not set")
        assert_changes_nothing(cli, ["release", "--scope", "test"], USAGE, "SHARED_DIR")

    def test_one_that_is_not_there(self, cli: Cli) -> None:
        before = cli.snapshot()
        for path in ("/nowhere", "/dev/null"):
            assert_refused(cli(*self.ARGS, SHARED_DIR=path), UNWRITABLE, path)
        assert cli.snapshot() == before

    def test_one_that_is_read_only_after_the_grant(self, other_user: CliOfAnotherUser) -> None:
        shared_dir = other_user.state_dir.parent / "shared"
        shared_dir.mkdir(mode=0o555)
        other_user.ok("pool", "create", "T", "--count", "1")
        before = other_user.snapshot()["files"]
        args = ("acquire", "-t", "T", "--scope", "test")
        finished = other_user(*args, SHARED_DIR=str(shared_dir))
        assert_refused(finished, UNWRITABLE, str(shared_dir), "make it writable")
        assert other_user.held() == {}
        assert other_user.snapshot()["files"] == before
        assert other_user.query("SELECT id FROM handle") == []

    def test_a_list_that_is_none(self, cli: Cli, tmp_path: Path) -> None:
        (tmp_path / "leases").write_text("$(id)\n")
        held = cli.held()
        assert_refused(cli(*self.ARGS, SHARED_DIR=str(tmp_path)), CORRUPT, "leases")
        assert cli.held() == held
        finished = cli("release", "--scope", "test", SHARED_DIR=str(tmp_path))
        assert_refused(finished, CORRUPT, "leases")
        assert (tmp_path / "leases").read_text() == "$(id)\n"


class TestStreams:
    """A lease whose handle can't be told goes back."""

    def in_bash(self, cli: Cli, redirection: str, *args: str) -> Finished:
        return cli.spawn(["bash", "-c", f'"$@" {redirection}', "-", *cli.command(*args)]).finish()

    @pytest.mark.parametrize("redirection", [">&-", ">/dev/full", "<&- >&-"])
    def test_a_stdout_that_can_not_be_written(self, cli: Cli, redirection: str) -> None:
        before = cli.snapshot()["files"]
        held = cli.held()
        for output in ("handle", "names", "csv", "json", "env"):
            finished = self.in_bash(cli, redirection, "acquire", "-t", POOL, "--output", output)
            assert_refused(finished, FAILED, "can't write to stdout")
        assert cli.held() == held
        assert cli.snapshot()["files"] == before

    def test_help_on_a_stdout_that_can_not_be_written(self, cli: Cli) -> None:
        for redirection in (">&-", ">/dev/full"):
            for args in (["run", "--help"], ["-V"]):
                finished = self.in_bash(cli, redirection, *args)
                assert_refused(finished, FAILED, "can't write to stdout")

    def test_a_stdout_whose_reader_has_gone(self, cli: Cli) -> None:
        held = cli.held()
        script = 'mkfifo p; exec 3<>p 4>p 3>&-; "$@" >&4'
        argv = ["bash", "-c", script, "-", *cli.command("acquire", "-t", POOL)]
        assert_refused(cli.spawn(argv).finish(), FAILED, "stdout was closed")
        assert cli.held() == held

    @pytest.mark.parametrize(("redirection", "still_held"), [(">&-", 2), (">/dev/full", 1)])
    def test_a_reacquire_that_can_not_tell_leaves_the_handle(
        self, cli: Cli, redirection: str, still_held: int
    ) -> None:
        handle = cli.ok("acquire", "-t", POOL).rstrip("\n")
        finished = self.in_bash(cli, redirection, "reacquire", "--handle", handle)
        assert_refused(finished, FAILED, "can't write to stdout")
        assert len(cli.held()) == still_held
        assert cli.ok("reacquire", "--handle", handle) == f"{handle}\n"

    def test_no_file_of_ours_takes_the_place_of_a_closed_stream(self, cli: Cli) -> None:
        """What is printed would end up in the lock file or the database."""
        lock = (cli.state_dir / "state.lock").read_bytes()
        for redirection in (">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"):
            for args in (("status",), ("acquire", "-t", "nobody")):
                self.in_bash(cli, redirection, *args)
        assert (cli.state_dir / "state.lock").read_bytes() == lock
        assert cli("status").code == 0

    def test_a_stderr_that_is_closed_does_not_change_the_code(self, cli: Cli) -> None:
        for args, code in (
            (("acquire", "-t", "nobody"), NOT_FOUND),
            (("acquire", "-t", POOL, "-c", "0"), USAGE),
            (("acquire", "-t", POOL, "-c", "2", "-w", "0"), NO_LEASE),
            (("acquire", "-t"), USAGE),
        ):
            for redirection in ("2>&-", "2>/dev/full"):
                assert self.in_bash(cli, redirection, *args).code == code

    def test_a_stderr_that_is_closed_does_not_stop_what_works(self, cli: Cli) -> None:
        for redirection in ("2>&-", "<&- 2>&-", "2>/dev/full"):
            finished = self.in_bash(cli, redirection, "acquire", "-t", POOL, "-w", "0")
            assert self.in_bash(cli, redirection, "release", "--handle", finished.handle).code == 0


class TestUsers:
    def test_an_arbitrary_uid_without_passwd_entry_or_home(
        self, other_user: CliOfAnotherUser
    ) -> None:
        other_user.ok("pool", "create", "T", "--count", "1")
        handle = other_user.ok("acquire", "-t", "T").rstrip("\n")
        (lease,) = other_user.query("SELECT holder_identity FROM resource")
        assert str(lease[0]).startswith(f"uid{other_user.uid}@")
        assert other_user.ok("cat", "--handle", handle) == "T--00\n"
        assert other_user.ok("release", "--handle", handle) == "T--00\n"

    def test_a_handle_whose_file_was_made_read_only(self, other_user: CliOfAnotherUser) -> None:
        other_user.ok("pool", "create", "T", "--count", "1")
        handle = other_user.ok("acquire", "-t", "T").rstrip("\n")
        os.chmod(handle, 0o400)
        assert other_user.ok("release", "--handle", handle) == "T--00\n"
        assert Path(handle).read_text() == ""
        other_user.ok("acquire", "-t", "T")

    def test_the_default_state_directory_is_the_uids(self, other_user: CliOfAnotherUser) -> None:
        default = Path(f"/tmp/leasectl-{other_user.uid}")
        shutil.rmtree(default, ignore_errors=True)
        try:
            for home in ("/nonexistent", None):
                other_user.ok("status", LEASECTL_STATE_DIR=None, HOME=home)
            assert default.stat().st_uid == other_user.uid
        finally:
            shutil.rmtree(default)

    def test_a_passwd_entry_that_changes_in_between(self, cli: Cli) -> None:
        def as_named(name: str, *args: str) -> Finished:
            script = (
                "import pwd, sys; from types import SimpleNamespace\n"
                f"pwd.getpwuid = lambda uid: SimpleNamespace(pw_name={name!r})\n"
                "from leasectl.cli.app import main; main()"
            )
            return cli.spawn([sys.executable, "-c", script, *args]).finish()

        handle = as_named("before", "acquire", "-t", POOL).handle
        finished = as_named("after", "release", "--names", Path(handle).read_text())
        assert (finished.code, finished.out) == (0, f"{POOL}--01\n")
