"""JSON by what `json` is made of: that one compiles patterns, which takes longer than most texts.

It writes and reads what `json` does by default; whatever is wrong in a text is left to `json` to
say.
"""

from __future__ import annotations

from leasectl.typed.hints import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:

    class _Reads:
        def __init__(self, settings: object) -> None: ...

        def __call__(self, text: str, begin: int) -> tuple[Any, int]: ...

    class _Writes:
        def __init__(self, *settings: object) -> None: ...

        def __call__(self, value: object, level: int) -> tuple[str, ...]: ...

    def _quoted(text: str) -> str: ...
else:
    from _json import encode_basestring_ascii as _quoted
    from _json import make_encoder as _Writes
    from _json import make_scanner as _Reads

_SPACE = " \t\n\r"
_CONSTANTS = {"-Infinity": float("-inf"), "Infinity": float("inf"), "NaN": float("nan")}


class Reader:
    """Reads texts, as `json.loads` with the same settings does.

    Args:
        object_pairs_hook: Makes what stands for an object of its keys and values; None for a dict.
        parse_int: Makes what stands for a whole number of its text.
        parse_float: The same for any other number.
        parse_constant: The same for NaN and the infinite ones.
    """

    strict = True
    object_hook = None

    def __init__(
        self,
        *,
        object_pairs_hook: Callable[[list[tuple[str, Any]]], object] | None = None,
        parse_int: Callable[[str], object] = int,
        parse_float: Callable[[str], object] = float,
        parse_constant: Callable[[str], object] = _CONSTANTS.__getitem__,
    ) -> None:
        self.object_pairs_hook = object_pairs_hook
        self.parse_int = parse_int
        self.parse_float = parse_float
        self.parse_constant = parse_constant
        self._read = _Reads(self)

    def __call__(self, text: str) -> Any:
        """Read one.

        Raises:
            ValueError: It is no JSON; `json.JSONDecodeError`, as a rule.
        """
        begin = 0 if text[:1] not in _SPACE else len(text) - len(text.lstrip(_SPACE))
        try:
            value, end = self._read(text, begin)
        except (StopIteration, SystemError):
            # The second of Python 3.10 and 3.11, which want to raise an error of `json.decoder`
            # and find that nobody has loaded it.
            end = -1
        if end != len(text) and (end < 0 or text[end:].strip(_SPACE)):
            import json

            return json.loads(text)  # which says what is wrong
        return value


loads = Reader()


def dumps(value: object, *, separators: tuple[str, str] = (", ", ": ")) -> str:
    """Write it, as `json.dumps` does.

    Args:
        value: What JSON has.
        separators: Between entries, and between a key and what it has.

    Raises:
        TypeError: JSON has no such thing.
        ValueError: It holds itself.
    """
    if isinstance(value, str):
        return _quoted(value)
    between, after_key = separators
    write = _Writes({}, _refuse, _quoted, None, after_key, between, False, False, True)
    return "".join(write(value, 0))


def _refuse(value: object) -> object:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
