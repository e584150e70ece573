"""What rows have in common whose intent a worker brings to the cluster."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class SentRow(models.Model):
    """Intent counted by `generation`, and the outcome of our own action on it.

    `applied_generation` is the one the cluster has accepted. A row whose two numbers differ is work to do; the row is
    the queue.
    """

    class Action(models.TextChoices):
        PENDING = "pending", _("to be sent")
        APPLIED = "applied", _("accepted by the cluster")
        RETRYING = "retrying", _("being tried again")
        REFUSED = "refused", _("refused")
        NEEDS_OPERATOR = "needs_operator", _("needs an operator")

    SETTLED = (Action.REFUSED, Action.NEEDS_OPERATOR)
    """Outcomes after which a worker has nothing more to send until the intent changes."""

    generation = models.PositiveIntegerField(_("generation"), default=1)
    applied_generation = models.PositiveIntegerField(_("generation accepted"), default=0)
    action = models.CharField(_("own action"), max_length=16, choices=Action, default=Action.PENDING)
    action_code = models.CharField(_("code of the outcome"), max_length=60, blank=True)
    action_message = models.TextField(_("the cluster's own words"), blank=True)
    action_policy = models.CharField(_("policy"), max_length=253, blank=True)
    action_at = models.DateTimeField(_("last outcome"), null=True, blank=True)
    attempts = models.PositiveIntegerField(
        _("failed attempts"), default=0, help_text=_("Handled failures since the last change of intent.")
    )
    lost_runs = models.PositiveSmallIntegerField(
        _("runs that lost their worker"), default=0, help_text=_("Runs that began and whose worker died.")
    )
    retry_at = models.DateTimeField(_("tried again"), null=True, blank=True)

    class Meta:
        abstract = True
