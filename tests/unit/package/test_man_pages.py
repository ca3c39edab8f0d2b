"""The man pages: made of the help, one for each command, and installed with it."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import click
import pytest

from leasectl.cli.groups import TOLD
from leasectl.cli.root import environment
from leasectl.errors import EXIT_CODES

once = pytest.mark.once  # they are the same on every Python

ROOT = Path(__file__).parents[3]
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "man_pages.py"))
CONTEXTS = {
    SCRIPT["page_name"](ctx): ctx
    for ctx in SCRIPT["contexts"](click.Context(SCRIPT["root"], info_name="leasectl"))
}
REQUESTS = {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".BR", ".nf", ".fi", ".nh", ".ad"}


def plain(page: str) -> str:
    """What a page says, without what troff takes for its own."""
    text = re.sub(r"\\f[BIR]", "", page).replace("\\-", "-").replace("\\&", "").replace("\\e", "\\")
    return " ".join(text.split())


@once
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_page_says_what_help_says(name: str) -> None:
    ctx = CONTEXTS[name]
    page = SCRIPT["page"](ctx)
    said = plain(page)
    for param in ctx.command.params:
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        if record is not None:
            assert f".B {record[0]} {' '.join(record[1].split())}" in said
    example = re.split(r"Examples?:\n", ctx.command.epilog or "")[1:]
    if example:
        assert " ".join(example[0].split()) in said
    requests = {line.split()[0] for line in page.splitlines() if line.startswith((".", "'"))}
    assert requests <= REQUESTS


@once
def test_the_first_page_has_the_variables_and_the_exit_codes() -> None:
    said = plain(SCRIPT["page"](CONTEXTS["leasectl"]))
    for term, meaning in (*environment(), *TOLD, *EXIT_CODES):
        assert f".B {term} {meaning}" in said
    assert ".BR leasectl-run (1)" in said


@once
@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff to read them with")
def test_groff_has_nothing_to_say_of_them(tmp_path: Path) -> None:
    pages = SCRIPT["write_pages"](tmp_path)
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", *pages], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "leasectl-run - Run a command while holding a lease" in done.stdout


def test_an_install_has_them() -> None:
    # -I: this process would find the source first.
    command = [sys.executable, "-I", "-c", "import leasectl; print(leasectl.__file__)"]
    installed = Path(subprocess.check_output(command, text=True).strip())
    if ROOT in installed.parents and "site-packages" not in installed.parts:
        pytest.skip("an editable install has none; those that tox makes have")
    folder = Path(sysconfig.get_path("data"), "share", "man", "man1")
    assert {f"{name}.1" for name in CONTEXTS} <= {path.name for path in folder.iterdir()}
