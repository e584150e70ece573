"""Who may use the portal: users, tenants, their members, projects and API tokens."""

from __future__ import annotations

import hashlib
import secrets
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

FIRST_CLUSTER = 1
"""Key of the cluster row that the migration makes; what a version without clusters writes belongs to it."""


def public_id(prefix: str) -> str:
    """Return a new opaque id such as `sl_4k2m9q8r7t6v5w3x` (80 random bits, no look-alike letters)."""
    alphabet = "23456789abcdefghjkmnpqrstvwxyz"
    return f"{prefix}_" + "".join(secrets.choice(alphabet) for _ in range(16))


def new_project_id() -> str:
    """Return a new project id (`pr_...`)."""
    return public_id("pr")


def new_token_id() -> str:
    """Return a new API token id (`tk_...`)."""
    return public_id("tk")


class User(AbstractUser):
    """A person. The user name is the e-mail address."""

    language = models.CharField(_("language"), max_length=8, blank=True)

    class Meta:
        verbose_name = _("user")
        verbose_name_plural = _("users")


class Tenant(models.Model):
    """A customer of the platform."""

    slug = models.SlugField(_("short name"), max_length=40, unique=True)
    name = models.CharField(_("name"), max_length=100)
    time_zone = models.CharField(_("time zone"), max_length=64, default="Europe/Berlin")
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("tenant")
        verbose_name_plural = _("tenants")
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse a time zone that no page could show times in."""
        try:
            ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValidationError(
                {"time_zone": _("There is no such time zone. An example: Europe/Berlin")}
            ) from error


class Membership(models.Model):
    """A user's role in a tenant. Members order and run slices; owners also answer for members, tokens and quota."""

    class Role(models.TextChoices):
        MEMBER = "member", _("Member")
        OWNER = "owner", _("Owner")

    user = models.ForeignKey(
        User, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, related_name="memberships", verbose_name=_("tenant")
    )
    role = models.CharField(_("role"), max_length=10, choices=Role, default=Role.MEMBER)

    class Meta:
        verbose_name = _("membership")
        verbose_name_plural = _("memberships")
        constraints = [models.UniqueConstraint(fields=["user", "tenant"], name="one_role_per_tenant")]

    def __str__(self) -> str:
        return f"{self.user} · {self.tenant} · {self.role}"


class Cluster(models.Model):
    """A Kubernetes cluster that projects have their namespaces in.

    An empty `kubeconfig` means the portal's own settings (KUBECONFIG and KUBE_CONTEXT, or the account of the pod); the
    row every portal begins with, `FIRST_CLUSTER`, has it so.
    """

    slug = models.SlugField(_("short name"), max_length=40, unique=True)
    name = models.CharField(_("name"), max_length=100)
    kubeconfig = models.CharField(
        _("kubeconfig"),
        max_length=400,
        blank=True,
        help_text=_("Path of a file that worker and watcher can read; empty for the portal's own settings."),
    )
    context = models.CharField(
        _("context"),
        max_length=253,
        blank=True,
        help_text=_("A context of that file; empty for its current one."),
    )
    is_default = models.BooleanField(_("for new projects"), default=False)

    class Meta:
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        ordering = ["slug"]
        constraints = [
            models.UniqueConstraint(
                fields=["is_default"], condition=Q(is_default=True), name="one_default_cluster"
            ),
            # Two rows of one connection would watch and count everything twice.
            models.UniqueConstraint(fields=["kubeconfig", "context"], name="one_row_per_connection"),
        ]

    def __str__(self) -> str:
        return self.name


def default_cluster() -> int:
    """Return the key of the cluster that new projects get where nobody says another."""
    found = Cluster.objects.filter(is_default=True).values_list("pk", flat=True).first()
    return FIRST_CLUSTER if found is None else found


class Project(models.Model):
    """A tenant's project: one namespace of one cluster, which belongs to no other project of any cluster."""

    public_id = models.CharField(_("id"), max_length=24, unique=True, editable=False, default=new_project_id)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="projects", verbose_name=_("tenant")
    )
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.PROTECT,
        related_name="projects",
        verbose_name=_("cluster"),
        default=default_cluster,
        db_default=models.Value(FIRST_CLUSTER),
    )
    name = models.CharField(_("name"), max_length=60)
    namespace = models.CharField(
        _("namespace"),
        max_length=63,
        unique=True,
        validators=[
            RegexValidator(
                r"\A[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z",
                _("Small letters, digits and hyphens only; it begins and ends with a letter or digit."),
            )
        ],
    )
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        ordering = ["tenant__name", "name"]

    def __str__(self) -> str:
        return self.name


class ApiToken(models.Model):
    """A bearer token for the REST API. Only its SHA-256 digest is kept; the token itself is shown once."""

    PREFIX_LENGTH = 8

    class Scope(models.TextChoices):
        READ = "read", _("Read")
        WRITE = "write", _("Read and write")

    public_id = models.CharField(_("id"), max_length=24, unique=True, editable=False, default=new_token_id)
    user = models.ForeignKey(
        User, on_delete=models.CASCADE, related_name="api_tokens", verbose_name=_("user")
    )
    tenant = models.ForeignKey(
        Tenant, on_delete=models.CASCADE, related_name="api_tokens", verbose_name=_("tenant")
    )
    name = models.CharField(_("name"), max_length=60)
    scope = models.CharField(_("scope"), max_length=8, choices=Scope, default=Scope.WRITE)
    prefix = models.CharField(_("begins with"), max_length=PREFIX_LENGTH, editable=False)
    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(_("created"), default=timezone.now, editable=False)
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(_("expires"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked"), null=True, blank=True)

    class Meta:
        verbose_name = _("API token")
        verbose_name_plural = _("API tokens")
        ordering = ["-created_at", "-id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @staticmethod
    def digest_of(token: str) -> str:
        """Return the SHA-256 of a token as 64 hex digits; a token has 190 random bits, so no salt is needed."""
        return hashlib.sha256(token.encode()).hexdigest()

    @classmethod
    def issue(cls, user: User, tenant: Tenant, name: str, scope: str = Scope.WRITE) -> tuple[ApiToken, str]:
        """Make a token; return the row and the token, which cannot be had again."""
        token = secrets.token_urlsafe(24)
        row = cls.objects.create(
            user=user,
            tenant=tenant,
            name=name,
            scope=scope,
            prefix=token[: cls.PREFIX_LENGTH],
            digest=cls.digest_of(token),
        )
        return row, token

    @classmethod
    def find(cls, token: str) -> ApiToken | None:
        """Return the valid token row of `token`: not revoked, not expired, user active and still a member."""
        now = timezone.now()
        return (
            cls.objects.select_related("user", "tenant")
            .filter(
                Q(expires_at=None) | Q(expires_at__gt=now),
                digest=cls.digest_of(token),
                revoked_at=None,
                user__is_active=True,
                user__memberships__tenant=models.F("tenant"),
            )
            .first()
        )
