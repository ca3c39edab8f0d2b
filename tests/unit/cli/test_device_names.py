"""Resources that are called as devices are: with a ``:``."""

from __future__ import annotations

import json

import pytest

from tests.kit.support import Cli

pytestmark = pytest.mark.once

NAMES = ("192.168.1.17:5555", "usb:1-2")


def test_every_command_takes_and_shows_a_name_with_a_colon(cli: Cli) -> None:
    cli.ok("pool", "create", "phones", "--names", ",".join(NAMES))
    handle = cli("acquire", "phones", "-c", "2").handle
    with open(handle) as names_file:
        assert sorted(names_file.read().split("\n")) == sorted(NAMES)
    assert sorted(cli.ok("cat", handle).split()) == sorted(NAMES)
    shown = json.loads(cli.ok("status", "--json"))["pools"][0]["resources"]
    assert sorted(each["name"] for each in shown) == sorted(NAMES)
    assert "usb:1-2" in cli.ok("status", "--wide")
    assert cli.ok("release", "--names", "usb:1-2") == "usb:1-2\n"
    assert cli.ok("release", "--names", NAMES[0], "--force") == f"{NAMES[0]}\n"
    said = cli.ok("run", "phones", "--name", "usb:1-2", "--", "sh", "-c", "echo $LEASECTL_NAMES")
    assert said == "usb:1-2\n"
    cli.ok("pool", "remove", "phones", "--names", "usb:1-2")
    cli.ok("pool", "delete", "phones")


def test_a_definitions_file_and_the_list_of_a_job_take_it(cli: Cli) -> None:
    (cli.cwd / "pools.yaml").write_text(
        "resources:\n- type: phones\n  names: [192.168.1.17:5555, 'usb:1-2']\n"
    )
    cli.ok("pool", "apply", "-f", "pools.yaml")
    shared = cli.cwd / "shared"
    shared.mkdir()
    env = {"SHARED_DIR": str(shared)}
    cli.ok("acquire", "phones", "--scope", "test", "--name", "usb:1-2", **env)
    assert (shared / "leases").read_text() == "usb:1-2\n"
    assert cli.ok("release", "--scope", "test", **env) == "usb:1-2\n"


@pytest.mark.parametrize("name", [":a", "a/b", "a b", "a$b", "a;b", "a*", "a,:b"])
def test_what_is_not_safe_is_refused_still(cli: Cli, name: str) -> None:
    assert cli("pool", "create", "T", "--names", name).code == 64


def test_a_type_has_no_colon(cli: Cli) -> None:
    assert cli("pool", "create", "a:b", "--names", "x").code == 64
    assert json.loads(cli.ok("status", "--json"))["pools"] == []
