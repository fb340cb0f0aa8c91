"""Wrong rules of `tanh(A @ B + b)` in JAX: the right one passes, every planted error fails."""

import numpy as np
import pytest

from adjudge import GradcheckError, Status, Verdict, examine, gradcheck

pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def point(double):
    random = np.random.default_rng(0)
    return tuple(double(random.normal(size=shape)) for shape in ((2, 2), (2, 2), (1, 2)))


@pytest.fixture
def layer(jnp):
    return lambda A, B, b: jnp.tanh(A @ B + b)


@pytest.fixture
def gradients(jnp):
    def backward(A, B, b, w):
        slope = w * (1 - jnp.tanh(A @ B + b) ** 2)
        return slope @ B.T, A.T @ slope, slope.sum(0, keepdims=True)

    return backward


@pytest.fixture
def tangent(jnp):
    def push(A, B, b, dA, dB, db):
        return (1 - jnp.tanh(A @ B + b) ** 2) * (dA @ B + A @ dB + db)

    return push


# what is done to the gradients of A, B and b
BACKWARD = {
    "sign": lambda A, B, b: (-A, B, b),
    "factor": lambda A, B, b: (A, 2 * B, b),
    "one entry": lambda A, B, b: (A.at[1, 0].multiply(1.001), B, b),
    "transpose": lambda A, B, b: (A.T, B, b),
    "two gradients exchanged": lambda A, B, b: (B, A, b),
    "mean for sum": lambda A, B, b: (A, B, b / 2),
    "one part in a million": lambda A, B, b: (A, B, (1 + 1e-6) * b),
    "zero": lambda A, B, b: (A, 0 * B, b),
    "absent": lambda A, B, b: (A, None, b),
    "NaN": lambda A, B, b: (A, B, b * np.nan),
}

SEEN_BY = {"one entry": "full", "one part in a million": "full"}
"""The other errors are seen by random projections."""

# what is done to the tangent; dB is that of B
FORWARD = {
    "sign": lambda t, dB: -t,
    "factor": lambda t, dB: 2 * t,
    "one entry": lambda t, dB: t.at[1, 0].multiply(1.001),
    "transpose": lambda t, dB: t.T,
    "missing term": lambda t, dB: t - dB,
    "one part in a million": lambda t, dB: (1 + 1e-6) * t,
    "zero": lambda t, dB: 0 * t,
    "NaN": lambda t, dB: t * np.nan,
}


def test_the_right_rules_pass(layer, gradients, tangent, point, with_vjp, with_jvp):
    backward = examine(with_vjp(layer, gradients), point, mode="full", seed=0, blame=False)
    forward = examine(
        with_jvp(layer, tangent), point, mode="full", seed=0, check_forward_ad=True, blame=False
    )

    assert backward.modes == {"R": Verdict.PASS}
    assert forward.modes == {"R": Verdict.PASS, "F": Verdict.PASS}
    assert backward.counts["comparisons"] == 4 * (4 + 4 + 2)
    assert forward.counts["comparisons"] == 2 * 4 * (4 + 4 + 2)


@pytest.mark.parametrize("error", BACKWARD)
def test_a_wrong_custom_vjp_fails(error, layer, gradients, point, with_vjp):
    def backward(*xw):
        return BACKWARD[error](*gradients(*xw))

    mode = SEEN_BY.get(error, "projected")
    report = examine(with_vjp(layer, backward), point, mode=mode, seed=0, blame=False)

    assert report.verdict is Verdict.FAIL
    assert report.modes == {"R": Verdict.FAIL}


@pytest.mark.parametrize("error", FORWARD)
def test_a_wrong_custom_jvp_fails_in_both_modes(error, layer, tangent, point, with_jvp):
    def push(A, B, b, dA, dB, db):
        return FORWARD[error](tangent(A, B, b, dA, dB, db), dB)

    report = examine(
        with_jvp(layer, push),
        point,
        mode=SEEN_BY.get(error, "projected"),
        seed=0,
        check_forward_ad=True,
        blame=False,
    )

    assert report.verdict is Verdict.FAIL
    assert report.modes == {"R": Verdict.FAIL, "F": Verdict.FAIL}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("off", [0.0, 1e-6])
def test_a_factor_of_a_few_spacings_in_single_precision_is_no_rounding(off, seed, with_jvp, jnp):
    factor = jnp.float32(1 + off)
    f = with_jvp(lambda x: jnp.cosh(x), lambda x, t: t * jnp.sinh(x) * factor)
    x = jnp.asarray(np.random.default_rng(seed).uniform(0.5, 2, 5), jnp.float32)

    report = examine(f, (x,), seed=seed, check_forward_ad=True, blame=False)

    assert report.verdict is (Verdict.FAIL if off else Verdict.PASS)


def test_the_wrong_entry_is_named(layer, gradients, point, with_vjp, jax):
    def backward(*xw):
        return BACKWARD["one entry"](*gradients(*xw))

    with pytest.raises(GradcheckError) as raised:
        gradcheck(with_vjp(layer, backward), point, seed=0)

    assert {entry.wrt for entry in raised.value.report.entries} == {"inputs[0][1, 0]"}
    assert "d out[1, " in str(raised.value).splitlines()[0]
    # "cpu:0"; "TFRT_CPU_0" in JAX 0.4.36
    assert f"{jax.devices()[0]}, float64" in str(raised.value)


@pytest.mark.parametrize("shape", [(2, 3), (500,), ()])
def test_a_lost_sum_over_a_broadcast_axis_fails(shape, jnp, double, with_vjp):
    x, b = double(np.linspace(-1.0, 1.0, max(1, int(np.prod(shape)))).reshape(shape)), double(0.3)
    scale = max(1, x.size)

    def summed(x, b, w):
        return w * b, jnp.sum(w * x)

    def averaged(x, b, w):
        return w * b, jnp.sum(w * x) / (scale + 1)

    right = examine(with_vjp(lambda x, b: x * b, summed), (x, b), seed=0, blame=False)
    wrong = examine(with_vjp(lambda x, b: x * b, averaged), (x, b), seed=0, blame=False)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert {finding.status for finding in wrong.findings} == {Status.MISMATCH}


def test_a_rule_that_ignores_its_cotangent_is_not_linear(jnp, double, with_vjp):
    x = double(np.array([0.5, -1.5, 2.0]))
    ignores = with_vjp(jnp.sin, lambda x, w: (jnp.cos(x),))

    report = examine(ignores, (x,), seed=0, blame=False)

    assert report.verdict is Verdict.FAIL
    assert Status.NONLINEAR in {finding.status for finding in report.findings}


def test_a_rule_that_returns_another_value_than_the_function_is_found(jax, jnp, double):
    x = double(np.array([0.5, -1.5, 2.0]))
    shifted = jax.custom_vjp(jnp.sin)
    shifted.defvjp(lambda x: (jnp.sin(x) + 0.1, x), lambda x, w: (w * jnp.cos(x),))

    report = examine(shifted, (x,), seed=0, blame=False)

    assert report.verdict is Verdict.FAIL
    assert Status.INCONSISTENT in {finding.status for finding in report.findings}


def test_a_rule_whose_value_differs_by_rounding_passes(jax, jnp, double):
    x = double(np.random.default_rng(0).normal(size=20))
    softplus = jax.custom_vjp(lambda x: jnp.log(jnp.sum(jnp.exp(x))))

    def forward(x):
        weights = jnp.exp(x - x.max())
        return x.max() + jnp.log(weights.sum()), weights / weights.sum()

    softplus.defvjp(forward, lambda share, w: (w * share,))

    report = examine(softplus, (x,), seed=0, blame=False)

    assert report.verdict is Verdict.PASS
