import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkps.errors import MalformedRequest
from sparkps.wire import messages
from sparkps.wire.frames import (
    MAX_CONTROL,
    MAX_FIELDS,
    MAX_HEADER,
    as_array,
    decode_control,
    decode_from_server,
    decode_to_server,
    encode,
    encode_control,
    size,
)
from sparkps.wire.messages import (
    Acked,
    Chunk,
    Function,
    Message,
    Ping,
    Pull,
    Push,
    Results,
    Rows,
    Scan,
)
from tests.wire.golden import MESSAGES, example

PULL = Pull(id=1, table=2, session=3, rank=4, token=5, clock=6, view=7)
PUSH = Push(id=1, table=2, session=3, rank=4, token=5, clock=6, view=7, seq=8)
CALL = Function(id=1, table=2, session=3, rank=4, token=5, clock=6, view=7, seq=8)


def change(message: Message, **fields: object) -> Message:
    return msgspec.structs.replace(message, **fields)


def test_buffers_come_back_as_they_went_in() -> None:
    parts, keys = np.zeros((3, 2), np.int32), np.arange(5)
    frames = encode(PULL, parts, keys)
    assert frames[1] is parts
    message, buffers = decode_to_server(frames)
    assert message == PULL
    assert buffers[0] is parts
    assert buffers[1] is keys


TO_SERVER = [
    (Ping(id=1), {0}),
    (PULL, {2}),
    (change(PULL, mode=messages.ORDINALS), {2}),
    (change(PULL, mode=messages.KEYSET), {0}),
    (PUSH, {3}),
    (change(PUSH, mode=messages.KEYSET, kind=messages.ASSIGN), {2}),
    (change(PUSH, kind=messages.RESTORE), set(range(3, 4 + MAX_FIELDS))),
    (CALL, {2}),
    (change(CALL, name="sum"), {1}),
    (change(CALL, kind=messages.CONFIGURE), {1}),
    (change(CALL, kind=messages.APPLY), {2}),
    (Scan(id=1, table=2, view=3), {1}),
]
FROM_SERVER = [
    (Rows(id=1), {1}),
    (Acked(id=1), {0, 1}),
    (Results(id=1), {1, 2}),
    (Results(id=1, shapes=[(0, [("int8", ()), ("int8", ())]), (3, [])]), {3}),
    (Chunk(id=1, rows=[], more=False), set(range(100))),
]


@pytest.mark.parametrize(("message", "allowed"), TO_SERVER)
def test_a_request_has_its_number_of_buffers(message: Message, allowed: set[int]) -> None:
    for count in range(80):
        frames = encode(message, *[b""] * count)
        if count in allowed:
            assert decode_to_server(frames)[0] == message
        else:
            with pytest.raises(MalformedRequest, match=rf"with {count} buffers instead of \d+"):
                decode_to_server(frames)


@pytest.mark.parametrize(("message", "allowed"), FROM_SERVER)
def test_an_answer_has_its_number_of_buffers(message: Message, allowed: set[int]) -> None:
    for count in range(5):
        frames = encode(message, *[b""] * count)
        if count in allowed:
            assert decode_from_server(frames)[0] == message
        else:
            with pytest.raises(MalformedRequest, match=f"with {count} buffers instead of"):
                decode_from_server(frames)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (change(PULL, mode=3), "there is no mode 3"),
        (change(PUSH, mode=-1), "there is no mode -1"),
        (change(PUSH, kind=9), "there is no kind of Push 9"),
        (change(CALL, kind=9), "there is no kind of Function 9"),
    ],
)
def test_an_unknown_kind_is_refused(message: Message, reason: str) -> None:
    with pytest.raises(MalformedRequest, match=reason):
        decode_to_server(encode(message, b"", b"", b""))


def test_each_side_takes_only_its_own_messages() -> None:
    for decode, good in (
        (decode_to_server, range(32)),
        (decode_from_server, range(32, 64)),
        (lambda frames: decode_control(frames[0]), range(64, 256)),
    ):
        for kind in MESSAGES:
            frames = [msgspec.msgpack.encode(example(kind))]
            if kind.__struct_config__.tag in good:
                try:
                    decode(frames)
                except MalformedRequest as error:
                    assert "buffers instead of" in str(error) or "there is no" in str(error)  # noqa: PT017
            else:
                with pytest.raises(MalformedRequest, match="Invalid value"):
                    decode(frames)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "truncated"),
        (b"\xc1", "broken header"),
        (b"\x90", "broken header"),
        (b"\x92\x08\xa1\xff", "broken header"),  # text where a number belongs
        (b"\x91" * 100_000, "broken header"),
        (b"\x93\x21\x01\xdd\xff\xff\xff\xff", "broken header"),  # four thousand million entries
        (bytes(MAX_HEADER + 1), f"a header of {MAX_HEADER + 1} bytes; the limit is {MAX_HEADER}"),
    ],
)
def test_a_broken_header_is_malformed(header: bytes, reason: str) -> None:
    with pytest.raises(MalformedRequest, match=reason):
        decode_to_server([header])


def test_no_frames_are_malformed() -> None:
    with pytest.raises(MalformedRequest, match="a message has no header"):
        decode_to_server([])


def test_a_control_message_has_a_limit() -> None:
    with pytest.raises(MalformedRequest, match=f"the limit is {MAX_CONTROL}"):
        decode_control(bytes(MAX_CONTROL + 1))


DECODERS = [decode_to_server, decode_from_server, lambda frames: decode_control(frames[0])]


def survives(frames: list[bytes]) -> None:
    """Every decoder gives a message or MalformedRequest; nothing else."""
    for decode in DECODERS:
        try:
            decode(frames)
        except MalformedRequest as error:
            assert str(error).startswith("malformed request: ")  # noqa: PT017


@given(st.binary(max_size=200), st.lists(st.just(b""), max_size=4))
def test_any_bytes_are_a_message_or_malformed(header: bytes, buffers: list[bytes]) -> None:
    survives([header, *buffers])


@given(st.sampled_from(MESSAGES), st.data())
def test_a_bent_message_is_a_message_or_malformed(kind: type[Message], data: st.DataObject) -> None:
    header = bytearray(msgspec.msgpack.encode(example(kind)))
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(header) - 1))
        header[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(header)))
    survives([bytes(header[:cut]), b"", b""])


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=20,
)


@given(st.sampled_from(MESSAGES), st.lists(PLAIN, max_size=14), st.lists(st.binary(), max_size=4))
def test_fields_of_any_type_are_a_message_or_malformed(
    kind: type[Message], fields: list[object], buffers: list[bytes]
) -> None:
    header = msgspec.msgpack.encode([kind.__struct_config__.tag, *fields])
    survives([header, *buffers])


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_a_buffer_is_viewed_not_copied(dtype: str) -> None:
    array = np.arange(6).astype(dtype)
    for buffer in (array, memoryview(array), array.tobytes(), memoryview(array.tobytes())):
        assert as_array(buffer, dtype).tolist() == list(range(6))
        assert as_array(buffer, dtype, columns=3).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert np.shares_memory(as_array(array, dtype, 2), array)
    assert as_array(array, dtype).flags.writeable
    assert not as_array(array.tobytes(), dtype).flags.writeable


def test_an_unaligned_buffer_is_copied() -> None:
    data = b"x" + np.arange(4).tobytes()
    view = as_array(memoryview(data)[1:], np.int64)
    assert view.tolist() == [0, 1, 2, 3]
    assert view.flags.aligned


def test_an_empty_buffer_is_an_empty_array() -> None:
    for buffer in (b"", memoryview(b""), np.zeros((0, 3), np.float32)):
        assert as_array(buffer, np.float32).shape == (0,)
        assert as_array(buffer, np.float32, columns=3).shape == (0, 3)
        assert size(buffer) == 0


@pytest.mark.parametrize(
    ("length", "columns", "row"),
    [(7, None, "float32"), (4, 2, r"\(2, float32\)"), (12, 2, r"\(2, float32\)")],
)
def test_a_part_of_a_row_is_malformed(length: int, columns: int | None, row: str) -> None:
    with pytest.raises(
        MalformedRequest, match=f"a buffer of {length} bytes is no whole number of rows of {row}"
    ):
        as_array(bytes(length), "float32", columns)


def test_encode_control_is_the_header_alone() -> None:
    assert encode_control(Ping(id=7)) == encode(Ping(id=7))[0] == b"\x92\x08\x07"
