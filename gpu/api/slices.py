"""Slices: list, order, preview, detail, change, actions, manifest, events, log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import CharField, QuerySet, Value
from django.db.models.functions import Concat, Lower
from django.http import Http404, HttpResponse
from django.utils.http import parse_etags
from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import Serializer, ValidationError

from gpu import orders
from gpu.api import representations
from gpu.api.base import ApiView, Pages
from gpu.api.idempotency import once
from gpu.api.parsing import MergePatchParser, StrictJSONParser
from gpu.api.problems import Problem
from gpu.api.schema import YamlRenderer, described
from gpu.api.serializers import ChangeIn, OrderIn, merged_workload, ordered_workload
from gpu.assess import assess
from gpu.diagnosis import STATES
from gpu.facts import ProjectFacts, project_facts
from gpu.logcopies import request_log
from gpu.manifests import render, to_yaml
from gpu.models import Package, Slice
from gpu.order_errors import OrderRefused
from gpu.order_rules import refuse_assessment
from gpu.status import SliceStatus, slice_status, slice_statuses
from gpu.timeline import events, timeline
from tenants import access
from tenants.models import Project, Tenant

ORDERINGS = {
    "created_at": ("id", None),
    "-created_at": ("-id", None),
    "display_name": (
        "sort_key",
        Concat(Lower("display_name"), Value("\x1f"), "public_id", output_field=CharField()),
    ),
    "-display_name": (
        "-sort_key",
        Concat(Lower("display_name"), Value("\x1f"), "public_id", output_field=CharField()),
    ),
}
FILTERS = ("project", "package", "intent", "state", "ended", "ordering", "cursor", "page_size")


class SliceView(ApiView):
    """What the views of one slice share."""

    def row(self, public_id: str) -> Slice:
        """Return the slice; 404 for a stranger's."""
        rows = Slice.objects.select_related("project__tenant", "package", "order")
        return access.get_or_404(rows, self.actor, "project__tenant", public_id=public_id)

    def answer(self, row: Slice, status: int = 200, facts: ProjectFacts | None = None) -> Response:
        """Return a slice with its ETag; without `facts`, the row and what was seen of it are read anew."""
        return self.tell(self.row(row.public_id) if facts is None else row, status, facts)

    def tell(self, row: Slice, status: int = 200, facts: ProjectFacts | None = None) -> Response:
        """Return a slice that has just been read."""
        data = representations.slice_status(slice_status(row, facts))
        headers = {"ETag": representations.etag(data)}
        if status != 200:
            headers["Location"] = reverse("api-slice", [row.public_id], request=self.request)
        return Response(data, status=status, headers=headers)

    def read(self, serializer: type[Serializer[Any]]) -> dict[str, Any]:
        """Return the validated body; raises ValidationError."""
        body = self.request.data if self.request.body else {}
        if not isinstance(body, dict):
            raise Problem(400, "malformed", _("The body must be a JSON object."), _("Send { … }."))
        check = serializer(data=body)
        check.is_valid(raise_exception=True)
        return dict(check.validated_data)

    def expected(self, row: Slice, *, demanded: bool) -> int | None:
        """Return the generation named by If-Match, and raise 412 when the slice has moved on."""
        header = self.request.headers.get("If-Match", "").strip()
        if not header:
            if demanded:
                raise Problem(
                    428,
                    "if_match_needed",
                    _("A change needs If-Match, so that nobody's change is overwritten unseen."),
                    _("Read the slice and send its ETag as If-Match."),
                )
            return None
        if header == "*":
            return row.generation
        generations = {tag.removeprefix("W/").strip('"').partition(".")[0] for tag in parse_etags(header)}
        return row.generation if str(row.generation) in generations else -1


class SlicesView(SliceView):
    """The slices of the token's tenant."""

    params = {"GET": FILTERS}

    @described("slices_list", "SliceList", params=FILTERS)
    def get(self, request: Request) -> Response:
        """List slices, newest first, those that have not ended unless `ended` says otherwise."""
        rows = access.visible(Slice.objects.all(), self.actor, "project__tenant")
        rows, judged = _filtered(rows, request)
        ordering, key = _one_of(request, "ordering", ORDERINGS, "-created_at")
        pages = Pages()
        pages.ordering = ordering
        if key is not None:
            rows = rows.annotate(sort_key=key)
        rows = rows.select_related("project__tenant", "package", "order")
        page = pages.paginate_queryset(rows, request, self) or []
        found = slice_statuses(page) if judged is None else [judged[row.pk] for row in page]
        return pages.get_paginated_response([representations.slice_status(status) for status in found])

    @described("slices_create", "Slice", request=OrderIn, status=202, idempotent=True)
    def post(self, request: Request) -> Response:
        """Order a slice. It is accepted and set up in the background: follow its state."""
        access.require_write(self.actor)
        return once(request, _tenant(self.actor), self._order)

    def _order(self) -> Response:
        order = self.read(OrderIn)
        project, package = _place(self.actor, order)
        row, judged = orders.place(
            self.actor.user,
            project,
            package,
            order["display_name"],
            ordered_workload(order),
            operation_key=None,  # `once` keeps the order with its answer
            allow_queue=order["allow_queue"],
        )
        return self.answer(row, 202, judged.facts if judged else None)


class PreviewView(SliceView):
    """What an order would meet."""

    @described("slices_preview", "Preview", request=OrderIn)
    def post(self, request: Request) -> Response:
        """Judge the same body that orders a slice, and change nothing."""
        order = self.read(OrderIn)
        project, package = _place(self.actor, order)
        app = orders.app_name(project, order["display_name"])
        judged = assess(project, package, ordered_workload(order), app)
        refusal = None
        try:
            refuse_assessment(judged, allow_queue=order["allow_queue"])
        except OrderRefused as error:
            refusal = (error.code, error.sentence, error.next_step)
        yaml = to_yaml(judged.documents) if judged.documents else ""
        return Response(representations.preview(judged, yaml, refusal))


class OneSliceView(SliceView):
    """A slice."""

    parser_classes = [MergePatchParser, StrictJSONParser]

    @described("slices_retrieve", "Slice", not_modified=True)
    def get(self, request: Request, public_id: str) -> Response:
        """Return a slice; 304 while nothing but its age has changed."""
        response = self.tell(self.row(public_id))
        known = parse_etags(request.headers.get("If-None-Match", ""))
        if "*" in known or response["ETag"] in [tag.removeprefix("W/") for tag in known]:
            return Response(status=304, headers={"ETag": response["ETag"]})
        return response

    @described("slices_update", "Slice", request=ChangeIn, status=202, if_match=True)
    def patch(self, request: Request, public_id: str) -> Response:
        """Change the workload (JSON merge patch). A running slice restarts with it. Needs If-Match."""
        access.require_write(self.actor)
        row = self.row(public_id)
        fixed = sorted(set(request.data) - set(ChangeIn().fields)) if isinstance(request.data, dict) else []
        if fixed:
            told = _("This field cannot change: order a new slice instead.")
            raise ValidationError({name: [told] for name in fixed}, code="fixed")
        expected = self.expected(row, demanded=True)
        change = self.read(ChangeIn)
        workload = merged_workload(row.workload, change["workload"])
        row = orders.change(
            self.actor.user, row, workload, allow_queue=change["allow_queue"], expected=expected
        )
        return self.answer(row, 202)


class ManifestView(SliceView):
    """The manifests of a slice."""

    renderer_classes = [YamlRenderer, *ApiView.renderer_classes]

    @described("slices_manifest", "Manifest", yaml=True)
    def get(self, request: Request, public_id: str) -> HttpResponse:
        """Return the documents as YAML, byte for byte what is applied; as JSON with `Accept: application/json`."""
        row = self.row(public_id)
        documents = render(row.manifest_spec(row.project.namespace))
        if request.accepted_renderer.format == "yaml":
            return Response(to_yaml(documents), content_type="application/yaml; charset=utf-8")
        return Response({"documents": documents})


class EventsView(SliceView):
    """The cluster's events of a slice."""

    @described("slices_events", "Events")
    def get(self, request: Request, public_id: str) -> Response:
        """Return the events of the slice's present objects, newest first."""
        row = self.row(public_id)
        facts = project_facts(row.project.namespace, [row.app])
        return Response(
            {
                "results": [representations.event(line) for line in events(row, facts)],
                "observed": representations.observed(facts.freshness),
            }
        )


class TimelineView(SliceView):
    """Everything that happened to a slice."""

    @described("slices_timeline", "Events")
    def get(self, request: Request, public_id: str) -> Response:
        """Return what was done, what became of it, and the cluster's present events, newest first."""
        row = self.row(public_id)
        facts = project_facts(row.project.namespace, [row.app])
        return Response(
            {
                "results": [representations.event(line) for line in timeline(row, facts)],
                "observed": representations.observed(facts.freshness),
            }
        )


class LogView(SliceView):
    """The container's log."""

    params = {"GET": ("previous",)}

    @described("slices_log", "Log", params=("previous",))
    def get(self, request: Request, public_id: str) -> Response:
        """Return the copy at hand with its age; asking is what has it renewed, so ask again after a second."""
        previous = _one_of(request, "previous", {"false": False, "true": True}, "false")
        copy = request_log(self.row(public_id), previous=previous)
        return Response(
            {
                "text": copy.text,
                "previous": copy.previous,
                "fetched_at": representations.moment(copy.fetched_at),
                "error_code": copy.error_code or None,
            }
        )


def _tenant(actor: access.Actor) -> Tenant:
    """Return the token's tenant: it is valid only while its user is a member there."""
    if actor.token is None:
        raise Http404
    return actor.token.tenant


def _place(actor: access.Actor, order: dict[str, Any]) -> tuple[Project, Package]:
    project = access.projects(actor).filter(access.project_key(order["project"])).first()
    package = Package.objects.filter(access.any_of(["slug"], [order["package"]])).first()
    errors = {}
    if project is None:
        errors["project"] = [_("There is no such project.")]
    if package is None:
        errors["package"] = [_("There is no such package.")]
    if project is None or package is None:
        raise ValidationError(errors, code="unknown")
    return project, package


def _one_of(request: Request, name: str, choices: dict[str, Any], default: str) -> Any:
    text = request.query_params.get(name, default)
    if text not in choices:
        raise Problem(
            400,
            "bad_parameter",
            _("%(name)s is one of: %(choices)s.") % {"name": name, "choices": ", ".join(choices)},
            "",
        )
    return choices[text]


def _filtered(
    rows: QuerySet[Slice], request: Request
) -> tuple[QuerySet[Slice], dict[int, SliceStatus] | None]:
    """Return what the filters leave, and its statuses by key where a filter had to look at them."""
    ended: Callable[[QuerySet[Slice]], QuerySet[Slice]] = _one_of(
        request,
        "ended",
        {
            "false": lambda found: found.filter(ended_at=None),
            "true": lambda found: found.exclude(ended_at=None),
            "any": lambda found: found,
        },
        "false",
    )
    rows = ended(rows)
    for name, paths in (
        ("project", ("project__public_id", "project__namespace")),
        ("package", ("package__slug",)),
    ):
        wanted = request.query_params.getlist(name)
        if wanted:
            rows = rows.filter(access.any_of(paths, wanted))
    intents = request.query_params.getlist("intent")
    if intents:
        _known(intents, Slice.Intent.values, "intent")
        rows = rows.filter(intent__in=intents)
    states = request.query_params.getlist("state")
    if states:
        _known(states, list(STATES), "state")
        found = slice_statuses(rows.select_related("project__tenant", "package", "order"))
        judged = {status.slice.pk: status for status in found if status.state in states}
        return rows.filter(pk__in=judged), judged
    return rows, None


def _known(given: list[str], choices: list[str], name: str) -> None:
    for text in given:
        if text not in choices:
            raise Problem(
                400,
                "bad_parameter",
                _("%(name)s is one of: %(choices)s.") % {"name": name, "choices": ", ".join(choices)},
                "",
            )
