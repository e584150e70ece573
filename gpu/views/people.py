"""API tokens and members of a project's tenant."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_http_methods, require_POST

from gpu.forms import TextInput
from gpu.names import shows_as_written
from gpu.views.shell import show
from tenants import access, people
from tenants.models import ApiToken, Membership

LIFETIMES = [
    ("90", gettext_lazy("90 days")),
    ("365", gettext_lazy("One year")),
    ("", gettext_lazy("Never ends")),
]


class TokenForm(forms.Form):
    """A new API token."""

    use_required_attribute = False
    name = forms.CharField(
        label=gettext_lazy("What is it for?"),
        max_length=60,
        widget=TextInput(),
        help_text=gettext_lazy("For example the program that uses it."),
        error_messages={"required": gettext_lazy("Give the token a name.")},
    )
    scope = forms.ChoiceField(
        label=gettext_lazy("It may"),
        choices=ApiToken.Scope.choices,
        widget=forms.Select({"class": "form-select"}),
    )
    days = forms.ChoiceField(
        label=gettext_lazy("It ends after"),
        choices=LIFETIMES,
        required=False,
        initial="90",
        widget=forms.Select({"class": "form-select"}),
    )

    def clean_name(self) -> str:
        """Return the name; raises ValidationError for one that does not look like what it is."""
        name = str(self.cleaned_data["name"])
        if not shows_as_written(name):
            raise ValidationError(_("The name holds a line break or another character that cannot be shown."))
        return name


class MemberForm(forms.Form):
    """A new member."""

    use_required_attribute = False
    username = forms.CharField(
        label=gettext_lazy("E-mail address"),
        max_length=150,
        widget=TextInput(inputmode="email"),
        error_messages={"required": gettext_lazy("Whom do you want to add?")},
    )
    role = forms.ChoiceField(
        label=gettext_lazy("Role"),
        choices=Membership.Role.choices,
        widget=forms.Select({"class": "form-select"}),
    )


@login_required
@require_http_methods(["GET", "POST"])
def tokens(request: HttpRequest, namespace: str) -> HttpResponse:
    """List the person's tokens (an owner sees all of the tenant), and make one: it is shown this one time."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    form = TokenForm(request.POST if request.method == "POST" else None)
    made = token = None
    if form.is_bound and form.is_valid():
        data = form.cleaned_data
        days = int(data["days"]) if data["days"] else None
        try:
            made, token = people.issue_token(actor.user, project.tenant, data["name"], data["scope"], days)
        except people.PeopleRefused as refusal:
            form.add_error("name", refusal.sentence)
        else:
            form = TokenForm()
    rows = ApiToken.objects.filter(tenant=project.tenant, revoked_at=None).select_related("user")
    if not access.is_owner(actor, project.tenant):
        rows = rows.filter(user=actor.user)
    context = {"form": form, "made": made, "token": token, "tokens": rows}
    answer = show(request, actor, project, "tokens", "tokens.html", context)
    answer["Cache-Control"] = "no-store"
    return answer


@login_required
@require_POST
def revoke(request: HttpRequest, namespace: str, public_id: str) -> HttpResponse:
    """End a token: one's own, or as an owner anybody's."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    row = access.get_or_404(
        ApiToken.objects.filter(tenant=project.tenant), actor, "tenant", public_id=public_id
    )
    if row.user_id != actor.user.pk:
        access.require_owner(actor, project.tenant)
    people.revoke_token(row)
    messages.success(request, _("The token “%(name)s” has ended.") % {"name": row.name})
    return redirect("tokens", namespace)


@login_required
@require_http_methods(["GET", "POST"])
def members(request: HttpRequest, namespace: str) -> HttpResponse:
    """List who belongs to the tenant; an owner adds somebody."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    form = MemberForm(request.POST if request.method == "POST" else None)
    if form.is_bound:
        access.require_owner(actor, project.tenant)
    if form.is_bound and form.is_valid():
        data = form.cleaned_data
        try:
            row = people.add_member(project.tenant, data["username"], data["role"])
        except people.PeopleRefused as refusal:
            form.add_error("username", refusal.sentence)
        else:
            messages.success(request, _("%(name)s is a member now.") % {"name": row.user.get_username()})
            return redirect("members", namespace)
    rows = Membership.objects.filter(tenant=project.tenant).select_related("user").order_by("user__username")
    context = {"form": form, "members": rows, "roles": Membership.Role}
    return show(request, actor, project, "members", "members.html", context)


@login_required
@require_POST
def member(request: HttpRequest, namespace: str, pk: int) -> HttpResponse:
    """Change a member's role or take the member out; owners only."""
    actor = access.actor_of(request.user)
    project = access.project_or_404(actor, namespace)
    access.require_owner(actor, project.tenant)
    row = access.get_or_404(Membership.objects.filter(tenant=project.tenant), actor, "tenant", pk=pk)
    try:
        if "remove" in request.POST:
            people.remove_member(row)
        elif request.POST.get("role") in Membership.Role.values:
            people.set_role(row, request.POST["role"])
    except people.PeopleRefused as refusal:
        messages.error(request, refusal.sentence)
    else:
        messages.success(request, _("Done."))
    return (
        redirect("members", namespace) if access.projects(actor).filter(pk=project.pk) else redirect("home")
    )
