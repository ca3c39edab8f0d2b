"""Properties and ``--where``, as people and scripts use them on the embedded pool."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.support import Cli

USAGE, NOT_FOUND, NOT_ALLOWED = 64, 66, 77
SHOW = (
    "sh",
    "-c",
    'printf "%s|%s|%s" "$LEASECTL_PROPERTIES" "${LEASECTL_PROPERTY_REGION-no}" "$X"',
)


@pytest.fixture
def pool(cli: Cli) -> Cli:
    """A pool of two in Europe, one of them big, and one in America."""
    cli.ok("pool", "create", "T", "--names", "eu-1,eu-2,us-1", "--property", "region=eu")
    cli.ok("pool", "set", "T", "--names", "us-1", "--property", "region=us", "--property", "n=1")
    cli.ok("pool", "set", "T", "--names", "eu-2", "--property", "size=big one")
    return cli


def properties(cli: Cli, pool_type: str = "T") -> dict[str, dict[str, str]]:
    (pool,) = json.loads(cli.ok("status", "-t", pool_type, "--json"))["pools"]
    return {each["name"]: each["properties"] for each in pool["resources"]}


class TestPools:
    def test_are_made_of_resources_with_properties(self, pool: Cli) -> None:
        assert properties(pool) == {
            "eu-1": {"region": "eu"},
            "eu-2": {"region": "eu", "size": "big one"},
            "us-1": {"n": "1", "region": "us"},
        }

    def test_say_what_was_done(self, pool: Cli) -> None:
        done = pool(
            "pool", "set", "T", "--property", "region=eu", "--property", "n-", "--pace", "5"
        )
        assert done.err.splitlines() == [
            'leasectl: pool "T": region=eu, no n (1 resource changed)',
            'leasectl: pool "T": pace 5s (was pace none)',
        ]
        made = pool("pool", "create", "U", "--count", "1", "--property", "a=b")
        assert made.err == 'leasectl: created pool "U" of 1 resource, U--00; a=b\n'

    @pytest.mark.parametrize(
        ("args", "code", "said"),
        [
            (
                ["set", "T", "--property", "region"],
                USAGE,
                "write it as KEY=VALUE, or KEY- to remove",
            ),
            (["set", "T", "--property", "a b=c"], USAGE, 'property "a b" is not allowed'),
            (["set", "T", "--property", "a=\x1b"], USAGE, "one line of printable text"),
            (["set", "T", "--property", f"a={'x' * 1025}"], USAGE, "1025 bytes; at most 1024"),
            (["set", "T", "--names", "eu-1"], USAGE, "--names needs --property"),
            (["set", "T", "--names", "eu-1,x", "--property", "a=b"], NOT_FOUND, 'no resource "x"'),
            (["set", "U", "--property", "a=b"], NOT_FOUND, 'no pool "U"'),
            (["create", "T", "--names", "x", "--property", "a=b"], USAGE, 'pool "T" exists'),
            (["create", "U", "--names", "x,eu-1", "--property", "a=b"], NOT_ALLOWED, '"eu-1"'),
            (["add", "T", "--names", "y", "--property", "a=b", "--property", "a-"], USAGE, "twice"),
        ],
    )
    def test_refuse_what_cant_be_and_change_nothing(
        self, pool: Cli, args: list[str], code: int, said: str
    ) -> None:
        before = pool.snapshot()
        refused = pool("pool", *args)
        assert (refused.code, said in refused.err) == (code, True), refused.err
        assert len(refused.err.splitlines()) == 1
        assert pool.snapshot() == before

    def test_may_have_as_many_as_there_can_be(self, pool: Cli) -> None:
        many = [word for n in range(32) for word in ("--property", f"k{n}=1")]
        pool.ok("pool", "create", "U", "--count", "1", *many)
        refused = pool("pool", "set", "U", "--property", "more=1")
        assert (refused.code, "33 properties; at most 32" in refused.err) == (USAGE, True)

    def test_are_as_a_file_says(self, pool: Cli, tmp_path: Path) -> None:
        file = tmp_path / "pools.yaml"
        file.write_text(
            "resources:\n- type: T\n  names: [eu-1, eu-2, us-1]\n"
            "  properties: {region: eu, us-1: {region: us}}\n"
            "- {type: U, min-count: 1, max-count: 1, userdata: {a: b}}\n"
        )
        dry = pool("pool", "apply", "-f", str(file), "--dry-run")
        assert 'pool "T": 2 with other properties (eu-2 and us-1) (dry run)' in dry.err
        assert 'pool "U": created with 1 resource (U--00); 1 with properties (dry run)' in dry.err
        pool.ok("pool", "apply", "-f", str(file))
        assert properties(pool) == {
            "eu-1": {"region": "eu"},
            "eu-2": {"region": "eu"},
            "us-1": {"region": "us"},
        }
        assert properties(pool, "U") == {"U--00": {"a": "b"}}
        again = pool("pool", "apply", "-f", str(file))
        assert again.err.count("unchanged") == 2

    def test_are_listed_with_them(self, pool: Cli) -> None:
        assert pool.ok("pool", "list").splitlines() == [
            "POOL  CAPACITY  FREE  HELD  WAITING  PROPERTIES",
            "T            3     3     0        0  n=1 region=eu|us size=big one",
        ]
        (listed,) = json.loads(pool.ok("pool", "list", "--json"))["pools"]
        assert listed["properties"] == properties(pool)
        free = r"^  eu-2 +free +region=eu size=big one$"
        assert re.search(free, pool.ok("status", "-t", "T"), re.MULTILINE)


class TestWhere:
    def test_what_can_never_be_had_is_refused_with_what_there_is(self, pool: Cli) -> None:
        for where, count in (("region=mars", "1"), ("region=eu", "3")):
            refused = pool("acquire", "T", "--where", where, "-c", count, "--optional", "-w", "1")
            assert refused.code == USAGE
            assert "region" in refused.err and len(refused.err.splitlines()) == 1

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (["--where", "region"], "write it as KEY=VALUE or KEY!=VALUE"),
            (["--where", "=x"], 'property "" is not allowed'),
            (["--where", "a=1", "--where", "a=2"], "can't be both"),
            (["--where", "a=1", "--name", "eu-1"], "leave out --where"),
            (
                ["--where", "a=1", "--backend", "none:"],
                "local:, etcd://, kubernetes:// and leasectl+http:// can do it",
            ),
            (
                ["--where", "a=1", "--backend", "http://127.0.0.1:9"],
                "local:, etcd://, kubernetes:// and leasectl+http:// can do it",
            ),
        ],
    )
    def test_what_cant_be_meant_is_refused(self, pool: Cli, args: list[str], said: str) -> None:
        for command in (["acquire", "T", *args], ["run", "T", *args, "--", "true"]):
            refused = pool(*command)
            assert (refused.code, said in refused.err) == (USAGE, True), refused.err
        assert pool.query("SELECT id FROM handle") == []


class TestProgramsAreTold:
    def test_run_tells_its_command(self, pool: Cli) -> None:
        outer = {"LEASECTL_PROPERTY_X": "outer", "LEASECTL_PROPERTIES": "outer", "X": "mine"}
        told = pool.ok("run", "T", "--where", "region=us", "--", *SHOW, **outer)
        assert told == '{"us-1": {"n": "1", "region": "us"}}|us|mine'
        several = pool.ok("run", "T", "-c", "2", "--", *SHOW, **outer).split("|")
        assert (len(json.loads(several[0])), several[1]) == (2, "no")
        env = pool.ok("run", "T", "--where", "region=us", "--", "env", **outer)
        assert "LEASECTL_PROPERTY_N=1\n" in env and "outer" not in env

    def test_lines_for_eval_are_safe(self, cli: Cli) -> None:
        value = "$(touch x)`touch x`'\"; touch x #"
        cli.ok("pool", "create", "T", "--names", "a", "--property", f"k.1={value}")
        lines = cli.ok("acquire", "T", "--output", "env")
        script = (
            f'{lines}\nprintf %s "$LEASECTL_PROPERTY_K_1"; printf %s "$LEASECTL_PROPERTIES" >&2'
        )
        for shell in filter(shutil.which, ("bash", "dash", "sh")):
            done = subprocess.run(
                [shell, "-euc", script], cwd=cli.cwd, capture_output=True, text=True, check=True
            )
            assert (done.stdout, json.loads(done.stderr)) == (value, {"a": {"k.1": value}})
        assert not (cli.cwd / "x").exists()

    def test_one_property_is_printed_of_each(self, pool: Cli, tmp_path: Path) -> None:
        handle = pool.ok("acquire", "T", "-c", "2").strip()
        assert pool.ok("cat", handle, "--property", "region") == "eu\neu\n"
        copy = tmp_path / "copy"
        copy.write_bytes(Path(handle).read_bytes())
        assert pool.ok("cat", str(copy), "--property", "region") == "eu\neu\n"
        lacking = pool("cat", handle, "--property", "size")
        assert (lacking.code, lacking.out) == (NOT_FOUND, "")
        assert lacking.err == 'leasectl: "eu-1" has no property "size"; it has region\n'
        pool.ok("release", "--handle", handle)
        assert pool("cat", handle, "--property", "region").code == NOT_FOUND
        assert pool("cat", "", "--property", "region").code == NOT_FOUND
        assert pool("cat", handle, "--property", "a=b").code == USAGE
        assert pool("cat", handle, "--property", "a", "--json").code == USAGE
