"""What scripts/mutate can break in a module: small changes, each of which a test should notice.

    comparison          a < b        a <= b         not                  not a       a
    and, or             a and b      a or b         condition            if a:       if not a:
    arithmetic          a + b        a - b          number               3           4
    True, False         True         False          call, raise          f(a)        pass
    return              return a     return None    loop                 break       continue
    arguments           f(a, b)      f(b, a)        default              a or b      a

Left alone is what no test can or should judge: texts, annotations, decorators, context managers,
what only type checkers run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


class Mutant(NamedTuple):
    """One change to a module's source.

    Args:
        line: Where it is, counting from 1.
        start: The first byte that it replaces, and the one after the last:
        end: as offsets into the source in UTF-8.
        text: What stands there instead.
    """

    line: int
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        """The source with the change in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(source: bytes) -> list[Mutant]:
    """All changes to a module, from top to bottom; each leaves it something that compiles."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted({each for each in finder.found if _compiles(each.applied(source))})


def _compiles(source: bytes) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def visit(self, node: ast.AST) -> None:
        for text in _instead_of(node):
            self._note(node, text)
        super().visit(node)

    # What a type checker reads, and what a text is made of, is no code to be tested.

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Nothing in it: until Python 3.12 its parts don't know where they stand."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: Any) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        self._visit_body(node)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not (isinstance(node.value, ast.Name) and node.value.id in ("Literal", "Callable")):
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._note(node.test, f"not ({ast.unparse(node.test)})")
            self.generic_visit(node)

    def _visit_body(self, node: Any) -> None:
        for statement in node.body:
            self.visit(statement)

    visit_With = visit_AsyncWith = visit_ClassDef = _visit_body

    def _note(self, node: ast.AST, text: str) -> None:
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        end = self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
        self.found.append(Mutant(node.lineno, start, end, text))  # type: ignore[attr-defined]


def _instead_of(node: ast.AST) -> Iterator[str]:
    """What may stand in a node's place."""
    for kinds, others in _OTHERS:
        if isinstance(node, kinds):
            yield from others(node)


def _comparisons(node: ast.Compare) -> Iterator[str]:
    for index, operator in enumerate(node.ops):
        operators = list(node.ops)
        operators[index] = _COMPARED[type(operator)]()
        yield f"({ast.unparse(ast.Compare(node.left, operators, node.comparators))})"


def _connectives(node: ast.BoolOp) -> Iterator[str]:
    other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
    yield f"({ast.unparse(ast.BoolOp(other, node.values))})"
    yield f"({ast.unparse(node.values[0])})"


def _negations(node: ast.UnaryOp) -> Iterator[str]:
    if isinstance(node.op, ast.Not):
        yield f"bool({ast.unparse(node.operand)})"


def _computations(node: ast.BinOp) -> Iterator[str]:
    if type(node.op) in _COMPUTED:
        yield f"({ast.unparse(ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right))})"


def _steps(node: ast.AugAssign) -> Iterator[str]:
    if type(node.op) in _COMPUTED:
        yield ast.unparse(ast.AugAssign(node.target, _COMPUTED[type(node.op)](), node.value))


def _constants(node: ast.Constant) -> Iterator[str]:
    if isinstance(node.value, bool):
        yield repr(not node.value)
    elif isinstance(node.value, (int, float)):
        yield repr(node.value + 1)


def _dropped(node: ast.Expr | ast.Raise) -> Iterator[str]:
    if isinstance(node, ast.Raise) or isinstance(node.value, (ast.Call, ast.Await)):
        yield "pass"


def _returns(node: ast.Return) -> Iterator[str]:
    # A constant is changed as such.
    if node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return None"


def _jumps(node: ast.Break | ast.Continue) -> Iterator[str]:
    yield "continue" if isinstance(node, ast.Break) else "break"


# To them the order of two arguments is the same.
_SYMMETRIC = {"min", "max", "earliest"}


def _arguments(node: ast.Call) -> Iterator[str]:
    if isinstance(node.func, ast.Name) and node.func.id in _SYMMETRIC:
        return
    starred = any(isinstance(each, ast.Starred) for each in node.args)
    if len(node.args) == 2 and not node.keywords and not starred:
        yield ast.unparse(ast.Call(node.func, node.args[::-1], []))


_OTHERS: list[tuple[Any, Callable[[Any], Iterator[str]]]] = [
    (ast.Compare, _comparisons),
    (ast.BoolOp, _connectives),
    (ast.UnaryOp, _negations),
    (ast.BinOp, _computations),
    (ast.AugAssign, _steps),
    (ast.Constant, _constants),
    ((ast.Expr, ast.Raise), _dropped),
    (ast.Return, _returns),
    ((ast.Break, ast.Continue), _jumps),
    (ast.Call, _arguments),
]
