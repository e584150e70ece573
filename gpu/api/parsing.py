"""How bodies and the form of an answer are read."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

PROBLEM_TYPE = "application/problem+json"


class StrictJSONParser(JSONParser):
    """JSON that can be written as UTF-8 again: no half of a surrogate pair, neither in a text nor in a name."""

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        """Return the body; raises ParseError, and RequestDataTooBig before anything is read."""
        request = (parser_context or {}).get("request")
        most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        if request is not None and int(request.META.get("CONTENT_LENGTH") or 0) > most:
            raise RequestDataTooBig
        body = super().parse(stream, media_type, parser_context)
        try:
            json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ParseError from error
        return body


class MergePatchParser(StrictJSONParser):
    """JSON merge patch."""

    media_type = "application/merge-patch+json"


class Negotiation(DefaultContentNegotiation):
    """Who asks for problems as problem+json, or for nothing, gets JSON."""

    def get_accept_list(self, request: Request) -> list[str]:
        """Return the media types asked for."""
        asked = super().get_accept_list(request)
        return [text.replace(PROBLEM_TYPE, "application/json") for text in asked] or ["*/*"]
