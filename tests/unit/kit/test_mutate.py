"""scripts/mutate: it breaks a copy, tells who noticed, and goes on where it was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import mutants

MUTATE = Path(__file__).parents[3] / "scripts" / "mutate"
UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")

MODULE = """def is_grown_up(age: int) -> bool:
    return age >= 18


def greet(age: int, said: list[str]) -> None:
    said.append("hello")
    while age < 0:
        pass
"""
TESTS = """from pkg.it import greet, is_grown_up


def test_it():
    assert is_grown_up(18) and not is_grown_up(3)
    greet(20, [])
"""


SEES_ONE = """import os


def test_it():
    assert not os.path.exists("/proc/{pid}")
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package of which not everything is tested."""
    root = tmp_path / "source"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg" / "it.py").write_text(MODULE)
    (root / "test_it.py").write_text(TESTS)
    return root


def mutate(root: Path, *options: str, tests: str = "test_it.py") -> tuple[int, str]:
    argv = [sys.executable, str(MUTATE), "--root", str(root), *options, "pkg", "--", tests]
    # A pytest that loads no more than these tests need starts in less than half the time.
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=100, env=env)
    return done.returncode, done.stdout + done.stderr


def test_it_tells_who_was_killed_and_shows_who_survived_also_again_by_better_tests(
    root: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    code, out = mutate(root, "--jobs", "2", "--limit", "10", "--log", str(log))
    assert code == 1
    verdicts = re.findall(r"^\d+: (\w+), [\d.]+ s, pkg/it.py:\d+: (.+)$", out, re.MULTILINE)
    assert {text: verdict for verdict, text in verdicts} == {
        "(age > 18)": "killed",  # a boundary, which its test looks at
        "19": "killed",
        "return None": "killed",
        "pass": "survived",  # nobody looks at what was said
        "(age <= 0)": "survived",
        "1": "survived",
    }
    assert "3 of 6 killed, 0 of them by the time limit" in out
    assert '-    said.append("hello")\n+    pass\n' in out
    assert (root / "pkg" / "it.py").read_text() == MODULE
    better = TESTS + "    said = []\n    greet(20, said)\n    assert said == ['hello']\n"
    (root / "test_it.py").write_text(better)
    code, out = mutate(root, "--jobs", "2", "--again", str(log))
    assert "3 mutants, 3 to be judged" in out
    assert (code, out.splitlines()[-1].split(",")[0]) == (1, "1 of 3 killed")


def test_a_script_that_is_called_like_a_folder_of_what_is_made_is_there(root: Path) -> None:
    (root / "pkg" / "build").write_text("it")
    (root / "dist").mkdir()
    there = "import os\nassert os.path.exists('pkg/build') and not os.path.exists('dist')\n"
    (root / "test_it.py").write_text(there + TESTS)
    code, out = mutate(root, "-n", "1")
    assert code < 2, out


def test_who_hangs_has_been_noticed(root: Path) -> None:
    (root / "test_it.py").write_text(TESTS.replace("20", "0"))
    waits = MODULE.replace("        pass", "        time.sleep(60)")  # costs nobody else's time
    (root / "pkg" / "it.py").write_text(f"import time\n\n{waits}")
    code, out = mutate(root, "--limit", "9", "--jobs", "2")
    told = re.fullmatch(r"5 of 8 killed, (\d) of them by the time limit", out.splitlines()[-1])
    # On a busy machine one that doesn't hang may take as long.
    assert code == 1 and told is not None and int(told[1]) >= 2


def test_it_goes_on_where_it_was_and_picks_by_the_seed(root: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--seed", "7", "--log", str(log), "-n")
    _, first = mutate(root, *options, "1")
    judged = [json.loads(line) for line in log.read_text().splitlines()]
    assert len(judged) == 1
    _, second = mutate(root, *options, "1")
    assert "1 mutants, 0 to be judged" in second
    assert second.splitlines()[-1] == first.splitlines()[-1]
    assert len(log.read_text().splitlines()) == 1
    _, more = mutate(root, *options, "2")
    assert "2 mutants, 1 to be judged" in more


def test_tests_that_fail_anyway_judge_nothing(root: Path) -> None:
    (root / "test_it.py").write_text(TESTS.replace("(18)", "(17)"))
    code, out = mutate(root, "--limit", "20")
    assert (code, "the tests fail without a mutant" in out) == (2, True)
    code, out = mutate(root, tests="no_such_test.py")
    assert (code, "the tests fail without a mutant" in out) == (2, True)


@pytest.mark.parametrize(
    ("source", "broken"),
    [
        ("a < b", ["(a <= b)"]),
        ("a is not b", ["(a is b)"]),
        ("a in b", ["(a not in b)"]),
        ("a and b", ["(a or b)", "(a)"]),
        ("not a", ["bool(a)"]),
        ("a + 'é' - b", ["(a - 'é')", "(a + 'é' + b)"]),
        ("a %= b", ["a //= b"]),
        ("3", ["4"]),
        ("True", ["False"]),
        ("f(a)", ["pass"]),
        ("f(a, b)", ["f(b, a)", "pass"]),
        ("min(a, b)", ["pass"]),
        ("raise A", ["pass"]),
        ("for x in y: break", ["continue"]),
        ("def f(): return a", ["return None"]),
        ("if a: b", ["not (a)"]),
        # What is no test's business.
        ('f"{a + b}"', []),
        ('"""Text."""', []),
        ("@f(1)\ndef g(a: Literal[1], b: X = y) -> A[3]: ...", []),
        ("with f(1): ...", []),
        ("a: A[1] = b", []),
        ("x: Literal[3]", []),
        ("if TYPE_CHECKING: f(1)", []),
    ],
)
def test_what_it_breaks(source: str, broken: list[str]) -> None:
    found = mutants(source.encode())
    assert [each.text for each in found] == broken
    for each in found:
        assert each.applied(source.encode()).decode().count(each.text) == 1


def test_a_mutant_of_roots_sees_no_process_but_its_own(root: Path) -> None:
    if os.geteuid() != 0 or subprocess.run([*UNSHARE, "true"]).returncode != 0:
        pytest.skip("it can be kept apart from others only where root may unshare")
    with subprocess.Popen(["sleep", "1000"]) as outsider:
        (root / "test_it.py").write_text(SEES_ONE.format(pid=outsider.pid))
        assert "0 of 1 killed" in mutate(root, "-n", "1")[1]
        outsider.kill()
