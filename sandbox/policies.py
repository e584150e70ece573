"""ValidatingAdmissionPolicies and their bindings, judged as the API server does it."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox import selectors
from sandbox.api import Obj
from sandbox.cel import Cel, CelError, MissingKey
from sandbox.kinds import Kind
from sandbox.refusals import denied_by_policy

_EXEMPT_GROUPS = ("admissionregistration.k8s.io", "authorization.k8s.io")


@dataclass(frozen=True)
class Review:
    """One request as admission sees it. ``namespace`` is the Namespace object, None for cluster-wide kinds."""

    kind: Kind
    operation: str
    name: str
    namespace: Obj | None
    new: Obj | None
    old: Obj | None
    user: Mapping[str, Any]
    subresource: str = ""
    dry_run: bool = False

    def request(self) -> Obj:
        """The ``request`` variable."""
        group = {"group": self.kind.group, "version": self.kind.version}
        request: Obj = {
            "kind": group | {"kind": self.kind.kind},
            "resource": group | {"resource": self.kind.plural},
            "requestKind": group | {"kind": self.kind.kind},
            "requestResource": group | {"resource": self.kind.plural},
            "name": self.name,
            "operation": self.operation,
            "userInfo": self.user,
            "dryRun": self.dry_run,
        }
        if self.subresource:
            request["subResource"] = request["requestSubResource"] = self.subresource
        if self.namespace is not None and self.kind.namespaced:
            request["namespace"] = self.namespace["metadata"]["name"]
        return request


@dataclass(frozen=True)
class Denial:
    """A rule that did not hold."""

    message: str
    reason: str = "Invalid"


@dataclass
class _Variables:
    """Composed variables that could be computed, and why the others could not."""

    values: dict[str, Any] = field(default_factory=dict)
    failed: dict[str, CelError] = field(default_factory=dict)


class Policies:
    """Judges requests by the policies that ``objects(kind)`` gives."""

    def __init__(self, objects: Callable[[str], list[Obj]]) -> None:
        self._objects = objects
        self._cel = Cel()

    def check(self, review: Review) -> list[str]:
        """Raise the refusal of the first rule that fails; else the texts of those that only warn."""
        if review.kind.group in _EXEMPT_GROUPS:
            return []
        bindings = self._objects("ValidatingAdmissionPolicyBinding")
        warnings: list[str] = []
        for policy in self._objects("ValidatingAdmissionPolicy"):
            if not _constraints_match(policy["spec"]["matchConstraints"], review):
                continue
            name = policy["metadata"]["name"]
            denials: list[Denial] | None = None
            for binding in bindings:
                spec = binding["spec"]
                if spec["policyName"] != name:
                    continue
                if "matchResources" in spec and not _constraints_match(spec["matchResources"], review):
                    continue
                if denials is None:
                    denials = list(self._judge(policy["spec"], review))
                title = f"ValidatingAdmissionPolicy '{name}' with binding '{binding['metadata']['name']}'"
                for denial in denials:
                    if "Deny" in spec["validationActions"]:
                        sentence = f"{title} denied request: {denial.message}"
                        raise denied_by_policy(review.kind, review.name, sentence, denial.reason)
                    if "Warn" in spec["validationActions"]:
                        warnings.append(f"Validation failed for {title}: {denial.message}")
        return warnings

    def _judge(self, spec: Obj, review: Review) -> Iterator[Denial]:
        values: Obj = {
            "object": review.new,
            "oldObject": review.old,
            "request": review.request(),
            "namespaceObject": review.namespace,
        }
        lenient = spec["failurePolicy"] == "Ignore"
        for condition in spec.get("matchConditions", []):
            try:
                if self._cel.evaluate(condition["expression"], values) is not True:
                    return
            except CelError as error:
                if not lenient:
                    yield Denial(str(error))
                return
        variables = _Variables()
        values["variables"] = variables.values
        for variable in spec.get("variables", []):
            try:
                variables.values[variable["name"]] = self._evaluate(variable["expression"], values, variables)
            except CelError as error:
                variables.failed[variable["name"]] = error
        for rule in spec.get("validations", []):
            expression = rule["expression"]
            try:
                if self._evaluate(expression, values, variables) is not True:
                    message = self._message(rule, values, variables)
                    yield Denial(message, rule.get("reason", "Invalid"))
            except CelError as error:
                if not lenient:
                    yield Denial(f"expression '{expression.strip()}' resulted in error: {error}")

    def _evaluate(self, expression: str, values: Obj, variables: _Variables) -> Any:
        try:
            return self._cel.evaluate(expression, values)
        except MissingKey as error:
            if error.key in variables.failed:
                why = variables.failed[error.key]
                text = f'composited variable "{error.key}" fails to evaluate: {why}'
                raise CelError(text) from error
            raise

    def _message(self, rule: Obj, values: Obj, variables: _Variables) -> str:
        message = ""
        if "messageExpression" in rule:
            try:
                found = self._evaluate(rule["messageExpression"], values, variables)
            except CelError:
                found = None
            if isinstance(found, str) and "\n" not in found.strip():
                message = found.strip()
        return (
            message or rule.get("message", "").strip() or f"failed expression: {rule['expression'].strip()}"
        )


def _constraints_match(constraints: Obj, review: Review) -> bool:
    if not _selected(constraints, review):
        return False
    if any(_rule_matches(rule, review) for rule in constraints.get("excludeResourceRules", [])):
        return False
    rules = constraints.get("resourceRules")
    return rules is None or any(_rule_matches(rule, review) for rule in rules)


def _selected(constraints: Obj, review: Review) -> bool:
    namespace = review.namespace
    if review.kind.kind == "Namespace":
        namespace = review.new or review.old
    if namespace is not None:
        labels = namespace["metadata"].get("labels", {})
        if not selectors.matches(constraints.get("namespaceSelector", {}), labels):
            return False
    selector = constraints.get("objectSelector", {})
    return any(
        selectors.matches(selector, obj["metadata"].get("labels", {}))
        for obj in (review.new, review.old)
        if obj is not None
    )


def _has(values: list[str], value: str) -> bool:
    return "*" in values or value in values


def _rule_matches(rule: Obj, review: Review) -> bool:
    kind = review.kind
    if not (_has(rule["apiGroups"], kind.group) and _has(rule["apiVersions"], kind.version)):
        return False
    if not _has(rule["operations"], review.operation):
        return False
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") is not kind.namespaced:
        return False
    if "resourceNames" in rule and review.name not in rule["resourceNames"]:
        return False
    for pattern in rule["resources"]:
        resource, _, subresource = pattern.partition("/")
        if _has([resource], kind.plural) and subresource in (review.subresource, "*"):
            return True
    return False
