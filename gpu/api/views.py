"""Packages and projects with their headroom."""

from __future__ import annotations

from django.http import Http404, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import resolve
from django.utils.translation import gettext as _
from drf_spectacular.views import SpectacularJSONAPIView, SpectacularSwaggerSplitView
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from gpu.api import representations
from gpu.api.base import ApiView, Pages
from gpu.api.problems import Problem, as_problem, problem_response
from gpu.api.schema import described
from gpu.models import Package
from gpu.status import project_status
from tenants import access

LIST_PARAMS = ("cursor", "page_size")


class RootView(ApiView):
    """Where things are. Needs no token."""

    permission_classes = []

    @described("root_retrieve", "Root", anonymous=True)
    def get(self, request: Request) -> Response:
        """Return the addresses of the lists and of the OpenAPI document."""
        names = {
            "packages": "api-packages",
            "projects": "api-projects",
            "slices": "api-slices",
            "schema": "api-schema",
        }
        return Response({key: reverse(name, request=request) for key, name in names.items()})


class PackagesView(ApiView):
    """The catalogue."""

    params = {"GET": (*LIST_PARAMS, "on_sale")}

    @described("packages_list", "PackageList", params=("cursor", "page_size", "on_sale"))
    def get(self, request: Request) -> Response:
        """List the packages, those on sale unless `on_sale=false` is asked."""
        text = request.query_params.get("on_sale", "true")
        if text not in ("true", "false"):
            raise Problem(400, "bad_parameter", "on_sale: true | false")
        pages = Pages()
        page = pages.paginate_queryset(Package.objects.filter(on_sale=text == "true"), request, self)
        return pages.get_paginated_response([representations.package(row) for row in page or ()])


class ProjectsView(ApiView):
    """The projects of the token's tenant."""

    params = {"GET": LIST_PARAMS}

    @described("projects_list", "ProjectList", params=LIST_PARAMS)
    def get(self, request: Request) -> Response:
        """List the projects."""
        pages = Pages()
        page = pages.paginate_queryset(access.projects(self.actor), request, self)
        return pages.get_paginated_response([representations.project(row) for row in page or ()])


class ProjectView(ApiView):
    """A project."""

    @described("projects_retrieve", "ProjectStatus")
    def get(self, request: Request, project: str) -> Response:
        """Return a project with entitlements, use and headroom, by id or namespace."""
        return Response(
            representations.project_status(project_status(access.project_by_key(self.actor, project)))
        )


class NotFoundView(ApiView):
    """Any other address below /api/v1/."""

    permission_classes = []
    schema = None
    http_method_names = ["get", "post", "put", "patch", "delete", "head", "options"]

    def initial(self, request: Request, *args: object, **kwargs: object) -> None:
        """Answer 404 whatever was sent; tell of the address that was meant where only its last slash is missing."""
        problem = as_problem(Http404())
        meant = f"{request.path_info}/"
        if not request.path_info.endswith("/") and resolve(meant).func.cls is not NotFoundView:  # type: ignore[attr-defined]
            problem.next_step = _("Addresses end with a slash: %(address)s") % {"address": meant}
        raise problem


class DocsView(SpectacularSwaggerSplitView):
    """The OpenAPI document for people; needs no token."""

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Answer GET with the page, anything else with a problem: the page has no form for it."""
        if request.method in ("GET", "HEAD"):
            return super().dispatch(request, *args, **kwargs)
        problem = as_problem(MethodNotAllowed(request.method or ""))
        response = problem_response(405, problem.code, problem.sentence, problem.next_step)
        response["Allow"] = "GET, HEAD"
        return response


class DocumentView(SpectacularJSONAPIView):
    """The OpenAPI document; needs no token."""

    permission_classes = []
    authentication_classes = []
    throttle_classes = []
