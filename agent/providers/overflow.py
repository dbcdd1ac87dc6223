"""How providers say that a request does not fit their window, and the numbers they give.

Texts of OpenAI, OpenRouter, vLLM, llama.cpp, Anthropic, Google, Mistral, xAI, Copilot, Bedrock,
Groq and TGI; every one is a case in the tests. Patterns are compiled at the first error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REQUEST = r"(?P<request>\d[\d,]*)"
_LIMIT = r"(?P<limit>\d[\d,]*)"

_ASKED = r"(?:resulted in|requested(?: about)?|request (?:has|contains))"

_NUMBERS = (
    rf"maximum context length (?:is|of) {_LIMIT}.*?{_ASKED}\s+{_REQUEST}",
    rf"maximum prompt length is {_LIMIT}.*?contains {_REQUEST}",
    rf"length {_REQUEST}\).*?maximum model length of {_LIMIT}",
    rf"{_REQUEST} tokens\) exceeds the available context size \({_LIMIT}",
    rf"prompt is too long: {_REQUEST} tokens > {_LIMIT}",
    rf"context limit: {_REQUEST} \+ (?P<output>\d[\d,]*) > {_LIMIT}",
    rf"token count (?:of )?\(?{_REQUEST}\)? exceeds .*?{_LIMIT}",
    rf"prompt contains {_REQUEST} tokens.*?model with {_LIMIT}",
    rf"must be <= {_LIMIT}\. given: {_REQUEST}",
    rf"maximum context length (?:is|of) {_LIMIT}",
)

_SIGNS = (
    r"context_length_exceeded|exceed_context_size|model_max_prompt_tokens_exceeded|string too long"
    r"|maximum context length|maximum model length|maximum prompt length"
    r"|context (?:window|length|size|limit)|prompt (?:is )?too long|input (?:is )?too long"
    r"|exceeds the maximum number of tokens|reduce the length of (?:the|your) (?:messages|prompt)"
    r"|token count .{0,40}exceeds|too large for model with|request_too_large"
    r"|`inputs` tokens \+ `max_new_tokens`"
)


def says_overflow(words: str) -> bool:
    """Return whether an error's codes and text mean that the request is larger than the window."""
    return re.search(_SIGNS, words, re.IGNORECASE) is not None


def overflow_numbers(text: str, fields: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return (tokens of the request, tokens of the window) as far as the error names them.

    An output size that the provider adds to the request is added here too.
    """
    request, limit = fields.get("n_prompt_tokens"), fields.get("n_ctx")
    if isinstance(request, int) and isinstance(limit, int):
        return request, limit
    for pattern in _NUMBERS:
        match = re.search(pattern, text, re.IGNORECASE | re.DOTALL)
        if match is not None:
            found = {name: int(value.replace(",", "")) for name, value in match.groupdict().items()}
            asked = found.get("request")
            return None if asked is None else asked + found.get("output", 0), found["limit"]
    return None, None
