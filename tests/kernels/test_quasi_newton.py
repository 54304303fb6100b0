"""The iteration of L-BFGS against the same in numpy, vector by vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparkps.kernels import quasi_newton
from sparkps.kernels.partitions import PartitionArray
from sparkps.optim.lbfgs import LBFGS, MEMORY

NAMES = ("value", *(field.name for field in LBFGS().fields()))
Fields = dict[str, np.ndarray]


def table(rows: int, seed: int = 0) -> tuple[PartitionArray, Fields]:
    """One partition of random vectors, with zeros and signs of all kinds; and a copy of it."""
    specs = [("float64", False, 0.0)] * len(NAMES)
    array = PartitionArray(2, 1, "float64", specs, dim=2 * max(rows, 1), init=("constant", 0, 0))
    array.open(0)
    rng = np.random.default_rng(seed)
    for number, name in enumerate(NAMES):
        field = array.field(0, number)
        field[...] = rng.normal(size=len(field))
        if name in ("x", "t", "d", "g"):
            field[rng.random(len(field)) < 0.3] = 0
        if name == "inv":
            np.abs(field, out=field)
    return array, {name: array.field(0, number).copy() for number, name in enumerate(NAMES)}


def power(f: Fields, unscaled: bool) -> Any:
    return f["inv"] if unscaled else 1.0


def smooth(f: Fields, scale: float, slope: float, l2: float, unscaled: bool) -> np.ndarray:
    p = power(f, unscaled)
    return f["inv"] * (scale * f["g"] - slope * f["mu"]) + l2 * p * p * f["t"]


def pseudo(f: Fields, point: np.ndarray, g: np.ndarray, l1: float, unscaled: bool) -> np.ndarray:
    l1 = l1 * power(f, unscaled)
    up, down = g + l1, g - l1
    at_zero = np.where(up < 0, up, np.where(down > 0, down, 0.0))
    return np.where(point > 0, up, np.where(point < 0, down, at_zero))


OBJECTIVES = [
    (0.5, 0.0, 0.0, 0.0, False),
    (0.5, 0.3, 0.0, 0.2, True),
    (2.0, -0.3, 0.4, 0.1, False),
    (1.0, 0.1, 0.4, 0.0, True),
]
SLOTS: list[list[int]] = [[], [3], [9, 0, 4], list(range(MEMORY))]


@pytest.mark.parametrize("rows", [1, 511, 513, 2000])
@pytest.mark.parametrize("slots", SLOTS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_products_are_those_of_numpy(rows: int, slots: list[int], objective: Any) -> None:
    scale, slope, l1, l2, unscaled = objective
    array, f = table(rows)
    g = smooth(f, scale, slope, l2, unscaled)
    pg, pgx = pseudo(f, f["t"], g, l1, unscaled), pseudo(f, f["x"], f["gx"], l1, unscaled)
    three = [f["t"] - f["x"], g - f["gx"], pg]
    kept = [f[f"{kind}{slot}"] for kind in "sy" for slot in slots]
    penalised = f["t"] * power(f, unscaled)
    dots, others = quasi_newton.products(array, [0], slots, *objective)
    expected = np.array([[a @ b for b in (*three, *kept)] for a in three])
    np.testing.assert_allclose(dots[0], expected, rtol=1e-10, atol=1e-9)
    numbers = (pgx @ f["d"], pg @ f["d"], penalised @ penalised, np.abs(penalised).sum(), g @ g,
               (f["mu"] * f["inv"]) @ pg)  # fmt: skip
    np.testing.assert_allclose(others[0], numbers, rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("accept", [True, False])
@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_move_is_that_of_numpy(accept: bool, turned: bool, objective: Any) -> None:
    scale, slope, l1, l2, unscaled = objective
    array, f = table(1300)
    slots, slot, alpha = [2, 7, 5], 7, 0.25
    coefficients = np.random.default_rng(1).normal(size=7).tolist() if turned else []
    quasi_newton.move(array, [0], slots, *objective, accept, slot, coefficients, alpha)
    if accept:
        g = smooth(f, scale, slope, l2, unscaled)
        f["s7"], f["y7"] = f["t"] - f["x"], g - f["gx"]
        f["x"], f["gx"] = f["t"].copy(), g
    pg = pseudo(f, f["x"], f["gx"], l1, unscaled)
    if turned:
        kept = [f[f"{kind}{each}"] for kind in "sy" for each in slots]
        f["d"] = sum(c * v for c, v in zip(coefficients, [*kept, pg], strict=True))
        if l1:
            f["d"][f["d"] * pg >= 0] = 0
    f["g"][:] = 0
    f["t"] = f["x"] + alpha * f["d"]
    if l1:
        orthant = np.where(f["x"] != 0, np.sign(f["x"]), -np.sign(pg))
        f["t"][np.sign(f["t"]) != orthant] = 0
    f["value"] = f["t"] * f["inv"]
    for number, name in enumerate(NAMES):
        np.testing.assert_allclose(array.field(0, number), f[name], rtol=1e-10, atol=1e-12)


def test_a_direction_of_zeros_forgets_what_is_not_finite() -> None:
    array, _ = table(10)
    array.field(0, NAMES.index("gx"))[...] = np.nan
    quasi_newton.move(array, [0], [], 1.0, 0.0, 0.0, 0.0, False, False, -1, [0.0], 0.0)
    assert not array.field(0, NAMES.index("d")).any()


def test_partitions_have_the_bits_that_they_have_alone() -> None:
    array, _ = table(700)
    array.open(1)
    both = quasi_newton.products(array, [1, 0], [1], *OBJECTIVES[2])
    alone = quasi_newton.products(array, [0], [1], *OBJECTIVES[2])
    assert both[0][1].tobytes() == alone[0][0].tobytes()
    assert both[1][1].tobytes() == alone[1][0].tobytes()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"partitions": [1]}, ValueError, "partition 1"),
        ({"partitions": [5]}, ValueError, "partition 5"),
        ({"slots": [10]}, ValueError, "slot 10"),
        ({"slots": [-1]}, ValueError, "slot -1"),
        ({"slots": [1, 1]}, ValueError, "different"),
        ({"slots": [0] * 11}, ValueError, "at most 10"),
        ({"coefficients": [1.0]}, ValueError, "1 coefficients are not for 1 slots"),
        ({"slot": 10}, ValueError, "slot 10"),
        ({"slot": -2}, ValueError, "slot -2"),
    ],
)
def test_bad_arguments_are_refused(change: dict[str, Any], error: Any, words: str) -> None:
    array, before = table(3)
    good = {"partitions": [0], "slots": [1], "scale": 1.0, "slope": 0.0, "l1": 0.0, "l2": 0.0,
            "unscaled": False, "accept": True, "slot": 1, "coefficients": [1.0, 1.0, 1.0],
            "alpha": 1.0}  # fmt: skip
    with pytest.raises(error, match=words):
        quasi_newton.move(array, **(good | change))
    for number, name in enumerate(NAMES):
        assert array.field(0, number).tolist() == before[name].tolist()


def test_another_table_is_refused() -> None:
    other = PartitionArray(1, 1, "float32", [("float32", False, 0.0)], dim=4)
    other.open(0)
    with pytest.raises(TypeError, match="28 fields of float64"):
        quasi_newton.products(other, [0], [], 1.0, 0.0, 0.0, 0.0, False)
