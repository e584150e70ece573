"""Who is asking, and whether RBAC lets them."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.message import Message

from sandbox import refusals
from sandbox.api import Obj
from sandbox.kinds import Kind
from sandbox.store import Store

ADMIN_GROUP = "system:masters"
PORTAL = ("gpu-portal", "gpu-portal")
"""Namespace and name of the portal's service account, as ``deploy/rbac`` names it."""


@dataclass(frozen=True)
class User:
    """An authenticated account."""

    name: str
    groups: tuple[str, ...] = ()

    def info(self) -> Obj:
        """``userInfo`` of an admission request."""
        return {"username": self.name, "uid": "", "groups": list(self.groups), "extra": {}}


def service_account(namespace: str, name: str) -> User:
    """The user of a service account, with the groups Kubernetes gives it."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return User(f"system:serviceaccount:{namespace}:{name}", groups)


ADMIN = User("kubernetes-admin", (ADMIN_GROUP, "system:authenticated"))


def component(name: str) -> User:
    """The user a part of the cluster acts as: a controller, the scheduler, the kubelet."""
    if name == "kube-scheduler":
        return User("system:kube-scheduler", ("system:authenticated",))
    if name == "kubelet":
        return User("system:node:sandbox", ("system:nodes", "system:authenticated"))
    if name == "garbage-collector":
        name = "generic-garbage-collector"
    return service_account("kube-system", name)


@dataclass(frozen=True)
class Attempt:
    """What somebody wants to do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Auth:
    """Tokens and the RBAC objects of the store."""

    def __init__(self, store: Store, tokens: Mapping[str, User]) -> None:
        self._store = store
        self._tokens = tokens

    def user(self, headers: Message) -> User:
        """The user of a request; administrators may act as others (``kubectl --as``). 401 without a token."""
        user = self._tokens.get(_token(headers.get("Authorization", "")))
        if user is None:
            raise refusals.unauthorized()
        other = headers.get("Impersonate-User")
        if other is None:
            return user
        if ADMIN_GROUP not in user.groups:
            message = f'users "{other}" is forbidden: User "{user.name}" cannot impersonate resource "users" in API '
            raise refusals.status(403, f'{message}group "" at the cluster scope')
        groups = headers.get_all("Impersonate-Group", [])
        if other.startswith("system:serviceaccount:") and not groups:
            namespace, name = other.split(":")[2:4]
            return service_account(namespace, name)
        return User(other, (*groups, "system:authenticated"))

    def allows(self, user: User, attempt: Attempt) -> bool:
        """Whether any rule that holds for the user allows the attempt."""
        if ADMIN_GROUP in user.groups:
            return True
        # Every authenticated user may ask about their own rights (system:basic-user).
        if attempt.group == "authorization.k8s.io" and attempt.verb == "create":
            return True
        return any(_covers(rule, attempt) for rule in self._rules(user, attempt.namespace))

    def check(self, user: User, kind: Kind, attempt: Attempt) -> None:
        """403 where the attempt is not allowed."""
        if not self.allows(user, attempt):
            raise refusals.not_allowed(
                user.name, attempt.verb, kind, attempt.namespace, attempt.name, attempt.subresource
            )

    def review(self, user: User, spec: Obj) -> Obj:
        """The status of a SelfSubjectAccessReview."""
        asked = spec.get("resourceAttributes")
        if asked is None:
            return {"allowed": ADMIN_GROUP in user.groups}
        attempt = Attempt(
            asked.get("verb", ""),
            asked.get("group", ""),
            asked.get("resource", ""),
            asked.get("subresource", ""),
            asked.get("namespace", ""),
            asked.get("name", ""),
        )
        return {"allowed": self.allows(user, attempt)}

    def _rules(self, user: User, namespace: str) -> Iterator[Obj]:
        for stored in self._store.select("ClusterRoleBinding"):
            if _binds(stored.obj, user):
                yield from self._role(stored.obj["roleRef"], "")
        if namespace:
            for stored in self._store.select("RoleBinding", namespace):
                if _binds(stored.obj, user):
                    yield from self._role(stored.obj["roleRef"], namespace)

    def _role(self, reference: Obj, namespace: str) -> list[Obj]:
        where = namespace if reference["kind"] == "Role" else ""
        stored = self._store.get(reference["kind"], where, reference["name"])
        return list(stored.obj.get("rules") or []) if stored else []


def _token(header: str) -> str:
    """The token of an Authorization header.

    kubectl sends a bearer token over TLS only, but the credentials of the server's address always: there the token
    is the password.
    """
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return value.strip() if scheme.lower() == "bearer" else ""
    try:
        return base64.b64decode(value).decode().partition(":")[2]
    except ValueError:
        return ""


def _binds(binding: Obj, user: User) -> bool:
    for subject in binding.get("subjects", []):
        match subject["kind"]:
            case "ServiceAccount":
                namespace = subject.get("namespace") or binding["metadata"].get("namespace", "")
                if user.name == f"system:serviceaccount:{namespace}:{subject['name']}":
                    return True
            case "User" if subject["name"] == user.name:
                return True
            case "Group" if subject["name"] in user.groups:
                return True
    return False


def _covers(rule: Obj, attempt: Attempt) -> bool:
    resource = f"{attempt.resource}/{attempt.subresource}" if attempt.subresource else attempt.resource
    resources = rule.get("resources", [])
    names = rule.get("resourceNames")
    return (
        bool({"*", attempt.verb} & set(rule.get("verbs", [])))
        and bool({"*", attempt.group} & set(rule.get("apiGroups", [])))
        and (bool({"*", resource} & set(resources)) or f"*/{attempt.subresource}" in resources)
        and (not names or attempt.name in names)
    )
