"""Field errors as Kubernetes words them, and the names and labels it allows."""

import json
import re
from collections.abc import Iterable
from typing import Any

from sandbox.api import Obj

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SENTENCES = {
    "subdomain": (
        _SUBDOMAIN,
        253,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
        "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
        f"'{_SUBDOMAIN}')",
    ),
    "label": (
        _LABEL,
        63,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
        f"end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')",
    ),
    "label1035": (
        "[a-z]([-a-z0-9]*[a-z0-9])?",
        63,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for "
        "validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
    ),
}
_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
    f"is '({_NAME_PART})?')"
)
_QUALIFIED = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '"
    f"{_NAME_PART}')"
)


class Errors:
    """Collects (field, cause reason, sentence) as Kubernetes' field errors."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []

    def invalid(self, field: str, value: Any, why: str) -> None:
        """The value is not allowed."""
        shown = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        self.found.append((field, "FieldValueInvalid", f"Invalid value: {shown}: {why}"))

    def required(self, field: str, why: str = "") -> None:
        """A value is missing."""
        self.found.append((field, "FieldValueRequired", "Required value" + (f": {why}" if why else "")))

    def forbidden(self, field: str, why: str) -> None:
        """The field may not be set here."""
        self.found.append((field, "FieldValueForbidden", f"Forbidden: {why}"))

    def duplicate(self, field: str, value: str) -> None:
        """The value is there twice."""
        self.found.append((field, "FieldValueDuplicate", f"Duplicate value: {json.dumps(value)}"))

    def too_many(self, field: str, count: int, most: int) -> None:
        """A list is too long."""
        text = f"Too many: {count}: must have at most {most} items"
        self.found.append((field, "FieldValueTooMany", text))

    def too_long(self, field: str, most: int) -> None:
        """A text is too long."""
        self.found.append((field, "FieldValueTooLong", f"Too long: may not be more than {most} bytes"))

    def missing(self, field: str, value: str, why: str = "") -> None:
        """The value names something that is not there."""
        text = f"Not found: {json.dumps(value)}" + (f": {why}" if why else "")
        self.found.append((field, "FieldValueNotFound", text))

    def supported(self, field: str, value: Any, allowed: Iterable[str]) -> None:
        """The value must be one of a list."""
        if value not in allowed:
            names = ", ".join(json.dumps(name) for name in sorted(allowed))
            shown = json.dumps(value, separators=(",", ":"))
            text = f"Unsupported value: {shown}: supported values: {names}"
            self.found.append((field, "FieldValueNotSupported", text))

    def name(self, field: str, value: str, form: str) -> None:
        """The value must be a DNS name of a form: subdomain, label or label1035."""
        expression, limit, sentence = _SENTENCES[form]
        if len(value) > limit:
            self.invalid(field, value, f"must be no more than {limit} bytes")
        if not re.fullmatch(expression, value):
            self.invalid(field, value, sentence)

    def labels(self, field: str, labels: dict[str, str]) -> None:
        """Keys and values must be valid labels."""
        for key, value in sorted(labels.items()):
            self.qualified(field, key)
            if len(value.encode()) > 63:
                self.invalid(field, value, "must be no more than 63 bytes")
            elif not re.fullmatch(f"({_NAME_PART})?", value):
                self.invalid(field, value, _LABEL_VALUE)

    def qualified(self, field: str, key: str) -> None:
        """The key of a label or annotation: optional prefix, slash, name."""
        prefix, slash, name = key.rpartition("/")
        if slash and not re.fullmatch(_SUBDOMAIN, prefix):
            self.invalid(field, key, f"prefix part {_SENTENCES['subdomain'][2]}")
        if len(name) > 63:
            self.invalid(field, key, "name part must be no more than 63 bytes")
        elif not re.fullmatch(_NAME_PART, name):
            self.invalid(field, key, _QUALIFIED)

    def not_negative(self, field: str, value: int | None) -> None:
        """A count."""
        if value is not None and value < 0:
            self.invalid(field, value, "must be greater than or equal to 0")

    def selector(self, field: str, selector: Obj) -> None:
        """A LabelSelector's own values."""
        self.labels(f"{field}.matchLabels", selector.get("matchLabels", {}))
