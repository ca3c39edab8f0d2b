"""The examples in the library's docstrings and in docs/python.md run."""

from __future__ import annotations

import doctest
import re
import time
from pathlib import Path

import pytest

import leasectl.client
from tests.kit.support import Cli
from tests.unit.client.conftest import Programs

PAGE = Path(__file__).parents[3] / "docs" / "python.md"
# What the page's reader has.
STUBS = """
def install(slot): assert slot.startswith("azure--install--")
def work_in_small_steps(): return True
def import_it(): return "imported"
"""


@pytest.fixture
def pools(cli: Cli) -> None:
    """The pools of the examples."""
    for pool, region, count in (("azure--install", "eastus", 1), ("gcp--install", "us-east1", 2)):
        cli.ok("pool", "create", pool, "--count", str(count))
        cli.ok("pool", "set", pool, "--property", f"region={region}")
    cli.ok("pool", "set", "gcp--install", "--names", "gcp--install--01", "--property", "zone=b")
    cli.pool("T")


@pytest.mark.usefixtures("environment", "pools")
def test_examples_in_docstrings_are_right() -> None:
    result = doctest.testmod(leasectl.client, extraglobs={"leasectl": leasectl, "time": time})
    assert result.failed == 0
    assert result.attempted >= 20


@pytest.mark.usefixtures("pools")
def test_the_page_runs_from_its_first_line_to_its_last(cli: Cli) -> None:
    text = PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == text.count("```python")
    programs = Programs(cli)
    assert "cancelled" in programs.run(STUBS + "\n".join(blocks))
    assert cli.held() == {}


def test_a_cancelled_task_gives_its_lease_back(cli: Cli, programs: Programs) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## asyncio")[2]
    helper = text.partition("```python\n")[2].partition("async def main")[0]
    out = programs.run(
        f"{helper}\n"
        "async def work():\n"
        "    async with leased('T', count=2): pass\n"
        "async def main():\n"
        "    with client.acquire('T'):\n"
        "        task = asyncio.create_task(work())\n"
        "        while not client.status('T')['pools'][0]['queue']: await asyncio.sleep(0.01)\n"
        "        task.cancel()\n"
        "        try: await task\n"
        "        except asyncio.CancelledError: print('cancelled')\n"
        "    await work()\n"
        "asyncio.run(main())\n"
        "print(threading.active_count())\n"
    )
    assert out == "cancelled\n1\n"


@pytest.mark.parametrize("name", sorted({*leasectl.__all__} - {"lease", "Lease", "Loss", "Work"}))
def test_the_page_tells_of_every_name(name: str) -> None:
    assert re.search(rf"\b{name}\b", PAGE.read_text(encoding="utf-8"))
