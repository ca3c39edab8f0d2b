"""Rules are read as they are written, and hit the requests that they are meant for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.faults import hostile
from tests.kit.faults.fixture import StartFaultProxy
from tests.kit.faults.ledger import parse_resources
from tests.kit.faults.raw_client import RawClient
from tests.kit.faults.script import FAULTS, Fault, Rule, Script, parse_rule


def decisions(script: Script, *paths: str) -> list[str | None]:
    found = []
    for number, path in enumerate(paths, 1):
        fault = script.for_request(number, path=f"/lease/{path}", connection=1)
        found.append(fault.name if fault is not None else None)
    return found


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (["500"], ["500"] * 4),
        (["500 request=2"], [None, "500", None, None]),
        (["500 request=2,4"], [None, "500", None, "500"]),
        (["500 path=release"], [None, "500", None, "500"]),
        (["500 path=release nth=2"], [None, None, None, "500"]),
        (["500 path=acquire times=1"], ["500", None, None, None]),
        (["500 connection=2"], [None] * 4),
        (["500 nth=1", "404 nth=1,2"], ["500", "404", None, None]),
        (["reset-connect"], [None] * 4),
        (["500 rate=0"], [None] * 4),
    ],
)
def test_a_rule_chooses_requests(rules: list[str], expected: list[str | None]) -> None:
    script = Script(1, map(parse_rule, rules))
    assert decisions(script, "acquire", "release", "acquire", "release") == expected


def test_new_rules_replace_the_old_ones_and_count_afresh(fault_proxy: StartFaultProxy) -> None:
    proxy = fault_proxy("T=3", faults=("500",))
    with RawClient(proxy.url) as connection:
        assert connection.acquire().status == 500
        proxy.faults("503 nth=2", {"fault": "404", "request": [4]})
        assert [connection.acquire().status for _ in range(4)] == [200, 503, 404, 200]
        proxy.faults()
        assert connection.acquire().status == 200


def test_the_same_seed_gives_the_same_faults() -> None:
    def run(seed: int) -> list[str | None]:
        script = Script(seed, [parse_rule("reset-before|reset-after|500 rate=0.2")])
        return decisions(script, *["acquire"] * 500)

    assert run(1) == run(1) != run(2)
    assert {*run(1)} == {None, "500", "reset-before", "reset-after"}
    assert 70 <= 500 - run(1).count(None) <= 130


def test_a_rule_is_a_line_or_a_json_object() -> None:
    assert parse_rule('500 path=acquire text="a b" rate=0.5') == parse_rule(
        {"fault": "500", "path": "acquire", "text": "a b", "rate": 0.5}
    )
    assert parse_rule("delay seconds=2") == Rule((Fault("delay", 2.0),))


@pytest.mark.parametrize(
    "source",
    [
        "",
        "explode",
        "200",
        "500 when=never",
        "500 request=some",
        "500 request",
        "names-hostile variant=kind",
        "reset-connect path=acquire",
        "reset-connect|500",
        1,
        {"path": "acquire"},
    ],
)
def test_what_says_nothing_sensible_is_no_rule(source: object) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_rule(source)


@pytest.mark.parametrize("text", ["T", "=1", "T=a,a"])
def test_what_is_no_resource_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        parse_resources([text])


def test_the_readme_describes_every_fault_and_every_variant() -> None:
    readme = (Path(__file__).parents[3] / "kit/faults/README.md").read_text(encoding="utf-8")
    assert [name for name in (*FAULTS, *hostile.VARIANTS) if f"`{name}`" not in readme] == []
