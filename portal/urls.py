"""Addresses: pages, /api/v1/, /admin/. /healthz, /readyz and /metrics: portal.health."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

from portal.sign_in import AdminSignInForm, SignInForm

handler400 = "portal.errors.bad_request"
handler403 = "portal.errors.forbidden"
handler404 = "portal.errors.not_found"
handler500 = "portal.errors.server_error"

admin.site.login_form = AdminSignInForm

urlpatterns = [
    path(
        "login/",
        LoginView.as_view(authentication_form=SignInForm, redirect_authenticated_user=True),
        name="login",
    ),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", include("gpu.api.urls")),
    path("", include("gpu.urls")),
]
