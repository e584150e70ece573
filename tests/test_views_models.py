"""Pages of models: the card of a slice, ordering a pull, cancelling, listing, deleting, checking."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from gpu import pulls
from gpu.models import ModelCheck, ModelPull, Slice, SliceReceipt
from gpu.pull_outcomes import finish
from tests.factories import World, observe, world
from tests.pull_kit import GIB, failed_create, job, not_seen, ollama_slice, on_volume
from tests.test_pull_status import EXCEEDED
from tests.view_kit import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def made() -> World:
    return world(entitled=3)


@pytest.fixture
def row(made: World) -> Slice:
    return ollama_slice(made)


@pytest.fixture
def kim(made: World) -> Client:
    return signed_in(made.kim)


@pytest.fixture
def lee(made: World) -> Client:
    return signed_in(made.lee)


@pytest.fixture
def robin(made: World) -> Client:
    return signed_in(made.robin)


def page(client: Client, row: Slice, language: str = "en") -> str:
    answer = client.get(f"/slices/{row.public_id}/", headers={"Accept-Language": language})
    assert answer.status_code == 200
    return answer.content.decode()


def order(client: Client, row: Slice, name: str = "llama3.2:3b", **headers: str) -> ModelPull | None:
    client.post(f"/slices/{row.public_id}/models/", {"model": name}, headers=headers)
    return ModelPull.objects.filter(mode="pull").first()


# The order of a pull


def test_ordering_a_pull_leads_back_to_the_slice_that_shows_it(kim: Client, row: Slice) -> None:
    answer = kim.post(f"/slices/{row.public_id}/models/", {"model": "llama3.2:3b"})
    assert (answer.status_code, answer["Location"]) == (302, f"/slices/{row.public_id}/")
    text = page(kim, row)
    assert 'role="progressbar"' in text
    assert "begins as soon as the slice runs" in text


def test_an_anonymous_order_leads_to_the_sign_in(row: Slice) -> None:
    answer = Client().post(f"/slices/{row.public_id}/models/", {"model": "llama3.2:3b"})
    assert answer["Location"].startswith("/login/")
    assert not ModelPull.objects.exists()


def test_a_team_mate_orders_too(lee: Client, row: Slice) -> None:
    assert order(lee, row)


def test_a_strangers_slice_is_not_there(robin: Client, row: Slice) -> None:
    for method in ("get", "post"):
        answer = getattr(robin, method)(f"/slices/{row.public_id}/models/", {"model": "llama3.2:3b"})
        assert answer.status_code == 404
    assert not ModelPull.objects.exists()


def test_a_slice_without_ollama_has_no_models(kim: Client, made: World) -> None:
    other = made.order("Other")
    assert kim.get(f"/slices/{other.public_id}/models/").status_code == 404
    assert 'id="models-card"' not in page(kim, other)


def test_a_refused_name_stays_in_the_field_with_the_reason(kim: Client, row: Slice) -> None:
    answer = kim.post(f"/slices/{row.public_id}/models/", {"model": "llama 3"})
    text = answer.content.decode()
    assert answer.status_code == 200
    assert 'value="llama 3"' in text
    assert "no blanks" in text


def test_while_typing_the_page_says_what_the_pull_would_meet(kim: Client, row: Slice) -> None:
    answer = kim.post(
        f"/slices/{row.public_id}/models/", {"model": "llama3.1:70b"}, headers={"HX-Request": "true"}
    )
    text = answer.content.decode()
    assert "<html" not in text
    assert "too large" in text
    assert "does not fit on the volume" in text
    assert not ModelPull.objects.exists()


def test_the_dialog_is_the_form_alone(kim: Client, row: Slice) -> None:
    text = kim.get(f"/slices/{row.public_id}/models/", headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in text
    assert 'name="model"' in text


def test_the_same_model_twice_is_told(kim: Client, row: Slice) -> None:
    order(kim, row)
    answer = kim.post(f"/slices/{row.public_id}/models/", {"model": "LLAMA3.2:3b"}, follow=True)
    assert "being fetched already" in answer.content.decode()
    assert ModelPull.objects.count() == 1


# Cancelling


@pytest.fixture
def pull(made: World, row: Slice) -> ModelPull:
    return pulls.place(made.kim, row, "llama3.2:3b")[0]


def cancel(client: Client, pull: ModelPull) -> int:
    status = client.post(f"/pulls/{pull.public_id}/cancel/").status_code
    pull.refresh_from_db()
    return status


def test_cancelling_is_asked_for(kim: Client, pull: ModelPull) -> None:
    assert (cancel(kim, pull), pull.intent) == (302, "cancel")
    assert "being cancelled" in page(kim, pull.slice)


def test_a_team_mate_cancels_too(lee: Client, pull: ModelPull) -> None:
    assert (cancel(lee, pull), pull.intent) == (302, "cancel")


def test_nobody_else_cancels(robin: Client, pull: ModelPull) -> None:
    assert (cancel(robin, pull), pull.intent) == (404, "run")
    assert (cancel(Client(), pull), pull.intent) == (302, "run")


def test_what_has_ended_is_told_so(kim: Client, pull: ModelPull) -> None:
    finish(pull, "done")
    assert "nothing to cancel" in kim.post(f"/pulls/{pull.public_id}/cancel/", follow=True).content.decode()


# List, delete, check


@pytest.mark.parametrize("action", ["list", "delete", "check"])
def test_members_act_on_models_and_nobody_else(
    made: World, row: Slice, kim: Client, lee: Client, robin: Client, action: str
) -> None:
    on_volume(row, llama3_2__3b=2 * GIB)
    address = f"/slices/{row.public_id}/models/{action}/"
    assert Client().post(address, {"model": "llama3.2:3b"})["Location"].startswith("/login/")
    assert robin.post(address, {"model": "llama3.2:3b"}).status_code == 404
    assert kim.get(address).status_code == 405
    assert not ModelPull.objects.exists()
    for client in (kim, lee):
        assert client.post(address, {"model": "llama3.2:3b"}).status_code == 302
    assert ModelPull.objects.get().mode == action


def test_an_unknown_action_is_not_there(kim: Client, row: Slice) -> None:
    assert kim.post(f"/slices/{row.public_id}/models/eat/").status_code == 404


def test_a_refusal_is_shown_on_the_slice(kim: Client, row: Slice) -> None:
    on_volume(row)
    answer = kim.post(f"/slices/{row.public_id}/models/check/", {"model": "qwen3:4b"}, follow=True)
    assert "is not on the volume" in answer.content.decode()


# The card


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_card_in_every_state_has_no_hole(
    kim: Client, made: World, row: Slice, pull: ModelPull, language: str
) -> None:
    on_volume(row, llama3_2__1b=GIB, qwen3__4b=3 * GIB)
    ModelCheck.objects.create(slice=row, model="qwen3:4b", size=100, size_vram=75, context_length=4096)
    text = page(kim, row, language)
    for expected in ("llama3.2:1b", "1 GiB", "75 %", "4 GiB"):
        assert expected in text
    assert "%(" not in text
    finish(pull, "volume_full", sums=(1, 2_019_377_376))
    again = page(kim, row, language)
    assert "%(" not in again
    assert ("1.88 GiB" if language == "en" else "1,88 GiB") in again


def test_a_pull_without_room_says_how_much_is_missing(kim: Client, row: Slice, pull: ModelPull) -> None:
    ModelPull.objects.filter(pk=pull.pk).update(applied_generation=1, action="applied")
    observe(job(pull), failed_create(pull, EXCEEDED))
    text = page(kim, row)
    assert "Waiting for room in the project" in text
    assert "0.1 CPU missing" in text


def test_never_listed_is_not_the_same_as_empty(kim: Client, row: Slice) -> None:
    assert "There is no model on the volume." not in page(kim, row)
    on_volume(row)
    assert "There is no model on the volume." in page(kim, row)


def test_a_slice_that_does_not_run_offers_nothing(kim: Client, row: Slice) -> None:
    not_seen(row)
    assert 'id="act-pull"' not in page(kim, row)


def test_no_page_offers_a_shell(kim: Client, row: Slice) -> None:
    text = page(kim, row).lower()
    assert "exec" not in text
    assert "shell" not in text.replace("powershell", "")


@pytest.mark.parametrize("action", ["stop", "restart", "release"])
def test_what_a_person_would_lose_is_said_before(
    kim: Client, row: Slice, pull: ModelPull, action: str
) -> None:
    ModelPull.objects.filter(pk=pull.pk).update(percent=42.0)
    text = kim.get(f"/slices/{row.public_id}/{action}/").content.decode()
    assert "A download is thrown away" in text
    assert "42 %" in text
    finish(pull, "done")
    assert "thrown away" not in kim.get(f"/slices/{row.public_id}/{action}/").content.decode()


def test_the_poll_brings_the_card_only_when_it_has_changed(kim: Client, row: Slice, pull: ModelPull) -> None:
    text = page(kim, row)
    seen = " ".join(
        f"{name}:{version}" for name, version in re.findall(r'id="([\w-]+)" data-version="(\w+)"', text)
    )
    assert "models:" in seen
    address = f"/slices/{row.public_id}/"
    quiet = kim.get(address, headers={"HX-Request": "true", "X-Seen": seen})
    assert 'id="models"' not in quiet.content.decode()
    ModelPull.objects.filter(pk=pull.pk).update(percent=12.5, completed=1, total=8)
    changed = kim.get(address, headers={"HX-Request": "true", "X-Seen": seen}).content.decode()
    assert "12.5 %" in changed


def test_a_good_check_leaves_what_was_told_of_the_pull_and_a_deletion_takes_it_away(
    kim: Client, made: World, row: Slice, pull: ModelPull
) -> None:
    finish(pull, "done")
    on_volume(row, llama3_2__3b=2 * GIB)
    finish(pulls.check(made.kim, row, "llama3.2:3b"), "done")
    assert "llama3.2:3b is on the volume." in page(kim, row)
    finish(pulls.delete_model(made.kim, row, "llama3.2:3b"), "done")
    assert "llama3.2:3b is on the volume." not in page(kim, row)


@pytest.mark.parametrize(("told", "cuda"), [("12.8", True), ("580.95.05", False), ("", False)])
def test_the_version_that_a_log_tells_is_named_for_what_it_is(told: str, cuda: bool) -> None:
    assert SliceReceipt(driver=told).driver_is_cuda is cuda
