"""Who may see and do what: the only permission look-up. A stranger gets 404, a team mate without the role 403."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.http import Http404
from django.utils.translation import gettext as _

from tenants.models import ApiToken, Membership, Project, Tenant, User


@dataclass(frozen=True)
class Actor:
    """Somebody who acts: a signed-in user, or a user through a token that is bound to one tenant and scope."""

    user: User
    token: ApiToken | None = None

    @property
    def may_write(self) -> bool:
        """Whether the token (if any) has the write scope."""
        return self.token is None or self.token.scope == ApiToken.Scope.WRITE


def actor_of(user: User | AnonymousUser, token: ApiToken | None = None) -> Actor:
    """Return the actor of a request; raises Http404 for an anonymous user."""
    if not isinstance(user, User) or not user.is_active:
        raise Http404
    return Actor(user, token)


def memberships(actor: Actor) -> QuerySet[Membership]:
    """Return the actor's memberships (only the token's tenant where the actor is a token)."""
    rows = Membership.objects.filter(user=actor.user).select_related("tenant")
    return rows.filter(tenant=actor.token.tenant_id) if actor.token else rows


def visible[M: Model](rows: QuerySet[M], actor: Actor, tenant_path: str) -> QuerySet[M]:
    """Restrict `rows` to the actor's tenants; `tenant_path` is the look-up to the tenant, as `project__tenant`."""
    return rows.filter(**{f"{tenant_path}__in": memberships(actor).values("tenant")})


def get_or_404[M: Model](rows: QuerySet[M], actor: Actor, tenant_path: str, **lookup: object) -> M:
    """Return the one row of the actor's tenants that `lookup` names; raises Http404 otherwise."""
    # PostgreSQL takes no NUL character, and no id has one.
    unheard = any("\x00" in value for value in lookup.values() if isinstance(value, str))
    row = None if unheard else visible(rows, actor, tenant_path).filter(**lookup).first()
    if row is None:
        raise Http404
    return row


def projects(actor: Actor) -> QuerySet[Project]:
    """Return the projects the actor may see."""
    return visible(Project.objects.select_related("tenant"), actor, "tenant")


def project_or_404(actor: Actor, namespace: str) -> Project:
    """Return the actor's project with this namespace; raises Http404."""
    return get_or_404(Project.objects.select_related("tenant"), actor, "tenant", namespace=namespace)


def is_owner(actor: Actor, tenant: Tenant) -> bool:
    """Whether the actor is an owner of the tenant."""
    return memberships(actor).filter(tenant=tenant, role=Membership.Role.OWNER).exists()


def owned(actor: Actor) -> Exists:
    """Return, for a query of projects, whether the actor is an owner of the project's tenant."""
    return Exists(memberships(actor).filter(tenant=OuterRef("tenant"), role=Membership.Role.OWNER))


def tenant_or_404(actor: Actor, slug: str) -> Tenant:
    """Return the actor's tenant with this short name; raises Http404."""
    return get_or_404(Tenant.objects.all(), actor, "pk", slug=slug)


class MayOnlyRead(PermissionDenied):
    """What a token may not do that may only read; whoever made it can make another."""


def require_write(actor: Actor) -> None:
    """Raise MayOnlyRead with a sentence when the actor's token may only read."""
    if not actor.may_write:
        raise MayOnlyRead(_("This token may only read. Use a token with the scope “Read and write”."))


def require_owner(actor: Actor, tenant: Tenant) -> None:
    """Raise PermissionDenied with a sentence when the actor is no owner of the tenant."""
    require_write(actor)
    if not is_owner(actor, tenant):
        raise PermissionDenied(
            _("Only an owner of %(tenant)s may do this. Ask one of them.") % {"tenant": tenant.name}
        )


def any_of(paths: Iterable[str], values: Collection[str]) -> Q:
    """Return the condition that one of the look-ups `paths` is one of `values`."""
    # PostgreSQL takes no NUL character, and no id has one.
    possible = [value for value in values if "\x00" not in value]
    condition = Q(pk__in=())
    for path in paths:
        condition |= Q(**{f"{path}__in": possible})
    return condition


def project_key(key: str) -> Q:
    """Return the condition that a project has this id or namespace."""
    return any_of(("public_id", "namespace"), [key])


def project_by_key(actor: Actor, key: str) -> Project:
    """Return the actor's project with this id or namespace; raises Http404."""
    project = projects(actor).filter(project_key(key)).first()
    if project is None:
        raise Http404
    return project
