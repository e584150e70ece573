"""The OpenAPI 3.1 document: operations from the views, answers from components, every error documented."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drf_spectacular.openapi import AutoSchema as SpectacularAutoSchema
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.renderers import BaseRenderer
from rest_framework.serializers import Serializer

from gpu.api import examples
from gpu.api.components import COMPONENTS
from gpu.api.shapes import ref
from gpu.api.summaries import SUMMARIES
from gpu.models import Slice

F = TypeVar("F", bound=Callable[..., Any])

PROBLEM = "application/problem+json"
ERRORS: Mapping[int, str] = {
    400: "The request cannot be read: bad JSON, an unknown parameter, a cursor of another list.",
    401: "No token, or one that is unknown, revoked or expired.",
    403: "The token may only read, or the role does not allow it.",
    404: "Not there, or not yours.",
    405: "Another method.",
    406: "The answer does not exist in the form asked for.",
    409: "The state forbids it: entitlement used up, consent to wait needed, the slice is being released.",
    412: "If-Match names another generation: somebody changed the slice meanwhile.",
    413: "The body is larger than 1 MiB.",
    415: "Another content type.",
    422: "Fields are wrong; errors has a JSON Pointer for each.",
    428: "If-Match is demanded.",
    429: "Too many requests; Retry-After says when.",
    500: "The portal failed; instance is the id to give to the operators.",
    503: "Not available at present; Retry-After says when.",
}
PARAMETERS: Mapping[str, dict[str, Any]] = {
    "cursor": {"description": "The cursor of next or previous."},
    "page_size": {"type": int, "description": "1 to 100; 25 if not given."},
    "on_sale": {"type": bool, "description": "true if not given."},
    "previous": {"type": bool, "description": "The log of the container's run before the present one."},
    "project": {"many": True, "description": "Id or namespace; several by repeating."},
    "package": {"many": True, "description": "Several by repeating."},
    "intent": {"many": True, "enum": Slice.Intent.values, "description": "Several by repeating."},
    "state": {"many": True, "description": "Several by repeating."},
    "ended": {"enum": ["false", "true", "any"], "description": "false if not given."},
    "ordering": {
        "enum": ["created_at", "-created_at", "display_name", "-display_name"],
        "description": "-created_at if not given.",
    },
}


class AutoSchema(SpectacularAutoSchema):
    """Spectacular's, with all operations under one tag a resource."""

    def get_tags(self) -> list[str]:
        """Return the resource's name."""
        parts = [part for part in self.path.split("/") if part and part not in ("api", "v1")]
        return [parts[0] if parts else "root"]


class YamlRenderer(BaseRenderer):
    """Text that is YAML already."""

    media_type = "application/yaml"
    format = "yaml"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Any = None
    ) -> bytes:
        """Return the text, or the JSON of a problem."""
        return data.encode() if isinstance(data, str) else json.dumps(data).encode()


def described(
    operation_id: str,
    component: str,
    *,
    request: type[Serializer[Any]] | None = None,
    status: int = 200,
    params: Sequence[str] = (),
    anonymous: bool = False,
    idempotent: bool = False,
    if_match: bool = False,
    not_modified: bool = False,
    yaml: bool = False,
) -> Callable[[F], F]:
    """Describe an operation. The errors it may answer with are added for all (add_errors)."""
    parameters = [
        OpenApiParameter(name, PARAMETERS[name].get("type", str), **_options(PARAMETERS[name]))
        for name in params
    ]
    if idempotent:
        parameters.append(
            _header("Idempotency-Key", "The same key and body gives the first answer again for 24 hours.")
        )
    if if_match:
        parameters.append(_header("If-Match", "The ETag of the slice as you have read it.", required=True))
    if not_modified:
        parameters.append(_header("If-None-Match", "An ETag; 304 while nothing but the age has changed."))
    shown = (
        [OpenApiExample("example", examples.ANSWERS[component], response_only=True)]
        if component in examples.ANSWERS
        else []
    )
    if request is not None and request.__name__ in examples.REQUESTS:
        shown.append(OpenApiExample("example", examples.REQUESTS[request.__name__], request_only=True))
    responses: dict[Any, Any] = {
        (status, "application/json"): OpenApiResponse(ref(component), description=component)
    }
    if yaml:
        responses[(status, "application/yaml")] = OpenApiResponse({"type": "string"}, description="YAML")
    if not_modified:
        responses[304] = OpenApiResponse(description="Not modified.")
    return extend_schema(
        operation_id=operation_id,
        request=request,
        responses=responses,
        parameters=parameters,
        examples=shown,
        auth=[] if anonymous else None,
    )


def _options(parameter: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameter.items() if name != "type"}


def _header(name: str, description: str, *, required: bool = False) -> OpenApiParameter:
    return OpenApiParameter(name, str, OpenApiParameter.HEADER, required=required, description=description)


def add_errors(result: dict[str, Any], generator: Any, **kwargs: Any) -> dict[str, Any]:
    """Add the components of components.py, and to every operation its title and the errors."""
    result.setdefault("components", {}).setdefault("schemas", {}).update(COMPONENTS)
    for operations in result["paths"].values():
        for method, operation in operations.items():
            operation["summary"] = SUMMARIES[operation["operationId"]]
            for status in _errors_of(method, operation):
                operation["responses"][str(status)] = {
                    "description": ERRORS[status],
                    "content": {PROBLEM: {"schema": ref("Problem"), "examples": _problem_example(status)}},
                }
            operation["responses"] = dict(sorted(operation["responses"].items()))
    return result


def _errors_of(method: str, operation: Mapping[str, Any]) -> list[int]:
    names = {parameter["name"] for parameter in operation.get("parameters", ())}
    found = [400, 401, 405, 406, 429, 500, 503]
    if operation["operationId"] != "root_retrieve":
        found.append(404)
    if method != "get":
        found += [403, 409, 412, 413, 415, 422]
    if "If-Match" in names:
        found.append(428)
    return sorted(found)


def _problem_example(status: int) -> dict[str, Any]:
    return {"problem": {"value": examples.PROBLEM}} if status == 409 else {}
