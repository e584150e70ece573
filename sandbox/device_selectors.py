"""CEL expressions that select devices: what the API server refuses of them, and whether a device meets one.

The compiler is another than Kubernetes' own. Its sentences are turned into those of the API server. It estimates no
cost, does not look into literals (mixed lists, regular expressions, times), and knows neither macros with two variables
nor Kubernetes' functions on addresses, URLs and formats.
"""

import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cel_expr_python import cel
from cel_expr_python.ext import ext_bindings, ext_encoders, ext_math, ext_optional, ext_strings

from sandbox.cel import quantity_functions
from sandbox.field_errors import Errors

LONGEST = 10 * 1024
MOST = 32

_DEVICE = "kubernetes.DRADevice"
_FIELDS = {
    "driver": "string",
    "allowMultipleAllocations": "bool",
    "attributes": "map<string, map<string, any>>",
    "capacity": "map<string, map<string, kubernetes.Quantity>>",
}
# Kubernetes' own functions, by their types alone: name, what it is called on (none: not a member), parameters, result.
_FUNCTIONS = """
quantity - string kubernetes.Quantity
isQuantity - string bool
sign - kubernetes.Quantity int
isGreaterThan kubernetes.Quantity kubernetes.Quantity bool
isGreaterThan kubernetes.Semver kubernetes.Semver bool
isLessThan kubernetes.Quantity kubernetes.Quantity bool
isLessThan kubernetes.Semver kubernetes.Semver bool
compareTo kubernetes.Quantity kubernetes.Quantity int
compareTo kubernetes.Semver kubernetes.Semver int
asApproximateFloat kubernetes.Quantity double
asInteger kubernetes.Quantity int
isInteger kubernetes.Quantity bool
add kubernetes.Quantity kubernetes.Quantity kubernetes.Quantity
add kubernetes.Quantity int kubernetes.Quantity
sub kubernetes.Quantity kubernetes.Quantity kubernetes.Quantity
sub kubernetes.Quantity int kubernetes.Quantity
semver - string kubernetes.Semver
semver - string bool kubernetes.Semver
isSemver - string bool
isSemver - string bool bool
major kubernetes.Semver int
minor kubernetes.Semver int
patch kubernetes.Semver int
charAt string int string
indexOf string string int
indexOf string string int int
lastIndexOf string string int
lastIndexOf string string int int
join list<string> string
join list<string> string string
lowerAscii string string
upperAscii string string
replace string string string string
replace string string string int string
split string string list<string>
split string string int list<string>
substring string int string
substring string int int string
trim string string
format string list<dyn> string
strings.quote - string string
find string string string
findAll string string list<string>
findAll string string int list<string>
isSorted list<dyn> bool
sum list<dyn> dyn
min list<dyn> dyn
max list<dyn> dyn
indexOf list<dyn> dyn int
lastIndexOf list<dyn> dyn int
distinct list<dyn> list<dyn>
reverse list<dyn> list<dyn>
slice list<dyn> int int list<dyn>
sort list<dyn> list<dyn>
flatten list<dyn> list<dyn>
lists.range - int list<int>
sets.contains - list<dyn> list<dyn> bool
sets.equivalent - list<dyn> list<dyn> bool
sets.intersects - list<dyn> list<dyn> bool
"""
_FINDING = re.compile(r"^ERROR: <input>:(\d+):(\d+): ", re.MULTILINE)
_NO_SELECT = re.compile(r"expression of type '(.*)' cannot be the operand of a select operation")
_SAME = {
    "cannot be the range of a comprehension": "cannot be range of a comprehension",
    "has() argument must be a field selection": "invalid argument to has() macro",
    r"'\u003F'": "'?'",
}
"""Its words, and those of the API server."""
_NO_OVERLOAD = re.compile(r"found no matching overload for '(.*)' applied to '\((.*)\)'", re.DOTALL)
_UNDECLARED = re.compile(r"undeclared reference to '(\.?\w+)\.([\w.]*)' ")
_HAS = re.compile(r"\bhas *\( *device *\. *(?:" + "|".join(_FIELDS) + r") *\)")


def _type(text: str) -> Any:
    return cel.Type.AbstractType(text) if text.startswith("kubernetes.") else cel.Type(text)


def _field_type(text: str) -> Any:
    """The type of a field of the device; an abstract type cannot be written inside a map's."""
    kind = cel.Type
    if text.endswith("kubernetes.Quantity>>"):
        return kind.Map(kind.STRING, kind.Map(kind.STRING, _type("kubernetes.Quantity")))
    return kind(text)


def _declared() -> Iterator[Any]:
    overloads: dict[str, list[Any]] = {}
    for line in _FUNCTIONS.strip().splitlines():
        name, target, *parameters, result = line.split()
        member = target != "-"
        types = [_type(one) for one in ([target] if member else []) + parameters]
        overloads.setdefault(name, []).append(
            cel.Overload(
                id=f"{name}_{len(overloads.get(name, []))}",
                return_type=_type(result),
                parameters=types,
                is_member=member,
            )
        )
    return (cel.FunctionDecl(name, those) for name, those in overloads.items())


@functools.cache
def _typed(device: str = _DEVICE) -> Any:
    """What a selector is checked against."""
    fields = {f"device.{name}": _field_type(text) for name, text in _FIELDS.items()}
    return cel.NewEnv(
        variables={"device": _type(device), **fields},
        extensions=[ext_bindings.ExtBindings(), ext_optional.ExtOptional()],
        functions=list(_declared()),
    )


@dataclass(frozen=True)
class _Finding:
    line: int
    column: int
    sentence: str

    def shown(self, source: str) -> str:
        if not source:
            return f"ERROR: <input>:1:0: {self.sentence}"
        text = f"ERROR: <input>:{self.line}:{self.column}: {self.sentence}"
        line = source.split("\n")[self.line - 1].replace("\t", " ")
        dots = "".join("." if letter.isascii() else "．" for letter in line[: self.column - 1])
        pointed = line[self.column - 1 : self.column]
        return f"{text}\n | {line}\n | {dots}{'^' if pointed.isascii() else '＾'}"


def _findings(error: str) -> Iterator[_Finding]:
    error = error.removeprefix("INVALID_ARGUMENT: ")
    marks = list(_FINDING.finditer(error))
    for mark, following in itertools.zip_longest(marks, marks[1:]):
        sentence = error[mark.end() : following.start() if following else len(error)]
        sentence = sentence.partition("\n | ")[0].strip().removesuffix(" [INVALID_ARGUMENT]")
        yield _Finding(int(mark[1]), int(mark[2]), sentence)


def _kubernetes(found: _Finding, source: str) -> _Finding | None:
    """The finding as the API server has it; None where it has none."""
    line = source.split("\n")[found.line - 1] if source else ""
    before, after = line[: found.column - 1], line[found.column :]
    if match := _NO_SELECT.fullmatch(found.sentence):
        name = re.match(r"(?:device\s*\.)?\??\s*(\w*)", after)  # of has(device.x) it points at the bracket
        field = name[1] if name else ""
        if match[1] == "*error*" or (match[1] == _DEVICE and field in _FIELDS):
            return None
        if match[1] == _DEVICE:
            return _Finding(found.line, found.column, f"undefined field '{field}'")
        return _Finding(found.line, found.column, f"type '{match[1]}' does not support field selection")
    sentence = found.sentence
    for its, theirs in _SAME.items():
        sentence = sentence.replace(its, theirs)
    if match := _NO_OVERLOAD.fullmatch(sentence):
        member = re.search(rf"\.\s*{re.escape(match[1])}\s*$", before) and match[1].isidentifier()
        target, _, rest = match[2].partition(", ")
        signature = f"{target}.({rest})" if member else f"({match[2]})"
        sentence = f"found no matching overload for '{match[1]}' applied to '{signature}'"
    if match := _UNDECLARED.match(sentence):  # of a.b.c the first name is what is not declared
        start = re.search(rf"{re.escape(match[1])}[\w\s.]*$", before)
        column = start.start() + 1 if start else found.column
        return _Finding(found.line, column, f"undeclared reference to '{match[1]}' {sentence[match.end() :]}")
    return _Finding(found.line, found.column, sentence)


def _type_name(text: str) -> str:
    names = {
        "NULL": "null_type",
        "DURATION": "google.protobuf.Duration",
        "TIMESTAMP": "google.protobuf.Timestamp",
    }
    text = re.sub(r"\b(NULL|DURATION|TIMESTAMP)\b", lambda match: names[match[1]], text)
    text = re.sub(r"\b[A-Z]+\b", lambda match: match[0].lower(), text)
    return re.sub(r"\b(any|error)\b", "google.protobuf.Any", text).replace("<", "(").replace(">", ")")


@functools.lru_cache(maxsize=256)
def fault(expression: str) -> str | None:
    """Why the API server refuses an expression as a device selector; None where it takes it."""
    # The compiler takes has() of a field of the device for the field itself.
    source = _HAS.sub(lambda match: "true".ljust(len(match[0])), expression)
    for device in (
        _DEVICE,
        "dyn",
    ):  # by itself, as in cel.bind(d, device, ...), it has no fields to this compiler
        try:
            kind = _typed(device).compile(source).return_type().name()
        except RuntimeError as error:
            found = [_kubernetes(one, expression) for one in _findings(str(error))]
            told = sorted((one for one in found if one), key=lambda one: (one.line, one.column))
            if told:
                return "compilation failed: " + "\n".join(one.shown(expression) for one in told)
            continue
        if kind in ("BOOL", "ERROR", "any"):  # the compiler's name for any is ERROR
            return None
        return f"must evaluate to bool or the unknown type, not {_type_name(kind)}"
    return None


def check(field: str, selectors: list[Any], errors: Errors) -> None:
    """Whether a list of selectors would be stored."""
    if len(selectors) > MOST:
        errors.too_many(field, len(selectors), MOST)
        return
    for index, selector in enumerate(selectors):
        place = f"{field}[{index}].cel"
        if selector.get("cel") is None:
            errors.required(place)
            continue
        place, expression = f"{place}.expression", selector["cel"].get("expression", "")
        if len(expression.encode()) > LONGEST:
            errors.too_long(place, LONGEST)
        elif why := fault(expression):
            errors.invalid(place, expression, why)


@functools.cache
def _loose() -> Any:
    """What a selector is evaluated in: quantities and versions are text."""
    return cel.NewEnv(
        variables={"device": cel.Type.DYN},
        extensions=[
            ext_bindings.ExtBindings(),
            ext_strings.ExtStrings(),
            ext_optional.ExtOptional(),
            ext_math.ExtMath(),
            ext_encoders.ExtEncoders(),
        ],
        functions=quantity_functions(),
    )


@functools.lru_cache(maxsize=256)
def _compiled(expression: str) -> Any:
    return _loose().compile(expression)


def meets(expression: str, device: Mapping[str, Any]) -> bool:
    """Whether a device, as the variable `device` holds it, meets a selector; one that fails is not met."""
    try:
        return _compiled(expression).eval(data={"device": device}).value() is True
    except Exception:  # the library raises RuntimeError or ValueError, by the step that failed
        return False
