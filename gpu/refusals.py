"""What the platform's refusals say, read from their fixed phrases into facts with exact figures.

The same phrases arrive as HTTP answers, as conditions of Deployments and ReplicaSets, and as events; whole
sentences vary between Kubernetes versions, these phrases do not. A text that holds none of them gives None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from gpu.quantities import EXACT, QuantityError, parse

MAX_MESSAGE_LENGTH = 32_768

_DEVICE_KEY = re.compile(
    r"(?P<old>[^/\s=,]+)\.deviceclass\.resource\.k8s\.io/devices|requests\.deviceclass\.resource\.k8s\.io/(?P<new>[^/\s=,]+)"
)
_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory"}

_EXCEEDED = re.compile(
    r"exceeded quota: (?P<quota>[^\s,]+), requested: (?P<requested>\S+),"
    r" used: (?P<used>\S+), limited: (?P<limited>\S+)"
)
_UNSPECIFIED = re.compile(r"failed quota: (?P<quota>[^\s:,]+): must specify (?P<values>[^\n\]]+)")
_UNKNOWN = re.compile(r"status unknown for quota: (?P<quota>[^\s,]+)")
_OUT_OF_RANGE = re.compile(
    r"(?P<bound>minimum|maximum) (?P<resource>\S+) usage per (?P<scope>Container|Pod|PersistentVolumeClaim)"
    r" is (?P<allowed>[^\s,]*[^\s,.])"
    r"(?:, but (?P<what>limit|request) is (?P<asked>[^\s,\]]+)|\.\s+No (?P<none>limit|request))"
)
_RATIO = re.compile(
    r"(?<!\S)(?P<resource>\S+) max limit to request ratio per (?P<scope>Container|Pod) is (?P<allowed>[^\s,]+), but"
)
_DENIED = re.compile(
    r"ValidatingAdmissionPolicy '(?P<policy>[^']+)' with binding '(?P<binding>[^']+)' denied request: "
    r"(?P<sentence>.+)",
    re.DOTALL,
)
_EXPRESSION = re.compile(r"^expression '.*' resulted in error: (?P<error>[^\n]+)", re.DOTALL)
_NO_SUCH_KEY = re.compile(r"no such key: (?P<key>\S+)")
_POD_SECURITY = re.compile(
    r'violates PodSecurity "(?P<level>[^":]+)(?::[^"]*)?": (?P<violations>.+)', re.DOTALL
)
_BACKEND_ONLY = "must be managed through the kube-dc API"


def dimension(key: str) -> str:
    """The one name of a quota key: "cpu" is "requests.cpu", and a device key has its older form."""
    match = _DEVICE_KEY.fullmatch(key)
    if match is not None:
        return f"{match['old'] or match['new']}.deviceclass.resource.k8s.io/devices"
    return _ALIASES.get(key, key)


def device_class(key: str) -> str | None:
    """The DeviceClass that a quota key counts, or None for any other key."""
    match = _DEVICE_KEY.fullmatch(key)
    return None if match is None else match["old"] or match["new"]


@dataclass(frozen=True)
class Shortfall:
    """One dimension of a quota that a request would have overdrawn; figures in base units."""

    key: str
    requested: Decimal
    used: Decimal
    limited: Decimal

    @property
    def left(self) -> Decimal:
        """What the quota still had; negative where it was overdrawn already."""
        return EXACT.subtract(self.limited, self.used)

    @property
    def short_by(self) -> Decimal:
        """How much more would have had to be free."""
        return EXACT.subtract(self.requested, self.left)


@dataclass(frozen=True)
class QuotaExceeded:
    """`exceeded quota: ...`"""

    quota: str
    shortfalls: tuple[Shortfall, ...]


@dataclass(frozen=True)
class ValuesMissing:
    """`failed quota: ... must specify ...`: a compute quota holds and a container does not say its needs."""

    quota: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class QuotaNotCounted:
    """`status unknown for quota: ...`: the quota is so new that its use has not been counted yet."""

    quota: str


@dataclass(frozen=True)
class OutsideLimitRange:
    """A LimitRange's minimum, maximum or ratio.

    `bound` is "minimum", "maximum" or "ratio"; `what` is "limit" or "request"; `allowed` and `asked` are in
    base units, `asked` is None where no value was given.
    """

    bound: str
    resource: str
    scope: str
    allowed: Decimal
    what: str
    asked: Decimal | None


@dataclass(frozen=True)
class PolicyDenied:
    """A ValidatingAdmissionPolicy's refusal; only the first rule that fails is told.

    Where the rule's own expression failed, `sentence` is "" and `missing_key` the key it did not find.
    """

    policy: str
    binding: str
    sentence: str
    missing_key: str = ""

    @property
    def backend_only(self) -> bool:
        """Whether the platform has not yet been told to let the portal's account write."""
        return _BACKEND_ONLY in self.sentence


@dataclass(frozen=True)
class PodSecurityDenied:
    """The namespace's pod security level refuses the pod."""

    level: str
    violations: str


Refusal = (
    QuotaExceeded | ValuesMissing | QuotaNotCounted | OutsideLimitRange | PolicyDenied | PodSecurityDenied
)


def read(message: str) -> Refusal | None:
    """The refusal that `message` tells, or None where none of the known phrases is in it."""
    message = message[:MAX_MESSAGE_LENGTH]
    for reader in (
        _read_policy,
        _read_exceeded,
        _read_unspecified,
        _read_unknown,
        _read_limit_range,
        _read_pod_security,
    ):
        refusal = reader(message)
        if refusal is not None:
            return refusal
    return None


def _read_policy(message: str) -> PolicyDenied | None:
    match = _DENIED.search(message)
    if match is None:
        return None
    sentence = match["sentence"].strip()
    failed = _EXPRESSION.match(sentence)
    if failed is None:
        return PolicyDenied(match["policy"], match["binding"], sentence)
    key = _NO_SUCH_KEY.search(failed["error"])
    return PolicyDenied(match["policy"], match["binding"], "", key["key"] if key else "")


def _pairs(text: str) -> dict[str, Decimal]:
    found = {}
    for pair in text.rstrip(".]").split(","):
        key, _, value = pair.rpartition("=")
        if key:
            found[dimension(key)] = parse(value)
    return found


def _read_exceeded(message: str) -> QuotaExceeded | None:
    match = _EXCEEDED.search(message)
    if match is None:
        return None
    try:
        requested, used, limited = (_pairs(match[part]) for part in ("requested", "used", "limited"))
    except QuantityError:
        return QuotaExceeded(match["quota"], ())
    shortfalls = (
        Shortfall(key, amount, used[key], limited[key])
        for key, amount in requested.items()
        if key in used and key in limited
    )
    return QuotaExceeded(match["quota"], tuple(each for each in shortfalls if each.short_by > 0))


def _missing_keys(values: str) -> Iterator[str]:
    # Newer servers name the containers ("limits.cpu for: a,b; ..."), older ones list the keys with commas.
    for part in values.split(";") if " for: " in values else values.split(","):
        key = part.partition(" for: ")[0].strip()
        if key:
            yield dimension(key)


def _read_unspecified(message: str) -> ValuesMissing | None:
    match = _UNSPECIFIED.search(message)
    return None if match is None else ValuesMissing(match["quota"], tuple(_missing_keys(match["values"])))


def _read_unknown(message: str) -> QuotaNotCounted | None:
    match = _UNKNOWN.search(message)
    return None if match is None else QuotaNotCounted(match["quota"])


def _read_limit_range(message: str) -> OutsideLimitRange | None:
    match = _OUT_OF_RANGE.search(message)
    try:
        if match is not None:
            asked = None if match["asked"] is None else parse(match["asked"].rstrip("."))
            return OutsideLimitRange(
                match["bound"],
                match["resource"],
                match["scope"],
                parse(match["allowed"]),
                match["what"] or match["none"],
                asked,
            )
        match = _RATIO.search(message)
        if match is not None:
            allowed = parse(match["allowed"])
            return OutsideLimitRange("ratio", match["resource"], match["scope"], allowed, "limit", None)
    except QuantityError:
        return None
    return None


def _read_pod_security(message: str) -> PodSecurityDenied | None:
    match = _POD_SECURITY.search(message)
    return None if match is None else PodSecurityDenied(match["level"], match["violations"].strip())
