"""Which work is the same."""

from __future__ import annotations

import pytest

from leasectl.once.work import work_of
from leasectl.text.naming import is_word


def test_the_same_key_with_the_same_inputs_is_the_same_work() -> None:
    assert work_of("import", [b"4.21", b"x"]) == work_of("import", [b"4.21", b"x"])


def test_any_other_is_another() -> None:
    works = [
        work_of("import", inputs)
        for inputs in ([], [b""], [b"", b""], [b"ab"], [b"a", b"b"], [b"b", b"a"])
    ]
    works += [work_of("importa", []), work_of("import", [b"\x00" * 8])]
    assert len({each.digest for each in works}) == len(works)


@pytest.mark.parametrize(
    ("inputs", "shown"),
    [
        ([], ""),
        (["4.21"], "4.21"),
        (["4.21", "x y"], "4.21, x y"),
        (["a, b"], "a, b [ID]"),
        ([""], '"" [ID]'),
        (["x" * 48], "x" * 48),
        (["a" * 40 + "b" * 40], "a" * 24 + "…" + "b" * 23 + " [ID]"),
        (["\x1b"], "\\x1b [ID]"),
        (["1", "2", "3", "4"], "1, 2, 3 and 1 more [ID]"),
    ],
)
def test_inputs_are_shortened_and_then_followed_by_the_id(inputs: list[str], shown: str) -> None:
    work = work_of("import", [each.encode() for each in inputs])
    assert work.inputs == shown.replace("ID", work.id)


@pytest.mark.parametrize("inputs", [["\U0001f600" * 1000] * 1000, ["\x1b" * 1000] * 1000])
def test_the_longest_inputs_fit_a_label(inputs: list[str]) -> None:
    work = work_of("k", [each.encode() for each in inputs])
    assert all(len(value) <= 200 for _, value in work.labels)
    assert all(is_word(each) for each in work.names)
