"""Addresses of the pages."""

from django.conf import settings
from django.urls import path
from django.views.generic import TemplateView

from gpu.views import models, order, people, project, slices

urlpatterns = [
    path("", project.home, name="home"),
    path("projects/<slug:namespace>/", project.overview, name="project"),
    path("projects/<slug:namespace>/catalogue/", project.catalogue, name="catalogue"),
    path("projects/<slug:namespace>/order/", order.order, name="order"),
    path("projects/<slug:namespace>/slices/", project.slices, name="slices"),
    path("projects/<slug:namespace>/tokens/", people.tokens, name="tokens"),
    path("projects/<slug:namespace>/tokens/<str:public_id>/revoke/", people.revoke, name="revoke"),
    path("projects/<slug:namespace>/members/", people.members, name="members"),
    path("projects/<slug:namespace>/members/<int:pk>/", people.member, name="member"),
    path("slices/<str:public_id>/", slices.detail, name="slice"),
    path("slices/<str:public_id>/log/", slices.log, name="slice-log"),
    path("slices/<str:public_id>/manifest.yaml", slices.manifest, name="slice-manifest"),
    path("slices/<str:public_id>/change/", slices.change, name="slice-change"),
    path("slices/<str:public_id>/token/", models.token, name="slice-token"),
    path("slices/<str:public_id>/models/", models.pull, name="slice-pull"),
    path("slices/<str:public_id>/models/<str:action>/", models.act, name="slice-models"),
    path("pulls/<str:public_id>/cancel/", models.cancel, name="pull-cancel"),
    path("slices/<str:public_id>/<str:action>/", slices.act, name="slice-act"),
]

if settings.DEBUG:
    urlpatterns.append(path("gallery/", TemplateView.as_view(template_name="gallery.html")))
