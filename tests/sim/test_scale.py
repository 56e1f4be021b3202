"""Limits that are made small stay in proportion: what is asserted of them in life holds in a storm, too."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from dueq import limits
from dueq_chaos.sim.environment import scale

_ASSERTIONS = [
    node for node in ast.parse(Path(limits.__file__).read_text()).body if isinstance(node, ast.Assert)
]


@pytest.mark.parametrize("group", [*scale.SMALL, {k: v for group in scale.SMALL for k, v in group.items()}])
def test_what_is_asserted_of_limits_holds_of_small_ones(group: Mapping[str, int]) -> None:
    assert _ASSERTIONS
    broken = [
        ast.unparse(each.test)
        for each in _ASSERTIONS
        if not eval(compile(ast.Expression(each.test), limits.__file__, "eval"), vars(limits) | dict(group))
    ]
    assert not broken
