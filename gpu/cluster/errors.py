"""Every way a call to the cluster can fail, named, with a sentence for the customer and "try again" or "never".

Foreign exceptions stop here: they survive only as `__cause__`. Which phrase means what is in `gpu.refusals`,
which answer means which error in `gpu.cluster.responses`.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from gpu import refusals
from gpu.messages import Count, Cpu, Memory, Text, gettext_noop
from gpu.redact import redact

MAX_PLATFORM_MESSAGE = 2000
"""Characters of the platform's own words that are kept."""


class ClusterError(Exception):
    """A call to the cluster failed.

    `code` is stable; `retry` says whether the same call may succeed later; `who` can end it: "nobody" (it ends by
    itself), "member", "owner" or "operator". `platform_message` holds the platform's own words, cleaned of what a
    tenant must not learn. `retry_after` is in seconds.
    """

    code: ClassVar[str] = "cluster_error"
    retry: ClassVar[bool] = False
    who: ClassVar[str] = "operator"
    text: ClassVar[str] = gettext_noop(
        "The cluster refused this: “%(detail)s”. An operator of the platform must look at it."
    )

    def __init__(
        self,
        platform_message: str = "",
        *,
        status: int = 0,
        policy: str = "",
        retry_after: float | None = None,
        **places: object,
    ) -> None:
        super().__init__(platform_message or self.code)
        self.platform_message = redact(platform_message[:MAX_PLATFORM_MESSAGE])
        self.status = status
        self.policy = policy
        self.retry_after = retry_after
        self.places = places

    @property
    def sentence(self) -> Text:
        """What happened and who can do what about it."""
        known = {"detail": self.platform_message, "policy": self.policy, "status": self.status, **self.places}
        return Text(self.text, {key: value for key, value in known.items() if f"%({key})s" in self.text})


class NotConfigured(ClusterError):
    """The kubeconfig is missing, unreadable or asks for an unverified connection."""

    code = "not_configured"
    retry = True
    text = gettext_noop(
        "The portal does not know how to reach the cluster: “%(detail)s”. An operator must mend its configuration."
    )


class Unreachable(ClusterError):
    """No connection, no answer in time, or the answer to a write was lost: applying again is safe."""

    code = "unreachable"
    retry = True
    who = "nobody"
    text = gettext_noop("The cluster does not answer. Nothing is lost: the portal tries again by itself.")


class Garbled(Unreachable):
    """An answer or a line of a watch that ends half-way or is not what was asked for."""

    code = "garbled_answer"
    text = gettext_noop(
        "The cluster's answer arrived damaged. Nothing is lost: the portal tries again by itself."
    )


class Untrusted(ClusterError):
    """The API server's certificate is not the expected one."""

    code = "untrusted_certificate"
    retry = True
    text = gettext_noop(
        "The cluster's certificate could not be verified. An operator must mend the portal's configuration; "
        "the portal then goes on by itself."
    )


class Throttled(ClusterError):
    """HTTP 429."""

    code = "throttled"
    retry = True
    who = "nobody"
    text = gettext_noop("The cluster is busy and asks to wait. The portal tries again by itself.")


class ServerFault(ClusterError):
    """HTTP 5xx, or a status nobody expects from an API server."""

    code = "server_fault"
    retry = True
    who = "nobody"
    text = gettext_noop(
        "The cluster has a fault of its own (HTTP %(status)s). The portal tries again by itself; "
        "if it lasts, an operator must look at the cluster."
    )


class Conflict(ClusterError):
    """HTTP 409: somebody else wrote the same object, or it is being deleted."""

    code = "conflict"
    retry = True
    who = "nobody"
    text = gettext_noop("The same object was changed at the same moment. The portal tries again by itself.")


class Gone(ClusterError):
    """HTTP 410: the version asked for is no longer known."""

    code = "gone"
    retry = True
    who = "nobody"
    text = gettext_noop(
        "The cluster no longer knows the version asked for. The portal reads everything again."
    )


class Unauthorized(ClusterError):
    """HTTP 401: the portal's credentials are not accepted."""

    code = "unauthorized"
    retry = True
    text = gettext_noop(
        "The cluster does not accept the portal's credentials. An operator must renew them; "
        "the portal then goes on by itself."
    )


class Forbidden(ClusterError):
    """HTTP 403 by the cluster's access rules."""

    code = "forbidden"
    text = gettext_noop(
        "The portal's account may not do this in the cluster. An operator must grant it the right: “%(detail)s”."
    )


class NotFound(ClusterError):
    """HTTP 404 for one object."""

    code = "not_found"
    retry = True
    text = gettext_noop("An object of the slice is missing in the cluster: “%(detail)s”.")


class NotServed(ClusterError):
    """HTTP 404 for a whole API: the cluster does not offer it."""

    code = "not_served"
    text = gettext_noop(
        "The cluster does not offer an interface the portal needs. An operator must check the cluster's version "
        "and features: “%(detail)s”."
    )


class NamespaceMissing(ClusterError):
    """HTTP 404 for the namespace."""

    code = "namespace_missing"
    text = gettext_noop(
        "The project's namespace %(namespace)s does not exist in the cluster. An operator must create it."
    )


class NamespaceTerminating(ClusterError):
    """HTTP 403 because the namespace is being deleted."""

    code = "namespace_terminating"
    text = gettext_noop(
        "The project's namespace is being deleted in the cluster, so nothing new can be made in it. "
        "An operator must say why."
    )


class PolicyRefused(ClusterError):
    """An admission policy or webhook refused; `policy` is its name, `platform_message` its own sentence."""

    code = "policy_refused"
    who = "member"
    text = gettext_noop(
        "Refused by the platform: “%(detail)s” (policy %(policy)s). The platform names one fault at a time, so "
        "there may be more. Change the order, or ask an operator about this rule."
    )


class PolicyMissesKey(PolicyRefused):
    """A policy's rule failed on an entry that the object lacks, so the platform has no sentence of its own."""

    code = "policy_misses_key"
    who = "operator"
    text = gettext_noop(
        "Refused by the platform: its policy %(policy)s found no entry %(key)s in what the portal sent. "
        "An operator must compare the portal with this policy."
    )


class PolicyFailed(PolicyRefused):
    """A policy's rule could not be evaluated."""

    code = "policy_failed"
    who = "operator"
    text = gettext_noop(
        "Refused by the platform: a rule of its policy %(policy)s could not be evaluated. "
        "An operator must look at the policy."
    )


class PodSecurityRefused(PolicyRefused):
    """The namespace's pod security level refuses the pod; `policy` is the level."""

    code = "pod_security"
    text = gettext_noop(
        "Refused by the project's pod security level %(policy)s: “%(detail)s”. Change the order so that it "
        "needs no such right."
    )


class ManagedByBackend(ClusterError):
    """The policy still reserves writing GPU objects for the platform's own account."""

    code = "managed_by_backend"
    text = gettext_noop(
        "The platform does not yet let the portal write GPU workloads: “%(detail)s”. An operator must name the "
        "portal's service account in the policy %(policy)s."
    )


class InvalidObject(ClusterError):
    """The API server's own validation refused; `immutable` when a field cannot be changed once made."""

    code = "invalid_object"
    who = "member"
    text = gettext_noop(
        "The cluster finds the order invalid: “%(detail)s”. Change the order; where it names nothing of yours, "
        "ask an operator."
    )

    def __init__(self, platform_message: str = "", *, immutable: bool = False, **rest: Any) -> None:
        super().__init__(platform_message, **rest)
        self.immutable = immutable


class QuotaExceeded(ClusterError):
    """A ResourceQuota is used up; `requested`, `used` and `limited` by quota key, exact, in base units."""

    code = "quota_exceeded"
    who = "owner"
    text = gettext_noop(
        "The project's quota %(quota)s has too little left of %(key)s: %(requested)s asked, %(used)s of "
        "%(limited)s in use. Release something, or the owner asks for more."
    )
    text_without_figures: ClassVar[str] = gettext_noop(
        "The project's quota %(quota)s is used up. Release something, or the owner asks for more."
    )

    def __init__(self, platform_message: str, told: refusals.QuotaExceeded, **rest: Any) -> None:
        super().__init__(platform_message, quota=told.quota, **rest)
        self.quota = told.quota
        self.shortfalls = told.shortfalls
        self.requested = {each.key: each.requested for each in told.shortfalls}
        self.used = {each.key: each.used for each in told.shortfalls}
        self.limited = {each.key: each.limited for each in told.shortfalls}

    @property
    def sentence(self) -> Text:
        """The first dimension that is short, with its figures."""
        if not self.shortfalls:
            return Text(self.text_without_figures, {"quota": self.quota})
        first = self.shortfalls[0]
        figures = {
            name: amount(first.key, value)
            for name, value in (
                ("requested", first.requested), ("used", first.used), ("limited", first.limited)
            )
        }  # fmt: skip
        return Text(self.text, {"quota": self.quota, "key": first.key, **figures})


class QuotaNotCounted(ClusterError):
    """A quota is so new that its use is not known yet."""

    code = "quota_not_counted"
    retry = True
    who = "nobody"
    text = gettext_noop(
        "The cluster has not yet counted what the quota %(quota)s holds. The portal tries again by itself."
    )


class RequestsMissing(ClusterError):
    """A quota asks for requests or limits that the container does not state."""

    code = "requests_missing"
    who = "member"
    text = gettext_noop(
        "The project's quota %(quota)s asks for %(keys)s, and the order states none. Fill them in."
    )


class OutsideLimitRange(ClusterError):
    """A LimitRange's minimum, maximum or ratio forbids the amount."""

    code = "limit_range"
    who = "member"
    text = gettext_noop(
        "The project's limits allow another amount of %(resource)s (%(bound)s: %(allowed)s). Change the order, "
        "or the owner asks for other limits."
    )


class VolumeChange(ClusterError):
    """A volume can grow, where its storage class allows it; nothing else of it can be changed."""

    code = "volume_change"
    who = "member"
    text = gettext_noop(
        "The volume %(name)s holds %(has)s and cannot be made smaller. Keep at least this size, or make a new one."
    )


class VolumeFixed(VolumeChange):
    """The volume's storage class allows no change."""

    code = "volume_fixed"
    text = gettext_noop(
        "The volume %(name)s cannot be changed: “%(detail)s”. Keep its size and class, or make a new one."
    )


class NotOurs(ClusterError):
    """An object of that name belongs to somebody else; it is never touched."""

    code = "not_ours"
    text = gettext_noop(
        "%(kind)s %(name)s in %(namespace)s exists already and does not belong to this order, so the portal leaves "
        "it alone. An operator must decide: remove it, or choose another name for the order."
    )


class NoLogYet(ClusterError):
    """There is no container that could have written anything."""

    code = "no_log_yet"
    retry = True
    who = "nobody"
    text = gettext_noop("There is no log yet: the container has not started.")


def amount(key: str, value: Decimal) -> object:
    """A figure of a quota dimension with its unit, so that the page can format it."""
    if "cpu" in key:
        return Cpu(value * 1000)
    if key.endswith(("memory", "storage")):
        return Memory(int(value))
    return Count(int(value))
