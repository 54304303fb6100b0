import numpy as np
import pytest

from sparkps.errors import InvalidArgument
from sparkps.spec import InitSpec
from sparkps.store.init import Normal, Uniform, as_init


def test_numbers_are_constants():
    assert as_init(np.float32(0.5)) == InitSpec("constant", 0.5)
    assert as_init(3) == InitSpec("constant", 3.0)
    assert as_init(Normal(0.1)) == Normal(0.1) == InitSpec("normal", 0.0, 0.1)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Normal(-1), "std=-1.0: must not be negative"),
        (lambda: Normal(float("inf")), "std=inf: must be a finite number"),
        (lambda: Uniform(1, 0), "a=1.0: must not be above b=0.0"),
        (lambda: as_init("zeros"), "init='zeros': must be a finite number"),
    ],
)
def test_nonsense_is_named(call, sentence):
    with pytest.raises(InvalidArgument) as caught:
        call()
    assert str(caught.value) == sentence


@pytest.mark.parametrize("number", [10**400, np.arange(2), "1", None, float("nan")])
def test_what_is_no_finite_number_is_refused(number):
    with pytest.raises(InvalidArgument, match="must be a finite number"):
        as_init(number)
