"""The sign-in forms of the portal and of the administration."""

from __future__ import annotations

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm

from tenants.models import User

MAX_LENGTH = User._meta.get_field("username").max_length or 150


class SignInForm(AuthenticationForm):
    """Refuse a name that nobody can have before it is looked up or its failed attempt written down."""

    def clean_username(self) -> str:
        """Return the name; raises ValidationError, worded like a wrong password, for one that is too long."""
        name = str(self.cleaned_data["username"])
        if len(name) > MAX_LENGTH:
            raise self.get_invalid_login_error()
        return name


class AdminSignInForm(SignInForm, AdminAuthenticationForm):
    """The same for the administration, which lets in staff only."""
