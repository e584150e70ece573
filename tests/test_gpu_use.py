"""Is it really on the GPU (C-09): checks and receipts, their warnings, and the state of the slice."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from gpu import assess, contract, gpu_use, matrix, receipt_rows
from gpu.messages import Count
from gpu.models import ImageRule, ModelCheck, OrderPolicy, Slice, TimelineEntry
from gpu.status import slice_status, slice_statuses
from tests.factories import World, workload, world
from tests.ollama_replay import recorded
from tests.pull_kit import ollama_slice

pytestmark = pytest.mark.django_db
COMPUTE = (
    'time=2026-11-30T16:47:42.840Z level=INFO msg="inference compute" id=GPU-8a56a4bc-4bd1-4d7e-a01b-3d1d6a8b4c11 '
    'library=CUDA compute=7.0 name=CUDA0 description="Tesla V100-PCIE-32GB" driver=12.8 pci_id=0000:3b:00.0 '
    'total="{} GiB" available="7.7 GiB"\n'
)


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


def checked(row: Slice, size: int | None, size_vram: int | None, **values: Any) -> ModelCheck:
    return ModelCheck.objects.create(
        slice=row, model="llama3.2:3b", size=size, size_vram=size_vram, at=timezone.now(), **values
    )


@pytest.mark.parametrize(
    ("size", "vram", "percent", "warning"),
    [
        (4_021_182_464, 0, 0, "cpu"),
        (4_021_182_464, 4_021_182_464, 100, None),
        (6_000_000_000, 4_500_000_000, 75, "partly"),
        (None, None, None, None),
    ],
)
def test_what_a_check_says(
    row: Slice, size: int | None, vram: int | None, percent: int | None, warning: str | None
) -> None:
    check = checked(row, size, vram)
    assert gpu_use.gpu_percent(check) == percent
    codes = [item.code for item in gpu_use.warnings(row, check, None)]
    assert codes == ([warning] if warning else [])
    if warning == "partly":
        assert gpu_use.warnings(row, check, None)[0].sentence.params["percent"] == Count(75)
    status = slice_status(row)
    assert (status.state, status.diagnosis.reason) == (
        ("running_degraded", warning) if warning else ("running", status.diagnosis.reason)
    )


def test_a_check_of_before_a_change_says_nothing(row: Slice) -> None:
    check = checked(row, 10, 0)
    ModelCheck.objects.update(at=row.changed_at - timedelta(seconds=1))
    check.refresh_from_db()
    assert gpu_use.warnings(row, check, None) == ()
    assert slice_status(row).state == "running"


def test_the_receipt_of_a_slice_as_ordered(row: Slice) -> None:
    found = receipt_rows.note(row, COMPUTE.format("8.0"), "pod-1")
    assert (found.gpu_name, found.memory_mib, found.driver, found.compute_capability) == (
        "Tesla V100-PCIE-32GB",
        8192,
        "12.8",
        "7.0",
    )
    assert gpu_use.warnings(row, None, found) == ()
    assert "3b:00" not in str(vars(found))
    assert "8a56" not in str(vars(found))


def test_the_whole_card_is_an_alarm_once_a_pod(row: Slice, caplog: pytest.LogCaptureFixture) -> None:
    for _again in range(2):
        found = receipt_rows.note(row, COMPUTE.format("31.7"), "pod-1")
    assert [item.code for item in gpu_use.warnings(row, None, found)] == ["whole_card"]
    assert TimelineEntry.objects.filter(code="whole_card").count() == 1
    assert row.public_id in caplog.text
    status = slice_status(row)
    assert (status.state, status.diagnosis.who) == ("running_degraded", "operator")


def test_what_the_log_no_longer_holds_stays_until_the_next_pod(row: Slice) -> None:
    receipt_rows.note(row, COMPUTE.format("8.0"), "pod-1")
    assert receipt_rows.note(row, "[GIN] 200\n", "pod-1").memory_mib == 8192
    assert receipt_rows.note(row, "[GIN] 200\n", "pod-2").memory_mib is None


@pytest.mark.parametrize(
    ("log", "codes"),
    [
        ("startup-cpu", ["no_gpu"]),
        ("prompt-truncated", ["context_cut"]),
        ("out-of-memory", ["host_memory"]),
        ("runner-killed", ["host_memory"]),
        ("load-cpu", ["cpu"]),
    ],
)
def test_recorded_logs(row: Slice, log: str, codes: list[str]) -> None:
    found = receipt_rows.note(row, recorded(f"log/{log}.txt").decode(), "pod-1")
    told = [item.code for item in gpu_use.warnings(row, None, found)]
    assert set(codes) <= set(told), told


def test_statuses_of_many_slices_cost_a_fixed_number_of_queries(
    made: World, row: Slice, django_assert_max_num_queries: Any
) -> None:
    rows = [row, ollama_slice(made, "Zwei"), ollama_slice(made, "Drei")]
    for each in rows:
        checked(each, 10, 0)
    with django_assert_max_num_queries(6):
        found = slice_statuses(rows)
    assert {status.state for status in found} == {"running_degraded"}


def test_a_pod_without_receipt_is_found_and_asked_for_once(row: Slice) -> None:
    uid = receipt_rows.pod_uid(row)
    assert uid
    assert receipt_rows.without_receipt() == [row.pk]
    receipt_rows.note(row, "", uid)
    assert receipt_rows.without_receipt() == []


# The image matrix of the admin


def rules(made: World, image: str) -> list[str]:
    judged = assess.assess(made.project, made.packages[25], workload(image=image), "chat")
    return [
        item.rule for item in judged.findings if item.place == "image" and item.rule != "image-not-by-digest"
    ]


@pytest.mark.parametrize(
    ("image", "found"),
    [
        ("ollama/ollama:0.24.0", []),
        ("ollama/ollama:0.9.6", []),
        ("ollama/ollama:0.30.0", ["image-bad"]),
        ("ollama/ollama:0.30.5", ["image-bad"]),
        ("ollama/ollama", ["image-not-pinned"]),
        ("ollama/ollama:latest", ["image-not-pinned"]),
        ("ollama/ollama@sha256:" + "a" * 64, ["image-version-unknown"]),
    ],
)
def test_the_matrix_as_it_comes(made: World, image: str, found: list[str]) -> None:
    assert rules(made, image) == found


def test_a_line_changed_in_the_admin_counts_at_once(made: World) -> None:
    ImageRule.objects.filter(path="ollama/ollama").update(known_good="0.31.0", bad_from="0.40.0")
    assert rules(made, "ollama/ollama:0.30.5") == []


def test_an_empty_matrix_is_the_one_that_comes_with_the_portal(made: World) -> None:
    ImageRule.objects.all().delete()
    assert rules(made, "ollama/ollama:0.30.5") == ["image-bad"]


def test_a_line_of_another_card_says_nothing(made: World) -> None:
    ImageRule.objects.update(card="A100")
    assert matrix.ceilings(made.packages[25]) == ()
    assert rules(made, "ollama/ollama:0.30.5") == []


def test_an_entered_digest_is_proposed_with_the_pin(made: World) -> None:
    ImageRule.objects.filter(path="ollama/ollama").update(digest="sha256:" + "b" * 64)
    judged = assess.assess(made.project, made.packages[25], workload(image="ollama/ollama:0.30.5"), "chat")
    [bad] = [item for item in judged.findings if item.rule == "image-bad"]
    assert bad.suggest == "ollama/ollama:0.24.0@sha256:" + "b" * 64


def test_a_demanded_digest_refuses_a_mere_tag(made: World) -> None:
    OrderPolicy.objects.create(demand_digest=True)
    judged = assess.assess(made.project, made.packages[25], workload(image="ollama/ollama:0.24.0"), "chat")
    assert [item.rule for item in judged.refused] == ["image-not-by-digest"]
    assert contract.check_workload(workload(image="ollama/ollama:0.24.0@sha256:" + "b" * 64)) == ()
