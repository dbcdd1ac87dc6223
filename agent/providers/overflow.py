"""How providers say that a request does not fit: the window, the largest answer, images; and the
numbers they give.

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


_OUTPUT_LIMITS = (
    r"supports at most ([\d,]+) (?:completion|output) tokens",
    r"max_tokens: [\d,]+ > ([\d,]+), which is the maximum",
    r"max_tokens`? must be less than or equal to `?([\d,]+)",
    r"valid range of max_tokens is \[\d+, ?([\d,]+)\]",
)
_NO_IMAGES = (
    r"image (?:input|content)s? (?:is|are) not supported|support(?:s|ing)? image input"
    r"|does not support (?:image|vision|multimodal)|not a multimodal model"
    r"|image_url.{0,30}only supported by certain models|unknown variant `image_url`"
)


def output_limit(text: str) -> int | None:
    """Return the largest answer that a refusal names as the model's, None when it names none."""
    for pattern in _OUTPUT_LIMITS:
        match = re.search(pattern, text, re.IGNORECASE)
        if match is not None:
            return int(match[1].replace(",", ""))
    return None


def says_no_images(text: str) -> bool:
    """Return whether a refusal means that the model takes no images."""
    return re.search(_NO_IMAGES, text, re.IGNORECASE | re.DOTALL) is not None


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
