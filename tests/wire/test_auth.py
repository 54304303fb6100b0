"""The application's key, and whom a ticket admits."""

from __future__ import annotations

import pickle

import pytest

from sparkps.errors import InvalidArgument, NotAdmitted
from sparkps.wire import auth
from sparkps.wire.auth import TICKET_SECONDS, Admission, Secret, new_ticket

SECRET = Secret("5a" * 32)
KEY = SECRET.derive("ticket")
NOW = 1000.0


def ticket(**changed: object) -> bytes:
    fields = {"key": KEY, "client": b"me", "server": 3, "incarnation": 7, "now": NOW}
    return new_ticket(**{**fields, **changed})  # type: ignore[arg-type]


@pytest.fixture
def admission() -> Admission:
    return Admission(KEY, 3, 7)


def test_a_key_is_64_hex_digits_and_nothing_else_is_shown() -> None:
    assert Secret(SECRET.hex).hex == "5a" * 32
    for text in ("", "5a" * 31, "5a" * 33, "5A" * 32, "5g" * 32, "5a" * 32 + "\n", "é" * 64):
        with pytest.raises(InvalidArgument, match="64 hex digits") as error:
            Secret(text)
        assert text == "" or text not in str(error.value)


def test_a_key_hides_itself() -> None:
    assert repr(SECRET) == str(SECRET) == f"{SECRET}" == "<Secret>"
    assert SECRET.hex not in repr({"key": SECRET})


def test_new_keys_and_what_is_derived_from_them_differ() -> None:
    assert Secret.new().hex != Secret.new().hex
    purposes = [SECRET.derive(purpose) for purpose in ("ticket", "curve listener", "curve caller")]
    assert len({*purposes, bytes.fromhex(SECRET.hex)}) == 4
    assert all(len(key) == 32 for key in purposes)
    assert Secret("5a" * 32).derive("ticket") == KEY


def test_a_ticket_admits_its_client_once(admission: Admission) -> None:
    one = ticket()
    admission.check(one, b"me", NOW)
    admission.check(ticket(), b"me", NOW)
    with pytest.raises(NotAdmitted, match="the ticket was used before"):
        admission.check(one, b"me", NOW + 1)


@pytest.mark.parametrize(
    "changed",
    [
        {"key": Secret("5b" * 32).derive("ticket")},
        {"key": SECRET.derive("curve caller")},
        {"client": b"you"},
        {"client": b"me "},
        {"server": 4},
        {"incarnation": 8},
    ],
    ids=str,
)
def test_a_ticket_of_anything_else_is_refused(admission: Admission, changed: object) -> None:
    with pytest.raises(NotAdmitted, match="not made with this application's key for this server"):
        admission.check(ticket(**changed), b"me", NOW)  # type: ignore[arg-type]


def test_every_altered_bit_is_refused(admission: Admission) -> None:
    good = ticket()
    for number in range(8 * len(good)):
        altered = bytearray(good)
        altered[number // 8] ^= 1 << number % 8
        with pytest.raises(NotAdmitted):
            admission.check(bytes(altered), b"me", NOW)
    admission.check(good, b"me", NOW)


def test_every_other_length_is_refused(admission: Admission) -> None:
    good = ticket()
    for other in (b"", *(good[:length] for length in range(1, len(good))), good + b"\0"):
        with pytest.raises(NotAdmitted):
            admission.check(other, b"me", NOW)


def test_bytes_do_not_move_from_one_field_to_the_next() -> None:
    # What is signed has fixed lengths, but for the client's name at its end.
    good = ticket(client=b"ab")
    with pytest.raises(NotAdmitted):
        Admission(KEY, 3, 7).check(good[:-32] + b"a" + good[-32:], b"b", NOW)


def test_a_ticket_is_good_for_a_minute(admission: Admission) -> None:
    admission.check(ticket(), b"me", NOW + TICKET_SECONDS)
    with pytest.raises(NotAdmitted, match="the ticket has expired"):
        admission.check(ticket(), b"me", NOW + TICKET_SECONDS + 0.001)


@pytest.mark.parametrize("ahead", [TICKET_SECONDS + 0.001, 1e9, float("inf"), float("nan")])
def test_a_ticket_of_the_future_is_refused(admission: Admission, ahead: float) -> None:
    # Its nonce would have to be remembered for as long.
    with pytest.raises(NotAdmitted, match="the ticket has expired"):
        admission.check(ticket(now=NOW + ahead), b"me", NOW)


def test_clocks_may_differ_by_a_minute(admission: Admission) -> None:
    admission.check(ticket(now=NOW + TICKET_SECONDS), b"me", NOW)


def test_nonces_are_remembered_up_to_a_bound_until_they_expire(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "MOST_NONCES", 3)
    first = ticket()
    admission.check(first, b"me", NOW)
    later = NOW + 2
    for _ in range(2):
        admission.check(ticket(now=later), b"me", later)
    with pytest.raises(NotAdmitted, match="too many connections were made within a minute"):
        admission.check(ticket(now=later), b"me", later)
    then = NOW + TICKET_SECONDS + 1  # the first has expired, the others have not
    admission.check(ticket(now=then), b"me", then)
    with pytest.raises(NotAdmitted, match="too many"):
        admission.check(ticket(now=then), b"me", then)
    with pytest.raises(NotAdmitted, match="has expired"):
        admission.check(first, b"me", then)


def test_refused_tickets_are_not_remembered(
    admission: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auth, "MOST_NONCES", 1)
    for forged in (ticket(server=4), ticket(now=NOW - 1000), bytes(56)):
        with pytest.raises(NotAdmitted):
            admission.check(forged, b"me", NOW)
    admission.check(ticket(), b"me", NOW)


def test_the_sentence_names_the_server_and_survives_a_pickle(admission: Admission) -> None:
    with pytest.raises(PermissionError) as error:
        admission.check(b"", b"me", NOW)
    assert str(pickle.loads(pickle.dumps(error.value))) == (
        "server 3 does not admit this connection: the ticket was not made with this application's "
        "key for this server. Only processes that hold the application's key may connect"
    )
