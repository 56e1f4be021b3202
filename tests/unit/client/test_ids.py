"""Texts of many message ids at once."""

from __future__ import annotations

import random

import numpy as np
import pytest

from dueq import ids


@pytest.mark.parametrize("rows", [0, 1, 7, 2_500])
def test_many_ids_of_many_partitions_have_the_texts_of_single_ones(rows: int) -> None:
    chance = random.Random(rows)
    bits = (48, 24, 40, 16)
    drawn = [
        ids.MessageId(*(chance.choice((0, (1 << n) - 1, chance.getrandbits(n))) for n in bits))
        for _ in range(rows)
    ]
    columns = [np.array([each[at] for each in drawn], np.uint64) for at in range(4)]
    found = ids.texts(columns[0], columns[1], columns[2], columns[3].astype(np.uint16))
    assert found == [ids.to_text(each) for each in drawn]
    of_one = ids.texts(columns[0], 0xABCDEF, columns[2], columns[3].astype(np.uint16))
    assert of_one == [ids.to_text(each._replace(uid=0xABCDEF)) for each in drawn]
