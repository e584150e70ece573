"""The answers a Kubernetes API server gives when it refuses: status code, reason and sentence."""

from collections.abc import Sequence
from typing import Any

from sandbox.api import ApiError, Obj
from sandbox.kinds import Kind

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    504: "Timeout",
}


def status(
    code: int, message: str, reason: str | None = None, details: Obj | None = None, **headers: str
) -> ApiError:
    """An error with a ``Status`` body; header names are given with underscores."""
    body: Obj = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": _REASONS.get(code, "") if reason is None else reason,
        "code": code,
    }
    if not body["reason"]:
        del body["reason"]
    if details is not None:
        body["details"] = details
    return ApiError(code, body, {name.replace("_", "-"): value for name, value in headers.items()})


def _details(kind: Kind, name: str | None, by_kind: bool = False) -> Obj:
    details: Obj = {"name": name} if name else {}
    if kind.group:
        details["group"] = kind.group
    details["kind"] = kind.kind if by_kind else kind.plural
    return details


def not_found(kind: Kind, name: str) -> ApiError:
    """404: no such object."""
    return status(404, f'{kind.resource} "{name}" not found', details=_details(kind, name))


def no_such_path() -> ApiError:
    """404: the server serves nothing there."""
    return status(404, "the server could not find the requested resource", details={})


def already_exists(kind: Kind, name: str) -> ApiError:
    """409: the name is taken."""
    message = f'{kind.resource} "{name}" already exists'
    return status(409, message, "AlreadyExists", _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    """409: the object is not the one the caller meant."""
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return status(409, message, details=_details(kind, name))


def stale(kind: Kind, name: str) -> ApiError:
    """409: the object changed since the caller read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def not_meant(kind: Kind, name: str, label: str, wanted: str, present: str) -> ApiError:
    """409: the precondition of a deletion does not hold; label is UID or ResourceVersion."""
    end = "have been deleted and then recreated" if label == "UID" else "have been modified"
    why = (
        f"the {label} in the precondition ({wanted}) does not match the {label} in record ({present}). "
        f"The object might {end}"
    )
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return status(409, message, details=_details(kind, name, by_kind=True))


def apply_conflict(found: Sequence[tuple[str, str]]) -> ApiError:
    """409: server-side apply touches fields of other managers; pairs of (manager, field path)."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in found
    ]
    if len(found) == 1:
        sentence = f"conflict with {found[0][0]}: {found[0][1]}"
    else:
        managers = dict.fromkeys(manager for manager, _ in found)
        sentence = "\n".join(
            f"conflicts with {m}:\n" + "\n".join(f"- {path}" for owner, path in found if owner == m)
            for m in managers
        )
    number = "1 conflict" if len(found) == 1 else f"{len(found)} conflicts"
    return status(409, f"Apply failed with {number}: {sentence}", details={"causes": causes})


def invalid(kind: Kind, name: str, errors: Sequence[tuple[str, str, str]]) -> ApiError:
    """422: pairs of (field, reason of the cause, sentence) as ordinary validation gives them."""
    causes = [{"reason": reason, "message": text, "field": field} for field, reason, text in errors]
    sentences = list(dict.fromkeys(f"{field}: {text}" for field, _, text in errors))
    listed = sentences[0] if len(sentences) == 1 else f"[{', '.join(sentences)}]"
    details = _details(kind, name, by_kind=True) | {"causes": causes}
    return status(422, f'{kind.qualified} "{name}" is invalid: {listed}', details=details)


def no_such_dry_run(method: str, value: str) -> ApiError:
    """422: dryRun knows one value."""
    names = {"POST": "CreateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}
    options = Kind(names.get(method, "UpdateOptions"), "meta.k8s.io", "")
    why = f'Unsupported value: ["{value}"]: supported values: "All"'
    return invalid(options, "", [("dryRun", "FieldValueNotSupported", why)])


def not_here() -> ApiError:
    """405: the method is not for this path."""
    return status(405, "the server does not allow this method on the requested resource", details={})


def no_field_manager() -> ApiError:
    """422: server-side apply needs the name of its manager."""
    options = Kind("PatchOptions", "meta.k8s.io", "")
    why = "Required value: is required for apply patch"
    return invalid(options, "", [("fieldManager", "FieldValueRequired", why)])


def forbidden(kind: Kind, name: str, why: str, causes: Sequence[Obj] = ()) -> ApiError:
    """403: refused by quota, LimitRange or another admission plug-in."""
    details = _details(kind, name) | ({"causes": list(causes)} if causes else {})
    return status(403, f'{kind.resource} "{name}" is forbidden: {why}', details=details)


def denied_by_policy(kind: Kind, name: str, sentence: str, reason: str) -> ApiError:
    """A ValidatingAdmissionPolicy said no, with the code that belongs to its reason (422 by default)."""
    code = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}[reason]
    details = _details(kind, name) | {"causes": [{"message": sentence}]}
    return status(code, f'{kind.resource} "{name}" is forbidden: {sentence}', reason, details)


def unauthorized() -> ApiError:
    """401: no known token."""
    return status(401, "Unauthorized", WWW_Authenticate='Bearer realm="sandbox"')


def not_allowed(user: str, verb: str, kind: Kind, namespace: str | None, name: str, sub: str) -> ApiError:
    """403 by RBAC."""
    resource = f"{kind.plural}/{sub}" if sub else kind.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    title = f'{kind.resource} "{name}"' if name else kind.resource
    message = (
        f'{title} is forbidden: User "{user}" cannot {verb} resource "{resource}" in API group '
        f'"{kind.group}" {where}'
    )
    return status(403, message, details=_details(kind, name))


def expired(asked: int, oldest: int) -> ApiError:
    """410: the version asked for is older than what the server remembers."""
    return status(410, f"too old resource version: {asked} ({oldest})", details={})


def bad_request(message: str) -> ApiError:
    """400 with a sentence."""
    return status(400, message)


def success(kind: Kind, name: str, uid: str) -> dict[str, Any]:
    """The answer to a deletion that is done."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": _details(kind, name) | {"uid": uid},
    }
