"""Object names and labels of a slice, made from what a person typed.

A display name is free text of any language and is kept as typed. The object name made from it is a DNS-1035
label (`[a-z]([-a-z0-9]*[a-z0-9])?`), because a Service accepts nothing else, and is so short that every name and
label value made from it stays within 63 characters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection

from gpu.messages import Count, Text, gettext_noop

MAX_LABEL_LENGTH = 63
"""Characters in a label value and in a DNS label (Kubernetes)."""

MAX_DISPLAY_LENGTH = 63
"""Characters a person may type as a name."""

CLAIM_SUFFIX = "-gpu"
VOLUME_SUFFIX = "-data"
SECRET_SUFFIX = "-auth"  # noqa: S105 - the end of an object name, not a password
PULL_SUFFIX = "-pull-"
MAX_TOKEN_LENGTH = 10
POD_SUFFIX = "-0123456789-01234"
"""The shape of what a ReplicaSet's hash and a pod's random part add: keeps host names of pods whole."""

SUFFIXES = (CLAIM_SUFFIX, VOLUME_SUFFIX, SECRET_SUFFIX, PULL_SUFFIX + "0" * MAX_TOKEN_LENGTH, POD_SUFFIX)
"""Every suffix an object name may get, each at its longest."""

MAX_APP_LENGTH = MAX_LABEL_LENGTH - max(len(suffix) for suffix in SUFFIXES)

LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_BACKEND = "kube-dc.com/gpu-backend"
LABEL_PROFILE = "kube-dc.com/gpu-profile"
MANAGED_BY = "kube-dc"
BACKEND = "dra"

_DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_TOKEN = re.compile(rf"[a-z0-9]{{1,{MAX_TOKEN_LENGTH}}}")
_NOT_ALLOWED = re.compile(r"[^a-z0-9]+")
_FALLBACK = "slice"
# NFKD would turn "ü" into "u"; German readers write "ue".
_SPELLED_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l"}
)
# Characters that reorder the text around them; not all of category Cf: some languages need its joiners.
_REORDERING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})


class NameRefused(ValueError):
    """A name cannot be used; `text` tells the person why."""

    def __init__(self, text: Text) -> None:
        super().__init__(str(text))
        self.text = text


def is_object_name(name: str) -> bool:
    """Tell whether `name` is a DNS-1035 label of at most 63 characters."""
    return len(name) <= MAX_LABEL_LENGTH and _DNS_1035.fullmatch(name) is not None


def check_display_name(display_name: str) -> None:
    """Raise NameRefused when a person's name shows nothing, is too long or holds control characters."""
    if not any(unicodedata.category(c)[0] in "LNPS" for c in display_name):
        raise NameRefused(Text(gettext_noop("Give the slice a name.")))
    if len(display_name) > MAX_DISPLAY_LENGTH:
        raise NameRefused(
            Text(
                gettext_noop("The name has %(length)s characters; at most %(limit)s are possible."),
                {"length": Count(len(display_name)), "limit": Count(MAX_DISPLAY_LENGTH)},
            )
        )
    if not shows_as_written(display_name):
        raise NameRefused(
            Text(gettext_noop("The name holds a line break or another character that cannot be shown."))
        )


def shows_as_written(text: str) -> bool:
    """Tell whether `text` is free of control characters, line breaks and characters that reorder those around."""
    return not any(unicodedata.category(c) in _INVISIBLE_CATEGORIES or c in _REORDERING for c in text)


def object_name(display_name: str, taken: Collection[str] = ()) -> str:
    """Make the object name for `display_name` that is none of `taken` (the names in use in the namespace).

    At most MAX_APP_LENGTH characters, so that every suffix fits. The same input gives the same name. Raises
    NameRefused for a display name that check_display_name refuses.
    """
    check_display_name(display_name)
    base = _slug(display_name)
    if not base:
        base = _FALLBACK
    elif not base[0].isalpha():
        base = f"{_FALLBACK}-{base}"
    base = _cut(base, MAX_APP_LENGTH)
    used = frozenset(taken)
    name, number = base, 2
    while name in used:
        suffix = f"-{number}"
        name = _cut(base, MAX_APP_LENGTH - len(suffix)) + suffix
        number += 1
    return name


def claim_template_name(app: str) -> str:
    """Name of the ResourceClaimTemplate; the policies demand exactly this suffix."""
    return app + CLAIM_SUFFIX


def service_name(app: str) -> str:
    """Name of the Service: the workload's own."""
    return app


def volume_name(app: str) -> str:
    """Name of the PersistentVolumeClaim."""
    return app + VOLUME_SUFFIX


def secret_name(app: str) -> str:
    """Name of the Secret that holds a workload's access token."""
    return app + SECRET_SUFFIX


def pull_job_name(app: str, token: str) -> str:
    """Name of one model pull's Job; `token` is 1 to 10 of `[a-z0-9]`, else ValueError.

    A token holds no "-", so two workloads' Jobs never share a name.
    """
    if not _TOKEN.fullmatch(token):
        raise ValueError(f"a pull token is 1 to {MAX_TOKEN_LENGTH} letters or digits, not {token!r}")
    return app + PULL_SUFFIX + token


def labels(app: str, profile_id: str) -> dict[str, str]:
    """Return the four labels of the claim template, the Deployment and its pods."""
    return {
        LABEL_NAME: app,
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_BACKEND: BACKEND,
        LABEL_PROFILE: profile_id,
    }


def plain_labels(app: str) -> dict[str, str]:
    """Return the labels of objects without a claim: volume, Service, Secret. They carry no GPU label."""
    return {LABEL_NAME: app, LABEL_MANAGED_BY: MANAGED_BY}


def _slug(text: str) -> str:
    spelled = unicodedata.normalize("NFC", text).lower().translate(_SPELLED_OUT)
    ascii_text = unicodedata.normalize("NFKD", spelled).lower().encode("ascii", "ignore").decode("ascii")
    return _NOT_ALLOWED.sub("-", ascii_text).strip("-")


def _cut(name: str, length: int) -> str:
    return name[:length].rstrip("-")
