"""What truncation leaves of many outputs adds up, where rounding does not."""

from dataclasses import replace

import numpy as np
import pytest
from scenarios import over_seeds, seeds

from adjudge import ByHand, Verdict, examine
from adjudge.check.options import problem_of
from adjudge.estimate import Differences, Effort
from adjudge.estimate.stencils import Sample, ladder, ladder_steps, of_sums
from adjudge.jacobian.column import ColumnBlock, Columns
from adjudge.jacobian.comparison import Tolerance
from adjudge.problem import Probes, observe

EPS = float(np.finfo(np.float32).eps)


def curved(seed, n=4096):
    """Samples of many outputs in single precision that bend to one side, and `<w, J v>`."""
    random = np.random.default_rng(seed)
    w = random.choice([-1.0, 1.0], n) * random.uniform(0.5, 1, n)
    slope = random.uniform(1.1, 1.3, n)

    def at(t):
        return (4 + w * np.tanh(slope * t)).astype(np.float32).astype(np.float64)

    steps = ladder_steps(2.0**-8, 2.0**-8, EPS)
    return [Sample(h, at(h), at(-h)) for h in steps], w, w @ (w * slope)


@pytest.mark.parametrize("seed", seeds(10))
def test_the_ladder_of_a_sum_holds_where_the_sum_of_ladders_does_not(seed):
    samples, w, true = curved(seed)

    each = ladder(samples, EPS, None)
    together = of_sums(samples, w, [slice(None)], EPS)

    assert abs(w @ each.value - true) > 10 * np.linalg.norm(w * each.error)
    assert abs(together.value[0] - true) <= together.error[0] < 0.05


@pytest.mark.parametrize("seed", seeds(10))
def test_each_leaf_of_the_outputs_has_its_own_sum(seed):
    samples, w, _ = curved(seed)
    w[100:200] = 0.0
    parts = [slice(0, 1000), slice(1000, None)]

    together = of_sums(samples, w, parts, EPS)

    for part, value in zip(parts, together.value, strict=True):
        kept = [Sample(s.step, s.plus[part], s.minus[part]) for s in samples]
        assert of_sums(kept, w[part], [slice(None)], EPS).value[0] == pytest.approx(value)


def kernel(x):
    """A function that computes in single precision alone."""
    if x.dtype != np.float32:
        raise TypeError("a kernel for float32")
    return np.tanh(3 * x)


@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_right_rule_of_many_outputs_in_single_precision_passes(factor):
    seed = 7  # where it fails without the ladder of the sum
    x = np.random.default_rng(seed).normal(size=60_000).astype(np.float32)

    def vjp(x, w):
        return w * np.float32(3 * factor) * (1 - kernel(x) ** 2)

    report = examine(ByHand(kernel, vjp=vjp), x, seed=seed)

    assert report.verdict is (Verdict.PASS if factor == 1 else Verdict.FAIL)


@pytest.mark.parametrize("seed", seeds(10))
def test_an_output_without_an_error_bar_does_not_leave_a_wrong_projection_open(seed):
    """Of 1e5 outputs there is one whose ladder seems to diverge by chance."""
    x = np.random.default_rng(seed).uniform(0.5, 1.5, 300)
    problem = problem_of(ByHand(np.sin, vjp=lambda x, w: w * np.cos(x)), x, {})
    base = observe(problem)
    probes = Probes(problem.X, base.Y, False, seed)
    columns = Columns(Differences(problem, base), probes, Tolerance(base.coarsest_eps))
    (tangent,) = probes.tangents(problem.origin, slice(0, x.size))
    found = columns.estimator.along(tangent, Effort.SECOND_LADDER)
    bars = found.estimate.error.copy()
    bars[7] = np.inf
    found = replace(found, estimate=replace(found.estimate, error=bars))
    right = (probes.cotangent * np.cos(x))[None, :]

    def comparison(rows):
        return columns.reverse(found, ColumnBlock(slice(0, x.size), rows), final=True)

    assert comparison(1.01 * right).fails.all()
    assert comparison(right).undecided.all()
    assert not comparison(right).fails.any()


def noisy(seed, leaves=12, size=96, outputs=1024):
    """A function of leaves whose outputs are rounded at the size of 30, its vjp and its inputs."""
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(outputs, leaves * size)) / np.sqrt(leaves * size)

    def forward(*x):
        return np.tanh((30.0 + matrix @ np.concatenate(x)) - 30.0)

    def vjp(*args):
        *x, w = args
        gradient = matrix.T @ (w / np.cosh(matrix @ np.concatenate(x)) ** 2)
        return tuple(np.split(gradient, leaves))

    return forward, vjp, tuple(random.normal(size=size) for _ in range(leaves))


@pytest.mark.parametrize("seed", seeds(10, always=6))
def test_noise_in_some_of_many_outputs_costs_one_ladder(seed):
    forward, vjp, x = noisy(0)

    report = examine(ByHand(forward, vjp=vjp), x, seed=seed, blame=False)

    assert report.verdict is Verdict.PASS
    assert report.counts["evaluations"] <= 24


def test_noise_of_few_outputs_goes_both_ways_and_is_no_divergence():
    evaluations = []
    for seed in range(10):
        random = np.random.default_rng(seed)
        matrix = random.normal(size=(3, 12)) / 12**0.5
        x = tuple(random.normal(size=(3, 4)))

        def f(*x, matrix=matrix):
            return np.tanh((1000.0 + matrix @ np.concatenate(x)) - 1000.0)

        def vjp(*args, matrix=matrix):
            *x, w = args
            return tuple(np.split(matrix.T @ (w / np.cosh(matrix @ np.concatenate(x)) ** 2), 3))

        report = examine(ByHand(f, vjp=vjp), x, seed=seed, blame=False)
        assert report.verdict is Verdict.PASS
        evaluations.append(report.counts["evaluations"])

    assert np.mean(evaluations) < 100


@pytest.mark.parametrize("seed", seeds(10))
def test_an_error_that_the_sum_shows_and_the_noise_of_single_outputs_hides(seed):
    forward, vjp, x = noisy(0)

    def wrong(*args):
        gradients = [g.copy() for g in vjp(*args)]
        gradients[2][32] *= 1 + 1e-4
        return tuple(gradients)

    assert examine(ByHand(forward, vjp=wrong), x, seed=seed, blame=False).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize("outputs", [8, 16, 60])
def test_a_sum_that_its_outputs_exclude_lies_between_the_two(outputs, seeds):
    """Of what is rounded at the size of 3e9 two decades of steps see stairs, and each ladder finds
    another number. A wrong sign lies on the other side.
    """
    for seed in seeds:
        random = np.random.default_rng(seed)
        matrix, x = random.normal(size=(outputs, 20)), random.normal(size=20) / 5
        verdicts = []
        for sign in (1.0, -1.0):
            rule = ByHand(
                lambda x, matrix=matrix: np.tanh((3e9 + matrix @ x) - 3e9),
                vjp=lambda x, w, matrix=matrix, sign=sign: (
                    sign * matrix.T @ (w / np.cosh(matrix @ x) ** 2)
                ),
            )
            report = examine(rule, x, seed=seed, mode="projected", blame=False)
            verdicts.append(report.verdict)

        assert verdicts[0] is not Verdict.FAIL
        assert verdicts[1] is Verdict.FAIL
