"""What the tests of the pages share: signed-in clients, and the order form as a browser would send it."""

from __future__ import annotations

import re
from html import unescape

from django.test import Client

from tenants.models import User
from tests.factories import IMAGE, card, observe, watched


def signed_in(user: User) -> Client:
    """A browser of `user`."""
    client = Client()
    client.force_login(user)
    return client


def cluster_seen() -> None:
    """The cluster answers and has one free card."""
    watched()
    observe(card())


def hidden(html: str, name: str) -> str:
    """Return the value of the hidden field `name` in a page."""
    found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)"', html)
    assert found, f"no field {name}"
    return unescape(found[1])


def order_data(client: Client, namespace: str = "acme-ai", **values: str) -> dict[str, str]:
    """Open the order page and fill it in: a small container that passes every check."""
    page = client.get(f"/projects/{namespace}/order/").content.decode()
    return {
        "operation_key": hidden(page, "operation_key"),
        "template": "custom",
        "package": "v100-25",
        "display_name": "Mein Modell",
        "image": IMAGE,
        "command": "",
        "args": "",
        "env": "",
        "port": "",
        "cpu_request": "100m",
        "cpu_limit": "1",
        "memory_request": "256Mi",
        "memory_limit": "1Gi",
        "volume_size": "20Gi",
        "volume_path": "/data",
        **values,
    }
