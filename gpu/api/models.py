"""Models of a slice: what is on the volume, pulls, checks. What takes time answers 202 with the pull to follow."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.serializers import Serializer

from gpu import pulls, tokens
from gpu.api import model_representations as told
from gpu.api.base import Pages
from gpu.api.idempotency import once
from gpu.api.problems import Problem
from gpu.api.schema import described
from gpu.api.serializers import ModelIn, PullIn
from gpu.api.slices import SliceView
from gpu.model_card import models_card, pull_lines
from gpu.models import ModelPull, Slice
from tenants import access

LIST_PARAMS = ("cursor", "page_size")


class PullingView(SliceView):
    """What the views of models share."""

    def pull(self, public_id: str) -> ModelPull:
        """Return the pull; 404 for a stranger's."""
        rows = ModelPull.objects.select_related("slice__project__tenant")
        return access.get_or_404(rows, self.actor, "slice__project__tenant", public_id=public_id)

    def pull_answer(self, row: Slice, pull: ModelPull, status: int = 200) -> Response:
        """Return a pull, with its address where it was asked for just now."""
        [line] = pull_lines(row, [pull])
        headers = {}
        if status != 200:
            headers["Location"] = reverse("api-pull", [pull.public_id], request=self.request)
        return Response(told.pull(line), status=status, headers=headers)

    def ask(
        self, request: Request, public_id: str, mode: str, taken: type[Serializer[Any]] | None
    ) -> Response:
        """Ask for a pull, a list, a deletion or a check: 202."""
        access.require_write(self.actor)
        row = self.row(public_id)

        def make() -> Response:
            asked = self.read(taken) if taken else {}
            return self.pull_answer(row, self._place(row, mode, asked), 202)

        return once(request, row.project.tenant, make)

    def _place(self, row: Slice, mode: str, asked: dict[str, Any]) -> ModelPull:
        user = self.actor.user
        match mode:
            case "pull":
                return pulls.place(user, row, asked["model"], update=asked["anew"])[0]
            case "delete":
                return pulls.delete_model(user, row, asked["model"])
            case "check":
                return pulls.check(user, row, asked["model"])
        return pulls.refresh_list(user, row)


class ModelsView(PullingView):
    """The models of a slice."""

    @described("models_list", "Models")
    def get(self, request: Request, public_id: str) -> Response:
        """Return the models as last listed, the last check, the receipt and what is wrong. The slice is not asked."""
        card = models_card(self.row(public_id))
        if card is None:
            raise Problem(
                409,
                "not_ollama",
                _("This slice does not run Ollama."),
                _("Order a slice with the template ollama."),
            )
        return Response(told.models(card))

    @described("models_pull", "Pull", request=PullIn, status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Fetch a model into the slice. The same model while it is being fetched gives the pull there is."""
        return self.ask(request, public_id, "pull", PullIn)


class ModelsRefreshView(PullingView):
    """Listing anew."""

    @described("models_refresh", "Pull", status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Ask the slice which models its volume holds."""
        return self.ask(request, public_id, "list", None)


class ModelsDeleteView(PullingView):
    """Deleting."""

    @described("models_delete", "Pull", request=ModelIn, status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Delete a model from the slice's volume."""
        return self.ask(request, public_id, "delete", ModelIn)


class ModelsCheckView(PullingView):
    """Checking."""

    @described("models_check", "Pull", request=ModelIn, status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Load a model and see whether it runs on the GPU, how fast, and with how much context."""
        return self.ask(request, public_id, "check", ModelIn)


class PullsView(PullingView):
    """The pulls of a slice."""

    params = {"GET": LIST_PARAMS}

    @described("pulls_list", "PullList", params=LIST_PARAMS)
    def get(self, request: Request, public_id: str) -> Response:
        """List pulls, lists, deletions and checks, newest first."""
        row = self.row(public_id)
        pages = Pages()
        page = pages.paginate_queryset(ModelPull.objects.filter(slice=row), request, self) or []
        return pages.get_paginated_response([told.pull(line) for line in pull_lines(row, page)])


class TokenView(PullingView):
    """A slice's access token."""

    @described("slices_token", "Token")
    def post(self, request: Request, public_id: str) -> Response:
        """Return the token of the notebook, one time, to whoever ordered it."""
        access.require_write(self.actor)
        token = tokens.show_once(self.row(public_id), self.actor.user)
        if token is None:
            raise Problem(
                409,
                "no_token",
                _("The token was shown already, or this slice has none for you."),
                _("Order a new slice to get a new one."),
            )
        return Response({"token": token}, headers={"Cache-Control": "no-store"})


class PullView(PullingView):
    """A pull."""

    @described("pulls_retrieve", "Pull")
    def get(self, request: Request, public_id: str) -> Response:
        """Return a pull with its progress."""
        found = self.pull(public_id)
        return self.pull_answer(found.slice, found)


class CancelView(PullingView):
    """Cancelling."""

    @described("pulls_cancel", "Pull", status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Cancel a pull: its Job and pod are deleted."""
        access.require_write(self.actor)
        found = self.pull(public_id)

        def make() -> Response:
            return self.pull_answer(found.slice, pulls.cancel(self.actor.user, found), 202)

        return once(request, found.slice.project.tenant, make)
