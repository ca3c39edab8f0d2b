"""How a command line is taken apart: words without options, options given twice, help, --json."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from leasectl.cli.commands.run import command as run
from leasectl.cli.root import command as root
from tests.kit.support import Cli, Finished

USAGE = 64


@pytest.fixture
def cli(cli: Cli) -> Cli:
    cli.pool("T", "T--00", "T--01", "T--02")
    return cli


def refused(finished: Finished, *said: str) -> bool:
    assert (finished.code, finished.out) == (USAGE, ""), finished
    assert finished.err.count("\n") == 1
    return all(text in finished.err for text in said)


def parsed_run(*args: str) -> tuple[tuple[str, ...], tuple[str, ...], object]:
    """The types, the command and the count that `run` is asked for."""
    with run.make_context("run", list(args)) as ctx:
        return ctx.params["pool_types"], ctx.params["argv"], ctx.params["count"]


class TestRun:
    @pytest.mark.parametrize(
        "args",
        [
            ("T", "-c", "2", "--", "echo", "-c", "3"),
            ("-c", "2", "T", "--", "echo", "-c", "3"),
            ("-t", "T", "-c", "2", "--", "echo", "-c", "3"),
            ("-t", "T", "-c", "2", "echo", "-c", "3"),
            ("-tT", "-qc2", "echo", "-c", "3"),
            ("--type=T", "--count=2", "--", "echo", "-c", "3"),
        ],
        ids=" ".join,
    )
    def test_its_type_stands_before_the_separator_and_the_command_behind_it(
        self, args: tuple[str, ...]
    ) -> None:
        assert parsed_run(*args) == (("T",), ("echo", "-c", "3"), 2)

    @pytest.mark.parametrize(
        ("args", "argv"),
        [
            (("-t", "T", "env", "-i", "--", "x"), ("env", "-i", "--", "x")),
            (("-t", "T", "--", "env", "--", "x"), ("env", "--", "x")),
            (("T", "--", "env", "--", "x"), ("env", "--", "x")),
            (("T", "--", "-t"), ("-t",)),
            (("-t", "T", "--", "--"), ("--",)),
            (("T", "--", "--help"), ("--help",)),
        ],
    )
    def test_a_further_separator_is_the_commands(
        self, args: tuple[str, ...], argv: tuple[str, ...]
    ) -> None:
        assert parsed_run(*args) == (("T",), argv, 1)

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (("T", "echo"), "put -- between the pool and the command"),
            (("T", "--"), "no command given; add: -- CMD"),
            (("-t", "T"), "no command given; add: -- CMD"),
            (("-t", "T", "U", "--", "echo"), '"U" could be a pool or the command'),
            (("--", "echo"), "say which pool: run POOL"),
            (("--", "T", "--", "echo"), "say which pool: run POOL"),
            (("-q",), "say which pool: run POOL"),
            (("T", "--lbel", "--", "echo"), "No such option"),
        ],
        ids=str,
    )
    def test_what_cant_be_told_apart_is_refused(self, args: tuple[str, ...], said: str) -> None:
        with pytest.raises(click.UsageError) as error:
            parsed_run(*args)
        assert said in error.value.format_message()

    def test_codes_to_retry_on_may_be_repeated(self, cli: Cli) -> None:
        script = "exit $((LEASECTL_ATTEMPT + 3))"
        options = ("--attempts", "5", "--retry-on", "4", "--retry-on", "5,7")
        assert cli("run", "T", *options, "--", "sh", "-c", script).code == 6


class TestWordsWithoutOptions:
    def test_a_type_and_a_handle(self, cli: Cli) -> None:
        handle = cli("acquire", "T", "--ttl", "5m").handle
        assert cli.ok("cat", handle) == "T--00\n"
        assert cli.ok("renew", handle).startswith("2")
        assert cli.ok("reacquire", handle) == f"{handle}\n"
        assert [each["type"] for each in json.loads(cli.ok("status", "T", "--json"))["pools"]] == [
            "T"
        ]
        assert cli("status", "U").code == 66
        assert cli.ok("release", handle) == "T--01\n"

    @pytest.mark.parametrize("command", ["cat", "renew", "reacquire"])
    def test_one_handle_is_needed_and_only_one(self, cli: Cli, command: str) -> None:
        assert refused(cli(command), "say which handle: ")
        assert refused(cli(command, "a", "b"), "unexpected argument")
        assert refused(cli(command, "a", "--handle", "b"), "is given twice")

    def test_several_handles_are_released(self, cli: Cli, tmp_path: Path) -> None:
        one, two, three = (cli("acquire", "T").handle for _ in range(3))
        assert cli.ok("release", "--handle", one, "--handle", two) == "T--00\nT--01\n"
        copy = tmp_path / "copy"
        copy.write_text(Path(three).read_text())
        # What isn't there keeps nothing else from being released.
        finished = cli("release", "absent", str(copy), "")
        assert (finished.code, finished.out) == (66, "T--02\n")
        assert 'no handle "absent"' in finished.err
        assert cli.held() == {}

    def test_a_type_is_given_in_one_way(self, cli: Cli) -> None:
        assert refused(cli("acquire", "T", "-t", "T"), "is given twice")
        assert refused(cli("status", "T", "-t", "T"), "is given twice")


def single_options() -> list[tuple[str, str]]:
    """Every option that takes one value, of every command."""
    found = []
    todo: list[tuple[str, click.Command]] = [("", root)]
    while todo:
        path, command = todo.pop()
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                each = command.get_command(ctx, name)
                assert each is not None
                todo.append((f"{path} {name}".strip(), each))
        for param in command.params:
            if isinstance(param, click.Option) and not (param.multiple or param.is_flag):
                found.append((path, param.opts[0]))
    return found


class TestGivenTwice:
    @pytest.mark.parametrize(("path", "name"), single_options())
    def test_what_takes_one_value_is_refused(self, path: str, name: str) -> None:
        words = [*path.split(), name, "1s", name, "1s"]
        with pytest.raises(click.UsageError, match="is given twice; give it once"):
            root.main(words, prog_name="leasectl", standalone_mode=False)

    def test_it_is_one_line_and_nothing_happens(self, cli: Cli) -> None:
        assert refused(
            cli("acquire", "T", "-w", "1h", "--wait", "0"), "-w or --wait is given twice"
        )
        assert cli.held() == {}


class TestHelp:
    @pytest.mark.parametrize("path", [(), ("pool", "create")], ids=str)
    def test_it_is_a_command_too(self, cli: Cli, path: tuple[str, ...]) -> None:
        assert cli.ok("help", *path) == cli.ok(*path, "--help")

    def test_of_what_there_isnt_says_so(self, cli: Cli) -> None:
        assert refused(cli("help", "aquire"), 'no command "aquire"; did you mean "acquire"?')
        assert refused(cli("help", "run", "x"), "leasectl run has no commands")

    @pytest.mark.parametrize("command", ["release", "cat"])
    def test_a_short_one_isnt_taken_for_a_handle(self, cli: Cli, command: str) -> None:
        handle = cli("acquire", "T").handle
        for args in (["-h", handle], [handle, "-h"], [f"-h{handle}"], ["-h="]):
            assert refused(cli(command, *args), "-h could be --handle or --help here")
        assert cli.held() != {}
        assert cli.ok(command, "-h") == cli.ok(command, "--help")

    def test_many_options_are_in_groups(self, cli: Cli) -> None:
        lines = cli.ok("run", "--help").splitlines()
        titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
        assert titles == [
            "Lease:",
            "Waiting:",
            "End of the lease:",
            "Retries:",
            "Other options:",
            "Environment of the command:",
        ]
        assert "Options:" in cli.ok("cat", "--help").splitlines()


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (("pool", "ls"), '"list"'),
        (("pool", "get"), '"list"'),
        (("pool", "rm"), '"remove" or "delete"'),
        (("rm",), '"release"'),
        (("ls",), '"status"'),
        (("lock",), '"acquire" or "run"'),
        (("stauts",), '"status"'),
    ],
    ids=" ".join,
)
def test_what_is_called_otherwise_elsewhere_is_answered_with_its_name(
    cli: Cli, args: tuple[str, ...], meant: str
) -> None:
    assert refused(cli(*args), f'no command "{args[-1]}"; did you mean {meant}? See: leasectl')


class TestJson:
    def test_of_an_acquire_is_its_output_json(self, cli: Cli) -> None:
        said = json.loads(cli.ok("acquire", "T", "--json"))
        assert said == json.loads(cli.ok("cat", said["handle"], "--json"))
        assert said["leases"][0]["name"] == "T--00"
        again = json.loads(cli.ok("reacquire", said["handle"], "--json"))
        assert (again["handle"], again["acquisition"]) == (said["handle"], 2)

    def test_of_a_renewal_is_the_expiry(self, cli: Cli) -> None:
        handle, unending = cli("acquire", "T", "--ttl", "5m").handle, cli("acquire", "T").handle
        said = json.loads(cli.ok("renew", handle, "--json"))
        assert said["handle"] == handle
        assert said["expires_at"].endswith("Z")
        assert json.loads(cli.ok("renew", unending, "--json"))["expires_at"] is None

    def test_another_form_beside_it_is_refused(self, cli: Cli) -> None:
        assert refused(cli("acquire", "T", "--json", "--output", "csv"), "--output csv or --json")
        assert refused(cli("cat", "x", "--json", "--format", "plain"), "--format plain or --json")
        assert json.loads(cli.ok("acquire", "T", "--json", "--output", "json"))
