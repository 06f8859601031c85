"""Answers: JSON in one form, errors in another, each with the status that says whose fault it was."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi import HTTPException as FastHTTPException
from fastapi.exceptions import RequestValidationError
from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fairlead.errors import FairleadError, InputError
from fairlead.live.api.schemas.base import Problem

log = logging.getLogger("fairlead")
RETRY_S = 2
_SHOWN = 5
_WIDTH = 80


class Json(Response):
    """What is not a number becomes null, as JSON has no word for it."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The content as compact JSON bytes."""
        return to_json(content, inf_nan_mode="null")


class Refusal(FastHTTPException):
    """An answer that is not what was asked for."""

    def __init__(self, status: int, error: str, hint: str | None = None, headers: Mapping[str, str] | None = None):
        super().__init__(status, error, headers)
        self.hint = hint


def unavailable(error: FairleadError) -> Refusal:
    """Refuse with 503: it may work in a moment."""
    hint = error.hint or "try again in a moment"
    return Refusal(503, error.message, hint, {"Retry-After": str(RETRY_S)})


def problem(refusal: HTTPException) -> Json:
    """The answer that tells of it."""
    hint = refusal.hint if isinstance(refusal, Refusal) else None
    return Json({"error": _printable(refusal.detail), "hint": hint}, refusal.status_code, refusal.headers)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Refusals that a route may give, for the OpenAPI document; 401, 422 and 503 any may."""
    found: dict[int | str, dict[str, Any]] = {s: {"model": Problem} for s in sorted({401, 422, 503, *statuses})}
    found[503]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "Seconds."}}
    return found


def install(app: FastAPI) -> None:
    """Have the app answer so."""

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 400:  # FastAPI's own word for bytes, numbers and depths that Python's JSON cannot read
            return problem(Refusal(422, "the body is no valid JSON"))
        return problem(error)

    async def unreadable(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return problem(Refusal(422, in_words(error.errors())))

    async def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, FairleadError)
        if isinstance(error, InputError):
            return problem(Refusal(422, error.message, error.hint))
        log.warning("%s %s: %s", request.method, request.url.path, error.message)
        return problem(unavailable(error))

    async def broken(_: Request, error: Exception) -> Response:
        # The server logs it, with the traceback.
        return problem(Refusal(500, f"this should not happen: {type(error).__name__}", "the controller's log has more"))

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, unreadable)
    app.add_exception_handler(FairleadError, failed)
    app.add_exception_handler(Exception, broken)


def in_words(errors: Any) -> str:
    """One sentence that names each field, what was found there and what is wrong with it."""
    parts = [_one(error) for error in errors[:_SHOWN]]
    more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
    return "; ".join(parts) + more


def _one(error: Mapping[str, Any]) -> str:
    where = [str(part)[:_WIDTH] for part in error["loc"]]
    if error["type"] == "json_invalid":
        return f"the body is no valid JSON: {error['ctx']['error']}"
    field = ".".join(where[1:] if where[0] in ("body", "query", "path", "header") else where) or where[0]
    said = error["msg"].removeprefix("Value error, ")
    said = said[:1].lower() + said[1:]
    if error["type"] == "missing":
        return f"{field} is missing"
    shown = repr(error["input"])
    return f"{field}: {said}, found {shown if len(shown) <= _WIDTH else shown[:_WIDTH] + '...'}"


def _printable(text: str) -> str:
    """JSON cannot carry half a character."""
    return str(text).encode("utf-8", "backslashreplace").decode()
