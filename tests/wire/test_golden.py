"""The bytes of every message are fixed; see ``golden.py`` for how to add one."""

import json
import re
from pathlib import Path

import msgspec
import pytest

import sparkps.wire
from sparkps.wire import messages
from sparkps.wire.frames import BUFFERS, decode_control, encode_control
from sparkps.wire.messages import Message
from tests.wire.golden import MESSAGES, PATH, example

GOLDEN: dict[str, str] = json.loads(PATH.read_text())
PROTOCOL = Path(sparkps.wire.__file__).with_name("PROTOCOL.md").read_text()


def test_every_message_is_in_the_golden_file_and_in_a_union() -> None:
    assert [kind.__name__ for kind in MESSAGES] == list(GOLDEN)
    assert set(MESSAGES) == set(Message.__subclasses__())
    tags = [kind.__struct_config__.tag for kind in MESSAGES]
    assert len(set(tags)) == len(tags)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_message_has_its_golden_bytes(kind: type[Message]) -> None:
    data = bytes.fromhex(GOLDEN[kind.__name__])
    assert msgspec.msgpack.encode(example(kind)) == data
    assert msgspec.msgpack.decode(data, type=kind) == example(kind)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_a_field_added_at_the_end_by_a_newer_side_is_ignored(kind: type[Message]) -> None:
    longer = [*msgspec.msgpack.decode(bytes.fromhex(GOLDEN[kind.__name__])), "new"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(longer), type=kind) == example(kind)


def test_control_messages_are_one_frame() -> None:
    tick = messages.Tick(session=1, rank=2, token=3, clock=4, numbers=[(3, {"loss": 0.5})])
    assert decode_control(encode_control(tick)) == tick


def test_the_spec_lists_every_message_with_its_tag_and_the_version() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", PROTOCOL, re.MULTILINE)
    assert {(int(tag), name) for tag, name in rows} == {
        (kind.__struct_config__.tag, kind.__name__) for kind in MESSAGES
    }
    assert f"Version {messages.VERSION}" in PROTOCOL


def test_the_buffers_of_every_data_message_are_counted() -> None:
    assert set(BUFFERS) == {kind for kind in MESSAGES if kind.__struct_config__.tag < 64}
