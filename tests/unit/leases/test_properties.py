"""What programs are told of the resources that a handle holds."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from leasectl.engines.rules.membership import Member, Properties
from leasectl.errors import BackendUnreachable
from leasectl.leases.properties import (
    LONGEST_VARIABLE,
    PropertyVariables,
    as_variables,
    is_variable,
    properties_by_name,
    properties_of,
    property_variables,
    variable_of,
)
from leasectl.model import Handle, Lease, Request

HOSTILE = ("PATH", "x;y", "a b", "$(id)", "`id`", "a=b", "a\nb", "ß", "É", "", "-", ".", "a'b", '"')


def test_all_of_it_is_json_by_name() -> None:
    found = as_variables({"a": (("region", "eu"), ("text", 'quoted "ü"')), "b": ()})
    assert list(found.values) == ["LEASECTL_PROPERTIES"]
    assert json.loads(found.values["LEASECTL_PROPERTIES"]) == {
        "a": {"region": "eu", "text": 'quoted "ü"'},
        "b": {},
    }


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b--00"]])
def test_where_nothing_has_any_they_are_empty(names: list[str]) -> None:
    found = as_variables(dict.fromkeys(names, ()))
    assert json.loads(found.values["LEASECTL_PROPERTIES"]) == {name: {} for name in names}
    assert (list(found.values), found.warnings) == (["LEASECTL_PROPERTIES"], ())


def test_of_one_resource_each_is_a_variable_of_its_own() -> None:
    found = as_variables({"a": (("cloud.Region-2", "eu west"), ("size", ""))}).values
    assert found["LEASECTL_PROPERTY_CLOUD_REGION_2"] == "eu west"
    assert found["LEASECTL_PROPERTY_SIZE"] == ""


def test_keys_that_would_be_the_same_variable_are_none() -> None:
    found = as_variables({"T": (("a-b", "1"), ("a.b", "1"), ("A_B", "3"), ("c", "4"))})
    assert set(found.values) == {"LEASECTL_PROPERTIES", "LEASECTL_PROPERTY_C"}
    (warning,) = found.warnings
    assert warning.startswith(
        'LEASECTL_PROPERTY_A_B isn\'t set, because several keys would set it: "a-b" and "a.b"'
    )


def test_what_is_too_long_for_an_environment_is_left_out() -> None:
    value = "ü" * 500
    own: Properties = tuple((f"k{n:02d}", value) for n in range(32))
    many = {f"T--{n:02d}": own for n in range(4)}
    found = as_variables(many)
    assert found.values == {}
    assert "LEASECTL_PROPERTIES isn't set: it would be" in found.warnings[0]
    one = as_variables({"T--00": own})
    assert len(one.values) == 33
    assert len(one.values["LEASECTL_PROPERTIES"].encode()) < LONGEST_VARIABLE
    subprocess.run(["true"], env=dict(one.values), check=True)


@pytest.mark.parametrize("key", HOSTILE)
def test_no_key_becomes_another_variable(key: str) -> None:
    variable = variable_of(key)
    assert re.fullmatch("LEASECTL_PROPERTY_[A-Z0-9_]*", variable)
    assert is_variable(variable)


def test_what_nobody_of_ours_has_written_is_left_out() -> None:
    class Foreign:
        def members(self, names: object) -> tuple[Member, ...]:
            written = [(key, "x") for key in ("a b", "", "é")] + [("k", "\0"), ("l", "a\nb")]
            return (Member("a", "T", properties=(*written, ("good", "ü"))),)

    assert properties_by_name(Foreign(), ["a"]) == {"a": (("good", "ü"),)}  # type: ignore[arg-type]


class Unanswered:
    """A service whose backend doesn't answer."""

    def __init__(self) -> None:
        self.asked = 0

    def backend_of(self, handle: Handle) -> Unanswered:
        return self

    @property
    def members(self) -> Unanswered:
        self.asked += 1
        raise BackendUnreachable("no answer")


def held(backend: str, *names: str) -> Handle:
    leases = tuple(Lease(name, 1, 1, 1, "me", 0.0, 0.0, None, 0) for name in names)
    return Handle("T-x", backend, Request("T"), "me", "me", "held", 1, leases)


def test_where_the_backend_doesnt_answer_there_is_no_variable_and_a_warning() -> None:
    service = Unanswered()
    found = property_variables(service, held("etcd://h:1", "a"))  # type: ignore[arg-type]
    assert found == PropertyVariables({}, ("no answer; LEASECTL_PROPERTIES isn't set",))


@pytest.mark.parametrize("backend", ["none:", "http://h", "from-another-version:x"])
def test_a_backend_without_pools_is_asked_nothing(backend: str) -> None:
    service = Unanswered()
    assert properties_of(service, held(backend, "a")) == {"a": ()}  # type: ignore[arg-type]
    assert properties_of(service, held("etcd://h:1")) == {}  # type: ignore[arg-type]
    assert service.asked == 0
