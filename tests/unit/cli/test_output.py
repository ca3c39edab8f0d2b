"""leasectl.cli.rendering.output"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from leasectl.cli.rendering import output

RESOURCE = {"name": 'ä"\n', "fence": 1, "labels": {"a": "b"}, "at": None, "ttl": 1.5, "on": True}


def pools(*numbers: int) -> dict[str, Any]:
    return {"at": "now", "pools": [{"type": "T", "resources": [RESOURCE] * n} for n in numbers]}


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        None,
        "text",
        {"a": {}, "b": [], "c": [[]], "d": ()},
        [{"id": 1}, {"id": 2, "names": ["a", "b"]}],
        pools(),
        pools(0),
        pools(1, 0, 2),
        pools(99, 100, 101, 102, 200, 201),
        pools(*[1] * 101),
        [[[[[RESOURCE] * 101] * 2]]],
        list(range(1000)),
    ],
)
def test_what_is_shown_in_pieces_is_the_json_of_the_whole(
    value: object, capfd: pytest.CaptureFixture[str]
) -> None:
    output.show_json(value)
    assert capfd.readouterr().out == json.dumps(value) + "\n"


@pytest.mark.parametrize(
    "numbers", [(), (0,), (1, 0, 2), (99, 100, 101, 200, 201), [1] * 101, [0] * 101]
)
def test_an_iterator_is_shown_as_the_list_of_what_it_makes(
    numbers: Sequence[int], capfd: pytest.CaptureFixture[str]
) -> None:
    value, shown = pools(*numbers), pools(*numbers)
    for pool in shown["pools"]:
        pool["resources"] = iter(pool["resources"])
    output.show_json(shown)
    assert capfd.readouterr().out == json.dumps(value) + "\n"


def test_of_thousands_it_shows_the_first_before_it_has_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(output, "show", shown.append)
    value = pools(10, 10_000)
    output.show_json(value)
    assert "".join(shown) == json.dumps(value) + "\n"
    assert max(map(len, shown)) < 2 * output._SHOWN_AT_ONCE
