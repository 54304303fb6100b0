import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkps.errors import MalformedRequest, WrongType
from sparkps.wire.arrays import DTYPES, pack, unpack
from sparkps.wire.effects import Buffer
from sparkps.wire.frames import decode_from_server, encode
from sparkps.wire.messages import Results


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (0, 4)])
def test_an_array_comes_back_with_its_type_and_shape(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype)
    shapes, buffers = pack([(5, [array])])
    ((partition, (back,)),) = unpack(shapes, [np.asarray(each).tobytes() for each in buffers])
    assert partition == 5
    assert back.dtype == array.dtype
    assert back.shape == shape
    assert np.array_equal(back, array)


def test_lists_of_many_partitions_cross_the_wire() -> None:
    results = [(2, [np.arange(4), 7]), (9, []), (11, [np.float32(0.5)])]
    shapes, buffers = pack(results)
    message, received = decode_from_server(encode(Results(id=1, shapes=shapes), b"", *buffers))
    assert isinstance(message, Results)
    back = unpack(message.shapes, received[1:])
    assert [(p, [a.tolist() for a in arrays]) for p, arrays in back] == [
        (2, [[0, 1, 2, 3], 7]),
        (9, []),
        (11, [0.5]),
    ]


def test_a_view_that_is_not_contiguous_is_copied() -> None:
    array = np.arange(12).reshape(3, 4)
    ((_, (back,)),) = unpack(*pack([(0, [array.T[::2]])]))
    assert np.array_equal(back, array.T[::2])


@pytest.mark.parametrize("bad", ["text", object(), 1j, np.array(["a"]), np.zeros(2, ">f8")])
def test_only_plain_numbers_travel(bad: object) -> None:
    with pytest.raises(WrongType, match=r"a result is of dtype .*; one of plain numbers is needed"):
        pack([(0, [bad])])


@pytest.mark.parametrize(
    ("dtype", "shape", "buffer"),
    [
        ("object", (1,), bytes(8)),
        ("float32", (2,), bytes(4)),
        ("float32", (-1,), bytes(4)),
        ("float32", (-1, -1), bytes(4)),
        ("float32", (2**62, 4), bytes(4)),
        ("int8", (1,) * 65, bytes(1)),
    ],
)
def test_shapes_that_do_not_fit_are_malformed(
    dtype: str, shape: tuple[int, ...], buffer: Buffer
) -> None:
    with pytest.raises(MalformedRequest, match=r"no array has dtype|is no float32 array of shape"):
        unpack([(0, [(dtype, shape)])], [buffer])


def test_too_few_buffers_are_malformed() -> None:
    with pytest.raises(MalformedRequest, match=r"0 buffers do not fit the shapes"):
        unpack([(0, [("int8", ())])], [])


@given(
    st.lists(
        st.tuples(st.sampled_from([*DTYPES, "O"]), st.lists(st.integers(-2, 2**40)).map(tuple))
    ),
    st.lists(st.binary(max_size=64)),
)
def test_any_shapes_are_arrays_or_malformed(
    arrays: list[tuple[str, tuple[int, ...]]], buffers: list[Buffer]
) -> None:
    with contextlib.suppress(MalformedRequest):
        unpack([(0, arrays)], buffers)
