"""YAML that is read alike by all."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from leasectl.text.yaml_text import yaml_documents


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1e3",
            "no",
            "null",
            "~",
            "0o7",
            "0x1f",
            "1:30",
            "a: b",
            "- a",
            "---",
            '"',
            "\\",
            "#",
            " ",
        ),
        *("", "\x7f\x85\u2028", "a\nb", "{{x}}", "%TAG", "&a", "*a", "!x", "2026-11-22"),
    ],
)
def test_a_text_is_that_text(text: str) -> None:
    said: dict[str, Any] = {"key": text, text: [text, "b"], "list": [{"of": text, "x": {}}, text]}
    written = yaml_documents([said, said])
    assert list(yaml.safe_load_all(written)) == [said, said]
    # What isn't between quotes is a word of letters, and no other reader's number or boolean.
    assert f": {text}\n" not in written or not text.strip()


def test_what_is_empty_stays_so() -> None:
    said: dict[str, Any] = {"spec": {}, "list": [], "number": 1, "no": True, "nothing": None}
    (read,) = yaml.safe_load_all(yaml_documents([said]))
    assert read == said
