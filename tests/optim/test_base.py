import dataclasses
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sparkps.errors import InvalidArgument, MalformedRequest, WrongType
from sparkps.optim import (
    FTRL,
    SGD,
    Adam,
    FieldSpec,
    Momentum,
    Optimizer,
    from_spec,
    per_row,
    shrink,
)
from sparkps.spec import InitSpec, OptimizerSpec, TableSpec
from sparkps.wire import userfn


@dataclass(frozen=True)
class Signs(Optimizer):
    """A user's own: steps of one size, every n-th one doubled."""

    size: float = 0.5
    every: int = 2
    label: str = "signs"

    def fields(self):
        return (FieldSpec("seen", per_row=True),)

    def update(self, fields, grads):
        fields["seen"] += 1
        factor = np.where(fields["seen"] % self.every == 0, 2, 1).astype(grads.dtype)
        fields["value"] -= self.size * per_row(factor, grads) * np.sign(grads)


def test_a_users_class_travels_with_its_numbers_and_its_other_fields():
    optimizer = Signs(size=0.25, label="mine")
    spec = optimizer.spec()
    assert spec.source is not None
    assert from_spec(spec, userfn.loads) == optimizer
    # The spec's numbers win: configure changes them alone.
    other = OptimizerSpec(spec.name, (("size", 0.75), ("every", 3.0)), spec.source)
    assert from_spec(other, userfn.loads) == Signs(size=0.75, every=3, label="mine")


def test_a_users_class_with_a_built_ins_name_travels_as_itself():
    mine = dataclass(frozen=True)(type("SGD", (Optimizer,), {"update": SGD.update}))
    assert mine().spec().source is not None
    assert SGD().spec().source is None


def test_numbers_keep_their_types():
    assert Momentum(nesterov=1).nesterov is True
    assert Signs(every=np.float64(3.0)).every == 3
    assert Momentum(nesterov=True).numbers()["nesterov"] == 1.0
    with pytest.raises(InvalidArgument, match=r"every=2.5: must be a whole number"):
        Signs(every=2.5)
    with pytest.raises(InvalidArgument, match="nesterov=2: must be true or false"):
        Momentum(nesterov=2)


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"beta1": 1.0}, "beta1=1.0: must be at least 0 and below 1"),
        ({"l2": -0.1}, "l2=-0.1: must not be negative"),
        ({"eps": 0}, "eps=0: must be above 0"),
        ({"lr": float("nan")}, "lr=nan: must be finite"),
        ({"lr": "1"}, "lr='1': must be a number"),
    ],
)
def test_a_number_out_of_range_is_named(numbers, sentence):
    with pytest.raises(InvalidArgument) as caught:
        Adam(**numbers)
    assert str(caught.value) == sentence


def test_configuring_leaves_the_original_alone():
    before = Adam()
    after = before.configured(lr=0.5)
    assert (before.lr, after.lr, after.beta2) == (0.001, 0.5, 0.999)


def test_an_unknown_built_in_is_a_malformed_request():
    with pytest.raises(MalformedRequest, match="no optimizer 'Adamm'; did you mean 'Adam'"):
        from_spec(OptimizerSpec("Adamm"), userfn.loads)


def test_a_pickle_of_something_else_is_a_malformed_request():
    with pytest.raises(MalformedRequest, match="is a dict"):
        from_spec(OptimizerSpec("X", (), userfn.dumps({})), userfn.loads)


def test_where_pickles_are_refused_the_refusal_passes_through():
    def refuse(data):
        raise PermissionError("no pickles here")

    with pytest.raises(PermissionError):
        from_spec(Signs().spec(), refuse)


def test_ftrl_tables_start_from_zero():
    with pytest.raises(InvalidArgument, match="start from 0"):
        FTRL().check_table(TableSpec("t", init=InitSpec("normal", 0.0, 1.0)))
    FTRL().check_table(TableSpec("t"))


def test_ftrl_solves_for_the_state_of_a_replaced_value():
    optimizer = FTRL(l1=0.5, l2=0.1)
    value = np.array([0.0, 0.3, -2.0])
    fields = {"value": value, "z": np.ones(3), "n": np.array([0.0, 4.0, 9.0])}
    optimizer.replaced(fields)
    optimizer.update(fields, np.zeros(3))
    np.testing.assert_allclose(fields["value"], [0.0, 0.3, -2.0], rtol=1e-12)
    assert fields["n"].tolist() == [0, 4, 9]


def test_adam_matches_a_scalar_loop_written_from_the_paper():
    w, m, v = 0.5, 0.0, 0.0
    fields = {"value": np.array([0.5]), "m": np.zeros(1), "v": np.zeros(1), "t": np.zeros(1, int)}
    optimizer = Adam(lr=0.1)
    for t, g in enumerate((1.0, -0.5, 0.25), start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w -= 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        optimizer.update(fields, np.array([g]))
    np.testing.assert_allclose(fields["value"], [w], rtol=1e-13)


def test_shrinking_stops_at_zero():
    numbers = np.array([3.0, -3.0, 0.5, -0.5, 1.0, np.nan])
    shrink(numbers, 1.0)
    np.testing.assert_array_equal(numbers, [2, -2, 0, 0, 0, np.nan])
    assert not np.signbit(numbers[2:5]).any()


@pytest.mark.parametrize(
    ("number", "words"),
    [(10**400, "must be finite"), (np.arange(2), "must be a number"), (1j, "must be a number")],
)
def test_odd_numbers_are_refused_as_arguments(number, words):
    with pytest.raises(InvalidArgument, match=words):
        SGD(lr=number)


def test_an_optimizer_that_cannot_be_pickled_says_so():
    @dataclasses.dataclass(frozen=True)
    class Locked(Optimizer):
        lock: Any = dataclasses.field(default_factory=threading.Lock)

    with pytest.raises(WrongType, match="the optimizer Locked is an object that cannot be pickled"):
        Locked().spec()


def test_a_subclass_with_an_update_of_its_own_is_not_computed_by_its_bases_kernel() -> None:
    @dataclass(frozen=True)
    class Half(SGD):
        def update(self, fields: dict[str, np.ndarray], grads: np.ndarray) -> None:
            fields["value"] -= 0.5 * self.lr * grads

    @dataclass(frozen=True)
    class Renamed(SGD):
        pass

    class Mixin:
        def update(self, fields: dict[str, np.ndarray], grads: np.ndarray) -> None:
            fields["value"] -= grads

    @dataclass(frozen=True)
    class Mixed(Mixin, SGD):
        pass

    assert Half.kernel is None
    assert Mixed.kernel is None
    assert Renamed.kernel is SGD.kernel is not None
