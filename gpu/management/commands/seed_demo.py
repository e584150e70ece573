"""manage.py seed_demo: packages, two tenants and a few slices, for `make demo`. Twice is the same as once."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import transaction

from gpu import entitlements, orders, pulls
from gpu.manifests import VolumeSpec, WorkloadSpec
from gpu.models import ComputePool, Entitlement, Package
from gpu.order_errors import OrderRefused
from gpu.templates_catalogue import TEMPLATES
from tenants.models import ApiToken, Membership, Project, Tenant, User

PASSWORD = "slices-for-everyone"  # noqa: S105  for a demo on loopback
PACKAGES = (
    ("v100-25", "V100 25 %", 8192, 25, "0.35", "kube-dc-nvidia-v100-shared-8g", "nvidia-v100-hami"),
    ("v100-50", "V100 50 %", 16384, 50, "0.68", "kube-dc-nvidia-v100-shared-16g", "nvidia-v100-hami-16g"),
    ("v100-100", "V100 100 %", 32768, 100, "1.30", "kube-dc-nvidia-v100-shared-32g", "nvidia-v100-hami-32g"),
)
PEOPLE = (
    ("kim@acme.example", "Kim", "Albers", "acme", Membership.Role.OWNER),
    ("lee@acme.example", "Lee", "Brandt", "acme", Membership.Role.MEMBER),
    ("robin@birch.example", "Robin", "Conti", "birch", Membership.Role.OWNER),
)
ADMIN = "admin@portal.example"
MODELS = ("llama3.2:3b", "slow:1800")
"""The sandbox's stand-in for Ollama takes as many seconds for `slow` as its tag says."""
DIGEST = "sha256:" + "5c1b" * 16
REGISTRY = "registry.portal.example"


def workload(name: str, cpu: str = "500m", memory: str = "1Gi", **values: Any) -> WorkloadSpec:
    """Return a container of the demo's own registry with equal small requests and doubled limits."""
    return WorkloadSpec(
        image=f"{REGISTRY}/{name}:1.4.2@{DIGEST}",
        cpu_request=cpu,
        cpu_limit=values.pop("cpu_limit", "2"),
        memory_request=memory,
        memory_limit=values.pop("memory_limit", "4Gi"),
        **values,
    )


class Command(BaseCommand):
    """Fill an empty portal with something to look at."""

    help = "Fill the demo. Refuses to run in production."

    def add_arguments(self, parser: CommandParser) -> None:
        """`--no-slices` leaves the orders out: what browser tests start from."""
        parser.add_argument("--no-slices", action="store_true", help="tenants and packages only")

    def handle(self, *args: Any, **options: Any) -> None:
        """Make what is missing, and write the logins to DATA_DIR/demo.json."""
        if settings.PRODUCTION:
            raise CommandError("seed_demo is for PORTAL_ENV=demo or test.")
        with transaction.atomic():
            packages = self._packages()
            projects = self._tenants()
            self._entitle(projects, packages)
        if not options["no_slices"]:
            self._orders(projects, packages)
        self._write_logins()

    def _packages(self) -> dict[str, Package]:
        for position, (slug, name, memory, share, price, device_class, profile) in enumerate(PACKAGES):
            Package.objects.get_or_create(
                slug=slug,
                defaults={
                    "name": name,
                    "memory_mib": memory,
                    "compute_percent": share,
                    "price_per_hour": Decimal(price),
                    "device_class": device_class,
                    "profile_id": profile,
                    "position": position,
                },
            )
        return {package.slug: package for package in Package.objects.all()}

    def _tenants(self) -> dict[str, Project]:
        projects = {}
        for slug, name, project, namespace in (
            ("acme", "Acme Research", "AI", "acme-ai"),
            ("birch", "Birch Analytics", "Lab", "birch-lab"),
        ):
            tenant, _ = Tenant.objects.get_or_create(slug=slug, defaults={"name": name})
            projects[namespace], _ = Project.objects.get_or_create(
                namespace=namespace, defaults={"tenant": tenant, "name": project}
            )
        for email, first, last, slug, role in PEOPLE:
            user = _user(email, first_name=first, last_name=last)
            Membership.objects.get_or_create(
                user=user, tenant=Tenant.objects.get(slug=slug), defaults={"role": role}
            )
        _user(ADMIN, is_staff=True, is_superuser=True)
        return projects

    def _entitle(self, projects: dict[str, Project], packages: dict[str, Package]) -> None:
        for namespace, counts in (
            ("acme-ai", {"v100-25": 4, "v100-50": 2, "v100-100": 1}),
            ("birch-lab", {"v100-25": 1, "v100-50": 1, "v100-100": 1}),
        ):
            project = projects[namespace]
            missing = [
                slug
                for slug, count in counts.items()
                if Entitlement.objects.get_or_create(
                    project=project, package=packages[slug], defaults={"count": count}
                )[1]
            ]
            _pool, created = ComputePool.objects.get_or_create(
                project=project,
                defaults={
                    "cpu_requests": "6",
                    "cpu_limits": "24",
                    "memory_requests": "24Gi",
                    "memory_limits": "48Gi",
                    "storage": "160Gi",
                    "pods": 20,
                },
            )
            if missing or created:
                entitlements.ask_to_write(project)

    # Whatever the worker and the scheduler do first: the whole card waits, since no card stays free for it; the batch
    # job asks for more CPU than the pool has; two quarters of a card are free for whoever orders.
    def _orders(self, projects: dict[str, Project], packages: dict[str, Package]) -> None:
        acme, birch = projects["acme-ai"], projects["birch-lab"]
        kim = User.objects.get(username="kim@acme.example")
        lee = User.objects.get(username="lee@acme.example")
        robin = User.objects.get(username="robin@birch.example")
        self._language_model(kim, acme, packages["v100-25"])
        volume = VolumeSpec(size="40Gi", mount_path="/data")
        for number, (user, project, slug, name, what) in enumerate(
            (
                (
                    robin,
                    birch,
                    "v100-50",
                    "Training run 7",
                    workload("team/trainer", "2", "8Gi", cpu_limit="4", memory_limit="16Gi"),
                ),
                (
                    kim,
                    acme,
                    "v100-25",
                    "Chat (Küche)",
                    workload("team/chat-server", port=8080, volume=volume),
                ),
                (
                    lee,
                    acme,
                    "v100-50",
                    "Notebook Lee",
                    workload("team/notebook", "1", "4Gi", port=8888, memory_limit="8Gi"),
                ),
                (lee, acme, "v100-50", "Batch scoring", workload("team/scorer", "7", "2Gi", cpu_limit="8")),
                (kim, acme, "v100-100", "Nightly embeddings", workload("team/embedder", "500m", "2Gi")),
            )
        ):
            orders.place(
                user, project, packages[slug], name, what, operation_key=f"demo-{number}", allow_queue=True
            )

    def _language_model(self, user: User, project: Project, package: Package) -> None:
        """An Ollama slice with one model that comes quickly and one that takes its time."""
        row, _made = orders.place(
            user,
            project,
            package,
            "Language model",
            TEMPLATES["ollama"].first(),
            operation_key="demo-ollama",
            allow_queue=True,
        )
        for model in MODELS:
            with suppress(OrderRefused):  # somebody has stopped the slice meanwhile
                pulls.place(user, row, model, operation_key=f"demo-{model}", when_running=True)

    def _write_logins(self) -> None:
        path = Path(settings.DATA_DIR) / "demo.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if not ApiToken.find(known.get("api_token", "")):
            kim = User.objects.get(username="kim@acme.example")
            _row, known["api_token"] = ApiToken.issue(kim, Tenant.objects.get(slug="acme"), "demo")
        known["password"] = PASSWORD
        known["logins"] = [
            {"user": email, "what": f"{role} of {slug}"} for email, _first, _last, slug, role in PEOPLE
        ] + [{"user": ADMIN, "what": "platform admin, /admin/"}]
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(known, file, indent=1)


def _user(email: str, **values: Any) -> User:
    user, created = User.objects.get_or_create(username=email, defaults={"email": email, **values})
    if created:
        user.set_password(PASSWORD)
        user.save(update_fields=["password"])
    return user
