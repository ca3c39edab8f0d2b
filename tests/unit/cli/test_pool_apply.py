"""``leasectl pool apply``, as people and scripts run it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from leasectl.backends.contract import Patience
from leasectl.errors import NotAllowed
from leasectl.leases.acquire import acquire, announce
from leasectl.leases.release import release
from leasectl.model import Request, whole
from leasectl.pools import admin
from leasectl.pools.definitions import NamedPool
from tests.kit.forking import ending, fork
from tests.kit.killing import FULL_SIZE
from tests.kit.pool_changes import remove_resources
from tests.kit.support import Cli, CliOfAnotherUser, Finished
from tests.kit.waits import end_of, eventually

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77

LIST = """\
# What the jobs of this cluster may use.
resources:
  - type: "azure--install"
    state: free
    names:
    - azure-1    # rented until May
    - azure-2
  - type: lab
    state: dirty
    names: [rack-7, rack-8]
"""


def apply(cli: Cli, text: str, *args: str) -> Finished:
    path = cli.cwd / "pools.yaml"
    path.write_text(text)
    return cli("pool", "apply", "-f", "pools.yaml", *args)


def pools(cli: Cli) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {str(t): [] for (t,) in cli.query("SELECT type FROM pool")}
    for pool_type, name in cli.query("SELECT type, name FROM resource ORDER BY name"):
        found[str(pool_type)].append(str(name))
    sizes = cli.query("SELECT type, capacity FROM pool")
    assert sizes == [(pool_type, len(names)) for pool_type, names in found.items()]
    return found


def test_a_list_of_boskos_moves_over_as_it_is(cli: Cli) -> None:
    finished = apply(cli, LIST)
    assert (finished.code, finished.out) == (0, "")
    assert finished.err.splitlines() == [
        "leasectl: pools.yaml:9: state dirty is ignored: new resources are free at once",
        'leasectl: pool "azure--install": created with 2 resources (azure-1 and azure-2)',
        'leasectl: pool "lab": created with 2 resources (rack-7 and rack-8)',
    ]
    assert pools(cli) == {"azure--install": ["azure-1", "azure-2"], "lab": ["rack-7", "rack-8"]}
    assert cli.ok("acquire", "-t", "lab", "--name", "rack-7")


def test_applying_twice_changes_nothing(cli: Cli) -> None:
    apply(cli, LIST)
    cli.hold("lab")
    before = cli.snapshot()
    finished = apply(cli, LIST)
    after = cli.snapshot()
    assert (finished.code, finished.out) == (0, "")
    unchanged = [
        'leasectl: pool "azure--install": unchanged',
        'leasectl: pool "lab": unchanged',
    ]
    assert finished.err.splitlines() == unchanged
    assert after == before
    looked = apply(cli, LIST, "--dry-run").err.splitlines()
    assert "state dirty is ignored" in looked[0]
    assert looked[1:] == [f"{line} (dry run)" for line in unchanged]


def test_a_held_resource_that_is_not_listed_leaves_with_its_release(cli: Cli) -> None:
    cli.pool("lab", "old", "rack-7")
    handle = cli.ok("acquire", "-t", "lab", "--name", "old").strip()
    for _ in range(2):
        finished = apply(cli, LIST, "--quiet")
        assert (finished.code, finished.out) == (0, "")
        assert finished.err == (
            'leasectl: pool "lab": 1 resource (old) is still held; it is removed when it is '
            "released, and takes no new holder until then\n"
        )
        assert pools(cli)["lab"] == ["old", "rack-7", "rack-8"]
    assert cli.ok("release", "--handle", handle) == "old\n"
    assert pools(cli)["lab"] == ["rack-7", "rack-8"]


def test_a_held_resource_moves_from_pool_to_pool_with_its_release(cli: Cli) -> None:
    cli.pool("lab", "azure-2", "azure-1")
    handle = cli.ok("acquire", "-t", "lab", "--name", "azure-2").strip()
    finished = apply(cli, LIST)
    assert finished.code == 0
    assert finished.err.splitlines()[1:] == [
        'leasectl: pool "azure--install": created with 1 resource (azure-1)',
        'leasectl: pool "azure--install": 1 resource (azure-2) is still held in another pool; '
        "it moves here when it is released, and takes no new holder until then",
        'leasectl: pool "lab": 2 added (rack-7 and rack-8), 1 removed (azure-1)',
        'leasectl: pool "lab": 1 resource (azure-2) is still held; it is removed when it is '
        "released, and takes no new holder until then",
    ]
    cli.ok("release", "--handle", handle)
    assert pools(cli) == {"azure--install": ["azure-1", "azure-2"], "lab": ["rack-7", "rack-8"]}


def test_a_name_of_a_pool_that_isnt_listed_is_refused_and_nothing_changes(cli: Cli) -> None:
    cli.pool("azure--install", "azure-0")
    cli.pool("other", "rack-8")
    before = cli.snapshot()
    finished = apply(cli, LIST)
    assert finished == Finished(
        USAGE,
        "",
        'leasectl: the file puts "rack-8" into pool "lab", but it is in pool "other"; add an '
        'entry for pool "other" without "rack-8", or first run: leasectl pool move --names rack-8 '
        "--to lab\n",
    )
    assert cli.snapshot() == before


@pytest.mark.parametrize("existing", [True, False])
def test_a_dry_run_says_what_would_change_and_changes_nothing(cli: Cli, existing: bool) -> None:
    cli.pool("other")
    if existing:
        cli.pool("azure--install", "azure-0", "azure-1")
    rows = cli.snapshot()["rows"]
    finished = apply(cli, LIST, "--dry-run")
    did = "1 added (azure-2), 1 removed (azure-0)"
    did = did if existing else "created with 2 resources (azure-1 and azure-2)"
    assert (finished.code, finished.out) == (0, "")
    assert f'pool "azure--install": {did} (dry run)\n' in finished.err
    assert cli.snapshot()["rows"] == rows
    assert f'pool "azure--install": {did}\n' in apply(cli, LIST).err


def test_a_list_comes_from_stdin_and_from_a_pipe(cli: Cli) -> None:
    text = json.dumps({"resources": [{"type": "T", "names": ["a"]}]})
    for redirect in ("-f - <<<", "--filename - <<<", "-f /dev/stdin <<<"):
        script = f"{' '.join(cli.command())} pool apply {redirect} '{text}'"
        finished = cli.spawn(["bash", "-c", script]).finish()
        assert finished.code == 0, finished
    script = f"{' '.join(cli.command())} pool apply -q -f <(printf '%s' '{text}')"
    assert cli.spawn(["bash", "-c", script]).finish() == Finished(0, "", "")
    assert pools(cli) == {"T": ["a"]}
    finished = cli("pool", "apply", "-f", "-")
    assert finished.code == USAGE
    assert finished.err.startswith('leasectl: stdin: a mapping with "resources" is expected')


def test_a_bad_file_is_one_line_and_changes_nothing(cli: Cli) -> None:
    cli.pool("lab", "rack-7")
    path = cli.cwd / "bad.yaml"
    before = cli.snapshot()
    for content in (
        b"hello",
        b"resources: [",
        b'resources: [{type: lab, names: ["\\e[31m"]}]',
        b"resources: [{type: T, names: [a]}, {type: U}]",
        b"resources: !!python/object/apply:os.system [touch pwned]",
        b"resources:\n- type: \xff\n",
        b"resources: " + b"[" * 200_000,
    ):
        path.write_bytes(content)
        assert_refused(cli("pool", "apply", "-f", str(path)), USAGE, str(path))
    path.unlink()
    assert cli.snapshot() == before
    assert not (cli.cwd / "pwned").exists()


def assert_refused(finished: Finished, code: int, said: str) -> None:
    assert (finished.code, finished.out) == (code, ""), finished
    assert finished.err.startswith(f"leasectl: {said}"), finished
    assert finished.err.count("\n") == 1
    assert finished.err[:-1].isprintable()


def test_a_file_that_cant_be_read_is_one_line_and_makes_no_state_directory(
    cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text(LIST)
    for path, code in (
        ("nowhere.yaml", NOT_FOUND),
        ("file/pools.yaml", NOT_FOUND),
        (".", USAGE),
        ("/dev/zero", USAGE),
        ("x" * 300, USAGE),
    ):
        assert_refused(cli("pool", "apply", "-f", path), code, path[:50])
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        assert_refused(cli("pool", "apply", "-f", "socket"), USAGE, "socket")
    assert_refused(cli("pool", "apply", "-f", ""), USAGE, "--filename is empty")
    assert_refused(cli("pool", "apply"), USAGE, "--filename is missing")
    assert_refused(cli("pool", "apply", "-f", "file", "-f", "file"), USAGE, "--filename: only one")
    assert not cli.state_dir.exists()


def test_a_file_of_somebody_else_is_not_allowed(other_user: CliOfAnotherUser) -> None:
    path = other_user.state_dir.parent / "pools.json"
    path.write_text('{"resources": [{"type": "T", "names": ["a"]}]}')
    os.chmod(path, 0o600)
    assert_refused(other_user("pool", "apply", "-f", str(path)), NOT_ALLOWED, str(path))


@pytest.mark.once
def test_a_large_pool_takes_seconds(cli: Cli) -> None:
    size = 100_000 if FULL_SIZE else 20_000

    def apply(text: str) -> Finished:
        """With half a minute of a processor, however long it has to wait for it."""
        (cli.cwd / "pools.yaml").write_text(text)
        command = cli.command("pool", "apply", "-f", "pools.yaml")
        return cli.spawn(["prlimit", "--cpu=30", *command]).finish()

    names = "".join(f"  - account-number-{number:06d}\n" for number in range(size))
    text = f"resources:\n- type: T\n  state: free\n  names:\n{names}"
    assert apply(text).err == (
        f'leasectl: pool "T": created with {size} resources '
        f"(account-number-000000 … account-number-{size - 1:06d})\n"
    )
    assert apply(text).err == 'leasectl: pool "T": unchanged\n'


def test_what_is_acquired_while_a_list_is_applied_is_never_dropped(cli: Cli) -> None:
    cli.pool("T", "a", "b", "c", "d")

    def take_turns() -> None:
        with cli.service(owner=f"test@{os.getpid()}") as service:
            for _ in range(60):
                handle = acquire(service, Request("T", count=2), patience=Patience())
                announce(service, handle)
                assert set(release(service, whole(handle))) == set(handle.names)

    workers = [fork(take_turns) for _ in range(3)]
    with cli.service() as service:
        for round_ in range(60):
            wanted = ("a", "b", "c", "d") if round_ % 2 else ("c", "d", "e", "f")
            admin.apply(service, [NamedPool("T", wanted)])
    assert [ending(pid) for pid in workers] == [0, 0, 0]
    with cli.service() as service:
        admin.apply(service, [NamedPool("T", ("a", "b"))])
    assert pools(cli) == {"T": ["a", "b"]}


def test_a_refusal_within_a_larger_change_has_changed_nothing(cli: Cli) -> None:
    cli.pool("T", "a", "b")
    cli.hold(Request("T", name="b"))
    with cli.service() as service, service.state.transaction():
        with pytest.raises(NotAllowed):
            remove_resources(service.members, "T", ["a", "b"])
        assert service.pools.pools("T")[0].capacity == 2
    assert pools(cli) == {"T": ["a", "b"]}


def test_interrupted_while_it_reads_it_has_changed_nothing(cli: Cli) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "wb") as writer:
        process = subprocess.Popen(
            cli.command("pool", "apply", "-f", "-"), stdin=read, cwd=cli.cwd, env=cli.env
        )
        os.close(read)
        writer.write(LIST.encode())
        writer.flush()
        eventually(lambda: unread(writer.fileno()) == 0)
        process.send_signal(signal.SIGTERM)
        assert end_of(process) == -signal.SIGTERM
    assert not cli.state_dir.exists()


def unread(pipe: int) -> int:
    """How many bytes of a pipe nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_files_are_completed(cli: Cli) -> None:
    completed = cli.spawn(
        cli.command(),
        _LEASECTL_COMPLETE="bash_complete",
        COMP_WORDS="leasectl pool apply -f pool",
        COMP_CWORD="4",
    ).finish()
    assert completed.out == "file,pool\n"


def test_how_pools_grant_is_applied_too_and_what_isnt_said_stays(cli: Cli) -> None:
    listed = "resources:\n- {type: lab, state: free, names: [rack-7], pace: 20s, burst: 2}\n"
    made = 'leasectl: pool "lab": created with 1 resource (rack-7); pace 20s, burst 2'
    assert apply(cli, listed, "--dry-run").err == f"{made} (dry run)\n"
    assert apply(cli, listed).err == f"{made}\n"
    assert apply(cli, listed).err == 'leasectl: pool "lab": unchanged\n'
    # As by a list that Boskos reads as well, while somebody has set a pace by hand.
    cli.ok("pool", "set", "lab", "--aging", "30m")
    plain = "resources:\n- {type: lab, state: free, names: [rack-7]}\n"
    assert apply(cli, plain).err == 'leasectl: pool "lab": unchanged\n'
    found = json.loads(cli.ok("pool", "list", "--json"))["pools"][0]
    assert (found["pace_seconds"], found["burst"], found["aging_seconds"]) == (20, 2, 1800)
    changed = plain.replace("}", ", pace: 0}").replace("rack-7", "rack-8")
    assert apply(cli, changed).err == (
        'leasectl: pool "lab": 1 added (rack-8), 1 removed (rack-7), pace none, aging 30m\n'
    )


def test_a_burst_without_a_pace_is_refused_and_nothing_changes(cli: Cli) -> None:
    cli.pool("lab", "rack-7")
    before = cli.snapshot()
    finished = apply(cli, "resources:\n- {type: lab, state: free, names: [x], burst: 2}\n")
    assert (finished.code, finished.out) == (USAGE, "")
    assert 'pool "lab": burst 2 needs a pace' in finished.err
    assert cli.snapshot() == before


EXPECTING = """\
resources:
- {type: lab, state: free, names: [rack-7], expect: [rack-9, 'edge-*']}
- {type: any, state: free, names: [any-1], default: true, grace: 0, expect: []}
"""


def test_a_list_says_what_is_expected_in_a_pool_and_nothing_else_is(cli: Cli) -> None:
    said = apply(cli, EXPECTING, "--dry-run").err.splitlines()[0]
    assert said == (
        'leasectl: pool "lab": created with 1 resource (rack-7); expected: rack-9, edge-* (dry run)'
    )
    apply(cli, EXPECTING)
    assert apply(cli, EXPECTING).err.splitlines()[0] == 'leasectl: pool "lab": unchanged'
    assert cli("pool", "add", "any", "--names", "edge-1").code == NOT_ALLOWED
    cli.ok("pool", "expect", "lab", "--names", "by-hand")
    changed = apply(cli, EXPECTING.replace("rack-9, ", "")).err.splitlines()[0]
    assert changed == 'leasectl: pool "lab": no longer expected: by-hand, rack-9'
    shown = cli.ok("pool", "expect", "--list").splitlines()
    assert shown[1:] == ["lab   edge-*"]


def test_an_expectation_that_is_refused_changes_nothing(cli: Cli) -> None:
    cli.pool("other", "rack-9")
    before = cli.snapshot()
    finished = apply(cli, EXPECTING)
    assert finished.code == NOT_ALLOWED
    assert "leasectl pool move --names rack-9 --to lab" in finished.err
    assert cli.snapshot() == before
