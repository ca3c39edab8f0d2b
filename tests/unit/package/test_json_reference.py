"""The pages on JSON output name every key that the commands print, with its type."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, make_node
from tests.kit.support import Cli
from tests.kit.waits import eventually

pytestmark = pytest.mark.once

DOCS = Path(__file__).parents[3] / "docs"
PAGES = ("json.md", "json-status.md", "json-reports.md", "events.md")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: is_number(value) and value == int(value),
    "number": is_number,
    "seconds": is_number,
    "boolean": lambda value: isinstance(value, bool),
    "time": lambda value: isinstance(value, str) and TIME.fullmatch(value) is not None,
    "list": lambda value: isinstance(value, list),
    "map": lambda value: isinstance(value, dict),
}


class Key(NamedTuple):
    """A documented key: its type, and whether it may be null."""

    type: str
    may_be_null: bool

    def describes(self, value: object) -> bool:
        return self.may_be_null if value is None else TYPES[self.type](value)


def sections() -> dict[str, str]:
    """The text under each heading of the pages."""
    found: dict[str, str] = {}
    for page in PAGES:
        parts = re.split(r"^#+ (.+)\n", (DOCS / page).read_text(), flags=re.MULTILINE)
        found.update(zip(parts[1::2], parts[2::2]))
    return found


def keys_under(heading: str) -> dict[str, Key]:
    """The keys in the table under a heading, with those of the objects that it links."""
    found: dict[str, Key] = {}
    text = sections()[heading]
    for names, kind in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", text, re.MULTILINE):
        link = re.fullmatch(r"\[\w+\]\([^)]*#([\w-]+)\)", kind)
        for name in re.findall(r"`([^`]+)`", names):
            if link is not None:
                inner = keys_under(link[1].replace("-", " ").capitalize())
                found.update({f"{name}.{key}": value for key, value in inner.items()})
            else:
                found[name] = Key(kind.removesuffix(" or null"), kind.endswith(" or null"))
    if heading == "A resource":
        found = {**keys_under("A lease"), **found}
    return found


def values_of(found: object, known: Mapping[str, Key], path: str = "") -> Iterator[tuple[str, Any]]:
    """Each value that was printed, with the path of its key; maps and plain lists are values."""
    if isinstance(found, dict) and (path not in known or known[path].type != "map"):
        for key, value in found.items():
            yield from values_of(value, known, f"{path}.{key}" if path else key)
    elif isinstance(found, list) and path not in known:
        for each in found:
            yield from values_of(each, known, f"{path}[]" if path else "")
    else:
        yield path, found


def check(heading: str, *printed: object, absent: frozenset[str] = frozenset()) -> None:
    """Compare what was printed with the table under a heading."""
    known = keys_under(heading)
    assert known, heading
    values = [each for text in printed for each in values_of(text, known)]
    assert {path for path, _ in values} == set(known) - absent
    for path, value in values:
        assert known[path].describes(value), (path, value, known[path])


def said(cli: Cli, *argv: str) -> Any:
    return json.loads(cli.ok(*argv, "--json"))


@pytest.fixture
def cli(cli: Cli) -> Cli:
    cli.ok("pool", "create", "lab", "--names", "lab--00,lab--01,lab--02")
    cli.ok("pool", "set", "lab", "--names", "lab--00", "--property", "region=eu")
    cli.ok("pool", "expect", "lab", "--names", "lab--00", "--match", "lab-*")
    return cli


def test_a_handle(cli: Cli) -> None:
    acquired = said(cli, "acquire", "lab", "--ttl", "5m", "--label", "k=v", "--where", "region=eu")
    handle = acquired["handle"]
    shown = said(cli, "cat", handle)
    check("`leasectl acquire`, `reacquire`, `cat`", acquired, shown, said(cli, "reacquire", handle))
    check("`leasectl renew`", said(cli, "renew", handle))
    check("`leasectl release`", said(cli, "release", handle))


def test_status_with_works_and_a_circle(cli: Cli) -> None:
    cli.pool("A", "A--00")
    cli.pool("B", "B--00")
    wait = f"until [ -e {cli.cwd}/go ]; do sleep 0.05; done"
    started = [
        cli.start("once", "work", "--", "sh", "-c", wait),
        cli.start("once", "work", "--", "sh", "-c", wait),
        cli.start("run", "A", "--", "sh", "-c", f"{wait}; leasectl run B -- true"),
        cli.start("run", "B", "--", "sh", "-c", f"{wait}; leasectl run A -- true"),
    ]
    eventually(lambda: len(cli.held()) == 3 and len(cli.waiting()) == 1)
    found = said(cli, "status")
    (cli.cwd / "go").touch()
    eventually(lambda: said(cli, "status")["circular_waits"])
    check("`leasectl status`", found, said(cli, "status"))
    for each in started[2:]:
        each.signal(signal.SIGTERM)
    for each in started:
        each.finish()


def test_pools(cli: Cli) -> None:
    check("`leasectl pool list`", said(cli, "pool", "list"))
    check("`leasectl pool of`", said(cli, "pool", "of", "lab--00"))
    check("`leasectl pool expect --list`", said(cli, "pool", "expect", "--list"))


def test_events_statistics_and_simulation(cli: Cli) -> None:
    cli.ok("run", "lab", "--", "true")
    events = cli.ok("events", "--json").splitlines()
    check("JSON fields", *map(json.loads, events))
    stats = said(cli, "stats")
    check("`leasectl stats`", stats)
    check("A series", stats["pools"][0]["series"])
    simulated = said(cli, "simulate", "--capacity", "2", "--hold", "20m", "--arrivals", "3")
    check("`leasectl simulate`", simulated)
    series = simulated["policies"][0]["series"]
    check("A series", series, absent=frozenset({"since", "until"}))


def test_a_reclaim(cli: Cli) -> None:
    wanted = ("--names", "lab--00,lab--01")
    handle = cli.ok("acquire", "lab", "-c", "2", "--on-reclaim", "answer").strip()
    check("`leasectl reclaim --dry-run`", said(cli, "reclaim", "lab", "--dry-run", *wanted))
    asking = ("reclaim", "lab", *wanted, "--delay", "0s", "--json", "-w")
    check("`leasectl reclaim`", json.loads(cli(*asking, "0.1s").out))  # nobody answers
    reclaim = cli.start(*asking, "10m")
    eventually(lambda: len(said(cli, "marks", handle)) == 2)
    check("`leasectl marks`", said(cli, "marks", handle))
    answer = ("answer", handle, "--names")
    check("`leasectl answer`", said(cli, *answer, "lab--00", "--ready"))
    check("`leasectl answer`", said(cli, *answer, "lab--01", "--keep"))
    reclaim.signal(signal.SIGTERM)
    reclaim.finish()


def test_results_of_once(cli: Cli) -> None:
    cli.ok("once", "work", "--input", "4.21", "--", "echo", "done")
    shown = said(cli, "once", "--show", "work", "--input", "4.21")
    check("`leasectl once --list`, `--show`", said(cli, "once", "--list"), shown)


def test_checks_and_version(cli: Cli) -> None:
    check("`leasectl doctor`", said(cli, "doctor"))
    check("`leasectl version`", said(cli, "version"))


def test_windows_of_nodes(cli: Cli, namespace: Namespace, tmp_path: Path) -> None:
    namespace.account.permit_everywhere(MAINTENANCE_RULES)
    make_node(namespace.administrator, "json-1")
    cli.env["LEASECTL_KUBECONFIG"] = str(namespace.account.kubeconfig(tmp_path / "kubeconfig"))
    there = ("--backend", "kubernetes://", "--lease-namespace", namespace.name)
    cli.ok("maintenance", "request", "json-1", "--for", "30m", "--backend", "kubernetes://")
    found = said(cli, "maintenance", "status", *there)
    namespace.administrator.ok("DELETE", f"{NODES}/json-1")
    check("`leasectl maintenance status`", found)
