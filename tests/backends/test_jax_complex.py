"""Complex numbers in JAX: the adapter's conjugations make the transpose the adjoint."""

import numpy as np
import pytest

from adjudge import Verdict, examine

pytestmark = pytest.mark.backend("jax")

FUNCTIONS = ["C to C", "C to C, not holomorphic", "C to R", "R to C"]
SECOND = ["RR", "FR", "RF", "FF"]


@pytest.fixture
def z(double):
    return double(np.array([1 + 2j, -0.5 + 0.3j, 0.7 - 1j]))


@pytest.fixture
def problem(jnp, z):
    functions = {
        "C to C": lambda z: z * jnp.exp(z),
        "C to C, not holomorphic": lambda z: jnp.conj(z) * z**2 + z.real,
        "C to R": lambda z: jnp.abs(z) ** 2,
        "R to C": lambda x: jnp.exp(1j * x) * x,
    }
    return lambda name: (functions[name], (z.real if name == "R to C" else z,))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_second_derivatives_pass_in_all_compositions(problem, name):
    f, inputs = problem(name)

    report = examine(f, inputs, modes=SECOND, mode="projected", seed=0)

    assert report.verdict is Verdict.PASS
    assert set(SECOND) <= set(report.modes)


def test_a_conjugate_too_many_in_the_vjp_fails(jnp, z, with_vjp):
    right = with_vjp(jnp.square, lambda z, w: (w * 2 * z,))
    wrong = with_vjp(jnp.square, lambda z, w: (w * 2 * jnp.conj(z),))

    assert examine(right, (z,), seed=0)
    assert examine(wrong, (z,), seed=0).verdict is Verdict.FAIL
    assert examine(lambda z: wrong(z).real, (z,), seed=0).verdict is Verdict.FAIL
    assert examine(wrong, (z,), mode="projected", seed=0).verdict is Verdict.FAIL


def test_a_conjugate_too_many_in_the_jvp_fails_in_both_modes(jnp, z, with_jvp):
    wrong = with_jvp(jnp.square, lambda z, v: 2 * jnp.conj(z) * v)

    report = examine(wrong, (z,), check_forward_ad=True, seed=0)

    assert report.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}


def test_a_conjugate_too_many_in_the_second_derivative_fails(jnp, z, with_jvp):
    def cube(conjugate):
        slope = with_jvp(lambda z: 3 * z**2, lambda z, v: 6 * conjugate(z) * v)
        return with_jvp(lambda z: z**3, lambda z, v: slope(z) * v)

    right = examine(cube(lambda z: z), (z,), modes=["R", *SECOND], seed=0)
    wrong = examine(cube(jnp.conj), (z,), modes=["R", *SECOND], seed=0)

    assert right.verdict is Verdict.PASS
    assert wrong.modes["R"] is Verdict.PASS
    assert {wrong.modes[mode] for mode in SECOND} == {Verdict.FAIL}


def test_an_imaginary_part_lost_in_the_gradient_fails(jnp, z, with_vjp):
    wrong = with_vjp(jnp.square, lambda z, w: ((w * 2 * z).real.astype(z.dtype),))

    report = examine(wrong, (z,), seed=0)

    assert report.verdict is Verdict.FAIL
    assert all(entry.wrt.endswith((".real", ".imag")) for entry in report.entries)


@pytest.mark.parametrize("kept", ["cotangent", "gradient", "neither"])
def test_without_the_conjugations_of_the_adapter_right_derivatives_fail(jax, problem, kept):
    from adjudge_jax import JaxBackend

    class Without(JaxBackend):
        def vjp(self, f, x):
            y, transpose = jax.vjp(lambda *leaves: f(leaves), *x)
            before = jax.numpy.conj if kept == "cotangent" else lambda w: w
            after = jax.numpy.conj if kept == "gradient" else lambda g: g
            filled = self.arrays.zeros_for_absent
            return y, lambda w: tuple(map(after, transpose(tuple(map(before, filled(w, y))))))

    f, inputs = problem("C to C, not holomorphic")

    right, wrong = (
        examine(f, inputs, backend=engine(), seed=0, blame=False)
        for engine in (JaxBackend, Without)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(4))
def test_an_imaginary_part_that_is_rounding_is_zero(jnp, seed):
    random = np.random.default_rng(seed)
    z = jnp.asarray(random.normal(size=4) + 1j * random.normal(size=4))

    report = examine(lambda z: z * jnp.conj(z), (z,), check_forward_ad=True, seed=0)

    assert report.provenance.dtype == "complex64"
    assert report.verdict is Verdict.PASS


def test_a_derivative_that_cancels_to_rounding_is_no_disagreement(jnp, z):
    report = examine(
        lambda z: jnp.exp(1j * z) * jnp.conj(jnp.exp(1j * z)), (z,), check_forward_ad=True, seed=0
    )

    assert report.verdict is Verdict.PASS


def test_a_real_and_a_complex_input_are_checked_together(jnp, z, with_vjp):
    def f(z, x):
        return z * x

    def backward(of_x):
        return lambda z, x, w: (w * x, of_x(w * z))

    right = with_vjp(f, backward(lambda g: g.real))
    wrong = with_vjp(f, backward(lambda g: -g.real))

    assert examine(right, (z, z.real), seed=0).verdict is Verdict.PASS
    report = examine(wrong, (z, z.real), seed=0)
    assert report.verdict is Verdict.FAIL
    assert {entry.wrt.partition("]")[0] for entry in report.entries} == {"inputs[1"}
