"""Arrays of JAX: nothing written, two frameworks refused."""

import numpy as np
import pytest

from adjudge import Status, Verdict, examine, gradcheck, gradgradcheck
from adjudge.errors import MixedFrameworksError

pytestmark = pytest.mark.backend("jax")


# ---------------------------------------------------------------- the caller's arrays


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("donated", [0, 1, (0, 1)])
def test_a_call_may_use_up_the_arrays_that_it_is_handed(jax, jnp, x, with_vjp, donated, factor):
    # JAX itself has no derivative of what keeps an array that it has used up
    rule = with_vjp(lambda x: 3 * x, lambda x, w: 3 * factor * w)
    n = jnp.arange(x.size).reshape(x.shape)

    report = examine(jax.jit(lambda x, n: rule(x) + n, donate_argnums=donated), (x, n))

    assert report.verdict is (Verdict.PASS if factor == 1.0 else Verdict.FAIL)
    assert not x.is_deleted()
    assert not n.is_deleted()


def test_arrays_of_the_caller_are_what_they_were(jax, jnp, x):
    n = jnp.arange(3)
    before = np.array(x).tobytes(), np.array(n).tobytes()

    gradcheck(lambda x, n: jnp.sin(x) * n, (x, n), check_forward_ad=True)
    gradgradcheck(lambda x, n: jnp.sin(x) * n, (x, n))

    assert (np.array(x).tobytes(), np.array(n).tobytes()) == before
    assert not x.is_deleted()


def test_numpy_constants_are_handed_over_as_copies(jnp, x):
    constant = np.array([1.0, 2.0, 3.0])

    def f(x, constant):
        constant += 1.0
        return x * jnp.asarray(constant[0])

    report = examine(f, (x, constant), wrt=0, seed=0)

    assert constant.tolist() == [1.0, 2.0, 3.0]
    assert report


# ---------------------------------------------------------------- two frameworks


def test_arrays_of_jax_and_numpy_together_need_wrt(jnp, x):
    constant = np.array([1.0, 2.0, 3.0])

    def f(x, c):
        return x * jnp.asarray(c)

    with pytest.raises(MixedFrameworksError) as raised:
        gradcheck(f, (x, constant))

    message = str(raised.value)
    assert "inputs[0] belongs to jax and inputs[1] to numpy" in message
    assert "wrt=" in message
    assert gradcheck(f, (x, constant), wrt=0)


def test_numpy_integers_and_python_numbers_are_constants(jnp, x):
    report = gradcheck(
        lambda x, n, a, b: x * jnp.asarray(n) * a * b,
        (x, np.arange(3), 2.0, np.float64(3)),
        seed=0,
        mode="full",
    )

    assert report.counts["comparisons"] == 9


def test_a_name_that_the_adapter_has_not_is_an_attribute_error():
    import adjudge_jax

    with pytest.raises(AttributeError, match="check_gradients"):
        _ = adjudge_jax.check_gradients


@pytest.mark.parametrize("number", [1.3, np.float64(1.3), np.float32(1.3)])
def test_a_number_beside_an_array_is_named_as_not_checked(number, x):
    report = examine(lambda x, b: x * b, (x, number))

    notes = [one for one in report.findings if one.status is Status.UNCHECKED]
    assert ["inputs[1]"] == [name for one in notes for name in one.detail.names]
    assert "pass them as floating arrays" in str(report)
    assert not examine(lambda x, b: x * b, (x, number), wrt=0).findings
    assert not examine(lambda x, n: x * n, (x, 2)).findings
