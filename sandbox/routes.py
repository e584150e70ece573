"""Which object or collection a path means."""

from dataclasses import dataclass

from sandbox.kinds import BY_PLURAL, Kind

_ROOTS = {"healthz", "livez", "readyz"}


@dataclass(frozen=True)
class Target:
    """The kind, and where given the namespace, name and subresource of a path."""

    kind: Kind
    namespace: str | None
    name: str | None
    sub: str


def parse(path: str) -> Target | None:
    """The target of a resource path, or None where the path is none the server knows."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", "v1", *rest] if rest:
            group = ""
        case ["apis", group, "v1", *rest] if rest:
            pass
        case _:
            return None
    namespace: str | None = None
    if rest[0] == "namespaces" and len(rest) > 2 and ("", rest[2]) != ("", "status"):
        namespace, rest = rest[1], rest[2:]
    kind = BY_PLURAL.get((group, rest[0]))
    deep = len(rest) > 3 and rest[2] != "proxy"  # only a proxy's path goes on
    if kind is None or deep or (namespace is not None and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else None
    if name is not None and kind.namespaced and namespace is None:
        return None
    return Target(kind, namespace, name, rest[2] if len(rest) > 2 else "")


def is_health(path: str) -> bool:
    """Whether the path asks if the server is well."""
    return path.strip("/").split("/")[0] in _ROOTS
