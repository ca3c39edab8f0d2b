"""Which work is the same."""

from __future__ import annotations

from leasectl.once.work import work_of


def test_the_same_key_with_the_same_inputs_is_the_same_work() -> None:
    assert work_of("import", [b"4.21", b"x"]) == work_of("import", [b"4.21", b"x"])


def test_any_other_is_another() -> None:
    works = [
        work_of("import", inputs)
        for inputs in ([], [b""], [b"", b""], [b"ab"], [b"a", b"b"], [b"b", b"a"])
    ]
    works += [work_of("importa", []), work_of("import", [b"\x00" * 8])]
    assert len({each.digest for each in works}) == len(works)
