"""The names of `typing` that modules here use: as they are for type checkers, else stand-ins.

Annotations are never evaluated in this package; what is left at run time are aliases, the bases of
a few classes, and the words of a `Literal`, which some check what they read against.
"""

from __future__ import annotations

TYPE_CHECKING = False  # for type checkers it is true
if TYPE_CHECKING:
    from typing import Any as Any
    from typing import BinaryIO as BinaryIO
    from typing import Callable as Callable
    from typing import Generic as Generic
    from typing import Literal as Literal
    from typing import NoReturn as NoReturn
    from typing import Optional as Optional
    from typing import Protocol as Protocol
    from typing import TypeVar as TypeVar
    from typing import Union as Union
    from typing import cast as cast
    from typing import get_args as get_args
else:

    class _Said:
        """Something said of a type, of whatever parts; only those of a `Literal` are asked for."""

        def __init__(self, *parts):
            self.__args__ = parts

        def __getitem__(self, parts):
            return _Said(*parts) if type(parts) is tuple else _Said(parts)

        def __or__(self, other):
            return self

        __ror__ = __or__

    Any = BinaryIO = Callable = Literal = NoReturn = Optional = Union = _Said()

    class Generic:
        """A base of classes of which something is said in brackets."""

        def __class_getitem__(cls, parts):
            return cls

    class Protocol(Generic):
        """A base of classes that say what others have; those needn't name them."""

    def TypeVar(name, *constraints, bound=None):
        return Any

    def cast(kind, value):
        return value

    def get_args(said):
        return said.__args__
