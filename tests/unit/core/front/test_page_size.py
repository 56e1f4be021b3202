"""The longest page of browsing fits into a frame: its texts are bounded by what a partition keeps of them."""

from __future__ import annotations

import numpy as np

from dueq import limits
from dueq_codecs.frames import encode
from dueq_codecs.groups import GROUP_BYTES_MAX
from dueq_codecs.messages import BrowseReply, Code
from dueq_codecs.records import REASON_BYTES_MAX


def test_a_page_whose_rows_have_the_longest_texts_fits_into_a_frame() -> None:
    rows = limits.BROWSE_ROWS_MAX
    long, short, place = (
        np.zeros(rows, np.uint64),
        np.zeros(rows, np.uint32),
        np.arange(rows, dtype=np.uint16),
    )
    page = BrowseReply(
        1, Code.OK, wait_at=long, first=long, due=long, sequence=long, row=place, size=short, crc=short, attempt=place,
        keyed=np.zeros(rows, np.uint8), upload=long, body_size=short, rank=place, version=long, expires=long,
        died_at=long, of=long, reason=place, reasons=(REASON_BYTES_MAX * "r",) * rows,
        group=place, groups=(GROUP_BYTES_MAX * "g",) * rows,
        heading=place, headings=(limits.HEADINGS_BYTES_MAX // rows * "h",) * rows,
    )  # fmt: skip
    assert max(map(len, encode(page, [b""]))) < limits.FRAME_BYTES_MAX
