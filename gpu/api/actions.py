"""What can be done with a slice: stop, start, restart, release."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from gpu import orders
from gpu.api.idempotency import once
from gpu.api.schema import described
from gpu.api.serializers import ReleaseIn, StartIn
from gpu.api.slices import SliceView
from gpu.models import Slice
from tenants import access


class ActionView(SliceView):
    """One action on a slice, chosen by the address."""

    def act(self, row: Slice, expected: int | None) -> Slice:
        """Do it."""
        raise NotImplementedError

    def run(self, request: Request, public_id: str) -> Response:
        """Do the action; 202 with the slice, whose state follows."""
        access.require_write(self.actor)
        row = self.row(public_id)
        expected = self.expected(row, demanded=False)
        return once(request, row.project.tenant, lambda: self.answer(self.act(row, expected), 202))


class StopView(ActionView):
    """Stop."""

    def act(self, row: Slice, expected: int | None) -> Slice:
        """Stop the slice."""
        return orders.stop(self.actor.user, row, expected=expected)

    @described("slices_stop", "Slice", status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Stop the slice: its card goes back, its volume and settings stay."""
        return self.run(request, public_id)


class StartView(ActionView):
    """Start."""

    def act(self, row: Slice, expected: int | None) -> Slice:
        """Start the slice."""
        allow_queue = self.read(StartIn)["allow_queue"]
        return orders.start(self.actor.user, row, allow_queue=allow_queue, expected=expected)

    @described("slices_start", "Slice", request=StartIn, status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Start a stopped slice."""
        return self.run(request, public_id)


class RestartView(ActionView):
    """Restart."""

    def act(self, row: Slice, expected: int | None) -> Slice:
        """Restart the slice; its card may be taken by somebody else in between."""
        return orders.restart(self.actor.user, row, expected=expected)

    @described("slices_restart", "Slice", status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Restart the slice. Its card may be taken by somebody else in between."""
        return self.run(request, public_id)


class ReleaseView(ActionView):
    """Release."""

    def act(self, row: Slice, expected: int | None) -> Slice:
        """Give the slice back."""
        delete_volume = self.read(ReleaseIn)["delete_volume"]
        return orders.release(self.actor.user, row, delete_volume=delete_volume, expected=expected)

    @described("slices_release", "Slice", request=ReleaseIn, status=202, idempotent=True)
    def post(self, request: Request, public_id: str) -> Response:
        """Give the slice back. Everything of it is deleted, its volume only with `delete_volume`."""
        return self.run(request, public_id)
