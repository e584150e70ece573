"""Members and tokens of a tenant: the sole writer of both. Who may do it is asked in tenants.access."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from tenants.models import ApiToken, Membership, Tenant, User


class PeopleRefused(Exception):
    """The change cannot be made; `sentence` says why and what to do, in the reader's language."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


def add_member(tenant: Tenant, username: str, role: str) -> Membership:
    """Make an existing user a member; raises PeopleRefused when there is none or it is one already."""
    user = User.objects.filter(username__iexact=username.strip(), is_active=True).first()
    if user is None:
        raise PeopleRefused(
            _("There is no account “%(name)s”. Ask the platform's admins to make one, then add it here.")
            % {"name": username.strip()}
        )
    row, made = Membership.objects.get_or_create(user=user, tenant=tenant, defaults={"role": role})
    if not made:
        raise PeopleRefused(_("%(name)s is a member already.") % {"name": user.get_username()})
    return row


def set_role(member: Membership, role: str) -> None:
    """Change a member's role; raises PeopleRefused for the last owner."""
    with transaction.atomic():
        _keep_an_owner(member, stays=role == Membership.Role.OWNER)
        Membership.objects.filter(pk=member.pk).update(role=role)


def remove_member(member: Membership) -> None:
    """Take a member out; its tokens of the tenant end with it. Raises PeopleRefused for the last owner."""
    with transaction.atomic():
        _keep_an_owner(member, stays=False)
        ApiToken.objects.filter(user=member.user_id, tenant=member.tenant_id, revoked_at=None).update(
            revoked_at=timezone.now()
        )
        Membership.objects.filter(pk=member.pk).delete()


def _keep_an_owner(member: Membership, *, stays: bool) -> None:
    """Lock the tenant, so that two owners cannot take each other out at the same moment."""
    Tenant.objects.select_for_update().get(pk=member.tenant_id)
    others = Membership.objects.filter(tenant=member.tenant_id, role=Membership.Role.OWNER).exclude(
        pk=member.pk
    )
    if not stays and not others.exists():
        raise PeopleRefused(_("A tenant needs an owner. Make somebody else an owner first."))


def issue_token(user: User, tenant: Tenant, name: str, scope: str, days: int | None) -> tuple[ApiToken, str]:
    """Make a token that ends after `days` (None: never); the name is unique among the user's valid tokens."""
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)
        if ApiToken.objects.filter(user=user, tenant=tenant, name=name, revoked_at=None).exists():
            raise PeopleRefused(
                _("You have a token “%(name)s” already. Choose another name.") % {"name": name}
            )
        row, token = ApiToken.issue(user, tenant, name, scope)
        if days is not None:
            row.expires_at = row.created_at + timedelta(days=days)
            row.save(update_fields=["expires_at"])
    return row, token


def revoke_token(row: ApiToken) -> None:
    """End a token at once; revoked twice is revoked once."""
    ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now())
