"""A NUL character in an address is a 404, never a 500."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.factories import world

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "path",
    [
        "/projects/acme-ai/order/?package=%00",
        "/projects/acme-ai/slices/?q=%00",
        "/slices/%00/",
        "/login/?next=%00",
        "/admin/gpu/slice/?q=%00",
        "/api/v1/slices/?project=%00",
        "/api/v1/slices/%00/",
    ],
)
def test_a_nul_character_is_404(path: str) -> None:
    client = Client(raise_request_exception=False)
    client.force_login(world().kim)
    assert client.get(path).status_code == 404
