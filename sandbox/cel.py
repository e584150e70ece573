"""CEL expressions as Kubernetes evaluates them, on cel_expr_python."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_encoders, ext_math, ext_optional, ext_strings

from sandbox import quantity

_VARIABLES = ("object", "oldObject", "request", "namespaceObject", "params", "variables")
_MISSING_KEY = re.compile(r'Key not found in map : "(.*)"', re.DOTALL)
_INDEX = re.compile(r"Index error: index=(-?\d+)")


class CelError(Exception):
    """The evaluation failed; the text is the one of Kubernetes' own library where it is known."""


class MissingKey(CelError):
    """A key that is not in its map."""

    def __init__(self, key: str) -> None:
        super().__init__(f"no such key: {key}")
        self.key = key


def exact(text: str) -> str:
    """A quantity as the expressions see it: plain decimal text, so that == compares the values."""
    return f"{quantity.parse(text).normalize():f}"


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def _compare(one: str, other: str) -> int:
    difference = Decimal(one) - Decimal(other)
    return (difference > 0) - (difference < 0)


def _function(name: str, result: Any, parameters: int, implementation: Any, member: bool) -> Any:
    overload = cel.Overload(
        id=f"sandbox_{name}",
        return_type=result,
        parameters=[cel.Type.STRING] * parameters,
        is_member=member,
        impl=implementation,
    )
    return cel.FunctionDecl(name, [overload])


def quantity_functions() -> list[Any]:
    """Kubernetes' functions on quantities."""
    kind = cel.Type
    return [
        _function("quantity", kind.STRING, 1, exact, member=False),
        _function("isQuantity", kind.BOOL, 1, _is_quantity, member=False),
        _function("compareTo", kind.INT, 2, _compare, member=True),
        _function("isGreaterThan", kind.BOOL, 2, lambda a, b: _compare(a, b) > 0, member=True),
        _function("isLessThan", kind.BOOL, 2, lambda a, b: _compare(a, b) < 0, member=True),
        _function("asInteger", kind.INT, 1, int, member=True),
        _function("sign", kind.INT, 1, lambda a: _compare(a, "0"), member=True),
    ]


class Cel:
    """Compiles expressions once and evaluates them."""

    def __init__(self) -> None:
        kind = cel.Type
        self._environment = cel.NewEnv(
            variables=dict.fromkeys(_VARIABLES, kind.DYN),
            extensions=[
                ext_strings.ExtStrings(),
                ext_optional.ExtOptional(),
                ext_math.ExtMath(),
                ext_encoders.ExtEncoders(),
            ],
            functions=quantity_functions(),
        )
        self._compiled: dict[str, Any] = {}

    def compile(self, expression: str) -> Any:
        """The compiled expression; CelError where it cannot be compiled."""
        program = self._compiled.get(expression)
        if program is None:
            try:
                program = self._environment.compile(expression)
            except RuntimeError as error:
                raise CelError(f"compilation failed: {error}") from error
            self._compiled[expression] = program
        return program

    def evaluate(self, expression: str, values: Mapping[str, Any]) -> Any:
        """The value as plain Python. Names that are not in ``values`` are null. CelError where it fails."""
        program = self.compile(expression)
        try:
            value = program.eval(data={name: values.get(name) for name in _VARIABLES})
        except RuntimeError as error:
            raise CelError(str(error)) from error
        if value.type() == cel.Type.ERROR:
            raise _translated(str(value.value()))
        return value.plain_value()


def _translated(text: str) -> CelError:
    if match := _MISSING_KEY.search(text):
        return MissingKey(match[1])
    if match := _INDEX.search(text):
        return CelError(f"index out of bounds: {match[1]}")
    if "No matching overloads" in text:
        return CelError("no such overload")
    return CelError(text.partition(": ")[2] or text)
