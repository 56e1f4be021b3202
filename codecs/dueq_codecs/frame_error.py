"""The one exception of decoding."""

from __future__ import annotations

from dueq_codecs.messages import Code


class FrameError(ValueError):
    """Bytes from outside are not a frame (or record) of ours.

    Attributes:
        reason: what was seen and what was expected.
        code: how to answer: BAD_FRAME, or WRONG_VERSION when the bytes belong to a version that this build
            does not know.
        request_id: the request to answer, when it could still be read; otherwise 0.
    """

    def __init__(self, reason: str, code: Code = Code.BAD_FRAME, request_id: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.request_id = request_id
