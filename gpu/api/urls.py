"""Addresses of the API, below /api/v1/."""

from django.urls import path, re_path

from gpu.api import actions, models, slices, views

urlpatterns = [
    path("", views.RootView.as_view(), name="api-root"),
    path("schema/", views.DocumentView.as_view(), name="api-schema"),
    path("docs/", views.DocsView.as_view(url_name="api-schema"), name="api-docs"),
    path("packages/", views.PackagesView.as_view(), name="api-packages"),
    path("projects/", views.ProjectsView.as_view(), name="api-projects"),
    path("projects/<str:project>/", views.ProjectView.as_view(), name="api-project"),
    path("slices/", slices.SlicesView.as_view(), name="api-slices"),
    path("slices/preview/", slices.PreviewView.as_view(), name="api-preview"),
    path("slices/<str:public_id>/", slices.OneSliceView.as_view(), name="api-slice"),
    path("slices/<str:public_id>/stop/", actions.StopView.as_view(), name="api-stop"),
    path("slices/<str:public_id>/start/", actions.StartView.as_view(), name="api-start"),
    path("slices/<str:public_id>/restart/", actions.RestartView.as_view(), name="api-restart"),
    path("slices/<str:public_id>/release/", actions.ReleaseView.as_view(), name="api-release"),
    path("slices/<str:public_id>/manifest/", slices.ManifestView.as_view(), name="api-manifest"),
    path("slices/<str:public_id>/events/", slices.EventsView.as_view(), name="api-events"),
    path("slices/<str:public_id>/timeline/", slices.TimelineView.as_view(), name="api-timeline"),
    path("slices/<str:public_id>/log/", slices.LogView.as_view(), name="api-log"),
    path("slices/<str:public_id>/token/", models.TokenView.as_view(), name="api-slice-token"),
    path("slices/<str:public_id>/models/", models.ModelsView.as_view(), name="api-models"),
    path("slices/<str:public_id>/models/list/", models.ModelsRefreshView.as_view(), name="api-models-list"),
    path(
        "slices/<str:public_id>/models/delete/", models.ModelsDeleteView.as_view(), name="api-models-delete"
    ),
    path("slices/<str:public_id>/models/check/", models.ModelsCheckView.as_view(), name="api-models-check"),
    path("slices/<str:public_id>/pulls/", models.PullsView.as_view(), name="api-pulls"),
    path("pulls/<str:public_id>/", models.PullView.as_view(), name="api-pull"),
    path("pulls/<str:public_id>/cancel/", models.CancelView.as_view(), name="api-pull-cancel"),
    re_path(r"^.*$", views.NotFoundView.as_view()),
]
