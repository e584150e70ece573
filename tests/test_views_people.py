"""Tokens are shown once; members and tokens of others are an owner's business."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from tenants import people
from tenants.models import ApiToken, Membership
from tests.factories import World, person, world
from tests.view_kit import signed_in

TOKENS = "/projects/acme-ai/tokens/"
MEMBERS = "/projects/acme-ai/members/"


@pytest.fixture
def made(db: None) -> World:
    """Two tenants and their people."""
    return world()


@pytest.fixture
def kim(made: World) -> Client:
    """The owner's browser."""
    return signed_in(made.kim)


@pytest.fixture
def lee(made: World) -> Client:
    """The member's browser."""
    return signed_in(made.lee)


class TestTokens:
    """C-19 c: the token in full once, later a prefix of 8 characters."""

    def make(self, client: Client, **values: str) -> str:
        """Make a token in the browser and return it."""
        data = {"name": "ci", "scope": "read", "days": "90", **values}
        html = client.post(TOKENS, data).content.decode()
        found = re.search(r'<pre id="token">([^<]+)</pre>', html)
        assert found, html
        return found[1]

    def test_it_is_shown_once(self, made: World, lee: Client) -> None:
        token = self.make(lee)
        row = ApiToken.find(token)
        assert row is not None
        assert (row.user, row.tenant, row.scope) == (made.lee, made.acme, "read")
        assert row.expires_at is not None
        assert (row.expires_at - row.created_at).days == 90
        later = lee.get(TOKENS)
        assert token not in later.content.decode()
        assert f"{token[:8]}…" in later.content.decode()
        assert lee.post(TOKENS, {"name": "", "scope": "read"})["Cache-Control"] == "no-store"

    def test_the_form_sent_twice_makes_one(self, lee: Client) -> None:
        self.make(lee)
        again = lee.post(TOKENS, {"name": "ci", "scope": "read", "days": ""}).content.decode()
        assert "You have a token “ci” already" in again
        assert ApiToken.objects.count() == 1

    def test_without_a_name_it_says_so_beside_the_field(self, lee: Client) -> None:
        html = lee.post(TOKENS, {"name": " ", "scope": "read", "days": ""}).content.decode()
        assert 'href="#id_name"' in html
        assert "Give the token a name." in html

    def test_a_member_sees_its_own_an_owner_all(self, made: World, kim: Client, lee: Client) -> None:
        self.make(kim, name="of kim")
        self.make(lee, name="of lee")
        assert "of kim" not in lee.get(TOKENS).content.decode()
        html = kim.get(TOKENS).content.decode()
        assert "of kim" in html
        assert "of lee" in html

    def test_who_may_end_one(self, made: World, kim: Client, lee: Client) -> None:
        mine, theirs = self.make(lee, name="of lee"), self.make(kim, name="of kim")
        for token in (mine, theirs):
            row = ApiToken.objects.get(prefix=token[:8])
            path = f"{TOKENS}{row.public_id}/revoke/"
            assert Client().post(path)["Location"].startswith("/login/")
            assert signed_in(made.robin).post(path).status_code == 404
            assert lee.get(path).status_code == 405
        assert lee.post(f"{TOKENS}{ApiToken.objects.get(name='of kim').public_id}/revoke/").status_code == 403
        assert ApiToken.find(theirs) is not None
        kim.post(f"{TOKENS}{ApiToken.objects.get(name='of lee').public_id}/revoke/")
        assert ApiToken.find(mine) is None


class TestMembers:
    """Everybody of the tenant sees the list; an owner changes it."""

    def test_an_owner_adds_somebody(self, made: World, kim: Client) -> None:
        person("nele@else.example", made.birch, "member")
        answer = kim.post(MEMBERS, {"username": "Nele@else.example", "role": "member"}, follow=True)
        assert "nele@else.example is a member now." in answer.content.decode()
        assert Membership.objects.filter(tenant=made.acme, user__username="nele@else.example").exists()

    @pytest.mark.parametrize(
        ("name", "sentence"),
        [
            ("nobody@else.example", "There is no account"),
            ("lee@acme.example", "is a member already"),
            ("", "Whom"),
        ],
    )
    def test_what_cannot_be_added_is_said(self, kim: Client, name: str, sentence: str) -> None:
        html = kim.post(MEMBERS, {"username": name, "role": "member"}).content.decode()
        assert sentence in html
        assert 'href="#id_username"' in html

    def test_a_member_cannot(self, made: World, lee: Client) -> None:
        assert "Add a member" not in lee.get(MEMBERS).content.decode()
        assert lee.post(MEMBERS, {"username": "robin@birch.example", "role": "owner"}).status_code == 403
        own = Membership.objects.get(user=made.lee)
        assert lee.post(f"{MEMBERS}{own.pk}/", {"role": "owner"}).status_code == 403
        assert signed_in(made.robin).post(f"{MEMBERS}{own.pk}/", {"remove": "1"}).status_code == 404
        assert Client().post(f"{MEMBERS}{own.pk}/")["Location"].startswith("/login/")

    def test_an_owner_of_another_tenant_cannot_be_reached_through_mine(
        self, made: World, kim: Client
    ) -> None:
        other = Membership.objects.get(user=made.robin)
        assert kim.post(f"{MEMBERS}{other.pk}/", {"remove": "1"}).status_code == 404

    def test_the_last_owner_stays(self, made: World, kim: Client) -> None:
        own = Membership.objects.get(user=made.kim)
        for data in ({"role": "member"}, {"remove": "1"}):
            html = kim.post(f"{MEMBERS}{own.pk}/", data, follow=True).content.decode()
            assert "A tenant needs an owner." in html
        own.refresh_from_db()
        assert own.role == "owner"

    def test_a_second_owner_lets_the_first_go(self, made: World, kim: Client) -> None:
        kim.post(f"{MEMBERS}{Membership.objects.get(user=made.lee).pk}/", {"role": "owner"})
        answer = kim.post(f"{MEMBERS}{Membership.objects.get(user=made.kim).pk}/", {"remove": "1"})
        assert answer["Location"] == "/"
        assert kim.get(MEMBERS).status_code == 404

    def test_tokens_end_with_the_membership(self, made: World, kim: Client) -> None:
        _row, token = people.issue_token(made.lee, made.acme, "ci", "write", None)
        kim.post(f"{MEMBERS}{Membership.objects.get(user=made.lee).pk}/", {"remove": "1"})
        assert ApiToken.find(token) is None
        people.add_member(made.acme, "lee@acme.example", "member")
        assert ApiToken.find(token) is None
