"""Validation of what asks for devices: claims, their templates, and the classes they name."""

from sandbox import device_selectors
from sandbox.api import Obj
from sandbox.field_errors import Errors
from sandbox.kinds import Kind


def _device_requests(field: str, spec: Obj, errors: Errors) -> None:
    for index, constraint in enumerate(spec.get("devices", {}).get("constraints", [])):
        place, names = f"{field}.devices.constraints[{index}]", constraint.get("requests", [])
        for number, name in enumerate(names):
            if name in names[:number]:
                errors.duplicate(f"{place}.requests[{number}]", name)
        attribute = constraint.get("matchAttribute")
        if attribute is not None and "/" not in attribute:
            why = "a fully qualified name must be a domain and a name separated by a slash"
            errors.invalid(f"{place}.matchAttribute", attribute, why)
    seen: set[str] = set()
    for index, request in enumerate(spec.get("devices", {}).get("requests", [])):
        place = f"{field}.devices.requests[{index}]"
        name = request.get("name", "")
        errors.name(f"{place}.name", name, "label")
        if name in seen:
            errors.duplicate(place, name)
        seen.add(name)
        parts = [(f"{place}.exactly", request["exactly"])] if "exactly" in request else []
        parts += [
            (f"{place}.firstAvailable[{i}]", part) for i, part in enumerate(request.get("firstAvailable", []))
        ]
        if not parts:
            errors.required(place, "exactly one of `exactly` or `firstAvailable` is required")
        if "exactly" in request and "firstAvailable" in request:
            why = "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"
            errors.invalid(place, None, why)
        for part_field, part in parts:
            if not part.get("deviceClassName"):
                errors.required(f"{part_field}.deviceClassName")
            else:
                errors.name(f"{part_field}.deviceClassName", part["deviceClassName"], "subdomain")
            device_selectors.check(f"{part_field}.selectors", part.get("selectors", []), errors)
            mode, count = part.get("allocationMode", "ExactCount"), part.get("count")
            errors.supported(f"{part_field}.allocationMode", mode, ("All", "ExactCount"))
            if mode == "ExactCount" and count is not None and count <= 0:
                errors.invalid(f"{part_field}.count", count, "must be greater than zero")
            if part.get("adminAccess"):
                why = (
                    "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the "
                    "containing namespace"  # which no namespace of the sandbox carries
                )
                errors.forbidden(f"{part_field.removesuffix('.exactly')}.adminAccess", why)
            if mode == "All" and count:
                errors.invalid(
                    f"{part_field}.count", count, "must not be specified when allocationMode is 'All'"
                )


def resource_claim(_: Kind, obj: Obj, errors: Errors) -> None:
    """A claim."""
    _device_requests("spec", obj["spec"], errors)


def claim_template(_: Kind, obj: Obj, errors: Errors) -> None:
    """The template of claims."""
    metadata = obj["spec"].get("metadata", {})
    errors.labels("spec.metadata.labels", metadata.get("labels", {}))
    for name in sorted(metadata.keys() - {"labels", "annotations"}):
        if metadata[name]:
            errors.forbidden(f"spec.metadata.{name}", "cannot be set")
    _device_requests("spec.spec", obj["spec"].get("spec", {}), errors)


def device_class(_: Kind, obj: Obj, errors: Errors) -> None:
    """A class of devices; its selectors are compiled at every write."""
    device_selectors.check("spec.selectors", obj.get("spec", {}).get("selectors", []), errors)
