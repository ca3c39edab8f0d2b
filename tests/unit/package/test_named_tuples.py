"""Facts are tuples with names: what makes them does as `typing.NamedTuple` would."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import typing
from pathlib import Path
from typing import Any

import pytest

import leasectl
from leasectl import model
from leasectl.typed.tuples import NamedTuple

PACKAGE = Path(leasectl.__file__).parent
OURS: Any = NamedTuple


def classes_of(source: str) -> list[ast.ClassDef]:
    """The tuples with names that a module makes."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            bases = [each.id for each in node.bases if isinstance(each, ast.Name)]
            found += [node] if bases == ["NamedTuple"] else []
    return found


def made(base: Any, fields: dict[str, str], **values: Any) -> Any:
    """A class as a class statement makes it."""
    meta = type(base)
    bases = (base,)
    if base is typing.NamedTuple:
        bases = base.__mro_entries__(bases)
        meta = type(bases[0])
    space = {"__module__": __name__, "__qualname__": "Made", "__annotations__": fields, **values}
    return meta("Made", bases, space)


@pytest.mark.parametrize("number", range(15))
def test_one_of_any_length_is_as_that_of_typing(number: int) -> None:
    names = [f"name{each}" for each in range(number)]
    defaults = {name: name.upper() for name in names[number // 2 :]}
    fields = dict.fromkeys(names, "str")
    ours, theirs = made(OURS, fields, **defaults), made(typing.NamedTuple, fields, **defaults)
    assert ours._fields == theirs._fields == tuple(names)
    assert ours._field_defaults == theirs._field_defaults == defaults
    assert ours.__match_args__ == tuple(names)
    parameters = inspect.signature(theirs).parameters.items()
    assert [(name, each.default) for name, each in parameters] == [
        (name, each.default) for name, each in inspect.signature(ours).parameters.items()
    ]
    given = [f"value{each}" for each in range(number // 2)]
    one, other = ours(*given), theirs(*given)
    assert tuple(one) == tuple(other) == (*given, *defaults.values())
    assert repr(one) == repr(other)
    assert one._asdict() == other._asdict()
    assert [getattr(one, name) for name in names] == list(one)
    assert one == ours(**one._asdict()) == ours._make(one) == one._replace()
    assert hash(one) == hash(other)
    for name in names:
        assert getattr(one._replace(**{name: "x"}), name) == "x"
    for make in (ours, theirs):
        with pytest.raises(TypeError):
            make(*one, 1)
        with pytest.raises(TypeError):
            make(*given, other_name=1)
        with pytest.raises(TypeError):
            make._make([*one, 1])
    with pytest.raises(ValueError, match="other_name"):
        one._replace(other_name=1)
    with pytest.raises(AttributeError):
        one.other_name = 1


def test_what_a_class_says_besides_is_its_own() -> None:
    request = model.Request("T", 2)
    assert (request.type, request.count, request.types) == ("T", 2, ("T",))
    assert pickle.loads(pickle.dumps(request)) == request
    assert type(model.Request) is type
    assert typing.get_type_hints(model.Process)["pid"] is int


def test_all_in_the_package_are_made_so_and_say_what_they_would() -> None:
    """Also those that are longer than what is prepared, and what must not be said of one."""
    number = 0
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        classes = classes_of(source)
        if not classes or path.name == "tuples.py":
            continue
        assert "from leasectl.typed.tuples import NamedTuple" in source, f"{path}: it is to be ours"
        name = ".".join(("leasectl", *path.relative_to(PACKAGE).with_suffix("").parts))
        module = importlib.import_module(name)
        for node in classes:
            one = getattr(module, node.name)
            theirs = made(typing.NamedTuple, one.__annotations__, **one._field_defaults)
            assert one._fields == theirs._fields, "a name that isn't one, or is taken"
            assert one.__new__.__defaults__ == theirs.__new__.__defaults__
            assert not set(one.__dict__) & {"_make", "_replace", "_asdict", "__getnewargs__"}
            number += 1
    assert number > 200
