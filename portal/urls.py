"""Addresses: pages, /api/v1/, /admin/, health."""

from django.contrib import admin
from django.urls import include, path

from portal import health

handler400 = "gpu.views.errors.bad_request"
handler403 = "gpu.views.errors.forbidden"
handler404 = "gpu.views.errors.not_found"
handler500 = "gpu.views.errors.server_error"

urlpatterns = [
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", include("gpu.api.urls")),
    path("", include("gpu.urls")),
]
