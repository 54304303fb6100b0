"""Every kernel is compiled, registered here, and called with each dtype and width that it takes.

A kernel's entry is what it computes in a small case, beside the same by numpy. A new module in
`sparkps.kernels`, or a new public name in one, fails until it has an entry.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import sparkps.kernels
from sparkps.kernels import (
    arrays,
    csr,
    index,
    initial,
    keys,
    ledger,
    quasi_newton,
    reduce,
    rows,
    sums,
    updates,
)
from sparkps.kernels.partitions import PartitionArray

# Compiled modules that hold nothing for Python to call: doors and memory.
INTERNAL = {"buffers", "door", "groups", "memory"}

FLOATS = ("float32", "float64")
VALUES = ("float32", "float64", "int64")
MOVABLE = ("float32", "float64", "int64", "int32")
WIDTHS = (1, 3, 8)

Case = Callable[[str, int], tuple[Any, Any]]
Register = Callable[[Case], Case]
REGISTRY: dict[tuple[str, str], tuple[tuple[str, ...], tuple[int, ...], Case]] = {}

KEYS = np.array([5, -7, 2**62, 5])
DISTINCT = KEYS[:3]
SLOT = np.array([1, 0], np.int32)
GROUP = np.array([[0, 3]], np.int32)
INDPTR = np.array([0, 2, 3])
COLUMNS = np.array([0, 2, 1], np.int32)
X = np.array([[1, 0, 1], [0, 1, 0]])


def kernel(
    module: str, name: str, dtypes: tuple[str, ...], widths: tuple[int, ...] = (1,)
) -> Register:
    """Register a case: a function of (dtype, width) that returns what came and what should."""

    def register(case: Case) -> Case:
        REGISTRY[module, name] = dtypes, widths, case
        return case

    return register


def block(dtype: str, width: int, rows: int = 3, start: int = 1) -> Any:
    shape = (rows,) if width == 1 else (rows, width)
    return np.arange(start, start + rows * width).reshape(shape).astype(dtype)


def table(dtype: str, width: int, extra: int = 0, counter: bool = False) -> tuple[Any, Any]:
    """A table of one partition with the rows of DISTINCT, whose values are `block`."""
    fields: list[tuple[str, bool, float]] = [(dtype, False, 0.0)] * (1 + extra)
    if counter:
        fields.append(("int64", True, 0.0))
    pa = PartitionArray(1, width, dtype, fields)
    pa.open(0)
    places = np.empty(3, np.int32)
    assert index.find_or_insert(pa, GROUP, DISTINCT, places) == 3
    pa.field(0, 0)[...] = block(dtype, width)
    return pa, places


# ---- keys, sums, arrays


@kernel("keys", "partition_of", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return keys.partition_of(np.arange(4), 2, 4), [0, 0, 1, 1]


@kernel("keys", "partition_sort", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return keys.partition_sort(np.arange(4), 2, 4, SLOT), ([2, 3, 0, 1], [2, 3, 0, 1], [2, 2])


@kernel("keys", "partition_sort_by", ("uint16", "int32"))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    ordinals = np.arange(4, dtype=np.int32)
    part_of = np.array([0, 0, 1, 1], dtype)
    return keys.partition_sort_by(part_of, ordinals, SLOT), ([2, 3, 0, 1], [2, 2])


@kernel("keys", "cut", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return keys.cut(np.array([3], np.int32), np.array([2]), 2), [[3, 0, 2, -1, -1, -1]]


@kernel("keys", "fill_prev", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    last = np.array([[4, 5, 6]])
    slices = np.array([[0, 0, 1, -1, -1, -1]])
    keys.fill_prev(slices, last, 7, 8)
    return (slices, last), ([[0, 0, 1, 4, 5, 6]], [[7, 8, 0]])


@kernel("keys", "fingerprint", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return keys.fingerprint(KEYS[2:], keys.fingerprint(KEYS[:2])), keys.fingerprint(KEYS)


@kernel("sums", "unique", ("int64", "int32"))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return sums.unique(np.array([5, -7, 5], dtype)), ([5, -7], [0, 1, 0])


@kernel("sums", "sum_by_key", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    x = block(dtype, width)
    got = sums.sum_by_key(np.array([3]), np.array([5, 2, 5]), x)
    return got, ([2], [5, 2], [x[0] + x[2], x[1]])


@kernel("arrays", "take", MOVABLE, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    x = block(dtype, width)
    out = np.empty_like(x)
    arrays.take(x, np.array([2, 0, 1], np.int32), out)
    return out, x[[2, 0, 1]]


@kernel("arrays", "put", MOVABLE, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    x = block(dtype, width)
    out = np.empty_like(x)
    arrays.put(x, np.array([2, 0, 1], np.int32), out)
    return out[[2, 0, 1]], x


@kernel("arrays", "any_nonfinite", MOVABLE, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    x = block(dtype, width)
    if dtype in FLOATS:
        x[2] = np.nan
    return arrays.any_nonfinite(x), 2 * width if dtype in FLOATS else -1


# ---- csr


@kernel("csr", "dot", FLOATS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return csr.dot(INDPTR, COLUMNS, None, block(dtype, 1)), X @ block(dtype, 1)


@kernel("csr", "dot_t", FLOATS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    coeff, out = block(dtype, 1, rows=2), np.zeros(3, dtype)
    csr.dot_t(INDPTR, COLUMNS, None, coeff, out)
    return out, X.T @ coeff


@kernel("csr", "matmul", FLOATS, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    w = block(dtype, width).reshape(3, width)
    return csr.matmul(INDPTR, COLUMNS, None, w), X @ w


@kernel("csr", "matmul_t", FLOATS, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    coeff, out = block(dtype, width, rows=2).reshape(2, width), np.zeros((3, width), dtype)
    csr.matmul_t(INDPTR, COLUMNS, None, coeff, out)
    return out, X.T @ coeff


@kernel("csr", "moments_t", ("float64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    coeff, out = block(dtype, 1, rows=2), np.zeros(3, dtype)
    csr.moments_t(INDPTR, COLUMNS, np.array([2, 3, 4], np.float32), coeff, 2, out, np.zeros(3))
    return out, [4 * coeff[0], 16 * coeff[1], 9 * coeff[0]]

@kernel("csr", "logistic", FLOATS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    return csr.logistic(np.zeros(2, dtype), np.array([0, 1])), (2 * np.log(2), [0.5, -0.5])


# ---- tables


@kernel("partitions", "PartitionArray", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table(dtype, width)
    pa.load(0, DISTINCT[::-1].copy(), [pa.field(0, 0)[::-1].copy()])
    return (pa.keys(0), pa.field(0, 0)), (DISTINCT[::-1], block(dtype, width)[::-1])


@kernel("index", "KeyIndex", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    found = index.KeyIndex()
    return (found.add(KEYS), found.find(np.array([9, -7])), found.keys()), (
        [0, 1, 2, 0], [-1, 1], DISTINCT,
    )  # fmt: skip


@kernel("index", "find", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table(dtype, width)
    out = np.empty(3, np.int32)
    index.find(pa, GROUP, np.array([9, -7, 5]), out)
    return out, [-1, 1, 0]


@kernel("index", "find_or_insert", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table(dtype, width)
    out = np.empty(3, np.int32)
    return (index.find_or_insert(pa, GROUP, np.array([9, -7, 9]), out), out), (1, [3, 1, 3])


@kernel("initial", "init_values", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    got = initial.init_values(("constant", 2.0, 0.0), 0, DISTINCT, width, dtype)
    return got, np.full_like(block(dtype, width), 2)


@kernel("rows", "gather", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, places = table(dtype, width)
    out = np.empty_like(block(dtype, width))
    rows.gather(pa, 0, GROUP, places[::-1].copy(), out)
    return out, block(dtype, width)[::-1]


@kernel("rows", "gather_field", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, places = table(dtype, width)
    return rows.gather_field(pa, 0, GROUP, places), block(dtype, width)


@kernel("rows", "scatter_set", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, places = table(dtype, width)
    rows.scatter_set(pa, 0, GROUP, places, block(dtype, width, start=50))
    return pa.field(0, 0), block(dtype, width, start=50)


@kernel("rows", "scatter_add", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, places = table(dtype, width)
    rows.scatter_add(pa, 0, GROUP, places, block(dtype, width))
    return pa.field(0, 0), 2 * block(dtype, width)


@kernel("rows", "sum_rows", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table(dtype, width)
    x = block(dtype, width)
    got = rows.sum_rows(pa, GROUP, np.array([2, 0, 2], np.int32), x)
    return got, ([[0, 2]], [2, 0], [x[0] + x[2], x[1]])


@kernel("ledger", "groups", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    slices = np.array([[3, 0, 2, -1, -1, -1], [1, 4, 5, 0, 0, 0]])
    return ledger.groups(slices), ([[3, 2], [1, 5]], 7)


@kernel("ledger", "check", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table("float32", 1)
    book, status = np.full((1, 8), -1), np.empty(1, np.uint8)
    slices = np.array([[0, 0, 1, -1, -1, -1]])
    answers = []
    for _ in range(2):
        ledger.check(pa, book, slices, 3, 0, None, False, status)
        answers.append(int(status[0]))
    return answers, [ledger.ACCEPTED, ledger.DUPLICATE]


@kernel("ledger", "applied_up_to", ("int64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa, _ = table("float32", 1)
    book, status = np.full((1, 8), -1), np.empty(1, np.uint8)
    ledger.check(pa, book, np.array([[0, 0, 1, -1, -1, -1]]), 3, 0, None, True, status)
    before = book[0, 3]
    ledger.applied_up_to(book, np.zeros(1, np.int32), 4)
    return (before, book[0, 3]), (-1, 3)


def updated(name: str, numbers: list[float], extra: int, counter: bool = False) -> Case:
    """One step from a gradient of zero without penalties, which changes no value; the formulas
    have their own tests."""

    def case(dtype: str, width: int) -> tuple[Any, Any]:
        pa, places = table(dtype, width, extra, counter)
        grads = np.zeros_like(block(dtype, width))
        getattr(updates, name)(pa, GROUP, places, grads, np.array(numbers))
        # FTRL computes its value from z, which is zero here.
        return pa.field(0, 0), grads if name == "ftrl" else block(dtype, width)

    return case


for _name, _numbers, _extra, _counter in (
    ("sgd", [0.1, 0, 0], 0, False),
    ("momentum", [0.1, 0.9, 0, 0, 0], 1, False),
    ("adagrad", [0.1, 1e-8, 0, 0], 1, False),
    ("rmsprop", [0.1, 0.9, 1e-8, 0, 0], 1, False),
    ("adam", [0.1, 0.9, 0.99, 1e-8, 0, 0], 2, True),
    ("adamw", [0.1, 0.9, 0.99, 1e-8, 0], 2, True),
    ("ftrl", [0.1, 1, 0, 0], 2, False),
):
    kernel("updates", _name, FLOATS, WIDTHS)(updated(_name, _numbers, _extra, _counter))


# ---- reductions

for _name, _case in {
    "sum": lambda dtype, width: (reduce.sum(block(dtype, 1)), 6),
    "asum": lambda dtype, width: (reduce.asum(-block(dtype, 1)), 6),
    "dot": lambda dtype, width: (reduce.dot(block(dtype, 1), block(dtype, 1)), 14),
    "extremes": lambda dtype, width: (reduce.extremes(block(dtype, 1)), (1, 3)),
    "nnz": lambda dtype, width: (reduce.nnz(block(dtype, 1, start=0)), 2),
}.items():
    kernel("reduce", _name, VALUES)(_case)

kernel("reduce", "sum_exact", ("int64",))(
    lambda dtype, width: (reduce.sum_exact(np.array([2**62, 2**62, 1])), (2**31, 1))
)


@kernel("reduce", "gram", VALUES, WIDTHS)
def _(dtype: str, width: int) -> tuple[Any, Any]:
    x = block(dtype, width).reshape(3, width)
    return reduce.gram(x), x.T @ x


# ---- quasi-Newton


def lbfgs_table() -> PartitionArray:
    """value, g, x, gx, d, t, inv, mu and ten pairs: 1, 2, 3, ..., each in three rows."""
    pa = PartitionArray(1, 1, "float64", [("float64", False, 0.0)] * 28, dim=3)
    pa.open(0)
    for number in range(28):
        pa.field(0, number)[...] = number + 1
    return pa


@kernel("quasi_newton", "products", ("float64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    dots, others = quasi_newton.products(lbfgs_table(), [0], [0], 1.0, 0.0, 0.0, 0.0, False)
    g = 7 * 2
    three, kept = (6 - 3, g - 4, g), (9, 10)
    want = [[[3 * a * b for b in (*three, *kept)] for a in three]]
    others_want = [[3 * 4 * 5, 3 * g * 5, 3 * 36, 3 * 6, 3 * g * g, 3 * 8 * 7 * g]]
    return (dots, others), (want, others_want)


@kernel("quasi_newton", "move", ("float64",))
def _(dtype: str, width: int) -> tuple[Any, Any]:
    pa = lbfgs_table()
    quasi_newton.move(
        pa, [0], [1], 1.0, 0.0, 0.0, 0.0, False, True, 1, [1.0, 2.0, -1.0], 0.5
    )
    g = 7 * 2
    s, y, d = 6 - 3, g - 4, (6 - 3) + 2 * (g - 4) - g
    t = 6 + 0.5 * d
    want = {0: t * 7, 1: 0, 2: 6, 3: g, 4: d, 5: t, 10: s, 11: y, 12: 13}
    return tuple(pa.field(0, n) for n in want), tuple([number] * 3 for number in want.values())


# ---- the rules


def public_names(module: str) -> dict[str, Any]:
    """What a compiled module defines for others: functions and classes, not constants."""
    namespace = vars(importlib.import_module(f"sparkps.kernels.{module}"))
    return {
        name: thing
        for name, thing in namespace.items()
        if not name.startswith("_")
        and callable(thing)
        and getattr(thing, "__module__", None) == f"sparkps.kernels.{module}"
    }


MODULES = sorted(found.name for found in pkgutil.iter_modules(sparkps.kernels.__path__))
COMBINATIONS = [
    (module, name, dtype, width)
    for (module, name), (dtypes, widths, _) in sorted(REGISTRY.items())
    for dtype, width in product(dtypes, widths)
]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_registered_completely(module: str) -> None:
    assert INTERNAL.isdisjoint(registered for registered, _ in REGISTRY)
    names = {name for registered, name in REGISTRY if registered == module}
    if module in INTERNAL:
        assert not any(map(inspect.isroutine, public_names(module).values()))
    else:
        assert names == set(public_names(module))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_compiled(module: str) -> None:
    compiled = importlib.import_module(f"sparkps.kernels.{module}")
    assert compiled.__file__ is not None
    assert not compiled.__file__.endswith((".py", ".pyc"))


@pytest.mark.parametrize(("module", "name"), sorted(REGISTRY))
def test_a_kernel_is_a_compiled_function_or_class(module: str, name: str) -> None:
    thing = public_names(module)[name]
    parts = vars(thing).values() if inspect.isclass(thing) else [thing]
    assert not any(map(inspect.isfunction, parts))
    if not inspect.isclass(thing):
        assert type(thing).__name__ == "cython_function_or_method"


@pytest.mark.parametrize(("module", "name", "dtype", "width"), COMBINATIONS)
def test_a_kernel_agrees_with_numpy(module: str, name: str, dtype: str, width: int) -> None:
    got, want = REGISTRY[module, name][2](dtype, width)
    if not isinstance(got, tuple):
        got, want = (got,), (want,)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
