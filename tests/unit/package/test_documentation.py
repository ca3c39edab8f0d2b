"""Every command that the README, the pages in docs/ and the help show is run as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from leasectl.cli.root import COMMANDS, environment
from leasectl.cli.root import command as root
from leasectl.errors import EXIT_CODES
from tests.kit.etcd.server import EtcdServer, reserve_port
from tests.kit.faults.process import StartFaultProxy
from tests.kit.kubernetes.accounts import MAINTENANCE_RULES
from tests.kit.kubernetes.namespaces import Namespace
from tests.kit.kubernetes.nodes import NODES, make_node
from tests.kit.kubernetes.servers import Kubernetes
from tests.kit.support import Cli, clean_environment
from tests.kit.waits import eventually

# The texts are the same on every Python, and their commands are tested on each.
pytestmark = pytest.mark.once

README = Path(__file__).parents[3] / "README.md"
REFERENCE = README.parent / "docs" / "reference.md"
INDEX = README.parent / "docs" / "README.md"
DEVELOPERS = README.parent / "docs" / "dev"
# What users read; the others are for those who read the code.
PAGES = (README, INDEX, *sorted({*INDEX.parent.glob("*.md")} - {INDEX}))
NAMES = [page.relative_to(README.parent).as_posix() for page in PAGES]
# A comment right before a block says why it isn't run.
_BLOCK = re.compile(
    r"(?:<!-- not run by the tests: (?P<reason>[^\n]+) -->\n)?```bash\n(?P<text>.*?)```", re.DOTALL
)

INSTALLER = """#!/usr/bin/env bash
# Stands in for openshift-install: exit code 4 twice, then success.
printf x >>"$0.attempts"
(($(wc -c <"$0.attempts") > 2)) || exit 4
"""

KUBECTL = """#!/usr/bin/env bash
# Stands in for `kubectl create configmap NAME --from-file=PATH...` and the mount of what it makes.
set -euo pipefail
[[ "$1 $2" == 'create configmap' ]]
mkdir -p mounted/..data
for word in "${@:4}"; do
  path=${word#--from-file=}
  cp "$path" mounted/..data
  ln -s "..data/${path##*/}" mounted
done
(($(cat mounted/..data/* | wc -c) < 1 << 20))
"""

# A list that pools may move over from.
RESOURCES = "resources: [{type: lab, state: free, names: [rack-7, rack-8]}]"

# Where the README has a cluster.
CLUSTER = "etcd://etcd-0:2379,etcd-1:2379,etcd-2:2379/"
# Where the page on Boskos has it.
BOSKOS = "boskos+http://boskos.ci"

MOST_README_WORDS = 900
MOST_PAGE_WORDS = 1200

INSTALL_LEASE = "openshift-org-azure--azure4--install-quota-slice"


def blocks(page: Path) -> list[tuple[str | None, str]]:
    """Reason not to run it, and text, of each Bash block of a page."""
    # One in a list is indented, which Bash doesn't mind.
    return [(match["reason"], match["text"]) for match in _BLOCK.finditer(read(page))]


def block_below(page: Path, heading: str) -> str:
    """The only Bash block under a heading."""
    section = read(page).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (match,) = _BLOCK.finditer(section)
    return match["text"]


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """What a link to a part of a page may name."""
    titles = re.findall(r"^#+ (.+)$", read(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


def commands(
    command: click.Command = root, path: tuple[str, ...] = ("leasectl",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """All commands, those of groups included."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            each = command.get_command(context, name)
            assert each is not None
            yield from commands(each, (*path, name))


ALL_COMMANDS = list(commands())
WITHOUT_GROUPS = [(p, c) for p, c in ALL_COMMANDS if not isinstance(c, click.Group)]


# One process for all of them. The width is what click uses of a terminal.
_SAY_HELP = """
import json, sys
from leasectl.cli import groups, root

def said(words):
    texts = []
    groups.show = texts.append
    width = int(sys.argv[1]) - 2
    root.command.main([*words, "--help"], "leasectl", standalone_mode=False, terminal_width=width)
    return "".join(texts)

print(json.dumps([said(words) for words in json.loads(sys.argv[2])]))
"""


@cache
def _all_help(columns: int) -> dict[tuple[str, ...], str]:
    words = json.dumps([path[1:] for path, _ in ALL_COMMANDS])
    argv = [sys.executable, "-c", _SAY_HELP, str(columns), words]
    said = json.loads(subprocess.check_output(argv, text=True, env=clean_environment()))
    return {path: text for (path, _), text in zip(ALL_COMMANDS, said)}


def help_of(path: tuple[str, ...], columns: int = 80) -> str:
    """What a command says of itself."""
    return _all_help(columns)[path]


def example_of(text: str) -> str:
    """The lines under ``Example:`` in a help text."""
    _, _, after = re.split(r"^ *(Examples?:)\n", text, flags=re.MULTILINE)
    return after


@pytest.fixture
def shell(cli: Cli) -> Cli:
    """A command line with stand-ins for what the examples start, and the installed leasectl."""
    folder = cli.cwd / "bin"
    folder.mkdir()
    for path in (folder / "openshift-install", cli.cwd / "install.sh"):
        write_program(path, INSTALLER)
    write_program(folder / "kubectl", KUBECTL)
    (cli.cwd / "boskos-resources.yaml").write_text(RESOURCES)
    (cli.cwd / "scripts").symlink_to(README.parent / "scripts")
    shared = cli.cwd / "shared"
    shared.mkdir()
    installed = Path(sys.executable).parent
    cli.env.update(
        PATH=f"{folder}:{installed}:{cli.env['PATH']}",
        HOME=str(cli.cwd),
        SHARED_DIR=str(shared),
        LEASECTL_CODE_DIR=str(cli.cwd / "code"),
        LEASECTL_BACKEND="local:",
        LEASE_PROXY_CLIENT_SH="scripts/client.sh",
        CLUSTER_PROFILE_SET_NAME="openshift-org-azure",
        CLUSTER_PROFILE_NAME="azure4",
    )
    return cli


@pytest.fixture(scope="module")
def kubeconfig_of_nodes(
    kubernetes: Kubernetes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The cluster that the page on maintenance and its commands' help assume."""
    namespace = Namespace(kubernetes, "leasectl-maintenance")
    namespace.account.permit_everywhere(MAINTENANCE_RULES)
    make_node(namespace.administrator, "worker-1")
    yield namespace.account.kubeconfig(tmp_path_factory.mktemp("nodes") / "kubeconfig")
    # A node belongs to the whole cluster, which other tests of this process use too.
    namespace.administrator.ok("DELETE", f"{NODES}/worker-1")


@pytest.fixture(scope="module")
def kubeconfig_with_ci(
    kubernetes: Kubernetes, kubeconfig_of_nodes: Path, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """That of somebody who may do everything, in a cluster with a namespace ci besides."""
    Namespace(kubernetes, "ci")
    given = os.environ.get("LEASECTL_TEST_KUBECONFIG")
    path = tmp_path_factory.mktemp("ci") / "administrator"
    return given or str(kubernetes.own.administrator_kubeconfig(path))


def about_nodes(shell: Cli, request: pytest.FixtureRequest) -> None:
    """Have commands in a shell find a cluster with a node."""
    kubeconfig = request.getfixturevalue("kubeconfig_of_nodes")
    shell.env.update(LEASECTL_KUBECONFIG=str(kubeconfig), LEASECTL_BACKEND="kubernetes://")


def have_cluster(shell: Cli, request: pytest.FixtureRequest) -> None:
    """Have commands in a shell be of somebody with the real kubectl, who may do everything."""
    (shell.cwd / "bin" / "kubectl").unlink()
    shell.env["KUBECONFIG"] = request.getfixturevalue("kubeconfig_with_ci")


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def with_own_ports(text: str) -> str:
    """A block that starts an etcd: on ports that nobody else has, until the block ends."""
    peers = f"http://127.0.0.1:{reserve_port()}"
    member = f"--listen-peer-urls={peers} --initial-advertise-peer-urls={peers}"
    start = f"etcd {member} --initial-cluster=default={peers}"
    text = text.replace("etcd --data-dir", f"{start} --data-dir")
    return text.replace("127.0.0.1:2379", f"127.0.0.1:{reserve_port()}") + "kill $!\n"


def run_bash(cli: Cli, text: str) -> None:
    # Some build what they then try.
    finished = cli.spawn(["bash", "-euo", "pipefail", "-c", text]).finish()
    assert finished.code == 0, f"{text}\n{finished}"


class TestPages:
    @pytest.mark.parametrize("page", PAGES, ids=NAMES)
    def test_every_block_runs_one_after_the_other(
        self, shell: Cli, etcd: EtcdServer, page: Path, request: pytest.FixtureRequest
    ) -> None:
        for name in ("openshift-org-azure--install", INSTALL_LEASE):
            shell.pool(name)
        shell.env.update(ETCDCTL_API="3", ETCDCTL_ENDPOINTS=etcd.endpoints[0])
        if page.stem == "maintenance":
            about_nodes(shell, request)
        elif page.stem in ("README", "kubernetes"):
            have_cluster(shell, request)
        for text in [text for reason, text in blocks(page) if reason is None]:
            if "etcd --data-dir" in text:
                text = with_own_ports(text)
            text = text.replace(CLUSTER, f"{etcd.endpoints[0].replace('http', 'etcd')}/")
            if BOSKOS in text:
                server = request.getfixturevalue("boskos")("lab=2")
                text = text.replace(BOSKOS, server.backend)
                if "== 66" in text:  # it is about a type that Boskos' file has no more
                    server.configure("other=1")
            run_bash(shell, text)
            shell.ok("release", "--all", LEASECTL_BACKEND="local:")

    @pytest.mark.parametrize("page", PAGES, ids=NAMES)
    def test_what_isnt_run_has_a_reason(self, page: Path) -> None:
        found = blocks(page)
        assert read(page).count("```bash") == len(found)
        reasons = [reason for reason, _ in found if reason is not None]
        assert len(reasons) <= (3 if page == README else 0)
        assert all(len(reason) > 15 for reason in reasons)

    @pytest.mark.parametrize("page", [README, README.parent / "docs" / "bash.md"], ids=str)
    def test_shellcheck_warns_of_none_of_its_blocks(self, page: Path) -> None:
        shellcheck = Path(sys.executable).parent / "shellcheck"
        if not shellcheck.exists():
            pytest.skip("needs the extra lint")
        for _, text in blocks(page):
            # What is sourced is elsewhere.
            argv = [str(shellcheck), "--shell=bash", "--severity=warning", "--exclude=SC1090", "-"]
            checked = subprocess.run(argv, input=text, text=True, capture_output=True)
            assert (checked.returncode, checked.stdout) == (0, ""), text

    @pytest.mark.parametrize("page", PAGES, ids=NAMES)
    def test_its_links_lead_somewhere(self, page: Path) -> None:
        for target in re.findall(r"\]\(([^)]+)\)", read(page)):
            if "://" not in target:
                path, _, anchor = target.partition("#")
                linked = page.parent / path if path else page
                assert linked.exists(), target
                assert not anchor or anchor in anchors(linked), target

    def test_the_ci_step_runs_on_what_is_mounted(
        self, shell: Cli, fault_proxy: StartFaultProxy
    ) -> None:
        page = README.parent / "docs" / "install.md"
        run_bash(shell, block_below(page, "Mounting it beside client.sh"))
        image = shell.cwd / "image"
        image.mkdir()
        write_program(image / "python3", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        write_program(
            image / "openshift-install", '#!/bin/sh\ncat "$LEASECTL_STATE_DIR"/handles/*\n'
        )
        proxy = fault_proxy(f"{INSTALL_LEASE}=1")
        finished = shell.spawn(
            ["bash", "-c", block_below(README, "In a CI step")],
            PATH=f"{image}:/usr/bin:/bin",
            LEASECTL_BACKEND=None,
            LEASE_PROXY_SERVER_URL=proxy.url,
            LEASE_PROXY_CLIENT_SH=str(shell.cwd / "mounted" / "client.sh"),
        ).finish()
        assert (finished.code, finished.out) == (0, f"{INSTALL_LEASE}--00")
        assert re.fullmatch(r"leasectl: .* will be released in 20m, .*\n", finished.err)
        eventually(lambda: proxy.leased == [], what="the guard has ended the lease")
        # It was leasectl.pyz that did it.
        assert [*(shell.cwd / "code").iterdir()]

    def test_the_readme_is_short_and_links_the_index(self) -> None:
        text = read(README)
        assert len(text.split()) <= MOST_README_WORDS
        assert "](docs/README.md)" in text

    def test_the_index_links_every_page_once(self) -> None:
        linked = re.findall(r"\]\(([\w-]+\.md)\)", read(INDEX))
        assert sorted(linked) == [page.name for page in PAGES[2:]]

    @pytest.mark.parametrize("page", [*PAGES, *DEVELOPERS.rglob("*.md")], ids=str)
    def test_no_page_is_long(self, page: Path) -> None:
        assert len(read(page).split()) <= MOST_PAGE_WORDS

    @pytest.mark.parametrize("page", [*DEVELOPERS.rglob("*.md")], ids=str)
    def test_links_of_pages_for_developers_lead_somewhere(self, page: Path) -> None:
        self.test_its_links_lead_somewhere(page)

    def test_the_reference_names_every_command(self) -> None:
        for name in COMMANDS:
            assert re.search(rf"^\|[^|]*`{name}\b", read(REFERENCE), re.MULTILINE), name

    def test_the_reference_has_the_exit_codes(self) -> None:
        section = read(REFERENCE).partition("## Exit codes\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
        assert tuple(rows[1:]) == EXIT_CODES

    def test_every_variable_that_is_read_is_in_its_page(self) -> None:
        text = read(README.parent / "docs" / "files.md")
        for names, _ in environment():
            for name in names.split(", "):
                assert f"`{name}`" in text


class TestHelp:
    @pytest.mark.parametrize("path", [p for p, _ in WITHOUT_GROUPS], ids=" ".join)
    def test_its_example_runs(
        self, shell: Cli, path: tuple[str, ...], request: pytest.FixtureRequest
    ) -> None:
        example = example_of(help_of(path))
        assert "leasectl" in example
        before = ""
        succeed = "{} || {} || :\n"  # after its two failures
        if "maintenance" in path:
            about_nodes(shell, request)
        elif "kubernetes" in path:
            have_cluster(shell, request)
        elif "pool create" not in example:
            shell.pool("azure--install")
        if '"$h"' in example and "h=$(" not in example:
            before = "h=$(leasectl acquire -t azure--install --ttl 5m)\n"
        if "acquire" in path:
            before += succeed.format("openshift-install", "openshift-install")
        run_bash(shell, before + example)

    @pytest.mark.parametrize("path", [p for p, _ in ALL_COMMANDS], ids=" ".join)
    def test_it_fits_80_columns(self, path: tuple[str, ...]) -> None:
        lines = help_of(path).splitlines()
        assert max(map(len, lines)) <= 80
        assert not any(line.rstrip().endswith("...") for line in lines[1:])

    @pytest.mark.parametrize("path", [p for p, _ in ALL_COMMANDS], ids=" ".join)
    def test_no_word_is_broken_but_after_punctuation(self, path: tuple[str, ...]) -> None:
        whole = set(help_of(path, columns=400).split())
        lines = [line.split() for line in help_of(path).splitlines()]
        broken = [line[-1] for line in lines if line and line[-1] not in whole]
        assert not [word for word in broken if word[-1].isalnum()]

    @pytest.mark.parametrize("path", [("leasectl",), ("leasectl", "pool", "add")], ids=" ".join)
    def test_a_whole_command_says_the_same(self, shell: Cli, path: tuple[str, ...]) -> None:
        assert shell.ok(*path[1:], "--help", COLUMNS="80") == help_of(path)

    def test_it_lists_every_command_on_one_screen(self) -> None:
        text = help_of(("leasectl",))
        for name in COMMANDS:
            assert name == "version" or re.search(rf"^  {name}  ", text, re.MULTILINE), name
        assert len(text.splitlines()) <= 45

    def test_topics_have_the_exit_codes_and_the_variables(self, shell: Cli) -> None:
        for topic, rows in (("exit-codes", EXIT_CODES), ("environment", environment())):
            text = " ".join(shell.ok("help", topic, COLUMNS="200").split())
            for term, meaning in rows:
                assert f"{term} {meaning}" in text
