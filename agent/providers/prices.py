"""What a call costs in US dollars: the user's own prices first, then the bundled price list.

An unknown price is None, never 0. The list takes long to load, so it is loaded at the first price.
"""

from __future__ import annotations

from agent.providers.endpoint import Endpoint, bare_url
from agent.providers.protocol import TokenUsage

OwnPrices = tuple[tuple[str, float, float] | tuple[str, float, float, float, float], ...]
"""(model, dollars a million input tokens, dollars a million output tokens), and perhaps those of
input tokens that are read from the provider's cache and of those that are written to it."""

_MILLION = 1_000_000


def price_of(usage: TokenUsage, model: str, endpoint: Endpoint, own: OwnPrices) -> float | None:
    """Return the cost of one call of `model` at `endpoint`, or None when its price is unknown.

    A model's name alone is no price: what an unknown host asks for it is unknown.
    """
    for name, input_price, output_price, *cache_prices in own:
        if name == model:
            read_price, write_price = cache_prices or (input_price, input_price)
            cost = (usage.prompt - usage.cached - usage.cache_write) * input_price
            cost += usage.cached * read_price + usage.cache_write * write_price
            return (cost + usage.completion * output_price) / _MILLION
    return None if endpoint.is_loopback else _listed_price(usage, model, endpoint)


def _listed_price(usage: TokenUsage, model: str, endpoint: Endpoint) -> float | None:
    from genai_prices import Usage, calc_price

    counted = Usage(
        input_tokens=usage.prompt,
        output_tokens=usage.completion,
        cache_read_tokens=usage.cached,
        cache_write_tokens=usage.cache_write,
    )
    try:
        price = calc_price(counted, model_ref=model, provider_api_url=bare_url(endpoint.base_url))
    except LookupError:
        return None
    return float(price.total_price)
