"""Django admin: entitlements and pools are written and not lowered below use; slices are read and released."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin import site
from django.test import Client
from django.urls import reverse
from django.utils import translation

from gpu import enqueue
from gpu.models import ComputePool, Entitlement, Package, QuotaState, Slice
from tenants.models import ApiToken, Project, User
from tests.factories import World, claim, observe, quota, watched, world

pytestmark = pytest.mark.django_db


@pytest.fixture
def made() -> World:
    return world(entitled=2)


@pytest.fixture
def admin(made: World) -> Client:
    """A platform admin's browser."""
    user = User.objects.create_superuser("admin@portal.example", password="correct horse battery")
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The tasks that were sent."""
    calls: list[tuple[str, int]] = []
    monkeypatch.setattr(enqueue, "_send", lambda task, pk: calls.append((task, pk)))
    return calls


def project_form(made: World, **changes: Any) -> dict[str, Any]:
    """The project's change form as the browser sends it."""
    row = Entitlement.objects.get(project=made.project)
    return {
        "name": made.project.name,
        "namespace": made.project.namespace,
        "tenant": made.acme.pk,
        "cluster": getattr(made.project, "cluster_id", "") or "",
        "entitlements-TOTAL_FORMS": 1,
        "entitlements-INITIAL_FORMS": 1,
        "entitlements-0-id": row.pk,
        "entitlements-0-project": made.project.pk,
        "entitlements-0-package": made.packages[25].pk,
        "entitlements-0-count": 2,
        "pool-TOTAL_FORMS": 0,
        "pool-INITIAL_FORMS": 0,
        **changes,
    }


def save(admin: Client, made: World, **changes: Any) -> Any:
    """Send the project's change form."""
    return admin.post(
        reverse("admin:tenants_project_change", args=[made.project.pk]), project_form(made, **changes)
    )


def test_every_admin_page_opens(admin: Client, made: World) -> None:
    row = made.order("chat")
    observe(quota("acme-ai", {"pods": "5"}, {"pods": "1"}, name="gpu-portal"))
    watched()
    for name in (
        "gpu_package",
        "gpu_order",
        "gpu_slice",
        "tenants_project",
        "tenants_tenant",
        "tenants_user",
        "tenants_apitoken",
    ):
        assert admin.get(reverse(f"admin:{name}_changelist")).status_code == 200, name
    for name, pk in (
        ("gpu_package", made.packages[25].pk),
        ("gpu_order", row.order.pk),
        ("gpu_slice", row.pk),
        ("tenants_project", made.project.pk),
        ("tenants_tenant", made.acme.pk),
        ("tenants_user", made.kim.pk),
    ):
        assert admin.get(reverse(f"admin:{name}_change", args=[pk])).status_code == 200, name


@pytest.mark.django_db(transaction=True)
def test_a_saved_entitlement_is_written_by_the_worker(
    admin: Client, made: World, sent: list[tuple[str, int]]
) -> None:
    answer = save(admin, made, **{"entitlements-0-count": 5})
    assert answer.status_code == 302, answer.context["errors"]
    assert Entitlement.objects.get(project=made.project).count == 5
    state = QuotaState.objects.get(project=made.project)
    assert state.applied_generation < state.generation
    assert (enqueue.WRITE_QUOTA, made.project.pk) in sent


def test_an_entitlement_below_use_is_refused_naming_the_slices(admin: Client, made: World) -> None:
    made.order("Chat der Küche")
    made.order("Batch")
    answer = save(admin, made, **{"entitlements-0-count": 1})
    assert answer.status_code == 200
    text = answer.content.decode()
    assert "Chat der Küche" in text
    assert "Batch" in text
    assert Entitlement.objects.get(project=made.project).count == 2


def test_deleting_an_entitlement_in_use_is_refused_too(admin: Client, made: World) -> None:
    made.order("Chat der Küche")
    answer = save(admin, made, **{"entitlements-0-DELETE": "on"})
    assert answer.status_code == 200
    assert "Chat der Küche" in answer.content.decode()
    assert Entitlement.objects.filter(project=made.project).exists()


def test_a_pool_below_use_is_refused_with_figures(admin: Client, made: World) -> None:
    observe(quota("acme-ai", {"requests.cpu": "8"}, {"requests.cpu": "3"}, name="gpu-portal"))
    pool = {
        "pool-TOTAL_FORMS": 1,
        "pool-0-project": made.project.pk,
        "pool-0-cpu_requests": "2",
        "pool-0-memory_requests": "",
    }
    answer = save(admin, made, **pool)
    assert answer.status_code == 200
    assert "3 CPU" in answer.content.decode()
    assert not ComputePool.objects.exists()
    assert save(admin, made, **{**pool, "pool-0-cpu_requests": "4"}).status_code == 302
    assert ComputePool.objects.get().cpu_requests == "4"


@pytest.mark.parametrize("text", ["lots", "-1", "0", "1Kb", "١"])
def test_a_pool_that_is_no_quantity_is_refused_at_its_field(admin: Client, made: World, text: str) -> None:
    pool = {"pool-TOTAL_FORMS": 1, "pool-0-project": made.project.pk, "pool-0-cpu_requests": text}
    assert save(admin, made, **pool).status_code == 200
    assert not ComputePool.objects.exists()


def test_asked_present_and_used_stand_side_by_side(admin: Client, made: World) -> None:
    key = f"{made.packages[25].device_class}.deviceclass.resource.k8s.io/devices"
    observe(quota("acme-ai", {key: "1"}, {key: "1"}, name="gpu-portal"))
    text = admin.get(reverse("admin:tenants_project_changelist")).content.decode()
    assert "2 / 1 / 1" in text


def test_a_slice_is_released_the_proper_way(admin: Client, made: World) -> None:
    row = made.order("chat")
    observe(claim("acme-ai", row.app))
    admin.post(reverse("admin:gpu_slice_changelist"), {"action": "release", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert (row.intent, row.action) == ("release", "pending")
    assert row.timeline.get(code="release_asked").actor.username == "admin@portal.example"


def test_orders_and_slices_are_read_only(admin: Client, made: World) -> None:
    row = made.order("chat")
    for name, pk in (("gpu_slice", row.pk), ("gpu_order", row.order.pk)):
        assert (
            admin.post(reverse(f"admin:{name}_change", args=[pk]), {"display_name": "x"}).status_code == 403
        )
        assert admin.post(reverse(f"admin:{name}_delete", args=[pk]), {"post": "yes"}).status_code == 403
        assert admin.get(reverse(f"admin:{name}_add")).status_code == 403
    assert Slice.objects.get(pk=row.pk).display_name == "chat"


def test_a_stuck_slice_can_be_sent_again(admin: Client, made: World) -> None:
    row = made.order("chat")
    Slice.objects.filter(pk=row.pk).update(action="needs_operator", lost_runs=3)
    admin.post(reverse("admin:gpu_slice_changelist"), {"action": "try_again", "_selected_action": [row.pk]})
    row.refresh_from_db()
    assert (row.action, row.lost_runs) == ("pending", 0)


def test_a_changed_class_is_written_to_every_project(admin: Client, made: World) -> None:
    QuotaState.objects.create(project=made.project, applied_generation=1)
    package = made.packages[25]
    form = {
        "slug": package.slug,
        "name": package.name,
        "gpu_model": package.gpu_model,
        "card_product": package.card_product,
        "memory_mib": package.memory_mib,
        "compute_percent": package.compute_percent,
        "shares": package.shares,
        "price_per_hour": "0.40",
        "currency": "EUR",
        "device_class": "another-class",
        "profile_id": package.profile_id,
        "on_sale": "on",
        "position": 1,
    }
    answer = admin.post(reverse("admin:gpu_package_change", args=[package.pk]), form)
    assert answer.status_code == 302, answer.context["errors"]
    assert Package.objects.get(pk=package.pk).device_class == "another-class"
    assert QuotaState.objects.get(project=made.project).generation == 2


def test_a_token_is_seen_by_its_prefix_and_can_be_revoked(admin: Client, made: World) -> None:
    row, token = ApiToken.issue(made.kim, made.acme, "ci")
    for url in (
        reverse("admin:tenants_apitoken_changelist"),
        reverse("admin:tenants_apitoken_change", args=[row.pk]),
    ):
        text = admin.get(url).content.decode()
        assert token not in text + url
        assert row.digest not in text
    admin.post(
        reverse("admin:tenants_apitoken_changelist"), {"action": "revoke", "_selected_action": [row.pk]}
    )
    assert ApiToken.find(token) is None


@pytest.mark.parametrize(
    "zone", ["Europe/Nowhere", "../../etc/passwd", "/", "Europe", "x" * 60, "\u202e", "1e400"]
)
def test_a_time_zone_that_does_not_exist_is_refused_at_its_field(
    admin: Client, made: World, zone: str
) -> None:
    """Every page of the tenant shows its times in it."""
    form = {"slug": "new", "name": "New", "memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    form |= {"projects-TOTAL_FORMS": 0, "projects-INITIAL_FORMS": 0}
    answer = admin.post(reverse("admin:tenants_tenant_add"), {**form, "time_zone": zone})
    errors = answer.context["adminform"].form.errors
    assert errors == {"time_zone": ["There is no such time zone. An example: Europe/Berlin"]}
    answer = admin.post(reverse("admin:tenants_tenant_add"), {**form, "time_zone": "America/Lima"})
    assert answer.status_code == 302


@pytest.mark.parametrize("user", ["x", "1e400", "-1", "9" * 40, "\x00", "²"])
def test_a_member_that_is_no_user_is_refused_at_its_field(admin: Client, made: World, user: str) -> None:
    form = {"slug": "new", "name": "New", "time_zone": "UTC", "memberships-0-user": user}
    form |= {"memberships-0-role": "member"}
    counts = {"memberships-TOTAL_FORMS": 1, "memberships-INITIAL_FORMS": 0}
    counts |= {"projects-TOTAL_FORMS": 0, "projects-INITIAL_FORMS": 0}
    answer = admin.post(reverse("admin:tenants_tenant_add"), form | counts)
    assert answer.status_code == 200
    assert "user" in answer.context["inline_admin_formsets"][0].formset.errors[0]


def test_a_tenants_member_has_no_admin(made: World) -> None:
    client = Client()
    client.force_login(made.kim)
    assert client.get(reverse("admin:gpu_slice_changelist")).status_code == 302


def test_a_namespace_belongs_to_one_project(admin: Client, made: World) -> None:
    answer = admin.post(
        reverse("admin:tenants_project_change", args=[made.other.pk]),
        {
            "name": "x",
            "namespace": "acme-ai",
            "tenant": made.birch.pk,
            "cluster": getattr(made.other, "cluster_id", "") or "",
        }
        | {f"{name}-{kind}_FORMS": 0 for name in ("entitlements", "pool") for kind in ("TOTAL", "INITIAL")},
    )
    assert answer.status_code == 200
    assert Project.objects.get(pk=made.other.pk).namespace == "birch-lab"


def test_a_platform_admin_without_a_project_is_led_to_the_administration(admin: Client) -> None:
    answer = admin.get("/")
    assert (answer.status_code, answer["Location"]) == (302, "/admin/")


def test_a_project_is_listed_with_the_names_of_packages(admin: Client, made: World, sent: list[Any]) -> None:
    hard = {"kube-dc-nvidia-v100-shared-8g.deviceclass.resource.k8s.io/devices": "2"}
    observe(quota("acme-ai", hard, dict.fromkeys(hard, "1"), name="gpu-portal"))
    html = admin.get("/admin/tenants/project/").content.decode()
    assert "V100 25 %: 2 / 2 / 1" in html
    assert "kube-dc-nvidia" not in html
    page = admin.get(f"/admin/tenants/project/{made.project.pk}/change/").content.decode()
    assert "<td>V100 25 %</td><td>2</td><td>2</td><td>1</td>" in page


def test_every_word_of_the_administration_has_its_german() -> None:
    """But for what is a name in both languages."""
    same = {
        "ID",
        "kubeconfig",
        "DeviceClass",
        "Job",
        "Session key hash (sha256)",
        "GPU",
        "Name",
        "Cluster",
        "Slices",
    }
    open_ = set()
    for model, shown in site._registry.items():
        for each in (model, *(inline.model for inline in shown.inlines)):
            for field in each._meta.concrete_fields:
                words = (
                    field.verbose_name,
                    field.help_text,
                    *(label for _value, label in field.choices or ()),
                )
                open_ |= {
                    f"{each.__name__}.{field.name}: {word}" for word in words if word and untold(word, same)
                }
            open_ |= {each.__name__ for word in (each._meta.verbose_name_plural,) if untold(word, same)}
    assert open_ == set()


def untold(word: Any, same: set[str]) -> bool:
    """Whether a word stays English for a German reader."""
    with translation.override("en"):
        english = str(word)
    with translation.override("de"):
        return str(word) == english and english not in same


def test_the_words_of_djangos_lists_are_german_too(admin: Client, made: World, sent: list[Any]) -> None:
    made.order()
    html = admin.get("/admin/gpu/slice/", headers={"accept-language": "de"}).content.decode()
    assert "Ausführen" in html
    assert "Select an option" not in html
    assert (
        "Filtern nach" in admin.get("/admin/gpu/order/", headers={"accept-language": "de"}).content.decode()
    )
