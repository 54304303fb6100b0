from __future__ import annotations

import pytest

from sparkps.testing import FakeTime


def test_time_moves_only_when_it_is_told_to_and_never_back():
    time = FakeTime(3.0)
    assert time() == 3.0
    assert time.advance(0.5) == time() == 3.5
    with pytest.raises(ValueError, match="does not go back"):
        time.advance(-1)
