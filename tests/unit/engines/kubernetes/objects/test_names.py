"""What our names are called in the cluster."""

from __future__ import annotations

import random
import re
import string

import pytest

from leasectl.engines.kubernetes.names import (
    OBJECT_OF_BELONGING,
    label_of_claim,
    label_of_type,
    new_ticket_object,
    object_of_pool,
    object_of_resource,
)
from leasectl.text.naming import LONGEST_NAME, LONGEST_TYPE, is_name

# As the API server has them: RFC 1123, and the syntax of labels.
PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
OBJECT = re.compile(rf"{PART}(\.{PART})*")
LABEL = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
PECULIAR = [
    "a",
    "0",
    "A",
    "a.",
    "a..b",
    "a.-b",
    "a_b",
    "a-b",
    "a-B",
    "A-b",
    "leasectl-a",
    "leasectl-pool-a",
    "leasectl-leasectl-pool-a",
    "leasectl-belonging",
    "x" * LONGEST_NAME,
    "X" * LONGEST_NAME,
    "a-" + "0123456789" * 2,
    "0123456789" * 2,
    "a" * 63,
    "a" * 64,
]


def names(longest: int) -> list[str]:
    chance = random.Random(5)
    letters = string.ascii_letters + string.digits + "._-"
    made = ["".join(chance.choices(letters, k=chance.randint(1, longest))) for _ in range(2000)]
    short = ["".join(chance.choices("aA.-_", k=chance.randint(1, 4))) for _ in range(500)]
    return sorted({each for each in [*made, *short, *PECULIAR] if is_name(each)})


def test_all_are_what_the_server_takes() -> None:
    for name in names(LONGEST_NAME):
        for called in (object_of_resource(name), object_of_pool(name[:LONGEST_TYPE])):
            assert OBJECT.fullmatch(called), (name, called)
            assert len(called) <= 253
    for pool_type in names(LONGEST_TYPE):
        label = label_of_type(pool_type)
        assert LABEL.fullmatch(label), (pool_type, label)
        assert len(label) <= 63
    for called in (new_ticket_object(), OBJECT_OF_BELONGING):
        assert OBJECT.fullmatch(called)
    assert LABEL.fullmatch(label_of_claim("state/handle/1"))


def test_no_two_are_called_the_same() -> None:
    found = names(LONGEST_NAME)
    # What a slug looks like is a name, too.
    found += [each for each in map(object_of_resource, found) if each not in found]
    found += [each for each in map(label_of_type, found) if is_name(each) and each not in found]
    objects = [object_of_resource(each) for each in found]
    assert len(set(objects)) == len(set(found))
    types = [each for each in found if len(each) <= LONGEST_TYPE]
    pools = [object_of_pool(each) for each in types]
    assert len({*objects, *pools, OBJECT_OF_BELONGING}) == len(set(found)) + len(set(types)) + 1
    assert len({label_of_type(each) for each in types}) == len(set(types))


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("azure--install--00", "azure--install--00"),
        ("node1.example.com", "node1.example.com"),
        ("T--00", "t-00-"),
        ("leasectl-x", "x-"),
    ],
)
def test_it_is_readable(name: str, called: str) -> None:
    assert object_of_resource(name).startswith(called)
    assert (object_of_resource(name) == name) == (called == name)
