"""Shell completion, by the protocol that the shells speak with the installed command."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import time
from pathlib import Path

import pytest

from leasectl.cli.completion_values import _SERVER_SECONDS
from tests.kit.etcd.server import EtcdServer
from tests.kit.support import Cli, Finished
from tests.kit.waits import eventually


def complete(cli: Cli, shell: str, *words: str, **env: str | None) -> Finished:
    """Ask as the shell's script does: the last word is the one that is being typed."""
    line = ["leasectl", *words]
    typed = words[-1] if shell == "fish" else str(len(line) - 1)
    text = shlex.join(line[:-1]) + " " + words[-1]
    return cli(_LEASECTL_COMPLETE=f"{shell}_complete", COMP_WORDS=text, COMP_CWORD=typed, **env)


def offered(cli: Cli, *words: str, **env: str) -> list[str]:
    """What bash is offered for the last word."""
    finished = complete(cli, "bash", *words, **env)
    assert (finished.code, finished.err) == (0, "")
    return [line.partition(",")[2] for line in finished.out.splitlines() if line]


def assert_offered(cli: Cli, words: tuple[str, ...], expected: list[str]) -> None:
    """What a server tells is offered, though nothing is where it takes more than a second."""
    eventually(lambda: offered(cli, *words) == expected, what=f"{expected} after {words}")


def test_help_is_offered_commands_and_theirs(cli: Cli) -> None:
    assert offered(cli, "help", "po") == ["pool"]
    assert offered(cli, "help", "pool", "cr") == ["create"]
    assert offered(cli, "help", "acquire", "") == []


def test_options_and_their_choices_are_offered(cli: Cli) -> None:
    assert "--release-after" in offered(cli, "acquire", "--re")
    assert offered(cli, "acquire", "--scope", "") == ["step", "test"]
    assert offered(cli, "pool", "li") == ["list"]


def test_what_is_so_of_resources_is_offered_to_be_asked_for(cli: Cli) -> None:
    assert offered(cli, "acquire", "T", "--where", "") == []
    cli.ok("pool", "create", "T", "--count", "2", "--property", "region=eu", "--property", "size=2")
    cli.ok("pool", "set", "T", "--names", "T--01", "--property", "region=us")
    cli.ok("pool", "set", "T", "--property", "text=two words", "--property", "sub=$(id)")
    assert offered(cli, "acquire", "T", "--where", "") == ["region=eu", "region=us", "size=2"]
    assert offered(cli, "run", "T", "--where", "r") == ["region=eu", "region=us"]
    assert offered(cli, "run", "T", "--backend", "none:", "--where", "r") == []


def test_types_are_offered_wherever_one_is_asked_for(cli: Cli) -> None:
    cli.pool("azure--install")
    cli.pool("aws--install")
    cli.pool("lab")
    for words in (["acquire", "-t"], ["run", "--type"], ["status", "-t"], ["pool", "add"]):
        assert offered(cli, *words, "a") == ["aws--install", "azure--install"]
    assert offered(cli, "pool", "create", "a") == []


def test_names_are_offered_where_resources_are_named(cli: Cli) -> None:
    cli.pool("T", "rack-7", "rack-8", "shelf")
    for words in (["cordon", "--names"], ["move", "--names"], ["remove", "T", "--names"], ["of"]):
        assert offered(cli, "pool", *words, "rack") == ["rack-7", "rack-8"]
    assert offered(cli, "pool", "move", "--names", "rack-7,r") == ["rack-7,rack-8"]
    assert offered(cli, "pool", "move", "--names", "rack-7", "--to", "") == ["T"]
    assert offered(cli, "pool", "of", "x", LEASECTL_BACKEND="none:") == []
    for words in (["pool", "leave", "T"], ["run", "T"], ["events"]):
        assert offered(cli, *words, "--name", "s") == ["shelf"]
    assert offered(cli, "acquire", "--name", "rack-7,r") == []


def test_names_are_those_of_the_pool_that_is_meant(cli: Cli) -> None:
    cli.pool("T", "host-1", "host-2")
    cli.pool("U", "host-3")
    both = ("-t", "T", "-t", "U")
    assert offered(cli, "acquire", *both, "--name", "h") == ["host-1", "host-2", "host-3"]
    assert offered(cli, "reclaim", "U", "--names", "") == ["host-3"]
    assert offered(cli, "pool", "remove", "T", "--names", "host-1,") == ["host-1,host-2"]
    assert offered(cli, "pool", "expect", "U", "--names", "host-1,") == [
        "host-1,host-2",
        "host-1,host-3",
    ]
    assert offered(cli, "pool", "add", "T", "--names", "h") == []


def test_what_is_held_here_is_offered_where_it_is_released_by_name(cli: Cli) -> None:
    cli.pool("T", "host-1", "host-2", "host-3")
    cli.ok("acquire", "T", "-c", "2")
    assert offered(cli, "release", "--names", "") == ["host-1", "host-2"]
    assert offered(cli, "release", "--names", "host-2,h") == ["host-2,host-1"]
    assert offered(cli, "release", "--force", "--names", "host-2,") == [
        "host-2,host-1",
        "host-2,host-3",
    ]


def test_names_in_etcd_are_offered_of_the_pool_that_is_meant(
    cli: Cli, etcd: EtcdServer, prefix: str
) -> None:
    cli.pool("T", "here-1")
    cli.env["LEASECTL_BACKEND"] = f"{etcd.endpoints[0].replace('http', 'etcd')}{prefix}"
    cli.ok("pool", "create", "T", "--names", "host-1,host-2,rack-1")
    cli.ok("pool", "create", "U", "--names", "host-3", "--property", "rack=a")
    assert_offered(cli, ("pool", "of", "h"), ["host-1", "host-2", "host-3"])
    assert_offered(cli, ("pool", "move", "--names", "host-3,h"), ["host-3,host-1", "host-3,host-2"])
    assert_offered(cli, ("pool", "leave", "T", "--name", ""), ["host-1", "host-2", "rack-1"])
    assert_offered(cli, ("acquire", "-t", "U", "--name", "h"), ["host-3"])
    assert_offered(cli, ("reclaim", "U", "--excess", "1", "--group-by", "r"), ["rack"])
    assert_offered(cli, ("acquire", "--backend", "local:", "T", "--name", ""), ["here-1"])


def offers_of_works_and_properties(cli: Cli) -> None:
    """That these are offered, of the backend that is chosen."""
    cli.ok("pool", "create", "T", "--names", "t-1,t-2")
    cli.ok("pool", "set", "T", "--names", "t-1", "--property", "rack=a", "--property", "room=1")
    for key, of in (("image", "a"), ("image", "b"), ("import", "a")):
        cli.ok("once", key, "--input", of, "--", "true")
    assert_offered(cli, ("once", "--show", ""), ["image", "import"])
    assert_offered(cli, ("once", "--forget", "ima"), ["image"])
    assert_offered(cli, ("once", "im"), ["image", "import"])
    assert offered(cli, "once", "image", "im") == []
    assert_offered(cli, ("reclaim", "T", "--excess", "1", "--group-by", "r"), ["rack", "room"])


def test_works_and_keys_of_properties_are_offered(cli: Cli) -> None:
    offers_of_works_and_properties(cli)


def test_works_and_keys_of_properties_in_kubernetes_are_offered(cli: Cli, kubeconfig: Path) -> None:
    cli.env.update(LEASECTL_BACKEND="kubernetes://", LEASECTL_KUBECONFIG=str(kubeconfig))
    offers_of_works_and_properties(cli)


def test_the_types_are_those_of_the_chosen_backend(cli: Cli, etcd: EtcdServer, prefix: str) -> None:
    url = f"{etcd.endpoints[0].replace('http', 'etcd')}{prefix}"
    cli.pool("azure--here")
    cli.ok("pool", "create", "azure--there", "--count", "1", "--backend", url)
    assert_offered(cli, ("acquire", "-t", "a"), ["azure--here"])
    assert_offered(cli, ("acquire", "--backend", url, "-t", "a"), ["azure--there"])
    cli.env["LEASECTL_BACKEND"] = url
    assert_offered(cli, ("acquire", "-t", "a"), ["azure--there"])
    assert offered(cli, "status", "-t", "aws") == []
    assert_offered(cli, ("acquire", "--backend", "local:", "-t", "a"), ["azure--here"])


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "none:", "etcds://127.0.0.1:9", "nonsense:"])
def test_what_no_backend_tells_is_not_offered_and_nothing_is_said(cli: Cli, url: str) -> None:
    cli.pool("T")
    cli.env["LEASECTL_BACKEND"] = url
    cli.env["LEASECTL_CA_FILE"] = "/nowhere"
    assert offered(cli, "acquire", "-t", "") == []
    assert offered(cli, "once", "--show", "") == []


def test_a_cluster_that_is_silent_holds_nobody_up_for_long(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cli.env["LEASECTL_BACKEND"] = f"etcd://127.0.0.1:{silent.getsockname()[1]}"
        since = time.monotonic()
        assert offered(cli, "acquire", "-t", "") == []
        assert time.monotonic() - since > 0.9
    assert _SERVER_SECONDS < 2  # of the 30 that a request has elsewhere


def test_what_a_handle_holds_is_offered_where_some_of_it_is_meant(cli: Cli) -> None:
    cli.pool("T", "T--00", "T--01", "U")
    held = os.path.basename(cli.ok("acquire", "-t", "T", "-c", "3").strip())
    assert offered(cli, "use", held, "--name", "") == ["T--00", "T--01", "U"]
    assert offered(cli, "unuse", "--handle", held, "--name", "T") == ["T--00", "T--01"]
    assert offered(cli, "answer", held, "--names", "U,T") == ["U,T--00", "U,T--01"]
    assert offered(cli, "use", "nosuch", "--name", "") == []


def test_a_path_of_a_handle_is_left_to_the_shell(cli: Cli) -> None:
    finished = complete(cli, "bash", "cat", "--handle", "/tmp/")
    assert finished.out == "file,/tmp/\n"


@pytest.mark.parametrize("words", [("acquire", "-t", ""), ("cat", "--handle", "")])
def test_without_a_state_directory_nothing_is_offered_and_none_is_made(
    cli: Cli, words: tuple[str, ...]
) -> None:
    assert offered(cli, *words) == []
    assert not cli.state_dir.exists()


def test_where_the_records_cant_be_read_nothing_is_offered_and_nothing_said(cli: Cli) -> None:
    cli.state_dir.mkdir(mode=0o700)
    database = cli.state_dir / "state.db"
    for content in (b"", b"x" * 8192):
        database.write_bytes(content)
        assert offered(cli, "acquire", "-t", "") == []
        assert database.read_bytes() == content
    database.unlink()
    cli.pool("T")
    cli.state_dir.chmod(0o777)
    assert offered(cli, "acquire", "-t", "") == []


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        ("bash", "complete -o nosort -F _leasectl_completion leasectl"),
        ("zsh", "compdef _leasectl_completion leasectl"),
        ("fish", "complete --no-files --command leasectl"),
    ],
)
def test_the_script_of_each_shell_registers_the_command(
    cli: Cli, shell: str, registers: str
) -> None:
    script = cli.ok("completion", shell)
    assert registers in script
    assert "_LEASECTL_COMPLETE" in script
    found = shutil.which(shell)
    if found is not None:
        path = cli.cwd / "script"
        path.write_text(script)
        assert cli.spawn([found, "-n", str(path)]).finish().err == ""


def test_an_unknown_shell_is_refused(cli: Cli) -> None:
    finished = cli("completion", "tcsh")
    assert (finished.code, finished.out, finished.err.count("\n")) == (64, "", 1)
