"""The one error tree; every message is one line that a person can act on.

HermesError
|- UsageError (ValueError)              wrong arguments                         exit 2
|  |- SettingsError                     a settings key or value is wrong
|  `- UndoRefused                       a pass or a message cannot be taken back
|- StoreError                           the store cannot be read or written     exit 5
|  |- StoreBusy                         another process held the write lock too long
|  |- SchemaTooNew                      written by a newer version
|  |- UnknownSession (LookupError)      no such session, or the name is ambiguous  exit 2
|  |- UnknownPass (LookupError)         no such compaction pass                    exit 2
|  |- LeaseLost                         a pass no longer holds its lease
|  |- PassRefused                       the fence was closed before the commit
|  `- PassSuperseded                    the view changed under a pass
|- ProviderError                        a model call failed                     exit 3
|  |- AuthError, QuotaError, RateError, OverloadError, ContextOverflow,
|  |  ContentFiltered, RequestRefused, NetworkError, CallTimeout (TimeoutError),
|  `- CallStalled (TimeoutError), ModelUnavailable
|- CallCancelled                        a model call was stopped by us          exit 130
|- ContextCannotFit                     nothing can be removed any more         exit 4
|- SummaryFailure                       a summariser gave no usable text
|  |- SummaryEmpty                      nothing, or only white space
|  |  `- SummaryReasoningOnly           only reasoning
|  `- SummaryTruncated, SummaryDeclined
`- ToolError                            a tool failed; its text goes to the model
   `- ToolUsageError (UsageError)       wrong arguments, from a model or a person  exit 2
"""

from __future__ import annotations

from typing import ClassVar


class HermesError(Exception):
    """Base of everything that this project raises on purpose.

    `exit_code` is what the command line ends with; `failure_class` is the stable word that
    events, the ledger and logs carry instead of the message.
    """

    exit_code: ClassVar[int] = 1
    failure_class: ClassVar[str] = "other"


class UsageError(HermesError, ValueError):
    """Wrong arguments from a person or a caller."""

    exit_code = 2
    failure_class = "usage"


class SettingsError(UsageError):
    """A settings key is unknown or its value is out of range."""

    failure_class = "settings"


class UndoRefused(UsageError):
    """A pass or a message cannot be taken back as things stand; the message says why."""

    failure_class = "undo_refused"


class StoreError(HermesError):
    """The store cannot be read or written."""

    exit_code = 5
    failure_class = "store"


class StoreBusy(StoreError):
    """Another process held the write lock for longer than the store waits."""

    failure_class = "store_busy"


class SchemaTooNew(StoreError):
    """The database was written by a newer version of this program."""


class UnknownSession(StoreError, LookupError):
    """No session has that id, id prefix or title, or several have."""

    exit_code = 2
    failure_class = "unknown_session"


class UnknownPass(StoreError, LookupError):
    """No compaction pass has that id."""

    exit_code = 2
    failure_class = "unknown_pass"


class LeaseLost(StoreError):
    """The fencing token of a pass is no longer the newest one of its conversation."""

    failure_class = "session_ownership_lost"


class PassRefused(StoreError):
    """The fence was closed (stop, ceiling, revoked) before the commit began."""

    failure_class = "commit_fence_cancelled"


class PassSuperseded(StoreError):
    """A place that the pass would cover or mask is no longer as it was planned."""

    failure_class = "attempt_superseded"


class ProviderError(HermesError):
    """A model call failed.

    `route` names the endpoint and model for people; `status` is the HTTP status or None;
    `retry_after_s` is what the provider asked for, or None.
    """

    exit_code = 3
    failure_class = "provider"

    def __init__(
        self,
        message: str,
        *,
        route: str = "",
        status: int | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.route = route
        self.status = status
        self.retry_after_s = retry_after_s


class AuthError(ProviderError):
    """401 or 403: the key is missing, wrong or not allowed."""

    failure_class = "auth"


class QuotaError(ProviderError):
    """402, or 429 that names an exhausted quota: retrying cannot help."""

    failure_class = "quota"


class RateError(ProviderError):
    """429: too many requests; retry later."""

    failure_class = "rate"


class OverloadError(ProviderError):
    """5xx or 529: the provider is overloaded or failing; retry later."""

    failure_class = "overload"


class ContextOverflow(ProviderError):
    """The request is larger than the model's window.

    `request_tokens` and `limit_tokens` are the provider's own numbers, None when it gave none.
    """

    failure_class = "context_overflow"

    def __init__(
        self,
        message: str,
        *,
        route: str = "",
        status: int | None = None,
        request_tokens: int | None = None,
        limit_tokens: int | None = None,
    ) -> None:
        super().__init__(message, route=route, status=status)
        self.request_tokens = request_tokens
        self.limit_tokens = limit_tokens


class ContentFiltered(ProviderError):
    """The provider declined to answer because of its content rules."""

    failure_class = "content_filter"


class RequestRefused(ProviderError):
    """400, 404, 413, 422 and the like that are not an overflow: sending it again cannot help."""

    failure_class = "refused"


class NetworkError(ProviderError):
    """No connection, name resolution failed, or the connection broke."""

    failure_class = "network"


class CallTimeout(ProviderError, TimeoutError):
    """A connect, first-token or total limit passed; retrying may help."""

    failure_class = "timeout"


class CallStalled(ProviderError, TimeoutError):
    """The stream fell silent for longer than the idle limit."""

    failure_class = "stalled"


class ModelUnavailable(ProviderError):
    """The embedded model or its runtime is not installed, or did not start."""

    failure_class = "model_unavailable"


class CallCancelled(HermesError):
    """A model call was ended by our own cancel; not a fault of the provider."""

    exit_code = 130
    failure_class = "cancelled"


class ContextCannotFit(HermesError):
    """What must be sent is larger than the window and nothing can be removed any more."""

    exit_code = 4
    failure_class = "context_cannot_fit"

    def __init__(self, message: str, *, needed_tokens: int, limit_tokens: int) -> None:
        super().__init__(message)
        self.needed_tokens = needed_tokens
        self.limit_tokens = limit_tokens


class SummaryFailure(HermesError):
    """A summariser gave no text that can be used; the view stays as it is."""

    failure_class = "summary_generation_failed"


class SummaryEmpty(SummaryFailure):
    """The summary is empty or white space."""

    failure_class = "summary_empty_content_failure"


class SummaryReasoningOnly(SummaryEmpty):
    """The summariser only reasoned; reasoning is never taken as the summary."""


class SummaryTruncated(SummaryFailure):
    """The summary stopped at the output limit, or the stream ended without a finish."""

    failure_class = "summary_truncated_failure"


class SummaryDeclined(SummaryFailure):
    """The model declined to summarise."""

    failure_class = "summary_generation_aborted"


class ToolError(HermesError):
    """A tool cannot do what was asked; the message is the tool result that the model reads."""

    failure_class = "tool"


class ToolUsageError(ToolError, UsageError):
    """Wrong arguments of something that models and people call alike, such as recall."""
