"""Built-in server functions: each against plain numpy, and the promise of same bits."""

import math

import numpy as np
import pytest

from sparkps import errors
from sparkps.kernels.partitions import init_values
from sparkps.optim import FTRL, Adam
from sparkps.store import functions, init, quasi_newton
from sparkps.store.builtin import combine_tree

KEYS = np.random.default_rng(0).choice(10**6, 500, replace=False)


def reduce(table, function, *args):
    """As client and servers do together."""
    builtin = functions.called(function, args)
    builtin = functions.builtin(builtin.name, builtin.numbers())
    return builtin.result([table.reduce(p, builtin.partial) for p in range(table.spec.partitions)])


def apply(table, function, *args):
    builtin = functions.called(function, args)
    for p in range(table.spec.partitions):
        table.apply(p, builtin)


def values_of(table, field=0):
    return np.concatenate([table.field(p, field) for p in range(table.spec.partitions)])


@pytest.fixture(params=[1, 3])
def table(request, make, push):
    width = request.param
    table = make(Adam(lr=0.5), width=width, partitions=5)
    rng = np.random.default_rng(1)
    grads = rng.normal(size=(500, width)) * (rng.random((500, width)) < 0.7)
    push(table, KEYS, grads[:, 0] if width == 1 else grads)
    return table


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (functions.sum, math.fsum),
        (functions.asum, lambda x: math.fsum(abs(x))),
        (functions.norm1, lambda x: math.fsum(abs(x))),
        (functions.norm2, lambda x: math.sqrt(math.fsum(x * x))),
        (functions.norminf, lambda x: max(abs(x))),
        (functions.min, min),
        (functions.max, max),
        (functions.nnz, np.count_nonzero),
    ],
)
def test_aggregates_of_fields_and_columns(table, function, expected):
    for field in range(3):
        numbers = values_of(table, field).astype(np.float64)
        found = reduce(table, function, table.field_names[field])
        assert found == pytest.approx(expected(numbers.ravel()), rel=1e-13)
    column = table.spec.width - 1
    numbers = values_of(table).astype(np.float64).reshape(-1, table.spec.width)[:, column]
    assert reduce(table, function, column) == pytest.approx(expected(numbers), rel=1e-13)
    assert reduce(table, function) == reduce(table, function, "value")


def test_count_counts_rows(table):
    assert reduce(table, functions.count) == 500


def test_sums_of_integers_are_exact(make, push):
    table = make(dtype="int64")
    push(table, [1, 2, 3, -4], [2**62, 2**62, 2**62, -1])
    assert reduce(table, functions.sum) == 3 * 2**62 - 1
    assert type(reduce(table, functions.max)) is int


@pytest.mark.parametrize("optimizer", [None, FTRL()])
def test_reductions_of_an_empty_table(make, optimizer):
    table = make(optimizer, width=2)
    assert reduce(table, functions.sum) == reduce(table, functions.norm2) == 0
    assert reduce(table, functions.min) is reduce(table, functions.max) is None
    assert reduce(table, functions.count) == reduce(table, functions.norminf) == 0
    assert reduce(table, functions.dots).tolist() == [[0, 0], [0, 0]]
    assert [len(x) for x in reduce(table, functions.top_k, 3, 0)] == [0, 0]
    apply(table, functions.scale, 2)


@pytest.mark.parametrize("function", [functions.min, functions.max, functions.norminf])
def test_a_nan_is_seen(make, push, function):
    table = make()
    push(table, KEYS, np.arange(500))
    push(table, KEYS[100:101], [np.nan])
    assert math.isnan(reduce(table, function))


def test_dots_are_all_dots_at_once(table):
    if table.spec.width > 1:
        vectors = [0, 1, 2]
        assert (
            reduce(table, functions.dots).tolist()
            == reduce(table, functions.dots, vectors).tolist()
        )
    else:
        vectors = list(table.field_names)
    matrix = reduce(table, functions.dots)
    for i, x in enumerate(vectors):
        for j, y in enumerate(vectors):
            assert matrix[i, j] == reduce(table, functions.dot, x, y)
    fields = reduce(table, functions.dots, ["m", "v"])
    assert fields[0, 1] == reduce(table, functions.dot("m", "v"))
    m, v = (values_of(table, i).astype(float).ravel() for i in (1, 2))
    assert fields[0, 1] == pytest.approx(m @ v, rel=1e-12)


@pytest.mark.parametrize("magnitude", [False, True])
def test_top_k_is_the_head_of_the_sorted_table(table, magnitude):
    numbers = values_of(table).reshape(500, -1)[:, 0]
    keys = np.concatenate([table.keys(p) for p in range(5)])
    sizes = abs(numbers) if magnitude else numbers
    order = sorted(range(500), key=lambda i: (-sizes[i], keys[i]))
    for k in (0, 1, 7, 499, 500, 600):
        found = reduce(table, functions.top_k, k, 0, magnitude)
        assert found[0].tolist() == keys[order[:k]].tolist()
        assert found[1].tolist() == numbers[order[:k]].tolist()


def test_top_k_of_integers_by_magnitude_knows_the_least_one(make, push):
    table = make(dtype="int64")
    push(table, [1, 2, 3], [-(2**63), 2**63 - 1, 5])
    assert reduce(table, functions.top_k, 2, 0, True)[0].tolist() == [1, 2]


def test_reductions_do_not_depend_on_which_server_holds_what(make, push, message):
    """One table here; the same rows with partitions in two tables: the same bits."""

    def rows(seed):
        return np.random.default_rng(seed).normal(size=500)

    def filled(here):
        table = make(partitions=5, here=here)
        for seed in range(3):
            parts, keys, values, _ = message(table, KEYS, rows(seed).astype(np.float32))
            mine = np.isin(parts[:, 0], here)
            chosen = np.repeat(mine, parts[:, 1])
            parts, keys, values = parts[mine], keys[chosen], values[chosen]
            table.push(parts, table.resolve(parts, keys, create=True), values)
        return table

    one, low, high = filled([0, 1, 2, 3, 4]), filled([0, 1]), filled([2, 3, 4])
    norm = functions.norm2()
    spread = [low.reduce(p, norm.partial) for p in (0, 1)]
    spread += [high.reduce(p, norm.partial) for p in (2, 3, 4)]
    assert norm.result(spread) == reduce(one, functions.norm2)


def test_the_tree_depends_on_the_number_of_partitions_only():
    for n in range(1, 40):
        seen = combine_tree([(i,) for i in range(n)], lambda a, b: a + b)
        assert seen == tuple(range(n))
    with pytest.raises(errors.InvalidArgument, match="nothing to combine"):
        combine_tree([], max)


def test_fill_scale_axpy_threshold_and_combine(table):
    column = table.spec.width - 1
    m = values_of(table, 1)
    apply(table, functions.axpy, -0.5, "m", "value")
    apply(table, functions.scale, 3, "v")
    before = values_of(table)
    apply(table, functions.threshold(0.25))
    assert np.array_equal(values_of(table), np.where(abs(before) <= 0.25, 0, before))
    apply(table, functions.combine, [2, -1.5], ["m", "value"], "value")
    expected = 2 * m + np.float32(-1.5) * np.where(abs(before) <= 0.25, 0, before)
    assert np.array_equal(values_of(table), expected)
    apply(table, functions.combine, [2], [column], column)
    assert reduce(table, functions.sum, column) == pytest.approx(
        2 * expected.reshape(500, -1)[:, column].astype(float).sum()
    )
    apply(table, functions.fill, 7)
    assert np.all(values_of(table) == 7)
    apply(table, functions.fill, 8, column)
    assert np.all(values_of(table).reshape(500, -1)[:, column] == 8)


def test_randomize_is_what_init_gives(table):
    apply(table, functions.randomize, init.Normal(0.5), 9)
    for p in range(5):
        expected = init_values(("normal", 0.0, 0.5), 9, table.keys(p), table.spec.width, "float32")
        assert table.field(p, 0).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            (functions.norm2, "vlue"),
            "the table has the fields value, m, v, t; did you mean 'value'",
        ),
        ((functions.norm2, 3), "the table has . columns"),
        ((functions.dot, "value", "x"), "the table has the fields"),
        ((functions.top_k, -1, 0), "k=-1: must not be negative"),
    ],
)
def test_vectors_that_are_not_there_are_named(table, call, words):
    with pytest.raises(errors.InvalidArgument, match=words):
        reduce(table, *call)


def test_vectors_of_two_shapes_do_not_mix(make, push):
    table = make(Adam(), width=3)
    push(table, KEYS, np.ones((500, 3)))
    with pytest.raises(errors.InvalidArgument, match="numbers here"):
        reduce(table, functions.dot, "value", "t")
    with pytest.raises(errors.InvalidArgument, match="1 numbers per row"):
        apply(table, functions.axpy, 1, "t", "value")
    with pytest.raises(errors.InvalidArgument, match="name a column by its number"):
        reduce(table, functions.top_k, 3)


@pytest.mark.parametrize("function", [functions.fill(0.5), functions.scale(0.5)])
def test_fractions_do_not_go_into_integers(make, push, function):
    table = make(dtype="int64")
    push(table, KEYS, np.ones(500))
    with pytest.raises(errors.InvalidArgument, match="whole numbers"):
        apply(table, function)
    assert np.all(values_of(table) == 1)


@pytest.mark.parametrize(
    ("name", "numbers", "words"),
    [
        ("norm3", {}, "no built-in function 'norm3'; did you mean 'norm2'"),
        ("fill", {}, "missing required field `x`"),
        ("fill", {"x": "a"}, "Expected `float`"),
        ("fill", {"x": 1.0, "y": 2}, "fill takes no argument y"),
        ("top_k", {"k": 1.5}, "Expected `int`"),
    ],
)
def test_malformed_requests_are_named(name, numbers, words):
    with pytest.raises(errors.MalformedRequest, match=words):
        functions.builtin(name, numbers)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (functions.fill, ()),
        (functions.fill, ("a",)),
        (functions.fill, (1, "value", 3)),
        (functions.norm2("value"), ("m",)),
    ],
)
def test_wrong_arguments_are_the_callers_fault(function, args):
    with pytest.raises(errors.InvalidArgument):
        functions.called(function, args)


def test_numpy_scalars_are_good_arguments_and_own_functions_are_not_built_in():
    assert functions.called(functions.scale, [np.float32(0.5)]).a == 0.5
    assert functions.called(functions.top_k, [np.int64(5)]).k == 5
    assert functions.called(len, []) is None


def test_every_public_function_is_documented_and_found_by_name():
    for name, kind in functions.BUILT_IN.items():
        assert kind.__doc__
        assert kind.name == name
        assert hasattr(functions, name) or kind.__module__ == quasi_newton.__name__


def test_a_number_that_no_message_holds_is_refused():
    with pytest.raises(errors.InvalidArgument, match="norm2"):
        functions.called(functions.norm2, (2**70,))
