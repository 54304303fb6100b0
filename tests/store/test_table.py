"""What every table must do, dense or hashed."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from sparkps.errors import InvalidArgument, MalformedRequest, MemoryLimit
from sparkps.kernels.partitions import init_values
from sparkps.optim import FTRL, SGD, AdaGrad, Adam, FieldSpec, Optimizer
from sparkps.spec import InitSpec

DIM = 1000


@dataclass(frozen=True)
class Half(Optimizer):
    """A user's own optimizer, which forgets to work in place."""

    def fields(self):
        return (FieldSpec("pushes", per_row=True, initial=5),)

    def update(self, fields, grads):
        fields["pushes"] = fields["pushes"] + 1
        fields["value"] = fields["value"] - 0.5 * grads


@dataclass(frozen=True)
class Broken(Optimizer):
    def update(self, fields, grads):
        fields["value"] += 1
        raise ZeroDivisionError("mine")


@dataclass(frozen=True)
class Shapeless(Optimizer):
    def update(self, fields, grads):
        fields["value"] = grads.sum()


class TestTable:
    """Dense tables; the hashed ones below inherit these tests."""

    space: ClassVar = {"dim": DIM}

    def keys(self, n, seed=0):
        return np.random.default_rng(seed).choice(DIM, n, replace=False).astype(np.int64)

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
    @pytest.mark.parametrize("width", [1, 3])
    def test_pushes_add_and_pulls_see_them_in_the_callers_order(
        self, make, push, pull, dtype, width
    ):
        table = make(dtype=dtype, width=width, **self.space)
        keys = self.keys(100)
        values = np.arange(100 * width).reshape(100, width).astype(dtype)
        values = values[:, 0] if width == 1 else values
        push(table, keys, values)
        push(table, keys[::-1], values[::-1])
        assert pull(table, keys).tolist() == (2 * values).tolist()
        assert pull(table, keys).dtype == dtype

    def test_a_table_without_optimizer_takes_repeated_keys(self, make, push, pull):
        table = make(**self.space)
        push(table, [7, 7, 3], [1, 2, 4])
        assert pull(table, [3, 7]).tolist() == [4, 3]

    def test_a_message_of_no_keys_is_legal(self, make, message):
        table = make(AdaGrad(), **self.space)
        parts, keys, values, _ = message(table, [], np.zeros(0, np.float32))
        rows = table.resolve(parts, keys, create=True)
        table.push(parts, rows, values)
        table.assign(parts, rows, values)
        table.seal(parts, rows, values)
        assert table.read(parts, rows, keys).shape == (0,)
        assert (table.missing(parts, keys), table.growth(parts)) == (0, 0)

    @pytest.mark.parametrize("init", [InitSpec("normal", 0.0, 0.1), InitSpec("uniform", 1, 2)])
    def test_an_absent_row_reads_as_its_first_write_would_find_it(self, make, push, pull, init):
        table = make(init=init, seed=3, width=2, **self.space)
        keys = self.keys(50)
        before = pull(table, keys)
        expected = init_values((init.kind, init.a, init.b), 3, keys, 2, "float32")
        assert before.tobytes() == expected.tobytes()
        push(table, keys, np.zeros((50, 2)))
        assert pull(table, keys).tobytes() == before.tobytes()

    def test_what_a_read_returns_is_not_the_tables_memory(self, make, push, pull):
        table = make(**self.space)
        push(table, [1, 2], [1, 1])
        pull(table, [1, 2])[:] = 9
        assert pull(table, [1, 2]).tolist() == [1, 1]

    def test_a_seal_sums_repeated_rows_and_calls_the_optimizer_once(self, make, message, pull):
        table, reference = make(AdaGrad(), **self.space), make(AdaGrad(), **self.space)
        keys, values = np.array([5, 900, 5, 5]), np.array([1, 2, 3, 4], np.float32)
        parts, grouped, grads, _ = message(table, keys, values)
        table.seal(parts, table.resolve(parts, grouped, create=True), grads)
        parts, grouped, grads, _ = message(reference, [5, 900], np.array([8, 2], np.float32))
        reference.push(parts, reference.resolve(parts, grouped, create=True), grads)
        for field in range(2):
            assert (
                pull(table, [5, 900], field).tobytes() == pull(reference, [5, 900], field).tobytes()
            )

    @pytest.mark.parametrize("optimizer", [None, SGD(), Adam(), FTRL(l1=0.1), Half()])
    def test_of_equal_keys_the_last_assigned_value_wins(self, make, message, pull, optimizer):
        table = make(optimizer, **self.space)
        values = np.array([1.5, 2.5, 3.5], np.float32)
        parts, grouped, values, _ = message(table, [4, 4, 8], values)
        table.assign(parts, table.resolve(parts, grouped, create=True), values)
        assert pull(table, [4, 8]).tolist() == [2.5, 3.5]

    @pytest.mark.parametrize("width", [1, 2])
    def test_a_users_optimizer_runs_on_gathered_rows(self, make, push, pull, width):
        table = make(Half(), width=width, **self.space)
        grads = np.ones((2, width))
        for _ in range(3):
            push(table, [10, 20], grads[:, 0] if width == 1 else grads)
        assert np.all(pull(table, [10, 20]) == -1.5)
        assert pull(table, [10, 20], 1).tolist() == [8, 8]
        assert table.field_names == ("value", "pushes")

    def test_a_users_optimizer_that_raises_has_changed_nothing(self, make, push, pull):
        table = make(Broken(), **self.space)
        with pytest.raises(ZeroDivisionError, match="mine"):
            push(table, [1, 2], [1, 1])
        assert pull(table, [1, 2]).tolist() == [0, 0]

    def test_a_field_left_in_another_shape_is_named(self, make, push):
        table = make(Shapeless(), **self.space)
        with pytest.raises(ValueError, match=r"Shapeless left 'value' as float32 \(\)"):
            push(table, [1, 2], [1, 1])

    def test_configure_changes_the_kernels_numbers_too(self, make, push, pull):
        table = make(SGD(lr=1.0), **self.space)
        push(table, [1], [1])
        table.configure({"lr": 0.5})
        push(table, [1], [1])
        assert pull(table, [1]).tolist() == [-1.5]
        with pytest.raises(InvalidArgument, match="lr=-1"):
            table.configure({"lr": -1})
        push(table, [1], [1])
        assert pull(table, [1]).tolist() == [-2]

    def test_a_table_without_optimizer_refuses_configure(self, make):
        with pytest.raises(InvalidArgument, match="table 't' has no optimizer to configure"):
            make(**self.space).configure({"lr": 1})

    def test_an_unknown_field_is_a_malformed_request(self, make, pull):
        with pytest.raises(MalformedRequest, match=r"field 3; 2 fields \(value, n\) are there"):
            pull(make(AdaGrad(), **self.space), [1], field=3)

    def test_a_partition_that_is_not_here_is_refused(self, make, pull):
        table = make(here=[0], **self.space)
        with pytest.raises(ValueError, match=r"partition \d is not open"):
            pull(table, self.keys(100))

    def test_an_image_loads_into_another_table_row_for_row(self, make, push):
        table = make(Adam(), width=2, **self.space)
        for seed in range(3):
            push(table, self.keys(200, seed), np.ones((200, 2)))
        copy = make(Adam(), width=2, here=[], **self.space)
        for p in range(4):
            image = table.image(p)
            copy.load(p, image.pop("key"), list(image.values()), log=p + 7)
        for p in range(4):
            assert copy.array.log(p) == p + 7
            for name, numbers in table.arrays(p).items():
                assert numbers.tobytes() == copy.arrays(p)[name].tobytes(), name

    def test_restored_rows_have_all_their_fields_again(self, make, push, pull, message):
        table, copy = (make(Adam(), width=2, **self.space) for _ in range(2))
        keys = self.keys(100)
        push(table, keys, np.ones((100, 2)))
        parts, grouped, _, _ = message(table, keys)
        rows = table.resolve(parts, grouped, create=False)
        fields = [table.read(parts, rows, grouped, i) for i in range(4)]
        rows = copy.resolve(parts, grouped, create=True)
        wrong = [*fields[:3], fields[3].astype(float)]
        with pytest.raises(ValueError, match=r"field 't' is float64 \(100,\); int64 \(100,\)"):
            copy.restore(parts, rows, wrong)
        assert not np.any(pull(copy, keys))
        copy.restore(parts, rows, fields)
        for field in range(4):
            assert pull(copy, keys, field).tobytes() == pull(table, keys, field).tobytes()

    def test_a_load_of_too_few_fields_is_refused(self, make):
        table = make(AdaGrad(), **self.space)
        image = table.image(0)
        with pytest.raises(ValueError, match=r"1 fields are given; 2 fields \(value, n\)"):
            table.load(0, image["key"], [image["value"]], log=0)

    def test_functions_see_a_partition_and_may_change_it(self, make, push, pull):
        table = make(AdaGrad(), **self.space)
        push(table, self.keys(300), np.ones(300))

        def half(part, factor):
            assert part["n"].shape == (len(part),) == part.keys.shape
            part["value"] *= factor

        before = pull(table, self.keys(300))
        for p in range(4):
            table.apply(p, half, 0.5)
        assert pull(table, self.keys(300)).tolist() == (before * 0.5).tolist()

    def test_functions_of_reduce_cannot_write(self, make, push):
        table = make(**self.space)
        push(table, self.keys(300), np.ones(300))
        with pytest.raises(ValueError, match="read-only"):
            table.reduce(0, lambda part: part["value"].fill(0))
        assert table.reduce(0, len) == table.count([0])[0]

    def test_part_rng_depends_on_seed_partition_and_functions_before(self, make, push):
        def draw(table, p):
            return table.partition(p).rng.integers(2**60)

        table, same, other = (make(seed=seed, **self.space) for seed in (-1, -1, 2))
        assert draw(table, 0) == draw(same, 0)
        assert len({draw(table, 0), draw(table, 1), draw(other, 0)}) == 3
        before = draw(table, 0)
        table.apply(0, lambda part: None)
        assert draw(table, 0) != before
        assert draw(table, 1) == draw(same, 1)

    def test_ftrl_goes_on_from_a_value_that_a_function_changed(self, make, push, pull):
        table = make(FTRL(l1=0.01), **self.space)
        push(table, [1, 500], [1, -1])
        state = pull(table, [500], 1)

        def change(part):
            part["value"][part.keys == 1] = 0.25

        for p in range(4):
            table.apply(p, change)
        push(table, [1, 500], [0, 0])
        np.testing.assert_allclose(pull(table, [1]), [0.25], rtol=1e-6)
        assert pull(table, [500], 1).tobytes() == state.tobytes()

    def test_its_repr_fits_a_line(self, make):
        assert len(repr(make(**self.space))) < 120


class TestHashedTable(TestTable):
    space: ClassVar = {}

    def keys(self, n, seed=0):
        keys = np.random.default_rng(seed).integers(-(2**63), 2**63 - 1, n)
        keys[:3] = -(2**63), 2**63 - 1, -1
        return keys

    def test_reads_create_nothing_and_writes_create_in_order(self, make, message, pull):
        table = make(partitions=1)
        pull(table, [5, 3])
        assert table.count([0]).tolist() == [0]
        parts, keys, _, _ = message(table, [5, 3, 5, 9])
        assert table.missing(parts, keys) == 4
        assert table.resolve(parts, keys, create=True).tolist() == [0, 1, 0, 2]
        assert table.keys(0).tolist() == [5, 3, 9]
        assert table.missing(parts, keys) == 0

    @pytest.mark.parametrize("spare", [0, 10**9])
    def test_growth_is_never_less_than_what_is_added(self, make, message, spare):
        table = make(FTRL(), width=3, partitions=3)
        rng = np.random.default_rng(0)
        for n in (1, 10, 100, 1000, 10_000, 20_000, 40_000):
            parts, keys, _, _ = message(table, rng.integers(0, 2**62, n))
            bound, before = table.growth(parts, spare), table.nbytes
            table.resolve(parts, keys, create=True)
            assert table.nbytes - before <= bound

    def test_the_memory_limit_holds_before_anything_has_changed(self, make, message):
        table = make(limit=20_000)
        parts, keys, _, _ = message(table, np.arange(10_000))
        with pytest.raises(MemoryLimit):
            table.resolve(parts, keys, create=True)
        assert table.count(range(4)).tolist() == [0, 0, 0, 0]


def test_field_names_that_cannot_be_columns_are_refused(make):
    @dataclass(frozen=True)
    class Clash(Optimizer):
        def fields(self):
            return (FieldSpec("key"),)

    with pytest.raises(InvalidArgument, match="no good name of a field"):
        make(Clash())


def test_more_fields_than_a_partition_holds_are_refused(make):
    @dataclass(frozen=True)
    class Many(Optimizer):
        def fields(self):
            return tuple(FieldSpec(f"f{i}") for i in range(32))

    with pytest.raises(InvalidArgument, match="at most 32 fields"):
        make(Many())


def test_ftrl_refuses_another_init(make):
    with pytest.raises(InvalidArgument, match="start from 0"):
        make(FTRL(), init=InitSpec("constant", 1.0))
