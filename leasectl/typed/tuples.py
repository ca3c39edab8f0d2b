"""Tuples whose parts have names, made as those of `typing` but in a sixth of the time.

There each annotation is compiled, a class is made, and each of its attributes is set anew; a
hundred such classes were a quarter of all that a command did.
"""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.typed.hints import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from _collections import _tuplegetter
    from types import FunctionType

    _new = tuple.__new__
    # How one of so many parts is made, but for their names: what would be compiled each time.
    _MAKERS = (
        lambda c: _new(c, ()),
        lambda c, d: _new(c, (d,)),
        lambda c, d, e: _new(c, (d, e)),
        lambda c, d, e, f: _new(c, (d, e, f)),
        lambda c, d, e, f, g: _new(c, (d, e, f, g)),
        lambda c, d, e, f, g, h: _new(c, (d, e, f, g, h)),
        lambda c, d, e, f, g, h, i: _new(c, (d, e, f, g, h, i)),
        lambda c, d, e, f, g, h, i, j: _new(c, (d, e, f, g, h, i, j)),
        lambda c, d, e, f, g, h, i, j, k: _new(c, (d, e, f, g, h, i, j, k)),
        lambda c, d, e, f, g, h, i, j, k, m: _new(c, (d, e, f, g, h, i, j, k, m)),
        lambda c, d, e, f, g, h, i, j, k, m, n: _new(c, (d, e, f, g, h, i, j, k, m, n)),
        lambda c, d, e, f, g, h, i, j, k, m, n, o: _new(c, (d, e, f, g, h, i, j, k, m, n, o)),
        lambda c, d, e, f, g, h, i, j, k, m, n, o, p: _new(c, (d, e, f, g, h, i, j, k, m, n, o, p)),
        lambda c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t: _new(
            c, (d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t)
        ),
        lambda c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u: _new(
            c, (d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u)
        ),
        lambda c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x: _new(
            c, (d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x)
        ),
        lambda c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B: _new(
            c, (d, e, f, g, h, i, j, k, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B)
        ),
    )
    _NEW = {each.__code__.co_argcount - 1: each.__code__ for each in _MAKERS}

    class _Named(tuple):
        """What all have in common."""

        __slots__ = ()

        @classmethod
        def _make(cls, parts: Iterable[Any]) -> _Named:
            made = _new(cls, parts)
            if len(made) != len(cls._fields):
                raise TypeError(f"expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **parts: Any) -> _Named:
            made = self._make(map(parts.pop, self._fields, self))
            if parts:
                raise ValueError(f"got unexpected field names: {list(parts)!r}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self))

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={part!r}" for name, part in zip(self._fields, self))
            return f"{self.__class__.__name__}({shown})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _Naming(type):
        """Makes a tuple with names of a class statement."""

        def __new__(mcs, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
            if not bases:
                return type.__new__(mcs, name, bases, space)
            fields = tuple(space.get("__annotations__", ()))
            defaults = {field: space[field] for field in fields if field in space}
            code = _NEW.get(len(fields))
            if code is None:
                listed = ", ".join(fields)
                code = eval(f"lambda c, {listed}: _new(c, ({listed}))").__code__
            code = code.replace(co_varnames=("_cls", *fields))
            space.update((field, _tuplegetter(number, "")) for number, field in enumerate(fields))
            space.update(
                __slots__=(),
                __new__=FunctionType(code, globals(), "__new__", tuple(defaults.values())),
                _fields=fields,
                _field_defaults=defaults,
                __match_args__=fields,
            )
            return type.__new__(type, name, (_Named,), space)

    class NamedTuple(metaclass=_Naming):
        """As that of `typing`."""
