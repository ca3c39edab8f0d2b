"""Names, and suggestions for misspelt ones."""

from __future__ import annotations

import re
from random import Random

import pytest

from leasectl.errors import InvalidRequest
from leasectl.text.naming import as_given, check_name, check_type, escape_word, is_name, is_reserved
from leasectl.text.wording import NO_POOLS, did_you_mean, nearest, option_meant

BAD = ["", " ", ".", "..", "-a", "_a", ".a", "a/b", "/a", "a b", "a\n", "\na", "$(id)", "a;b"]


BAD += ["a'b", 'a"b', "é", "a\x00b", "\u0661", "a`b", "a*", "--help"]


@pytest.mark.parametrize("text", ["a", "0", "azure--install", "a.b_c-D9", "T--00", "x" * 200])
def test_ordinary_names_are_fine(text: str) -> None:
    assert is_name(text)
    assert check_name(text) == check_type(text) == text


@pytest.mark.parametrize("text", BAD, ids=ascii)
def test_what_could_hurt_a_path_a_shell_or_a_terminal_is_refused(text: str) -> None:
    assert not is_name(text)
    for check in (check_name, check_type):
        with pytest.raises(InvalidRequest) as refused:
            check(text)
        assert str(refused.value).isprintable()


def test_a_name_as_a_terminal_shows_it_is_refused_with_where_it_is_whole() -> None:
    with pytest.raises(InvalidRequest, match="full name with: leasectl status --wide"):
        check_name("--00")


def test_a_type_has_at_most_200_characters_a_name_253() -> None:
    assert check_name("x" * 253) and is_name("x" * 253)
    for check, longest in ((check_type, 200), (check_name, 253)):
        with pytest.raises(InvalidRequest, match=f"{longest + 1} characters; at most {longest}"):
            check("x" * (longest + 1))
    assert not is_name("x" * 254)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("periodic-e2e", "periodic-e2e"),
        ("team/app (x)", "team%2Fapp%20%28x%29"),
        ("é", "%C3%A9"),
        ("50%@~", "50%25%40%7E"),
        ("\udce9", "%E9"),
        ("a\n", "a%0A"),
    ],
)
def test_free_text_becomes_one_word_and_is_shown_as_given(text: str, word: str) -> None:
    assert escape_word(text) == word
    shown = text.replace("\n", "\\n").replace("\udce9", "\\udce9")
    assert as_given(f"{word}/7") == f"{shown}/7"


def test_different_texts_become_different_words() -> None:
    texts = [
        *("team/app", "team-app", "team_app", "team app", "team%2Fapp", "é", "e\u0301", "-", "ü"),
        *("x" * 200, "x" * 201, "x" * 300 + "a", "x" * 300 + "b", "é" * 201, "é" * 202),
    ]
    texts += [escape_word(text) for text in texts if escape_word(text) not in texts]
    assert len({escape_word(text) for text in texts}) == len(texts)
    assert as_given(escape_word("é" * 300)).startswith("é" * 167 + "~")


def test_a_foreign_identity_that_is_no_escape_is_shown_as_it_is() -> None:
    assert as_given("100%/%zz/%1") == "100%/%zz/%1"
    assert as_given("%1B[31m") == "\\x1b[31m"


def test_texts_are_read_as_by_expressions_that_say_the_same() -> None:
    random = Random(7)
    well_formed = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
    for _ in range(20_000):
        text = "".join(random.choices("aZ0.9_-*é\n\x00 /\u0661", k=random.randrange(6)))
        assert is_name(text) is (well_formed.fullmatch(text) is not None)


@pytest.mark.parametrize("length", [63, 64, 65])
@pytest.mark.parametrize("digit", "0fg")
def test_what_work_is_done_under_is_64_digits_of_sixteen_and_anything(
    length: int, digit: str
) -> None:
    text = f"once.{digit * length}"
    assert is_reserved(text) is (re.match(r"once\.[0-9a-f]{64}", text) is not None)


def test_the_nearest_is_suggested_and_how_to_see_all() -> None:
    known = ["azure--install", "aws--install"]
    assert did_you_mean("azure--instal", known).startswith('; did you mean "azure--install"? list')
    assert did_you_mean("gcp", known) == "; list them with: leasectl pool list"


def test_the_same_letters_in_another_order_are_nearer_than_fewer_letters() -> None:
    assert nearest("stauts", ["stats", "status"]) == "status"
    assert nearest("stauts", ["stats"]) == "stats"


def test_where_there_is_none_it_says_how_to_make_one() -> None:
    assert did_you_mean("T", []) == f"; {NO_POOLS}"


def test_an_option_of_another_tool_is_known_where_ours_is_there() -> None:
    assert option_meant("--timeout", ["--wait", "--type"]) == "--wait"
    assert option_meant("--timeout", ["--type"]) is None
    assert option_meant("--frobnicate", ["--wait"]) is None
