"""Asking a provider how many tokens a request has; such a question costs nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pairtrial.harness.gateway import Family, Request, Route

COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking")


def count_tokens(route: Route, request: Request, environment: Mapping[str, str]) -> int | None:
    """Input tokens of a request by the provider's own count; None where it has no such question or does not answer."""
    import httpx

    from pairtrial.harness.gateway.app import credential_header

    if route.family is Family.ANTHROPIC:
        path, field = "/v1/messages/count_tokens", "input_tokens"
        body: dict[str, Any] = {key: request.body[key] for key in COUNTED if key in request.body}
    elif route.family is Family.GEMINI:
        path, field = f"/v1beta/models/{request.model}:countTokens", "totalTokens"
        body = {"generateContentRequest": {"model": f"models/{request.model}", **request.body}}
    else:
        return None
    headers = {"anthropic-version": "2023-06-01"} if route.family is Family.ANTHROPIC else {}
    if route.credential is not None:
        name, value = credential_header(route.family, route.credential, environment.get(route.credential, ""))
        headers[name] = value
    try:
        answer = httpx.post(route.endpoint + path, json=body, headers=headers, timeout=60, trust_env=False)
        found = answer.json().get(field) if answer.status_code == 200 else None
    except (httpx.HTTPError, ValueError):
        return None
    return found if isinstance(found, int) else None
