"""YAML: documents that are read, and text that is written."""

from __future__ import annotations

import builtins
from typing import Any

import pytest
import yaml

from leasectl.errors import InvalidRequest, NotSupported
from leasectl.text.documents import DEEPEST, Fields, Items, Part, Scalar
from leasectl.text.documents import parse_document as parse
from leasectl.text.yaml_text import yaml_documents

AS_JSON = "turn FILE"


def parse_document(text: str, where: str) -> Part:
    return parse(text, where, as_json=AS_JSON)


def plain(part: Part) -> object:
    """Without lines, and without what is special about a scalar."""
    if isinstance(part, Scalar):
        return part.text
    if isinstance(part, Items):
        return [plain(each) for each in part.items]
    return {key.text: plain(value) for key, value in part.pairs}


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ["b", {"c": "d"}], "e": {}}',
        "a:\n- b\n- c: d\ne: {}\n",
        "# with comments\n---\na: [b, {c: d}]   # here\ne: {}\n...\n",
        "{a: [b, {c: d}], e: {}}",
        '\n\n{\n\t"a": ["b", {"c": "d"}],\n\t"e": {}}',
    ],
)
def test_json_and_yaml_say_the_same(text: str) -> None:
    assert plain(parse_document(text, "f")) == {"a": ["b", {"c": "d"}], "e": {}}


def test_words_stay_as_they_were_written() -> None:
    part = parse_document("[007, 1.10, yes, 'no', 0x1F, 2026-11-21]", "f")
    assert plain(part) == ["007", "1.10", "yes", "no", "0x1F", "2026-11-21"]
    assert plain(parse_document("[7, 1.10, true, null, NaN]", "f")) == [
        *("7", "1.10", "true", "null", "NaN"),
    ]


def test_what_is_null_or_a_number_is_not_in_quotes() -> None:
    part = parse_document('a:\nb: ~\nc: null\nd: "null"\ne: 1\nf: "1"\n', "f")
    assert isinstance(part, Fields)
    values = [value for _, value in part.pairs if isinstance(value, Scalar)]
    assert [each.is_null for each in values] == [True, True, True, False, False, False]
    assert [each.plain for each in values] == [True, True, True, False, True, False]
    in_json = parse_document('{"a": null, "b": "null", "c": 1}', "f")
    assert isinstance(in_json, Fields)
    assert [v.is_null for _, v in in_json.pairs if isinstance(v, Scalar)] == [True, False, False]


def test_parts_of_yaml_know_their_line() -> None:
    part = parse_document("a:\n  - b\n  - c\n", "f")
    assert isinstance(part, Fields)
    ((key, value),) = part.pairs
    assert isinstance(value, Items)
    assert (part.line, key.line, [each.line for each in value.items]) == (1, 1, [2, 3])


def test_an_alias_is_what_it_stands_for() -> None:
    assert plain(parse_document("a: &x [b]\nc: *x\n", "f")) == {"a": ["b"], "c": ["b"]}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [b]]", "f:1: "),
        ("a: b\n\tc: d", "f:2: "),
        ("a: b: c", "f:1: "),
        ("a: b\na: c", 'f:2: "a" is given twice'),
        ('{"a": 1, "a": 2}', 'f: "a" is given twice'),
        ("a: 1\n--- \nb: 1", "f:2: a second document"),
        ("a: *b", "f:1: no anchor &b"),
        ("&a [*a]", "f:1: no anchor &a"),
        ("? [a]\n: b", "f:1: a list or mapping can't be a key"),
        ("a: !!python/object/apply:os.system [id]", "f:1: tags such as"),
        ("a: !!binary aGk=", "f:1: tags such as"),
        ("a: b\nc: \x00", 'f:2: character "\\x00"'),
        ("a: b\nc: \x1b[31m", 'f:2: character "\\x1b"'),
        ("%YAML 3.0\n---\na: b", "f:1: "),
        ('a: "\\UFFFFFFFF"', "f"),
        ("[" * 100_000, "f: nested more than"),
        ("a: " + "[" * (DEEPEST + 1), "f:1: nested more than"),
        ("- " * 100_000, "f:1: nested more than"),
        ('{"a":' * 100_000, "f: nested more than"),
    ],
)
def test_what_cant_be_read_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_document(text, "f")
    assert str(refused.value).startswith(said)
    assert str(refused.value).isprintable()


def test_a_bomb_of_aliases_is_read_as_fast_as_it_was_written() -> None:
    lines = ["a0: &a0 [lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 60)]
    part = parse_document("\n".join(lines), "f")
    assert isinstance(part, Fields) and len(part.pairs) == 60


def test_without_a_library_for_yaml_there_is_still_json(monkeypatch: pytest.MonkeyPatch) -> None:
    really_import = builtins.__import__

    def without_yaml(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "yaml":
            raise ImportError(name)
        return really_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_yaml)
    assert plain(parse_document('{"a": 1}', "f")) == {"a": "1"}
    with pytest.raises(NotSupported, match=r"^f: invalid JSON, and without PyYAML"):
        parse_document("a: 1", "f")
    with pytest.raises(NotSupported, match=r"^f:2: invalid JSON \(Expecting"):
        parse_document('{"a": 1,\n"b"}', "f")


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
