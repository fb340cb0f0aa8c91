"""`gradgradcheck`: the term in x, the term in w, and the first derivative itself."""

from functools import partial

import numpy as np
import pytest
from scenarios import over_seeds

from adjudge import ByHand, GradcheckError, InputError, Status, Verdict, examine, gradgradcheck

A = np.asarray([0.5, -1.2, 0.7])
B = np.asarray([1.1, 0.4, -2.0])


def forward(a, b):
    return a * b**2


def vjp(a, b, w):
    return w * b**2, 2 * w * a * b


def double_vjp(a, b, w, u):
    of_a, of_b = u
    return 2 * of_b * w * b, 2 * of_a * w * b + 2 * of_b * w * a, of_a * b**2 + 2 * of_b * a * b


def at_one(g, factor=1.5):
    g = g.copy()
    g[1] *= factor
    return g


def wrong_in(position):
    def wrong(a, b, w, u):
        terms = list(double_vjp(a, b, w, u))
        terms[position] = at_one(terms[position])
        return tuple(terms)

    return wrong


def check(rule, **options):
    return gradgradcheck(rule, (A, B), raise_exception=False, seed=0, **options)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_right_second_derivatives_pass(mode):
    report = check(ByHand(forward, vjp=vjp, double_vjp=double_vjp), mode=mode)

    assert report.verdict is Verdict.PASS
    assert {"R": Verdict.PASS, "RR": Verdict.PASS} == dict(report.modes)


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_rule_nested_in_a_rule_is_the_same_as_double_vjp(mode):
    report = check(ByHand(forward, vjp=ByHand(vjp, vjp=double_vjp)), mode=mode)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(
    ("position", "wrt"), [(0, "inputs[0][1]"), (1, "inputs[1][1]"), (2, "grad_outputs[0][1]")]
)
def test_a_wrong_second_derivative_names_its_term_and_entry(mode, position, wrt):
    rule = ByHand(forward, vjp=vjp, double_vjp=wrong_in(position))

    report = check(rule, mode=mode)

    assert {"R": Verdict.PASS, "RR": Verdict.FAIL} == dict(report.modes)
    assert report.findings[0].entry.startswith("d grad(inputs[")
    assert report.findings[0].entry.endswith(f" / d {wrt}")


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_wrong_first_derivative_fails_though_its_own_derivative_is_right(mode):
    rule = ByHand(
        forward,
        vjp=lambda *xw: tuple(2 * g for g in vjp(*xw)),
        double_vjp=lambda *xwu: tuple(2 * g for g in double_vjp(*xwu)),
    )

    report = check(rule, mode=mode)

    assert {"R": Verdict.FAIL, "RR": Verdict.PASS} == dict(report.modes)


def test_the_wrong_entry_of_a_first_derivative_is_named():
    rule = ByHand(
        forward,
        vjp=lambda a, b, w: (at_one(w * b**2), 2 * w * a * b),
        double_vjp=lambda a, b, w, u: double_vjp(a, b, w, (at_one(u[0]), u[1])),
    )

    report = check(rule)

    assert {"R": Verdict.FAIL, "RR": Verdict.PASS} == dict(report.modes)
    assert report.findings[0].entry == "d f / d inputs[0][1] along one random direction"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda *xwu: tuple(-g for g in double_vjp(*xwu)),
        lambda *xwu: (*double_vjp(*xwu)[:2], None),
        lambda *xwu: (None, *double_vjp(*xwu)[1:]),
        lambda *xwu: None,
        lambda *xwu: tuple(0 * g for g in double_vjp(*xwu)),
    ],
)
def test_signs_and_absent_terms_fail(wrong):
    report = check(ByHand(forward, vjp=vjp, double_vjp=wrong))

    assert report.modes["RR"] is Verdict.FAIL


def test_forward_over_reverse_is_checked_by_a_jvp_of_the_vjp(xp):
    x = xp.asarray([0.3, 1.2])

    def tangent(x, w, v, dw):
        return -w * xp.sin(x) * v + dw * xp.cos(x)

    right = ByHand(xp.sin, vjp=ByHand(lambda x, w: w * xp.cos(x), jvp=tangent))
    wrong = ByHand(
        xp.sin, vjp=ByHand(lambda x, w: w * xp.cos(x), jvp=lambda *xv: 2.0 * tangent(*xv))
    )
    options = {"check_fwd_over_rev": True, "check_rev_over_rev": False, "raise_exception": False}

    reports = [gradgradcheck(rule, x, **options) for rule in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [report.modes["FR"] for report in reports]


AT_ONE_COTANGENT = {
    "clipped at one": lambda w: np.clip(w, -1, 1),
    "clipped at ten": lambda w: np.clip(w, -10, 10),
    "without its sign": np.abs,
    "where it is positive": lambda w: np.maximum(w, 0),
    "where it is negative": lambda w: np.minimum(w, 0),
    "cut off near zero": lambda w: np.where(np.abs(w) < 1e-5, 0, w),
    "beside its norm": lambda w: w * (np.abs(w) / (np.abs(w) + 1e-8)),
    "as it is": lambda w: w,
}
"""What a rule for a second derivative makes of the cotangent of the first one. All of these are
right for some numbers near one, and a loss has one number."""


def summed(f, of):
    """Returns f, or the sum of its values."""
    return (lambda x: np.sum(f(x))) if of == "loss" else f


@over_seeds(10)
@pytest.mark.parametrize("name", AT_ONE_COTANGENT)
@pytest.mark.parametrize("of", ["loss", "entries"])
def test_a_second_derivative_follows_the_cotangent_of_the_first(name, of, seeds):
    made = AT_ONE_COTANGENT[name]
    right = [Verdict.PASS if name == "as it is" else Verdict.FAIL] * len(seeds)
    x = np.asarray([0.3, 1.2, -0.4])

    def vjp(x, w):
        return w * np.cos(x)

    def back(x, w, u):
        of_w = u * np.cos(x)
        return -made(w) * np.sin(x) * u, np.sum(of_w) if of == "loss" else of_w

    def tangent(x, w, v, dw):
        return -made(w) * np.sin(x) * v + dw * np.cos(x)

    rule = ByHand(summed(np.sin, of), vjp=ByHand(vjp, vjp=back, jvp=tangent))

    for modes in (["R", "RR"], ["R", "FR"]):
        reports = [examine(rule, x, modes=modes, seed=seed, blame=False) for seed in seeds]
        assert [report.modes["R"] for report in reports] == [Verdict.PASS] * len(seeds)
        assert [report.modes[modes[1]] for report in reports] == right


IN_HALF = {
    "clipped at three": (lambda w: np.clip(w, -3, 3), Verdict.FAIL),
    "without its sign": (np.abs, Verdict.FAIL),
    "as it is": (lambda w: w, Verdict.PASS),
}


@over_seeds(10)
@pytest.mark.parametrize("name", IN_HALF)
def test_a_second_derivative_in_float16_follows_multiples_for_which_that_has_room(name, seeds):
    """A million times the cotangent overflows in float16, and says nothing of a right rule."""
    made, right = IN_HALF[name]

    def half(f, *of):
        with np.errstate(over="ignore", invalid="ignore"):
            return np.float64(f(*(one.astype(np.float16) for one in of)))

    def back(x, w, u):
        own = half(lambda x, w, u: -w * np.sin(x) * u, x, made(w), u)
        return own, half(lambda x, u: u * np.cos(x), x, u)

    vjp = ByHand(lambda x, w: half(lambda x, w: w * np.cos(x), x, w), vjp=back)
    rule, x = ByHand(lambda x: half(np.sin, x), vjp=vjp), np.asarray([0.3, 1.2, -0.4])

    found = [examine(rule, x, modes=["RR"], seed=seed, blame=False) for seed in seeds]
    assert [report.verdict for report in found] == [right] * len(seeds)


def test_the_message_names_what_the_second_derivative_does_not_follow():
    def back(x, w, u):
        return -np.abs(w) * np.sin(x) * u, np.sum(u * np.cos(x))

    rule = ByHand(lambda x: np.sum(np.sin(x)), vjp=ByHand(lambda x, w: w * np.cos(x), vjp=back))
    # a cotangent that is positive, with which the comparison agrees
    report = gradgradcheck(
        rule, np.asarray([0.3, 1.2]), grad_outputs=np.asarray(1.0), raise_exception=False
    )

    (finding,) = report.findings
    assert finding.status is Status.NONLINEAR
    assert "does not follow the cotangent of the vjp" in str(report)
    assert "clamp, abs" in str(report)


def test_a_second_derivative_that_varies_from_run_to_run_is_told_as_that_alone():
    random = np.random.default_rng(0)

    def back(x, w, u):
        jitter = 1 + 1e-6 * random.uniform(size=x.shape)
        return -w * np.sin(x) * u * jitter, u * np.cos(x)

    rule = ByHand(np.sin, vjp=ByHand(lambda x, w: w * np.cos(x), vjp=back))
    report = gradgradcheck(rule, np.asarray([0.3, 1.2]), raise_exception=False)

    assert Status.NONDETERMINISTIC in {finding.status for finding in report.findings}
    assert Status.NONLINEAR not in {finding.status for finding in report.findings}


def test_reverse_over_reverse_runs_on_every_namespace(xp):
    x = xp.asarray([0.3, 1.2])
    rule = ByHand(
        xp.sin,
        vjp=lambda x, w: w * xp.cos(x),
        double_vjp=lambda x, w, u: (-u * w * xp.sin(x), u * xp.cos(x)),
    )

    report = gradgradcheck(rule, x)

    assert report.verdict is Verdict.PASS


def test_given_cotangents_are_the_point_of_the_check():
    seen = []

    def watched(a, b, w):
        seen.append(w)
        return vjp(a, b, w)

    cotangent = np.asarray([1.0, 2.0, 3.0])

    report = gradgradcheck(ByHand(forward, vjp=watched, double_vjp=double_vjp), (A, B), cotangent)

    assert report.verdict is Verdict.PASS
    assert any(np.array_equal(w, cotangent) for w in seen)
    assert not any(np.shares_memory(w, cotangent) for w in seen)


@pytest.mark.parametrize(
    ("cotangent", "message"),
    [
        (np.ones(2), r"grad_outputs\[0\] has shape \(2,\), out has \(3,\)"),
        ((np.ones(3), np.ones(3)), r"2 entries for 1 differentiable output \(out\)"),
        ((3.0,), r"grad_outputs\[0\] is a float, not an array of numpy"),
        ((None,), r"grad_outputs is zero \(or None\) for every output"),
        (np.zeros(3), r"grad_outputs is zero \(or None\) for every output"),
        (np.ones(3, int), r"grad_outputs\[0\] has dtype int64, out has float64"),
        (np.ones(3, complex), r"grad_outputs\[0\] has dtype complex128, out has float64"),
        (np.full(3, np.nan), r"grad_outputs\[0\] holds nan"),
    ],
)
def test_a_cotangent_that_does_not_fit_is_refused(cotangent, message):
    rule = ByHand(forward, vjp=vjp, double_vjp=double_vjp)

    with pytest.raises(InputError, match=message):
        gradgradcheck(rule, (A, B), cotangent)


def test_without_a_second_derivative_the_first_is_judged_and_the_second_unsupported():
    right, wrong = (check(ByHand(forward, vjp=first)) for first in (vjp, lambda a, b, w: (w, w)))

    assert {"R": Verdict.PASS, "RR": Status.UNSUPPORTED} == dict(right.modes)
    assert {"R": Verdict.FAIL, "RR": Status.UNSUPPORTED} == dict(wrong.modes)
    assert Status.UNSUPPORTED in [finding.status for finding in right.findings]


def test_the_verb_raises():
    rule = ByHand(forward, vjp=vjp, double_vjp=wrong_in(0))

    with pytest.raises(GradcheckError, match="RR"):
        gradgradcheck(rule, (A, B))


def test_a_second_derivative_that_is_no_tuple_is_refused():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), double_vjp=lambda x, w, u: u)

    with pytest.raises(InputError, match="one gradient per positional input, then one for the cot"):
        gradgradcheck(rule, A)


def test_the_third_order_goes_one_nest_further():
    third = ByHand(
        lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
        vjp=lambda x, w, u, t: (
            -u * w * np.cos(x) * t[0] - u * np.sin(x) * t[1],
            -u * np.sin(x) * t[0],
            -w * np.sin(x) * t[0] + np.cos(x) * t[1],
        ),
    )
    rule = ByHand(np.sin, vjp=ByHand(lambda x, w: w * np.cos(x), vjp=third))

    report = examine(rule, A, modes=["R", "RR", "RRR"])

    assert {"R": Verdict.PASS, "RR": Verdict.PASS, "RRR": Verdict.PASS} == dict(report.modes)


def test_a_wrong_third_derivative_fails_in_the_third_order_alone():
    third = ByHand(
        lambda x, w, u: (-u * w * np.sin(x), u * np.cos(x)),
        vjp=lambda x, w, u, t: (0 * x, -u * np.sin(x) * t[0], -w * np.sin(x) * t[0]),
    )
    rule = ByHand(np.sin, vjp=ByHand(lambda x, w: w * np.cos(x), vjp=third))

    report = examine(rule, A, modes=["R", "RR", "RRR"])

    assert {"R": Verdict.PASS, "RR": Verdict.PASS, "RRR": Verdict.FAIL} == dict(report.modes)


@over_seeds(10)
@pytest.mark.parametrize("scale", [1e3, 1e5, 1e8])
@pytest.mark.parametrize("wrong", [(2, 0.0), (2, 1.1), (1, 1.1)])
@pytest.mark.parametrize("by", ["hess", "hessp"])
def test_a_small_entry_of_a_hessian_hides_behind_no_large_one(scale, wrong, by, seeds):
    x = np.random.default_rng(21).normal(size=3)
    sizes = np.array([scale, 1.0, 1 / scale])
    (entry, factor), bad = wrong, np.ones(3)
    bad[entry] = factor

    def f(x):
        return np.sum(sizes * (x**2 / 2 + x**3 / 6))

    def grad(x):
        return sizes * (x + x**2 / 2)

    def given(part):
        if by == "hess":
            return ByHand(f, grad=grad, hess=lambda x: np.diag(part * sizes * (1 + x)))
        return ByHand(f, grad=grad, hessp=lambda x, p: part * sizes * (1 + x) * p)

    for seed in seeds:
        assert examine(given(np.ones(3)), x, seed=seed, blame=False).verdict is Verdict.PASS
        assert examine(given(bad), x, seed=seed, blame=False).verdict is Verdict.FAIL


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def slope_of_swish(x):
    return sigmoid(x) * (1 + x * (1 - sigmoid(x)))


def double_vjp_of_swish(x, w, u, *, narrow):
    s = sigmoid(x)
    last = (1 - s) if str(x.dtype) == narrow else (1 - 2 * s)
    return w * u * s * (1 - s) * (2 + x * last), slope_of_swish(x) * u


@over_seeds(10)
@pytest.mark.parametrize("shape", [(2,), (6,), (3, 4)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("draw", [3, 5])
def test_a_second_derivative_that_is_wrong_in_a_narrow_dtype_alone_fails(draw, dtype, shape, seeds):
    """Both dtypes are compared at the same cotangent of the first derivative: each draws its own,
    and the gap between two of them would excuse anything.
    """
    x = np.random.default_rng(draw).normal(size=shape).astype(dtype)
    for narrow, verdict in (("", Verdict.PASS), (dtype, Verdict.FAIL)):
        double_vjp = partial(double_vjp_of_swish, narrow=narrow)
        rule = ByHand(
            lambda x: x * sigmoid(x), vjp=lambda x, w: w * slope_of_swish(x), double_vjp=double_vjp
        )
        for seed in seeds:
            report = examine(rule, x, modes=["RR"], seed=seed, blame=False)

            assert report.verdict is verdict, str(report)
