"""Large problems are compared by sums of blocks, and judged no otherwise than small ones."""

from dataclasses import asdict
from types import SimpleNamespace

import array_api_compat
import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine
from adjudge.engine import PlainBackend
from adjudge.limits import Limits, limited

SIZE = 3000
SEEDS = range(3)


@pytest.fixture(autouse=True)
def settled(sums):
    """Everything goes by sums at once, of blocks of up to 24 entries; whether they settled it."""
    return sums(0, 128)


def forward(x):
    return x * np.exp(-x * x)


def slope(x):
    return (1 - 2 * x * x) * np.exp(-x * x)


def steep(x):
    """Of a curvature that two evaluations show in many entries."""
    return x * np.exp(-x * x) + np.sin(40 * x)


def steep_slope(x):
    return slope(x) + 40 * np.cos(40 * x)


def point(seed, shape=SIZE):
    return np.random.default_rng(seed).normal(size=shape)


def entry(k, error):
    """All ones, but for one entry."""
    factor = np.ones(SIZE)
    factor[k] += error
    return factor


RIGHT = {
    "elementwise": (forward, lambda x, w: w * slope(x), SIZE),
    "reduction": (lambda x: np.sum(forward(x)), lambda x, w: w * slope(x), SIZE),
    "broadcast": (
        lambda x: np.sin(x) * np.arange(1.0, SIZE),
        lambda x, w: np.cos(x) * (w @ np.arange(1.0, SIZE)),
        (),
    ),
    "matrix": (lambda x: x @ x.T, lambda x, w: (w + w.T) @ x, (50, 60)),
    "complex": (
        lambda z: z * z,
        lambda z, w: 2 * np.conj(z) * w,
        SIZE,
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_rule_passes_by_sums(name, seed, settled):
    f, vjp, shape = RIGHT[name]
    x = point(seed, shape)
    if name == "complex":
        x = x + 1j * point(seed + 10, shape)

    report = examine(ByHand(f, vjp=vjp), np.asarray(x), seed=seed)

    assert report.verdict is Verdict.PASS, str(report)
    assert settled == [True]
    assert report.counts["comparisons"] == 1
    assert report.counts["identities"] > np.size(x)


WRONG = {
    "sign": lambda x, w: -w * slope(x),
    "factor": lambda x, w: 2 * w * slope(x),
    "1 + 1e-6": lambda x, w: (1 + 1e-6) * w * slope(x),
    "one entry": lambda x, w: w * slope(x) * entry(1234, 0.01),
    "one zero": lambda x, w: w * slope(x) * entry(SIZE - 1, -1.0),
    "shifted": lambda x, w: w * np.roll(slope(x), 1),
    "zero": lambda x, w: 0 * w,
    "last block": lambda x, w: w * slope(x) * (np.arange(SIZE) < SIZE - 30),
    "of another point": lambda x, w: w * slope(x + 1e-4),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", WRONG)
def test_a_planted_error_fails(name, seed, settled):
    report = examine(ByHand(forward, vjp=WRONG[name]), point(seed), seed=seed)

    assert report.verdict is Verdict.FAIL, str(report)
    assert settled == [False]


def test_the_wrong_entry_is_named():
    report = examine(ByHand(forward, vjp=WRONG["one entry"]), point(0), seed=0)

    assert "inputs[0][1234]" in str(report)


FORWARD = {"right": 1.0, "factor": 1.01, "one entry": entry(77, 1.0)}


@pytest.mark.parametrize("name", FORWARD)
def test_forward_mode_is_compared_by_sums(name, settled):
    rule = ByHand(
        lambda x: np.sin(x),
        vjp=lambda x, w: w * np.cos(x),
        jvp=lambda x, v: v * np.cos(x) * FORWARD[name],
    )
    report = examine(rule, point(1) / 8, check_forward_ad=True, seed=0)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), str(report)
    assert settled[:1] == ([True] if name == "right" else settled[:1])
    assert report.modes["R"] is Verdict.PASS


def tiny(x):
    """One output is a billionth of the others."""
    return entry(1234, 1e-9 - 1) * steep(x)


def beside_huge(x):
    """Every sum has an output that hides the others in its rounding, and is a constant."""
    return np.where(np.arange(SIZE) % 10 == 3, -1e30, steep(x))


TANGENTS = {
    "tiny": (tiny, lambda x, v: v * entry(1234, 1e-9 - 1) * steep_slope(x)),
    "beside huge ones": (
        beside_huge,
        lambda x, v: np.where(np.arange(SIZE) % 10 == 3, 0.0, v * steep_slope(x)),
    ),
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("error", [0.0, 1.0, -1.0])
@pytest.mark.parametrize("name", TANGENTS)
def test_every_entry_of_a_tangent_is_compared(name, error, seed):
    """Also one that does not show in its sum."""
    f, jvp = TANGENTS[name]
    rule = ByHand(f, jvp=lambda x, v: jvp(x, v) * entry(1234, error))

    report = examine(rule, point(seed), check_backward_ad=False, check_forward_ad=True, seed=seed)

    assert report.verdict is (Verdict.FAIL if error else Verdict.PASS), str(report)


@pytest.mark.parametrize("wrong", [False, True])
def test_entries_too_small_to_show_are_compared_by_themselves(wrong, settled):
    """Half of the terms are a billionth of the others."""
    size = np.where(np.arange(SIZE) % 2, 1e-9, 1.0)
    factor = np.where((np.arange(SIZE) % 2 == 1) & wrong, 1.5, 1.0)
    rule = ByHand(lambda x: size * np.sin(x), vjp=lambda x, w: factor * w * size * np.cos(x))

    report = examine(rule, point(2) / 8, seed=0)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS), str(report)
    assert settled == [not wrong]
    if not wrong:
        assert report.power[1e-2] > 0.99


def test_several_inputs_and_outputs(settled):
    def f(a, b):
        return np.sin(a) * b[:, None], np.sum(a * a)

    def vjp(a, b, w):
        of_product, of_sum = w
        zero = np.zeros_like(a)
        first = zero if of_product is None else of_product
        return (
            first * np.cos(a) * b[:, None] + (0 if of_sum is None else 2 * of_sum * a),
            np.sum(first * np.sin(a), axis=1),
        )

    a, b = point(3, (60, 50)), 1 + point(4, 60) / 8
    # the sum does not depend on b, and a zero is judged as in any other problem
    assert examine(ByHand(f, vjp=vjp), (a, b), seed=0).verdict is Verdict.PASS
    assert settled == [False]
    both = ByHand(lambda a, b: (f(a, b)[0], np.sum(a * a) + np.sum(b)), vjp=lambda a, b, w: (
        vjp(a, b, w)[0], vjp(a, b, w)[1] + (0 if w[1] is None else w[1])))  # fmt: skip
    assert examine(both, (a, b), seed=0).verdict is Verdict.PASS
    assert settled == [False, True]


def test_what_differences_cannot_settle_is_left_to_the_whole_check(settled):
    x = point(5)
    x[17] = 0.0
    relu = ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x > 0))

    report = examine(relu, x, seed=0)

    assert settled == [False, True, True]  # at x, and at two points nearby
    assert report.verdict is Verdict.PASS
    assert Status.NONSMOOTH in [finding.status for finding in report.findings]


UNFIT = {
    "float32 inside": (
        lambda x: forward(x).astype(np.float32).astype(np.float64),
        lambda x, w: w * slope(x),
    ),
    "constant": (lambda x: 1 + 0 * x, lambda x, w: 0 * w),
    "not finite": (lambda x: np.where(np.arange(SIZE) == 5, np.nan, x), lambda x, w: w),
}


@pytest.mark.parametrize("name", UNFIT)
def test_the_verdict_is_that_of_the_whole_check(name, settled):
    f, vjp = UNFIT[name]
    reports = []
    for large in (0, 10**9):
        with limited(large=large):
            reports.append(examine(ByHand(f, vjp=vjp), point(6), seed=0))

    assert not any(settled)
    assert reports[0].verdict is reports[1].verdict
    assert [f.status for f in reports[0].findings] == [f.status for f in reports[1].findings]


def test_a_gradient_of_another_dtype_is_found():
    rule = ByHand(forward, vjp=lambda x, w: (w * slope(x)).astype(np.float32))

    report = examine(rule, point(7), seed=0)

    assert Status.WRONG_DTYPE in [finding.status for finding in report.findings]


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_namespace_that_lacks_what_sums_take_is_left_to_the_whole_check(factor, settled):
    class Lacking(PlainBackend):
        @property
        def xp(self):
            namespace = super().xp
            return SimpleNamespace(
                **{name: getattr(namespace, name) for name in dir(namespace) if name != "concat"}
            )

    engine = Lacking(array_api_compat.array_namespace(np.zeros(1)))
    rule = ByHand(forward, vjp=lambda x, w: factor * w * slope(x))

    report = examine(rule, point(9), seed=0, backend=engine)

    assert settled == []
    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL), str(report)


def test_what_the_function_raises_comes_through():
    x = point(10)

    def at_x_alone(y):
        if np.any(y != x):
            raise ValueError("off x")
        return forward(y)

    with pytest.raises(ValueError, match="off x"):
        examine(ByHand(at_x_alone, vjp=lambda x, w: w * slope(x)), x, seed=0)


def test_arrays_are_not_touched():
    x = point(8)
    x.flags.writeable = False
    before = x.copy()

    assert examine(ByHand(forward, vjp=lambda x, w: w * slope(x)), x, seed=0)
    assert np.array_equal(x, before)


def test_sums_come_where_two_evaluations_have_not_settled_it(settled):
    right = ByHand(steep, vjp=lambda x, w: w * steep_slope(x))
    affine = ByHand(lambda x: 3 * x, vjp=lambda x, w: 3 * w)

    with limited(**asdict(Limits())):
        assert examine(right, point(9, 2**15), seed=0)
        assert settled == []
        assert examine(right, point(9, 2**17), seed=0)
        assert settled == [True]
        assert examine(affine, point(9, 2**17), seed=0)
    assert settled == [True]


def narrowed(x, w):
    """Right in float64, a per mille off in float32."""
    off = 1e-3 if x.dtype == np.float32 else 0.0
    return ((1 + off) * w * slope(x)).astype(x.dtype)


NARROW = {
    "right": lambda x, w: (w * slope(x)).astype(x.dtype),
    "one entry": lambda x, w: (w * slope(x) * entry(99, 0.01)).astype(x.dtype),
    "in float32 only": narrowed,
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", NARROW)
def test_float32_is_held_against_float64_by_two_probes(name, seed, settled):
    rule = ByHand(forward, vjp=NARROW[name])

    with limited(many=0):
        report = examine(rule, point(seed).astype(np.float32), seed=seed)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), str(report)
    assert settled == [name != "one entry"]
