"""Small, safe expressions over parameters, for conditions and constraints: ``workers <= 2 * instance.vcpu``.

An expression is Python's own syntax, cut down to names, one attribute of ``instance``, numbers, strings,
arithmetic, comparisons, ``in``, ``and`` / ``or`` / ``not``, ``a if c else b`` and the functions ``min``, ``max``
and ``abs``. It is evaluated over whole columns at once, so that a space of a million combinations is filtered in
well under a second.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import numpy as np

from tradewind.errors import SpecError
from tradewind.utils.suggestions import did_you_mean

Column = np.ndarray[Any, np.dtype[Any]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.FloorDiv: np.floor_divide,
    ast.Mod: np.mod,
    ast.Pow: np.power,
}
_DIVIDING = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
    ast.Eq: np.equal,
    ast.NotEq: np.not_equal,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *a: reduce(np.minimum, a),
    "max": lambda *a: reduce(np.maximum, a),
    "abs": np.abs,
}


_WORDS = {"true": True, "false": False}
"""The booleans as YAML writes them."""

_LONGEST = 2_000
_DEEPEST = 60


def _floats(value: Any) -> Any:
    """Numbers as floats: they do not overflow into nonsense, and ``9 ** 9 ** 9`` is infinite at once."""
    array = np.asarray(value)
    if array.dtype.kind in "US" or (array.dtype == object and any(isinstance(v, str) for v in array.flat)):
        raise TypeError("text in arithmetic")
    return array.astype(float)


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Args:
        text: The expression as the user wrote it.

    Raises:
        SpecError: It does not parse, or uses something that is not allowed.
    """

    text: str
    names: frozenset[str] = field(init=False, compare=False)
    attributes: frozenset[str] = field(init=False, compare=False)
    owners: frozenset[str] = field(init=False, compare=False)
    divides: bool = field(init=False, compare=False)
    _tree: ast.expr = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.text) > _LONGEST:
            raise SpecError(f"an expression is longer than {_LONGEST} characters", hint="split it in several")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a doubtful escape in a text is no business of the user's screen
                tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise SpecError(f"cannot read the expression {self.text!r}: {reason}") from None
        names: set[str] = set()
        attributes: set[str] = set()
        _check(tree, self.text, names, attributes, _DEEPEST)
        object.__setattr__(self, "names", frozenset(names))
        object.__setattr__(self, "attributes", frozenset(attributes))
        values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        owners = {value.id for value in values if isinstance(value, ast.Name)}
        object.__setattr__(self, "owners", frozenset(owners))
        divides = any(_may_divide(node) for node in ast.walk(tree))
        object.__setattr__(self, "divides", divides)
        object.__setattr__(self, "_tree", tree)

    def require(self, known: Collection[str]) -> None:
        """Raise `SpecError` unless every name is among ``known``."""
        for name in sorted(self.names - set(known)):
            hint = did_you_mean(name, known, "known here:", "nothing")
            raise SpecError(f"the expression {self.text!r} names {name!r}, which is no parameter", hint=hint)

    def require_facts_of(self, instances: Collection[str]) -> None:
        """Raise `SpecError` unless every fact (``instance.vcpu``) is one of the parameters in ``instances``."""
        for name in sorted(self.owners - set(instances)):
            hint = "only an instance has facts, such as instance.vcpu"
            raise SpecError(
                f"the expression {self.text!r} asks for a fact of {name!r}, which is no instance", hint=hint
            )

    def evaluate(self, columns: Mapping[str, Column], facts: Callable[[str, str], Column]) -> Column:
        """Evaluate over columns of equal length.

        Args:
            columns: Values by parameter name, shape (n,).
            facts: Called with a parameter and the name of a fact; returns that fact's column.

        Raises:
            SpecError: Text is compared with numbers, or a fact is unknown.
        """
        try:
            with np.errstate(all="ignore"):
                return np.asarray(_evaluate(self._tree, columns, facts))
        except (TypeError, ValueError, OverflowError):  # DTypePromotionError is a TypeError
            raise SpecError(f"the expression {self.text!r} mixes text and numbers") from None

    def divides_by_zero(self, columns: Mapping[str, Column], facts: Callable[[str, str], Column], count: int) -> Mask:
        """The places where the expression divides by zero, and nothing before it says that this does not matter.

        ``n == 0 or 8 / n > 2`` does not: what stands behind ``or`` matters only where what is before it does not hold.

        Args:
            columns: As for `evaluate`, shape (count,).
            facts: As for `evaluate`.
            count: How many rows there are.

        Raises:
            SpecError: As `evaluate`.
        """
        found = np.zeros(count, dtype=bool)
        if self.divides:
            try:
                with np.errstate(all="ignore"):
                    _find_zeros(self._tree, columns, facts, np.ones(count, dtype=bool), found)
            except (TypeError, ValueError, OverflowError):
                raise SpecError(f"the expression {self.text!r} mixes text and numbers") from None
        return found

    def __str__(self) -> str:
        return self.text


def _find_zeros(
    node: ast.expr, columns: Mapping[str, Column], facts: Callable[[str, str], Column], live: Mask, found: Mask
) -> None:
    """Mark the rows in which a divisor is zero, among those that come to this part of an expression."""

    def truth(part: ast.expr) -> Mask:
        return np.broadcast_to(np.asarray(_evaluate(part, columns, facts)).astype(bool), live.shape)

    match node:
        case ast.BoolOp(op=operation, values=values):
            for value in values:
                _find_zeros(value, columns, facts, live, found)
                live = live & (truth(value) if isinstance(operation, ast.And) else ~truth(value))
        case ast.IfExp(test=test, body=a, orelse=b):
            _find_zeros(test, columns, facts, live, found)
            holds = truth(test)
            _find_zeros(a, columns, facts, live & holds, found)
            _find_zeros(b, columns, facts, live & ~holds, found)
        case _:
            for part in ast.iter_child_nodes(node):
                if isinstance(part, ast.expr):
                    _find_zeros(part, columns, facts, live, found)
            if isinstance(node, ast.BinOp) and _may_divide(node):
                right = _floats(_evaluate(node.right, columns, facts))
                if isinstance(node.op, ast.Pow):  # 0 ** -1 is 1 / 0
                    found |= live & (_floats(_evaluate(node.left, columns, facts)) == 0.0) & (right < 0.0)
                else:
                    found |= live & (right == 0.0)


def _may_divide(node: ast.AST) -> bool:
    """True if a part of an expression is a division, or a power whose exponent may be less than 0."""
    match node:
        case ast.BinOp(op=ast.Pow(), right=ast.Constant(value=int() | float() as exponent)):
            return exponent < 0
        case ast.BinOp(op=operator):
            return type(operator) in _DIVIDING
    return False


def _check(node: ast.expr, text: str, names: set[str], attributes: set[str], depth: int) -> None:
    """Collect the names of an expression, and refuse whatever is not in the language."""
    if depth == 0:
        raise SpecError(f"the expression {_shorten(text)!r} is nested too deeply", hint="split it in several")
    match node:
        case ast.Constant(value=bool() | int() | float() | str()):
            return
        case ast.Name(id=name):
            names |= {name} - _WORDS.keys()
            return
        case ast.Attribute(value=ast.Name(id=name), attr=attribute) if not attribute.startswith("_"):
            names.add(name)
            attributes.add(attribute)
            return
        case ast.BinOp(left=a, op=operator, right=b) if type(operator) in _BINARY:
            parts = [a, b]
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() | ast.Not(), operand=a):
            parts = [a]
        case ast.BoolOp(values=values):
            parts = values
        case ast.Compare(left=a, ops=operators, comparators=others) if all(
            type(o) in _COMPARE or isinstance(o, ast.In | ast.NotIn) for o in operators
        ):
            parts = [a, *others]
        case ast.IfExp(test=a, body=b, orelse=c):
            parts = [a, b, c]
        case ast.Tuple(elts=values) | ast.List(elts=values):
            parts = values
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and arguments:
            parts = arguments
        case _:
            raise SpecError(
                f"the expression {_shorten(text)!r} uses {_shorten(ast.unparse(node))!r}, which is not allowed",
                hint="parameters, numbers, text, + - * / // % **, comparisons, in, and, or, not, min, max, abs",
            )
    for part in parts:
        _check(part, text, names, attributes, depth - 1)


def _shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


def _evaluate(node: ast.expr, columns: Mapping[str, Column], facts: Callable[[str, str], Column]) -> Any:
    def go(part: ast.expr) -> Any:
        return _evaluate(part, columns, facts)

    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return columns[name] if name in columns else _WORDS[name]
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return facts(name, attribute)
        case ast.BinOp(left=a, op=operator, right=b):
            return _BINARY[type(operator)](_floats(go(a)), _floats(go(b)))
        case ast.UnaryOp(op=operation, operand=a):
            if isinstance(operation, ast.Not):
                return np.logical_not(go(a))
            return np.negative(_floats(go(a))) if isinstance(operation, ast.USub) else go(a)
        case ast.BoolOp(op=operation, values=values):
            combine = np.logical_and if isinstance(operation, ast.And) else np.logical_or
            return reduce(combine, [go(v) for v in values])
        case ast.Compare():
            return _compare(node, go)
        case ast.IfExp(test=test, body=a, orelse=b):
            return np.where(go(test), go(a), go(b))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name](*[go(a) for a in arguments])
    raise AssertionError(f"unchecked node {ast.dump(node)}")  # pragma: no cover


def _compare(node: ast.Compare, go: Callable[[ast.expr], Any]) -> Any:
    result: Any = True
    left = go(node.left)
    for operator, right_node in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, ast.In | ast.NotIn):
            options = right_node.elts if isinstance(right_node, ast.Tuple | ast.List) else [right_node]
            right: Any = None
            one: Any = reduce(np.logical_or, [np.equal(left, go(option)) for option in options], np.False_)
            if isinstance(operator, ast.NotIn):
                one = np.logical_not(one)
        else:
            right = go(right_node)
            one = _COMPARE[type(operator)](left, right)
        result = np.logical_and(result, one)
        left = right
    return result
