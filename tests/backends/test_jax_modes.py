"""Reverse and forward mode of JAX and their compositions: who is wrong is named."""

import importlib

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import GradcheckError, Status, Verdict, examine, gradcheck, gradgradcheck

pytestmark = pytest.mark.backend("jax")


@pytest.fixture
def sin(jax, jnp, with_jvp):
    """`sin` with the tangent `forward cos(x) v`, whose transpose is `backward cos(x) w`."""
    linear_call = importlib.import_module("jax.custom_derivatives").linear_call

    def make(forward, backward):
        def push(x, v):
            return linear_call(
                lambda c, v: forward * c * v, lambda c, w: backward * c * w, jnp.cos(x), v
            )

        return with_jvp(jnp.sin, push)

    return make


def statuses(report):
    return {finding.status for finding in report.findings}


@pytest.mark.parametrize(
    ("forward", "backward", "verdicts"),
    [(1.0, 2.0, {"R": "FAIL", "F": "PASS"}), (2.0, 1.0, {"R": "PASS", "F": "FAIL"})],
)
def test_forward_and_reverse_that_disagree_are_named(sin, x, forward, backward, verdicts):
    report = examine(
        sin(forward, backward), (x,), check_forward_ad=True, seed=0, mode="full", blame=False
    )

    assert report.modes == verdicts
    assert statuses(report) == {Status.MISMATCH, Status.INCONSISTENT}
    assert "forward and reverse mode disagree on d out[0] / d inputs[0][0]" in str(report)


def test_a_derivative_that_jax_refuses_is_unsupported_and_that_beside_it_is_judged(jax, jnp, x):
    def f(a, x):
        return jax.scipy.special.betainc(a, 2.0, x)

    numbers = jnp.asarray([0.5, 1.5, 2.5]), jnp.asarray([0.2, 0.4, 0.7])

    assert examine(f, numbers, modes=["R"], seed=0, blame=False).modes["R"] is Status.UNSUPPORTED
    assert examine(f, numbers, wrt=1, modes=["R"], seed=0, blame=False).verdict is Verdict.PASS


def test_a_while_loop_has_forward_mode_only_and_the_report_says_so(jax, jnp, x):
    def goes_on(c):  # one function for all evaluations: JAX compiles anew for every other
        return c[0] < 3

    def doubled(c):
        return c[0] + 1, 2 * c[1]

    def doubled_thrice(x):
        return jax.lax.while_loop(goes_on, doubled, (0, x))[1]

    report = examine(doubled_thrice, (x,), modes=["R", "F", "FF", "RF"], seed=0, blame=False)

    assert report.modes == {
        "R": Status.UNSUPPORTED,
        "F": Verdict.PASS,
        "FF": Verdict.PASS,
        "RF": Status.UNSUPPORTED,
    }
    assert statuses(report) == {Status.UNSUPPORTED}
    assert "Reverse-mode differentiation does not work for lax.while_loop" in str(report)


def test_a_callback_has_no_derivative_and_the_report_says_so(jax, x):
    def called_back(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    report = examine(called_back, (x,), check_forward_ad=True, seed=0, blame=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.counts["comparisons"] == 0
    assert [finding.status for finding in report.findings] == [Status.UNSUPPORTED] * 2


def test_an_exception_of_the_backward_pass_comes_through_with_a_note(jnp, x, with_vjp):
    raising = with_vjp(jnp.sin, lambda x, w: 1 / 0)

    with pytest.raises(ZeroDivisionError) as raised:
        gradcheck(raising, (x,))

    said = "adjudge: raised in the vjp (the backward pass), not in the function, at call 1"
    assert said in raised.value.__notes__


# ---------------------------------------------------------------- second and third order


@pytest.fixture
def wrong_second(jnp, with_jvp):
    """`sin` with the right tangent, whose own derivative is off by a factor."""

    def make(factor):
        slope = with_jvp(jnp.cos, lambda x, v: -factor * v * jnp.sin(x))
        return with_jvp(jnp.sin, lambda x, v: slope(x) * v)

    return make


def test_a_wrong_second_derivative_is_wrong_in_every_composition_but_first_order(wrong_second, x):
    report = examine(
        wrong_second(1.1), (x,), modes=["R", "F", "RR", "FR", "RF", "FF"], seed=0, blame=False
    )

    passed = {mode for mode, verdict in report.modes.items() if verdict is Verdict.PASS}
    assert passed == {"R", "F"}
    assert set(report.modes.values()) == {Verdict.PASS, Verdict.FAIL}


def test_a_wrong_third_derivative_is_found_by_the_third_order_alone(jnp, with_jvp, x):
    third = with_jvp(jnp.sin, lambda x, v: 1.1 * v * jnp.cos(x))
    second = with_jvp(jnp.cos, lambda x, v: -v * third(x))
    first = with_jvp(jnp.sin, lambda x, v: v * second(x))

    report = examine(first, (x,), modes=["R", "RR", "RRR"], seed=0, blame=False)

    assert report.modes == {"R": Verdict.PASS, "RR": Verdict.PASS, "RRR": Verdict.FAIL}


@pytest.mark.parametrize("options", [{}, {"check_fwd_over_rev": True, "check_rev_over_rev": False}])
def test_gradgradcheck_finds_a_wrong_second_derivative(wrong_second, x, options):
    with pytest.raises(GradcheckError) as raised:
        gradgradcheck(wrong_second(1.01), (x,), **options, seed=0)

    second = "FR" if options else "RR"
    assert gradgradcheck(wrong_second(1.0), (x,), **options, seed=0)
    assert raised.value.report.modes == {"R": Verdict.PASS, second: Verdict.FAIL}
    assert "d grad(inputs[0])[" in str(raised.value).splitlines()[0]


def test_a_gradient_cut_off_from_x_is_found_by_second_order_only(jax, jnp, x, with_vjp):
    cut = with_vjp(jnp.sin, lambda x, w: (w * jax.lax.stop_gradient(jnp.cos(x)),))

    first = examine(cut, (x,), seed=0, blame=False)
    second = examine(cut, (x,), modes=["R", "RR", "FR"], seed=0, blame=False)

    assert first.verdict is Verdict.PASS
    assert second.modes == {"R": Verdict.PASS, "RR": Verdict.FAIL, "FR": Verdict.FAIL}


# ---------------------------------------------------------------- jit


def test_a_compiled_function_is_checked_like_any_other(jax, jnp, with_vjp, x):
    right = jax.jit(with_vjp(jnp.sin, lambda x, w: (w * jnp.cos(x),)))
    wrong = jax.jit(with_vjp(jnp.sin, lambda x, w: (w * jnp.cos(x) * (1 + 1e-6),)))

    assert gradcheck(right, (x,), mode="full", seed=0)
    assert examine(right, (x,), modes=["R", "RR", "FR"], seed=0, blame=False)
    assert examine(wrong, (x,), mode="full", seed=0, blame=False).modes == {"R": Verdict.FAIL}


def test_a_compiled_network_passes_in_all_modes(jax, jnp, double):
    random = np.random.default_rng(0)
    w, x = double(random.normal(size=(3, 2))), double(random.normal(size=(4, 3)))

    @jax.jit
    def network(w, x):
        hidden = jnp.tanh(x @ w)
        return jax.nn.log_softmax(hidden - hidden.mean(0))

    report = examine(
        network, (w, x), modes=["R", "F", "RR", "FR"], mode="projected", seed=0, blame=False
    )

    assert report.verdict is Verdict.PASS


def test_a_function_that_jit_cannot_trace_raises_what_jax_raises(jax, x):
    branching = jax.jit(lambda x: x if x[0] > 0 else -x)

    with pytest.raises(jax.errors.TracerBoolConversionError) as raised:
        gradcheck(branching, (x,))

    assert any("evaluation 1 of the function, at x" in note for note in raised.value.__notes__)


@pytest.mark.parametrize("seed", seeds(2))
def test_modes_agree_where_a_tangent_moves_leaves_that_hide_behind_others(jnp, seed):
    x = jnp.asarray([1.62264216, 2.02526474, -0.43359444], jnp.float32)

    report = examine(
        lambda x: jnp.stack([1e5 * x, jnp.sin(x)]), (x,), order=2, seed=seed, blame=False
    )

    assert Status.INCONSISTENT not in statuses(report)
    assert report.verdict is not Verdict.FAIL


NONLINEAR_RULES = {
    "primal and tangent swapped": lambda x, v, np: np.cos(v) * x,
    "the tangent twice": lambda x, v, np: np.cos(x) * v * v,
    "the size of the tangent": lambda x, v, np: np.cos(x) * np.abs(v),
}


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("wrong", NONLINEAR_RULES)
def test_a_jvp_that_cannot_be_transposed_since_it_is_not_linear_fails(jax, jnp, x, wrong, seed):
    f = jax.custom_jvp(jnp.sin)
    push = NONLINEAR_RULES[wrong]
    f.defjvp(lambda primals, tangents: (jnp.sin(*primals), push(*primals, *tangents, jnp)))

    report = examine(f, x, seed=seed)

    assert report.verdict is Verdict.FAIL
    assert Status.NONLINEAR in statuses(report)


def test_a_function_that_has_no_reverse_mode_and_a_linear_jvp_stays_open(jax, jnp, x):
    f = jax.custom_batching.custom_vmap(jnp.sin)
    f.def_vmap(lambda size, batched, x: (jnp.sin(x), batched[0]))

    report = examine(f, x)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert statuses(report) == {Status.UNSUPPORTED}


@over_seeds(10)
@pytest.mark.parametrize("name", ["as it is", "clipped", "without its sign"])
def test_a_second_derivative_follows_the_cotangent_of_the_first(jax, jnp, name, seeds):
    made = {
        "as it is": lambda w: w,
        "clipped": lambda w: jnp.clip(w, -10, 10),
        "without its sign": jnp.abs,
    }[name]

    @jax.custom_vjp
    def sine(x):
        return jnp.sum(jnp.sin(x))

    @jax.custom_jvp
    def back(x, w):
        return w * jnp.cos(x)

    @back.defjvp
    def _(primals, tangents):
        (x, w), (v, dw) = primals, tangents
        return back(x, w), dw * jnp.cos(x) - made(w) * jnp.sin(x) * v

    sine.defvjp(lambda x: (sine(x), x), lambda x, w: (back(x, w),))

    x = jnp.asarray([0.3, 1.2])
    for seed in seeds:
        report = examine(sine, (x,), modes=["R", "RR"], seed=seed, blame=False)
        assert report.modes["R"] is Verdict.PASS
        assert report.modes["RR"] is (Verdict.PASS if name == "as it is" else Verdict.FAIL)
