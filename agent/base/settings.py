"""Settings as plain frozen records: what the runtime takes. Reading files and the environment
is `agent/settings.py`, which only surfaces call. A key stands here once it has an effect.
"""

from __future__ import annotations

from dataclasses import field

from agent.base.record import dataclass


@dataclass(frozen=True)
class RouteSettings:
    """One route to fall back on; what is empty or 0 is taken as `model` has it, for the same
    endpoint the key too."""

    name: str = ""
    """Model id."""
    base_url: str = ""
    """Endpoint."""
    api_key: str = field(default="", repr=False)
    """Key of that endpoint."""
    api_mode: str = ""
    """Wire, as in `model.api_mode`."""
    context_length: int = 0
    """Window in tokens; 0 takes the catalog's, never that of `model`."""


@dataclass(frozen=True)
class ModelSettings:
    name: str = ""
    """Model id that is sent to the endpoint; empty with no endpoint means the embedded model."""
    base_url: str = ""
    """Root of an OpenAI-compatible API, as in `https://host/v1`; empty means the embedded model."""
    api_key: str = field(default="", repr=False)
    """Bearer key; empty sends no Authorization header."""
    api_mode: str = "chat_completions"
    """Wire: `chat_completions`, `responses`, `anthropic_messages`, `codex_app_server` (the Codex
    command keeps the conversation), or `local` for the embedded model."""
    context_length: int = 0
    """Window in tokens; 0 takes the catalog's, else 128,000. Smallest 4,096."""
    max_output_tokens: int = 0
    """Tokens reserved for the answer and sent as the limit; 0 means min(4,096, window / 8)."""
    thinking_tokens: int = 0
    """Part of an answer that may be thinking (`anthropic_messages`); 0 asks for none, else 1,024 or
    more. It needs `max_output_tokens` of 1,024 more."""
    command: str = "codex app-server"
    """What is run for `codex_app_server`."""
    tool_support: bool = True
    """Whether tools are offered to this model."""
    image_support: str = "auto"
    """Whether images are sent: `on`, `off`, or `auto` (by the catalog and what the provider says).
    A label stands for what is not sent."""
    fallbacks: tuple[RouteSettings, ...] = ()
    """Routes that are asked, in this order, while the ones before them fail."""
    prices: tuple[tuple[str, float, float] | tuple[str, float, float, float, float], ...] = ()
    """Own prices: (model, dollars a million input tokens, dollars a million output tokens), and
    perhaps those of input tokens read from the provider's cache and of those written to it."""
    connect_timeout_seconds: float = 10.0
    """Limit for making a connection."""
    first_token_timeout_seconds: float = 300.0
    """Limit for the first byte of an answer; 0 disables."""
    idle_timeout_seconds: float = 120.0
    """Limit for silence inside an answer; 0 disables."""
    total_timeout_seconds: float = 1800.0
    """Limit for one whole call; 0 disables."""


@dataclass(frozen=True)
class CompressionSettings:
    enabled: bool = True
    """Off is obeyed on every path, also after an overflow."""
    threshold: float = 0.0
    """Share of U (window less reserved output) at which a pass starts; 0 is the built-in rule."""
    in_place: bool = True
    """Keep the session's id at a summary; false gives the conversation a new session at each one,
    and every older id leads to it."""
    target_ratio: float = 0.50
    """Share of U that a pass brings the request down to."""
    micro_compact: bool = False
    """After a turn, let one finished exchange give way to a short marker at its place."""
    micro_compact_every_n_turns: int = 1
    """How many turns lie between two micro passes."""
    micro_compact_defrag_threshold_tokens: int = 2000
    """Estimated tokens that markers may take before they are rolled up into one."""
    max_attempts: int = 3
    """Passes in one turn after the provider reported an overflow."""
    background: bool = True
    """Prepare passes while the conversation goes on; the embedded model: `local.background`."""
    spend_limit_per_hour: float = 0.0
    """Dollars of summaries in any hour of one conversation, by known prices; 0 sets no limit."""
    codex_app_server_auto: str = "native"
    """Whether the Codex app-server compacts its threads by itself: `native`, or `off`."""
    codex_responses_native: bool = False
    """Let a provider that offers it compact by itself (`responses`, `anthropic_messages`); our own
    passes stay armed."""
    codex_responses_compact_threshold: int = 0
    """Tokens from which on it may; 0 takes 0.9 of where our own pass starts."""
    anthropic_context_editing: str = "off"
    """What the service may leave out of what it reads (`anthropic_messages`): `off`, old tool
    results (`tools`), or thinking of earlier turns too (`all`); our own passes stay armed."""
    context_timeout_seconds: float = 120.0
    """Silence after which a stopped pass counts as stalled; 0 disables that judgement."""
    context_total_ceiling_seconds: float = 600.0
    """Limit for one whole pass; 0 disables."""


@dataclass(frozen=True)
class AuxiliaryCompressionSettings:
    model: str = ""
    """Summary model; empty takes the main model."""
    base_url: str = ""
    """Endpoint of the summary model; empty takes the main endpoint."""
    api_key: str = field(default="", repr=False)
    """Key of that endpoint; empty takes the main key when the endpoint is the main one."""
    context_length: int = 0
    """Window of the summary model; 0 takes the main one on the same route, else the catalog's."""
    fallback_chain: tuple[RouteSettings, ...] = ()
    """Routes that write the summary while the summary model fails; without a summary model of its
    own, empty takes `model.fallbacks`."""
    first_token_timeout_seconds: float = 300.0
    """Limit for the first byte of a summary; 0 disables. Silence and total: `compression`."""


@dataclass(frozen=True)
class AuxiliarySettings:
    compression: AuxiliaryCompressionSettings = field(default_factory=AuxiliaryCompressionSettings)


@dataclass(frozen=True)
class ToolSettings:
    approval: str = "ask"
    """`ask`: each call that writes or executes; `auto`: only execution and anything outside the
    working folder; `off`: nothing is asked."""
    allowed_paths: tuple[str, ...] = ()
    """Folders outside the working folder that file tools may touch."""
    timeout_seconds: float = 120.0
    """Limit for one tool call; 0 disables."""
    max_iterations: int = 90
    """Model calls in one turn."""


@dataclass(frozen=True)
class ContextSettings:
    engine: str = "builtin"
    """Name of a registered context engine (entry-point group `hermes.context_engines`)."""
    recall: bool = True
    """Offer the `recall` tool to models that take tools."""
    pins: bool = True
    """Show standing instructions in every request, those found in user text too."""


@dataclass(frozen=True)
class LocalSettings:
    model_path: str = ""
    """A GGUF file; empty means the bundled SmolLM2."""
    context_length: int = 8192
    """Window of the embedded model in tokens."""
    threads: int = 1
    """Threads for the embedded model."""
    background: bool = False
    """Prepare passes with it in the background too; it has one slot, so answers then wait."""


@dataclass(frozen=True)
class DatabaseSettings:
    url: str = ""
    """Path of the SQLite file; empty means `$HERMES_HOME/state.db`."""


@dataclass(frozen=True)
class TelemetrySettings:
    relay: bool = False
    """Open a Relay scope for each session and turn (extra `relay`)."""
    otel: bool = False
    """Send OpenTelemetry spans and metrics over OTLP (extra `otel`)."""
    otel_endpoint: str = ""
    """Root of an OTLP/HTTP collector; empty takes `OTEL_EXPORTER_OTLP_ENDPOINT`, else
    `http://localhost:4318`."""


@dataclass(frozen=True)
class ServerSettings:
    host: str = "127.0.0.1"
    """Address that `hermes serve` listens on."""
    port: int = 8787
    """Its port; 0 takes a free one."""
    max_turns: int = 8
    """Turns that run at once."""
    max_waiting: int = 16
    """Requests that may wait for one; any beyond get status 429."""
    max_body_bytes: int = 32_000_000
    """Largest body of a request."""
    warm_sessions: int = 64
    """Sessions whose view is kept in memory between turns."""
    shutdown_seconds: float = 20.0
    """How long turns may go on after the server was told to stop."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that clients may use for it, beside its address and localhost."""
    allowed_origins: tuple[str, ...] = ()
    """Sites whose pages may ask, as in `https://chat.example`, beside its own."""


@dataclass(frozen=True)
class ProxySettings:
    context_length: int = 0
    """Window of the upstream's models in tokens; 0 takes what the upstream or the catalog says."""
    recall: bool = False
    """Offer the `recall` tool in conversations that were compacted, and answer its calls here."""
    max_requests: int = 128
    """Requests that are served at once; any beyond get status 429."""


@dataclass(frozen=True)
class Settings:
    """Everything the runtime can be told. Immutable; `dataclasses.replace` makes variants."""

    model: ModelSettings = field(default_factory=ModelSettings)
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    local: LocalSettings = field(default_factory=LocalSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    proxy: ProxySettings = field(default_factory=ProxySettings)
