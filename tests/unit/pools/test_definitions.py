"""The form that Boskos reads its resources from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from leasectl.errors import InvalidRequest
from leasectl.pools.definitions import (
    CountedPool,
    DefaultChange,
    Definition,
    Definitions,
    Expected,
    NamedPool,
    parse_definitions,
)
from leasectl.pools.settings import SettingsChange

LIST = """\
# Accounts for end-to-end tests.
---
resources:
# The accounts of the west.
- type: "aws-account"
  state: free
  names:
  - "west-1"      # rented until May
  - west-2
# Names that look like numbers are names.
- names: [007, 8]
  state: dirty
  type: gce-project
- type: aws-account
  state: free
  names:
  - east-1
- type: aws-cluster
  state: dirty
  min-count: 1
  max-count: 2
  lifespan: 48h
  needs:
    aws-account: 1
  config:
    type: AWSClusterCreator
    content: |
      any: [thing, at all
"""


def read(text: str) -> Definitions:
    return parse_definitions(text, "f")


def test_a_list_is_read_as_it_is() -> None:
    assert read(LIST).pools == (
        NamedPool("aws-account", ("west-1", "west-2", "east-1")),
        NamedPool("gce-project", ("007", "8")),
        CountedPool("aws-cluster", 1, 2),
    )


def test_what_is_read_over_is_said_once_in_order_and_where() -> None:
    entries = LIST.partition("resources:\n")[2]
    again = entries.replace("west", "w").replace("east", "e").replace("-cluster", "-box")
    state = "f:12: state dirty is ignored: new resources are free at once"
    rest = (
        "f:21: resources are not created on demand, so max-count only limits the pool; add them "
        "with leasectl pool add",
        "f:22: lifespan is ignored: leasectl has no such setting",
        "f:23: needs is ignored: leasectl has no such setting",
        "f:25: config is ignored: leasectl has no such setting",
    )
    assert read(LIST).notes == (f"{state} (also in line 19)", *rest)
    first, *others = read(LIST + again.replace("007, 8", "9")).notes
    assert first == f"{state} (also in lines 19, 37, 44)"
    also = [f"{note} (also in line {line})" for note, line in zip(rest, (46, 47, 48, 50))]
    assert others == also


def test_many_lines_of_one_kind_are_shortened() -> None:
    entries = "".join(
        f"- {{type: T{number}, names: [n{number}], lifespan: 1h}}\n" for number in range(9)
    )
    assert read("resources:\n" + entries).notes == (
        "f:2: lifespan is ignored: leasectl has no such setting (also in lines 3, 4, 5, 6, 7 and "
        "3 more)",
    )


def test_a_plain_list_has_no_notes() -> None:
    assert read("resources: [{type: T, state: free, names: [a]}]").notes == ()
    assert read("resources: [{type: T, names: [a], config: null, lifespan: }]").notes == ()
    assert read("resources: [{type: T, min-count: 3, max-count: 3}]").notes == ()


def test_json_is_read_as_well() -> None:
    entries = [{"type": "T", "names": ["a", 7]}, {"type": "U", "max-count": 3}]
    assert read(json.dumps({"resources": entries})).pools == (
        NamedPool("T", ("a", "7")),
        CountedPool("U", 0, 3),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'f: a mapping with "resources"'),
        ("# nothing", 'f: a mapping with "resources"'),
        ("hello", 'f:1: a mapping with "resources"'),
        ("- a", 'f:1: a mapping with "resources"'),
        ("{}", 'f: "resources" must be a list'),
        ("resources:", 'f:1: "resources" must be a list'),
        ("resources: []", 'f:1: "resources" must be a list'),
        ("resources: {}", 'f:1: "resources" must be a list'),
        ("apiVersion: v1\nresources: []", 'f:1: the file: "apiVersion" is unknown'),
        ("resources: [a]", "f:1: resources[0] must be a mapping"),
        ("resources:\n- names: [a]", "f:2: resources[0]: type is missing"),
        ("resources:\n- type: \n  names: [a]", "f:2: resources[0]: type is missing"),
        ("resources: [{type: [T], names: [a]}]", "f:1: resources[0].type must be a word"),
        ("resources: [{type: a/b, names: [a]}]", 'f:1: resources[0]: pool name "a/b" is not'),
        (
            "resources:\n- type: T\n  nmaes: [a]",
            'f:3: resources[0]: "nmaes" is unknown in a list of Boskos resources; known: type, ',
        ),
        ("resources: [{type: T, <<: {}}]", 'f:1: resources[0]: "<<" is unknown'),
        ("resources: [{type: T}]", 'f:1: resources[0]: pool "T" has neither names nor max-count'),
        ("resources: [{type: T, names: []}]", 'f:1: resources[0]: pool "T" has neither'),
        ("resources: [{type: T, names: a}]", "f:1: resources[0].names must be a list"),
        ("resources: [{type: T, names: {a: b}}]", "f:1: resources[0].names must be a list"),
        ("resources: [{type: T, names: [[a]]}]", "f:1: resources[0].names[0] must be a word"),
        ("resources: [{type: T, names: [a, ~]}]", "f:1: resources[0].names[1] must be a word"),
        (
            "resources:\n- type: T\n  names:\n  - a\n  - a",
            'f:5: resources[0].names[1]: "a" is already in pool "T" in line 4',
        ),
        (
            "resources:\n- {type: T, names: [a]}\n- {type: U, names: [a]}",
            'f:3: resources[1].names[0]: "a" is already in pool "T" in line 2',
        ),
        ("resources: [{type: T, state: [free], names: [a]}]", "f:1: state must be a word"),
        (
            "resources: [{type: T, names: [a], max-count: 1}]",
            "f:1: resources[0]: use either names or",
        ),
        ("resources: [{type: T, min-count: 1}]", "f:1: resources[0]: min-count needs max-count"),
        (
            "resources:\n- type: T\n  max-count: 0",
            "f:3: resources[0].max-count 0: use a number from 1 to 999999999",
        ),
        (
            "resources: [{type: T, min-count: 1000000000, max-count: 2}]",
            "f:1: resources[0].min-count 1000000000: use a number from 0 to 100000",
        ),
        (
            "resources: [{type: T, max-count: 1000000000}]",
            "f:1: resources[0].max-count 1000000000: use a number from 1 to 999999999",
        ),
        (
            "resources: [{type: T, max-count: -1}]",
            'f:1: resources[0].max-count: "-1" is not a whole',
        ),
        (
            "resources: [{type: T, min-count: 3, max-count: 2}]",
            "f:1: resources[0]: min-count 3 is more than max-count 2",
        ),
        (
            "resources: [{type: T, max-count: 1}, {type: T, max-count: 2}]",
            'f:1: resources[1]: pool "T" has several entries',
        ),
        (
            "resources: [{type: T, names: [a]}, {type: T, max-count: 2}]",
            'f:1: resources[1]: pool "T" has several entries',
        ),
        (
            "resources: [{type: T, max-count: 2}, {type: T, names: [a]}]",
            'f:1: resources[1]: pool "T" has several entries',
        ),
        (
            "resources: [{type: T, min-count: 60000, max-count: 60000}, "
            "{type: U, min-count: 60000, max-count: 60000}]",
            "f:1: more than 100000 resources",
        ),
    ],
)
def test_what_isnt_of_this_form_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(text)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize("count", ["-1", "1.5", "many", '"3"', "010", "1_000", "9" * 30, "[]"])
def test_a_count_that_is_none_is_refused(count: str) -> None:
    with pytest.raises(InvalidRequest, match=r"f:1: resources\[0\]\.max-count"):
        read(f"resources: [{{type: T, max-count: {count}}}]")


@pytest.mark.parametrize(
    "name", ["a/b", "..", "a\nb", "$(touch pwned)", "x" * 300, "", "a b", "-x", "é"]
)
def test_a_name_that_isnt_allowed_is_refused(name: str) -> None:
    for entry in ({"type": "T", "names": ["a", name]}, {"type": name, "names": ["a"]}):
        for text in (json.dumps({"resources": [entry]}), f"resources: [{json.dumps(entry)}]"):
            with pytest.raises(InvalidRequest, match=r"^f(:1)?: resources\[0\]"):
                read(text)


class TestSettings:
    def test_they_are_what_is_said_and_the_rest_stays(self) -> None:
        text = "resources:\n- {type: T, names: [a], pace: 20s}\n- {type: T, names: [b], burst: 2}\n"
        (pool,) = parse_definitions(text, "f").pools
        assert pool == NamedPool("T", ("a", "b"), SettingsChange(20.0, 2, None))
        text = "resources: [{type: T, max-count: 1, pace: 0, aging: 1h}]"
        (pool,) = parse_definitions(text, "f").pools
        assert pool == CountedPool("T", 0, 1, SettingsChange(0.0, None, 3600.0))

    @pytest.mark.parametrize(
        ("said", "refused"),
        [
            ("pace: soon", '.pace: invalid duration "soon"'),
            ("pace: 0.01", "pace 0.01s: it can be 0.1s to 7d, or 0 for none"),
            ("pace: [1]", ".pace must be a word"),
            ("burst: 0", "burst 0: it can be 1 to 1000"),
            ("burst: 1.5", '.burst: "1.5" is not a whole number'),
            ('burst: "2"', '.burst: "2" is not a whole number'),
            ("aging: -1", '.aging: invalid duration "-1"'),
        ],
    )
    def test_what_cant_be_kept_is_refused_with_its_line(self, said: str, refused: str) -> None:
        text = f"resources:\n- type: T\n  names: [a]\n  {said}\n"
        with pytest.raises(InvalidRequest) as error:
            parse_definitions(text, "f")
        assert str(error.value).startswith("f:4: resources[0]")
        assert refused in str(error.value)

    def test_the_same_twice_is_refused(self) -> None:
        text = "resources:\n- {type: T, names: [a], pace: 1}\n- {type: T, names: [b], pace: 1}\n"
        with pytest.raises(InvalidRequest, match=r'f:3: .*pace of pool "T" is given twice'):
            parse_definitions(text, "f")


RS = (("r", "eu"), ("s", "1"))


class TestProperties:
    def read(self, entry: str) -> Definition:
        (pool,) = parse_definitions(f'{{"resources": [{{"type": "T", {entry}}}]}}', "f").pools
        return pool

    @pytest.mark.parametrize(
        ("said", "properties"),
        [
            ('"properties": {"r": "eu"}', {"a": [("r", "eu")], "b": [("r", "eu")]}),
            ('"userdata": {"r": "eu", "n": 5}', {n: [("n", "5"), ("r", "eu")] for n in "ab"}),
            ('"properties": {"b": {"r": "eu"}}', {"a": [], "b": [("r", "eu")]}),
            (
                '"properties": {"r": "eu", "b": {"r": "us", "s": ""}}',
                {"a": [("r", "eu")], "b": [("r", "us"), ("s", "")]},
            ),
            ('"properties": {"r": "eu"}, "userdata": {"s": "1"}', {n: [*RS] for n in "ab"}),
            ('"properties": {}', {"a": [], "b": []}),
            ('"properties": null', {}),
            ('"state": "free"', {}),
        ],
    )
    def test_of_names_are_by_name(self, said: str, properties: dict[str, Any]) -> None:
        pool = self.read(f'"names": ["a", "b"], {said}')
        assert isinstance(pool, NamedPool)
        assert pool.properties == {name: tuple(each) for name, each in properties.items()}

    def test_of_a_number_are_of_all(self) -> None:
        pool = self.read('"max-count": 2, "properties": {"r": "eu"}')
        assert isinstance(pool, CountedPool)
        assert pool.properties == (("r", "eu"),)
        assert self.read('"max-count": 2') == CountedPool("T", 0, 2)

    def test_of_several_entries_are_those_of_each(self) -> None:
        text = "resources:\n" + "".join(
            f"- {{type: T, names: [{name}]{said}}}\n"
            for name, said in (("a", ", properties: {r: 1.10}"), ("b", ""), ("c", ", userdata: {}"))
        )
        (pool,) = parse_definitions(text, "f").pools
        assert isinstance(pool, NamedPool)
        assert pool.properties == {"a": (("r", "1.10"),), "c": ()}

    @pytest.mark.parametrize(
        ("said", "refused"),
        [
            ("properties: x", "f:4: .*properties must be a mapping"),
            ("properties: {r: [x]}", r"resources\[0\].properties.r must be a word"),
            ("properties: {r: }", "properties.r must be a word"),
            ("properties: {x: {r: eu}}", "\"x\" isn't among the entry's names"),
            ("userdata: {a: {r: eu}}", "userdata.a must be a word"),
            ("properties: {r: 1}\n  userdata: {r: 1}", 'f:5: .*"r" is given twice'),
            ("properties: {-r: 1}", 'property "-r" is not allowed'),
            ('properties: {r: "a\\nb"}', "one line of printable text"),
            (f"properties: {{r: {'x' * 1025}}}", "1025 bytes"),
            (f"properties: {{{', '.join(f'k{n}: 1' for n in range(33))}}}", "there are 33"),
            (
                f"properties: {{{', '.join(f'k{n}: 1' for n in range(32))}, a: {{more: 1}}}}",
                '"a" has 33 properties',
            ),
        ],
    )
    def test_that_are_none_are_refused(self, said: str, refused: str) -> None:
        text = f"resources:\n- type: T\n  names: [a]\n  {said}\n"
        with pytest.raises(InvalidRequest, match=refused):
            parse_definitions(text, "f")

    def test_by_name_are_refused_where_no_names_are(self) -> None:
        text = "resources:\n- {type: T, max-count: 2, properties: {T--00: {r: eu}}}\n"
        with pytest.raises(InvalidRequest, match="names can't give properties of single"):
            parse_definitions(text, "f")


def listing(*lines: str) -> str:
    """A file of two pools, each with lines of its own."""
    entries = (f"- {{type: {t}, names: [{t}-1]{line}}}\n" for t, line in zip("TU", lines))
    return f"resources:\n{''.join(entries)}"


class TestExpectations:
    @pytest.mark.parametrize(
        ("said", "expected"),
        [
            ("", None),
            (", expect: []", Expected()),
            (", expect: [n-1, 'n-*', 'x?', m]", Expected(("n-1", "m"), ("n-*", "x?"))),
        ],
    )
    def test_are_names_and_patterns(self, said: str, expected: Expected | None) -> None:
        (pool,) = parse_definitions(listing(said), "list").pools
        assert pool.expected == expected
        text = f"resources: [{{type: T, min-count: 1, max-count: 2{said}}}]"
        (pool,) = parse_definitions(text, "list").pools
        assert pool.expected == expected

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            ((", expect: n",), "list:2: resources[0].expect must be a list of names"),
            ((", expect: [[n]]",), "list:2: resources[0].expect[0] must be a word"),
            ((", expect: [a/b]",), "list:2: resources[0].expect[0]: "),
            ((", expect: ['a/*']",), "list:2: resources[0].expect[0]: "),
            ((", expect: [n, n]",), 'list:2: resources[0].expect[1]: "n" is already expected'),
            (
                (", expect: [n]", ", expect: ['x*', n]"),
                'list:3: resources[1].expect[1]: "n" is already expected in pool "T"',
            ),
        ],
    )
    def test_that_cant_be_meant_are_refused_with_their_line(
        self, lines: tuple[str, ...], said: str
    ) -> None:
        with pytest.raises(InvalidRequest) as refused:
            parse_definitions(listing(*lines), "list")
        assert str(refused.value).startswith(said)

    def test_of_a_pool_are_in_one_entry(self) -> None:
        text = "resources:\n" + 2 * "- {type: T, names: [NAME], expect: [EXPECTED]}\n"
        for name, expected in (("t-1", "a"), ("t-2", "b")):
            text = text.replace("NAME", name, 1).replace("EXPECTED", expected, 1)
        with pytest.raises(InvalidRequest, match='expect of pool "T" is given twice'):
            parse_definitions(text, "list")


class TestTheDefaultPool:
    @pytest.mark.parametrize(
        ("said", "change"),
        [
            ("", DefaultChange()),
            (", default: true", DefaultChange(True)),
            (", default: true, grace: 2m", DefaultChange(True, 120.0)),
            (", default: true, grace: 0", DefaultChange(True, 0.0)),
            (", default: false", DefaultChange(False)),
        ],
    )
    def test_is_named_with_what_it_holds_back(self, said: str, change: DefaultChange) -> None:
        (pool,) = parse_definitions(listing(said), "list").pools
        assert pool.default == change

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            ((", default: maybe",), "list:2: resources[0].default must be true or false"),
            ((", default: 'true'",), "list:2: resources[0].default must be true or false"),
            ((", default: [true]",), "list:2: resources[0].default must be true or false"),
            ((", grace: 2m",), "list:2: resources[0]: grace applies to the default pool"),
            ((", default: true, grace: 31d",), "list:2: resources[0].grace: grace 31d: it can be"),
            ((", default: true, grace: [1]",), "list:2: resources[0].grace must be a word"),
            ((", default: true, grace: x",), "list:2: resources[0].grace: "),
            ((", default: true", ", default: true"), 'list:3: resources[1]: pool "T" has default'),
        ],
    )
    def test_that_cant_be_meant_is_refused_with_its_line(
        self, lines: tuple[str, ...], said: str
    ) -> None:
        with pytest.raises(InvalidRequest) as refused:
            parse_definitions(listing(*lines), "list")
        assert str(refused.value).startswith(said)


def test_each_name_has_its_place() -> None:
    found = parse_definitions(listing("", ""), "list")
    assert found.places == {"T-1": "list:2", "U-1": "list:3"}
