"""Take out of a text from the platform what a tenant must not learn: servers, cards and their addresses.

The contract's "Discretion": node names, device UUIDs, PCI addresses, ResourceSlice and pool names never reach
a tenant. Loopback and "any" addresses stay, since a tenant's own server prints them.

A tenant writes the logs that come through here: every pattern takes time linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address

HIDDEN = "[…]"

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\b(?:(?:GPU|MIG)-[0-9a-fA-F][0-9a-fA-F-]{{5,}}(?:/\d+/\d+)?|{_UUID})")
_PCI = re.compile(
    r"(?<![\w:.])(?:[0-9a-fA-F]{4}(?:[0-9a-fA-F]{4})?:)?[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]\b"
)
_DEVICE_NAME = re.compile(r"\bhami-gpu-\d+\b")
_ASSIGNED = re.compile(r"(?P<before>assigned [^\s/]+/\S+) to \S+")
_NAMED = re.compile(
    r"(?P<before>\b(?:[Nn]odes?|[Pp]ool|ResourceSlice|resourceslice|[Hh]ost|hostname|nodeName|node_name|NODE_NAME)"
    r"(?::\s*|=|\s+(?=[\"'“])))[\"'“]?(?P<name>[\w][\w.-]*)[\"'”]?"
)
_ON_NODE = re.compile(
    r"(?P<before>\b(?:[Nn]ode|[Pp]ool|ResourceSlice) )"
    r"(?P<name>[a-z][a-z0-9]*(?:[-.][a-z0-9]+)*[-.]?\d[a-z0-9.-]*)"
)
_CLOUD_HOST = re.compile(r"\bip-\d+-\d+-\d+-\d+(?:\.[a-z0-9-]+)*\b|(?<![a-z0-9.-])[a-z0-9.-]+\.internal\b")
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:])")


def redact(text: str, names: Collection[str] = ()) -> str:
    """`text` without the given names (of nodes, pools, slices) and without whatever can be told by its form.

    Each find is replaced by `HIDDEN`; the rest of the text is unchanged.
    """
    for name in sorted(filter(None, names), key=len, reverse=True):
        text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", HIDDEN, text)
    text = _ASSIGNED.sub(r"\g<before>", text)
    text = _DEVICE.sub(HIDDEN, text)
    text = _PCI.sub(HIDDEN, text)
    text = _DEVICE_NAME.sub(HIDDEN, text)
    text = _NAMED.sub(rf"\g<before>{HIDDEN}", text)
    text = _ON_NODE.sub(rf"\g<before>{HIDDEN}", text)
    text = _CLOUD_HOST.sub(HIDDEN, text)
    text = _IPV4.sub(_unless_local, text)
    return _IPV6.sub(_unless_local, text)


def _unless_local(match: re.Match[str]) -> str:
    try:
        address = ip_address(match[0])
    except ValueError:
        return match[0]
    return match[0] if address.is_loopback or address.is_unspecified else HIDDEN
