from __future__ import annotations

import numpy as np

from sparkps.consistency.ledger import Ledger
from sparkps.kernels.ledger import applied_up_to, check
from sparkps.kernels.partitions import PartitionArray
from sparkps.spec import NOWHERE, Position


def accept(ledger, clock, seq, piece, *, staged):
    table = PartitionArray(2, 1, "float32", [("float32", False, 0.0)])
    table.open(1)
    slices = np.array([[1, piece, 0, -1, -1, -1]], np.int64)
    status = np.empty(1, np.uint8)
    assert check(table, ledger.array, slices, clock, seq, None, staged, status) == 1


def test_a_new_ledger_knows_nothing():
    ledger = Ledger(2)
    assert (ledger.accepted(0), ledger.applied(0), ledger.log(0)) == (NOWHERE, NOWHERE, 0)


def test_it_reads_what_the_kernel_writes():
    ledger = Ledger(2)
    accept(ledger, 3, 2**31 - 1, 2**32 - 1, staged=False)
    assert ledger.accepted(1) == ledger.applied(1) == Position(3, 2**31 - 1, 2**32 - 1)
    assert ledger.log(1) == 1


def test_staged_positions_are_applied_by_the_seal():
    ledger = Ledger(2)
    accept(ledger, 0, 1, 2, staged=True)
    accept(ledger, 1, 0, 0, staged=True)
    assert ledger.applied(1) == NOWHERE
    applied_up_to(ledger.array, np.array([1], np.int32), 1)
    assert ledger.applied(1) == Position(0, 1, 2)
    assert ledger.accepted(1) == Position(1, 0, 0)


def test_a_checkpoint_keeps_what_is_applied():
    ledger = Ledger(2)
    accept(ledger, 0, 1, 2, staged=False)
    accept(ledger, 1, 0, 0, staged=True)
    image = ledger.image(1)
    fresh = Ledger(2)
    fresh.restore(1, tuple(image["applied"]), image["log"])
    assert fresh.accepted(1) == fresh.applied(1) == Position(0, 1, 2)
    fresh.restore(0, NOWHERE, 0)
    assert fresh.accepted(0) == NOWHERE
