"""Tool results too large for a row: kept whole and compressed, shown as an excerpt."""

from __future__ import annotations

from agent.base.errors import StoreError
from agent.base.excerpt import excerpt_chars
from agent.base.messages import Message
from agent.base.record import dataclass
from agent.sessions import statements as sql
from agent.sessions.sqlite import Connection

INLINE_BYTES = 64 * 1024
"""The largest tool result, in UTF-8 bytes, that stays inside its row."""
HEAD_CHARS = 6_000
TAIL_CHARS = 2_000
_PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Blob:
    """A text on its way into `blobs`; `data` is compressed, `size` counts plain bytes."""

    sha256: str
    data: bytes
    size: int


def pack_result(message: Message) -> Blob | None:
    """Return the blob of a tool result that is too large for a row, else None."""
    content = message.get("content")
    if message.get("role") != "tool" or not isinstance(content, str):
        return None
    if len(content) * 4 <= INLINE_BYTES:
        return None
    data = content.encode()
    if len(data) <= INLINE_BYTES:
        return None
    import hashlib

    import zstandard

    return Blob(
        hashlib.sha256(data).hexdigest(),
        zstandard.ZstdCompressor().compress(data),
        len(data),
    )


def show_excerpt(content: str, seq: int) -> str:
    """Return what stands in the row of a blob."""
    return excerpt_chars(content, head=HEAD_CHARS, tail=TAIL_CHARS, seq=seq)


def store_blob(connection: Connection, blob: Blob) -> None:
    """Keep a blob; one with the same bytes is kept once."""
    connection.execute(sql.NEW_BLOB, (blob.sha256, blob.data, blob.size))


def read_blob(connection: Connection, sha256: str) -> bytes:
    """Return the plain bytes of a blob. Raises: StoreError: there is none."""
    import zstandard

    data: bytes = zstandard.ZstdDecompressor().decompress(packed_blob(connection, sha256).data)
    return data


def packed_blob(connection: Connection, sha256: str) -> Blob:
    """Return a blob as it is kept. Raises: StoreError: there is none."""
    row = connection.execute(sql.BLOB, (sha256,)).fetchone()
    if row is None:
        raise StoreError(f"no blob {sha256!r} in the store; run `hermes doctor`")
    return Blob(sha256, *row)


def is_true(blob: Blob) -> bool:
    """Return whether the data unpacks to `size` bytes with that hash; none of it is kept."""
    import hashlib

    import zstandard

    digest, size = hashlib.sha256(), 0
    try:
        if zstandard.frame_content_size(blob.data) != blob.size:
            return False
        with zstandard.ZstdDecompressor().stream_reader(blob.data) as reader:
            while size <= blob.size and (piece := reader.read(_PIECE_BYTES)):
                digest.update(piece)
                size += len(piece)
    except zstandard.ZstdError:
        return False
    return size == blob.size and digest.hexdigest() == blob.sha256


def whole(connection: Connection, message: Message) -> Message:
    """Return the message with its blob, if it has one, in place of the excerpt.

    The same dict comes back changed: callers pass one that they have just decoded.
    """
    sha256 = message.pop("_blob", None)
    if sha256 is not None:
        message["content"] = read_blob(connection, sha256).decode()
    return message
