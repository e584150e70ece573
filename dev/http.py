"""A client of the portal that keeps its connection, for faults and bench: no redirects, no retries."""

from __future__ import annotations

import http.client
import json
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit


@dataclass(frozen=True)
class Answer:
    """Status, headers, body, and the seconds it took."""

    status: int
    headers: dict[str, str]
    text: str
    took: float

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.text)


class Browser:
    """One connection to the portal, with cookies or a token. Raises OSError and http.client.HTTPException."""

    def __init__(self, url: str, token: str = "", timeout: float = 20.0) -> None:
        self._address = urlsplit(url).netloc
        self._timeout = timeout
        self._token = token
        self._connection: http.client.HTTPConnection | None = None
        self.cookies: dict[str, str] = {}

    def call(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send one request; a dict is sent as JSON, bytes as they are."""
        sent = {"Accept": "*/*"} | (headers or {})
        if self._token:
            sent["Authorization"] = f"Bearer {self._token}"
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        began = time.perf_counter()
        connection = self._connection or http.client.HTTPConnection(self._address, timeout=self._timeout)
        self._connection = None
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            text = response.read().decode()
        except BaseException:
            connection.close()
            raise
        if not response.will_close:
            self._connection = connection
        for line in response.headers.get_all("Set-Cookie") or []:
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name] = value
        return Answer(response.status, dict(response.headers), text, time.perf_counter() - began)

    def sign_in(self, user: str, password: str) -> None:
        """Sign in as a browser does."""
        page = self.call("GET", "/login/").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        form = {"username": user, "password": password, "csrfmiddlewaretoken": token[1] if token else ""}
        answer = self.call(
            "POST",
            "/login/",
            urlencode(form).encode(),
            {
                "Content-Type": "application/x-www-form-urlencoded",
                "Referer": f"http://{self._address}/login/",
            },
        )
        if answer.status != 302:
            raise RuntimeError(f"sign-in of {user}: {answer.status}")
