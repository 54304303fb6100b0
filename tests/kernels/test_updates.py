"""Fused optimizer updates, against the same formulas in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sparkps.kernels import updates
from sparkps.kernels.partitions import PartitionArray

Array = NDArray[Any]
P, DIM = 4, 101
STEPS = 12


def shrink(w: Array, threshold: Any) -> Array:
    shrunk: Array = np.sign(w) * np.maximum(np.abs(w) - threshold, 0)
    return shrunk


def sgd(f: list[Array], g: Array, lr: float, l1: float, l2: float) -> None:
    f[0][:] = shrink(f[0] - lr * (g + l2 * f[0]), lr * l1)


def momentum(
    f: list[Array], g: Array, lr: float, mu: float, nesterov: float, l1: float, l2: float
) -> None:
    g = g + l2 * f[0]
    f[1][:] = mu * f[1] + g
    f[0][:] = shrink(f[0] - lr * (g + mu * f[1] if nesterov else f[1]), lr * l1)


def adagrad(f: list[Array], g: Array, lr: float, eps: float, l1: float, l2: float) -> None:
    g = g + l2 * f[0]
    f[1] += g * g
    rate = lr / (np.sqrt(f[1]) + eps)
    f[0][:] = shrink(f[0] - rate * g, rate * l1)


def rmsprop(
    f: list[Array], g: Array, lr: float, rho: float, eps: float, l1: float, l2: float
) -> None:
    g = g + l2 * f[0]
    f[1][:] = rho * f[1] + (1 - rho) * g * g
    rate = lr / (np.sqrt(f[1]) + eps)
    f[0][:] = shrink(f[0] - rate * g, rate * l1)


def adam(
    f: list[Array], g: Array, lr: float, b1: float, b2: float, eps: float, l1: float, l2: float
) -> None:
    g = g + l2 * f[0]
    f[3] += 1
    f[1][:] = b1 * f[1] + (1 - b1) * g
    f[2][:] = b2 * f[2] + (1 - b2) * g * g
    t = f[3].reshape(-1, *[1] * (g.ndim - 1)).astype(np.float64)
    bias1, bias2 = (1 - b1**t).astype(g.dtype), (1 - b2**t).astype(g.dtype)
    rate = lr / (np.sqrt(f[2] / bias2) + eps)
    f[0][:] = shrink(f[0] - rate * (f[1] / bias1), rate * l1)


def adamw(
    f: list[Array], g: Array, lr: float, b1: float, b2: float, eps: float, decay: float
) -> None:
    f[0] -= lr * decay * f[0]
    adam(f, g, lr, b1, b2, eps, 0.0, 0.0)


def ftrl(f: list[Array], g: Array, lr: float, beta: float, l1: float, l2: float) -> None:
    w, z, n = f
    sigma = (np.sqrt(n + g * g) - np.sqrt(n)) / lr
    z += g - sigma * w
    n += g * g
    w[:] = -shrink(z, l1) / ((beta + np.sqrt(n)) / lr + l2)


CASES: list[tuple[Callable[..., None], int, list[float]]] = [
    (sgd, 1, [0.1, 0.0, 0.0]),
    (sgd, 1, [0.1, 0.3, 0.2]),
    (momentum, 2, [0.1, 0.9, 0, 0.0, 0.0]),
    (momentum, 2, [0.1, 0.9, 0, 0.2, 0.1]),
    (momentum, 2, [0.1, 0.9, 1, 0.0, 0.1]),
    (adagrad, 2, [0.1, 1e-8, 0.0, 0.0]),
    (adagrad, 2, [0.1, 1e-8, 0.3, 0.1]),
    (rmsprop, 2, [0.01, 0.999, 1e-8, 0.0, 0.0]),
    (rmsprop, 2, [0.01, 0.9, 1e-6, 0.2, 0.1]),
    (adam, 3, [0.01, 0.9, 0.999, 1e-8, 0.0, 0.0]),
    (adam, 3, [0.01, 0.9, 0.999, 1e-8, 0.3, 0.1]),
    (adamw, 3, [0.01, 0.9, 0.999, 1e-8, 0.05]),
    (ftrl, 3, [0.1, 1.0, 0.0, 0.0]),
    (ftrl, 3, [0.1, 1.0, 0.7, 0.5]),
]
cases = pytest.mark.parametrize(
    ("reference", "fields", "numbers"), CASES, ids=[f"{c[0].__name__}-{c[2]}" for c in CASES]
)


def table(dtype: str, width: int, fields: int, counted: bool) -> PartitionArray:
    specs: list[Any] = [(dtype, False, 0.0)] * fields + [("int64", True, 0)] * counted
    pa = PartitionArray(P, width, dtype, specs, dim=DIM)
    for p in range(P):
        pa.open(p)
    return pa


def make(reference: Callable[..., None], dtype: str, width: int, fields: int) -> PartitionArray:
    return table(dtype, width, fields, reference.__name__.startswith("adam"))


def shaped(count: int, width: int) -> tuple[int, ...]:
    return (count,) if width == 1 else (count, width)


def distinct_rows(pa: PartitionArray, rng: np.random.Generator) -> tuple[Array, Array]:
    order = rng.permutation(P)
    rows = [rng.permutation(pa.rows(p))[: rng.integers(0, 26)] for p in order]
    parts = np.array([(p, len(r)) for p, r in zip(order, rows, strict=True)], np.int32)
    return parts, np.concatenate(rows).astype(np.int32)


@cases
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 3, 8])
def test_an_update_is_its_formula(
    reference: Callable[..., None], fields: int, numbers: list[float], dtype: str, width: int
) -> None:
    rng = np.random.default_rng(7)
    pa = make(reference, dtype, width, fields)
    want = [[pa.field(p, i).copy() for i in range(pa.field_count)] for p in range(P)]
    kernel = getattr(updates, reference.__name__)
    tolerance = 2e-6 if dtype == "float32" else 1e-12
    for _ in range(STEPS):
        parts, rows = distinct_rows(pa, rng)
        grads = rng.standard_normal(shaped(len(rows), width)).astype(dtype)
        kernel(pa, parts, rows, grads, np.array(numbers))
        begin = 0
        for p, count in parts:
            at = rows[begin : begin + count]
            part = [field[at] for field in want[p]]
            reference(part, grads[begin : begin + count], *numbers)
            for field, changed in zip(want[p], part, strict=True):
                field[at] = changed
            begin += count
    for p in range(P):
        for i in range(pa.field_count):
            got = pa.field(p, i)
            np.testing.assert_allclose(got, want[p][i], rtol=tolerance * 10, atol=tolerance)


@cases
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_rows_bits_do_not_depend_on_how_rows_are_grouped(
    reference: Callable[..., None], fields: int, numbers: list[float], dtype: str
) -> None:
    kernel = getattr(updates, reference.__name__)
    together, alone = (make(reference, dtype, 3, fields) for _ in range(2))
    grads = np.random.default_rng(1).standard_normal((STEPS, 20, 3)).astype(dtype)
    rows = np.arange(20, dtype=np.int32)
    for step in grads:
        kernel(together, np.array([[2, 20]], np.int32), rows, step, np.array(numbers))
        for row in rows[::-1]:
            one = np.array([row], np.int32)
            kernel(alone, np.array([[2, 1]], np.int32), one, step[row], np.array(numbers))
    for i in range(together.field_count):
        assert together.field(2, i).tobytes() == alone.field(2, i).tobytes()


def test_a_rare_rows_first_adam_step_is_corrected_as_a_first_one() -> None:
    pa = make(adam, "float64", 1, 3)
    numbers = np.array([0.01, 0.9, 0.999, 0.0, 0.0, 0.0])
    parts, one = np.array([[0, 1]], np.int32), np.ones(1)
    for _ in range(600):
        updates.adam(pa, parts, np.array([3], np.int32), one, numbers)
    updates.adam(pa, np.array([[0, 2]], np.int32), np.array([3, 4], np.int32), np.ones(2), numbers)
    assert pa.field(0, 3)[[3, 4]].tolist() == [601, 1]
    assert pa.field(0, 0)[4] == pytest.approx(-0.01, rel=1e-12)
    assert pa.field(0, 0)[3] == pytest.approx(-6.01, rel=1e-12)


def test_ftrl_keeps_a_weight_at_zero_until_its_gradients_exceed_l1() -> None:
    pa = make(ftrl, "float32", 1, 3)
    parts, rows = np.array([[0, 2]], np.int32), np.array([0, 1], np.int32)
    numbers = np.array([0.1, 1.0, 1.0, 0.0])
    updates.ftrl(pa, parts, rows, np.array([0.5, 2.0], np.float32), numbers)
    assert pa.field(0, 0)[0] == 0
    assert pa.field(0, 0)[1] < 0


@cases
def test_nan_is_not_hidden(
    reference: Callable[..., None], fields: int, numbers: list[float]
) -> None:
    pa = make(reference, "float32", 1, fields)
    parts, rows = np.array([[0, 2]], np.int32), np.array([0, 1], np.int32)
    grads = np.array([np.nan, 1], np.float32)
    getattr(updates, reference.__name__)(pa, parts, rows, grads, np.array(numbers))
    assert np.isnan(pa.field(0, 0)).tolist()[:3] == [True, False, False]


@cases
def test_an_empty_message_and_unaligned_or_raw_arrays_are_taken(
    reference: Callable[..., None], fields: int, numbers: list[float]
) -> None:
    kernel = getattr(updates, reference.__name__)
    pa, other = (make(reference, "float32", 1, fields) for _ in range(2))
    nothing = np.empty(0, np.int32)
    kernel(pa, nothing.reshape(0, 2), nothing, np.empty(0, np.float32), np.array(numbers))
    assert not any(pa.field(p, 0).any() for p in range(P))
    parts, rows = np.array([[1, 2]], np.int32), np.array([7, 3], np.int32)
    grads = np.array([1, -2], np.float32)
    kernel(pa, parts, rows, grads, np.array(numbers))
    odd = np.frombuffer(b"x" + grads.tobytes(), np.float32, offset=1)
    kernel(other, parts.tobytes(), rows.tobytes(), odd, np.array(numbers).tobytes())
    assert np.array_equal(pa.field(1, 0), other.field(1, 0))


@cases
def test_a_bad_argument_is_refused(
    reference: Callable[..., None], fields: int, numbers: list[float]
) -> None:
    kernel = getattr(updates, reference.__name__)
    pa = make(reference, "float32", 1, fields)
    parts, rows = np.array([[1, 2]], np.int32), np.array([7, 3], np.int32)
    grads, given = np.ones(2, np.float32), np.array(numbers)
    with pytest.raises(TypeError, match="grads must be float32, not float64"):
        kernel(pa, parts, rows, np.ones(2), given)
    with pytest.raises(ValueError, match="grads holds 3 numbers"):
        kernel(pa, parts, rows, np.ones(3, np.float32), given)
    with pytest.raises(ValueError, match="numbers holds"):
        kernel(pa, parts, rows, grads, given[:-1])
    with pytest.raises(ValueError, match=r"rows\[1\] is -1, but partition 1 has 25 rows"):
        kernel(pa, parts, np.array([7, -1], np.int32), grads, given)
    with pytest.raises(ValueError, match=rf"this optimizer has {pa.field_count} fields"):
        kernel(table("float32", 1, pa.field_count + 1, False), parts, rows, grads, given)
    with pytest.raises(TypeError, match="takes no optimizer"):
        kernel(table("int64", 1, pa.field_count, False), parts, rows, rows, given)


def test_a_counter_in_the_wrong_place_is_refused() -> None:
    parts, rows, grads = np.array([[0, 1]], np.int32), np.zeros(1, np.int32), np.ones(1, np.float32)
    with pytest.raises(ValueError, match="field 3 must be int64, with one number per row"):
        updates.adam(table("float32", 1, 4, False), parts, rows, grads, np.ones(6))
    with pytest.raises(ValueError, match="field 2 must be float32, with 1 numbers per row"):
        updates.ftrl(table("float32", 1, 2, True), parts, rows, grads, np.ones(4))
