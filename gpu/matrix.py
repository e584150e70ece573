"""The image matrix and the rules for orders as the admin has set them."""

from __future__ import annotations

from gpu import images
from gpu.models import ImageRule, OrderPolicy, Package


def ceilings(package: Package) -> tuple[images.Ceiling, ...]:
    """Return the lines of the matrix for a package's card; an empty table means the matrix that comes with the code."""
    card = f"{package.gpu_model} {package.card_product}".lower()
    lines = tuple(rule.ceiling for rule in ImageRule.objects.all()) or images.CEILINGS
    return tuple(line for line in lines if line.card.lower() in card)


def demands_digest() -> bool:
    """Whether every image must be named by its digest."""
    return OrderPolicy.objects.filter(demand_digest=True).exists()


def pinned(image: str) -> str:
    """Return a template's own image by the digest that an admin has entered for it, where one is."""
    rule = ImageRule.objects.filter(pin=image).exclude(digest="").first()
    return rule.proposal if rule is not None else image
