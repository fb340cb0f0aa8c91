"""From a failed projection to the entries that are wrong: which, and after how many evaluations."""

from types import SimpleNamespace

import numpy as np
import pytest
from scenarios import seeds

from adjudge import ByHand, Verdict, examine
from adjudge.limits import Limits
from adjudge.problem import Counts
from adjudge.report import text_of
from adjudge.report.locate import Residual, Search, SearchWork

SIZES = [10, 100, 1_000, 10_000, 100_000]


def sines(wrong, factor=2.0):
    """The sum of sines, with a vjp that multiplies the gradient at `wrong`."""

    def vjp(x, w):
        g = w * np.cos(x)
        g[wrong] *= factor
        return g

    return ByHand(lambda x: np.sum(np.sin(x)), vjp=vjp)


def point(n):
    return np.random.default_rng(n).normal(size=n)


def named(report):
    return {(entry.of, entry.wrt) for entry in report.entries}


@pytest.mark.parametrize(
    ("n", "where"), [*((n, where) for n in SIZES[:-1] for where in (0.0, 0.999)), (SIZES[-1], 0.37)]
)
def test_one_wrong_entry_takes_the_same_evaluations_at_every_size(n, where):
    k = int(where * n)
    report = examine(sines([k]), point(n), mode="projected", seed=1)

    assert {("out", f"inputs[0][{k}]")} == named(report)
    # ten entries are few enough for the likely mistake: two evaluations an entry
    sums = 48 * (2 * n >= Limits.large)  # were tried first
    assert report.counts["evaluations"] <= 96 + 2 * n * (n <= 64) + sums


@pytest.mark.parametrize("n", SIZES[:-1])
def test_one_wrong_entry_of_an_elementwise_function_takes_few_vjps(n):
    def vjp(x, w):
        g = w * np.cos(x)
        g[n // 3] *= -1
        return g

    report = examine(ByHand(np.sin, vjp=vjp), point(n), mode="projected", seed=2)

    assert {(f"out[{n // 3}]", f"inputs[0][{n // 3}]")} == named(report)
    assert report.counts["evaluations"] <= 96 + 2 * n * (n <= 64)
    assert report.counts["vjps"] <= 14


@pytest.mark.parametrize("k", [2, 3, 8])
@pytest.mark.parametrize("n", [100, 1_000, 20_000])
@pytest.mark.parametrize("seed", seeds(3))
def test_several_wrong_entries_are_all_named(n, k, seed):
    wrong = np.random.default_rng([n, k, seed]).choice(n, k, replace=False)

    report = examine(sines(wrong), point(n), mode="projected", seed=seed)

    assert {("out", f"inputs[0][{i}]") for i in wrong} == named(report)
    assert report.counts["evaluations"] <= 40 + 4 * k * np.log2(n)
    assert report.entries[1].name in report.findings[0].detail.also.names


@pytest.mark.parametrize("seed", seeds(10))
def test_opposite_errors_of_neighbours_are_both_named(seed):
    def vjp(x, w):
        g = w * np.cos(x)
        g[500] += 0.25
        g[501] -= 0.25
        return g

    rule = ByHand(lambda x: np.sum(np.sin(x)), vjp=vjp)

    report = examine(rule, point(1_000), mode="projected", seed=seed)

    assert {("out", "inputs[0][500]"), ("out", "inputs[0][501]")} == named(report)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_errors_in_several_rows_are_named(mode):
    A = np.random.default_rng(0).normal(size=(300, 200))
    wrong = {(7, 11), (250, 11), (120, 199)}
    B = A.copy()
    for i, j in wrong:
        B[i, j] *= 1.5
    rule = ByHand(lambda x: A @ x, vjp=lambda x, w: B.T @ w, jvp=lambda x, v: B @ v)
    forward = mode == "forward"

    report = examine(
        rule, point(200), mode="projected", seed=3,
        check_forward_ad=forward, check_backward_ad=not forward,
    )  # fmt: skip

    entries = {(f"out[{i}]", f"inputs[0][{j}]") for i, j in wrong}
    along_v = {pair for pair in named(report) if pair[1].endswith("direction")}
    assert entries == named(report) - along_v


def test_two_inputs_that_are_wrong_are_both_traced():
    random = np.random.default_rng(4)
    A, X = random.normal(size=(12, 10)), random.normal(size=(10, 8))

    def vjp(A, X, w):
        of_A, of_X = w @ X.T, A.T @ w
        of_A[3, 7] += w[3, 2]
        of_X[9, 1] -= w[11, 1]
        return of_A, of_X

    report = examine(ByHand(np.matmul, vjp=vjp), (A, X), mode="projected", seed=4)

    assert {
        ("out[3, 2]", "inputs[0][3, 7]"),
        ("out[11, 1]", "inputs[1][9, 1]"),
    } == named(report)


def test_the_imaginary_part_of_one_complex_entry_is_named():
    random = np.random.default_rng(5)
    z = random.normal(size=400) + 1j * random.normal(size=400)

    def vjp(z, w):
        g = w * np.conj(2 * z)
        g[123] += 0.5j * w[123].real
        return g

    report = examine(ByHand(np.square, vjp=vjp), z, mode="projected", seed=5)

    assert {("out[123].real", "inputs[0][123].imag")} == named(report)


@pytest.mark.parametrize("n", [300, 10_000])
def test_one_wrong_entry_is_named_in_single_precision(n):
    x = point(n).astype(np.float32)

    def vjp(x, w):
        g = w * np.cos(x)
        g[77] *= -1
        return g

    report = examine(ByHand(np.sin, vjp=vjp), x, mode="projected", seed=6)

    assert {("out[77]", "inputs[0][77]")} == named(report)
    assert report.counts["evaluations"] <= 100


@pytest.mark.parametrize(
    ("vjp", "told"),
    [
        (lambda x, w: -w * np.cos(x), "has the opposite sign in all {n} entries"),
        (lambda x, w: np.roll(w * np.cos(x), 1), "is shifted by 1 along axis 0"),
        (lambda x, w: w * np.cos(x) * (1 + 1e-5), "is 1.00001 times the reference"),
        (lambda x, w: 0 * w, "is zero in all {n} entries"),
        (lambda x, w: w * np.cos(x + 0.1 * x**2), "more entries are wrong"),
    ],
    ids=["sign", "rolled", "scaled", "zero", "another formula"],
)
@pytest.mark.parametrize("n", [300, 10_000])
def test_where_all_is_wrong_the_search_ends_early_and_says_so(vjp, told, n):
    report = examine(ByHand(np.sin, vjp=vjp), point(n), mode="projected", seed=7)

    assert report.verdict is Verdict.FAIL
    text = text_of(report.findings[0])
    assert told.format(n=n) in text
    # Where a mistake is told, nothing is to be said of how many entries were compared.
    assert ("more entries are wrong" in text) == told.startswith("more")
    # The entry that was found may be off by far less than the others.
    assert "accurate to" not in text
    assert "iterates" not in str(report) or told.startswith("is 1.00001")
    assert report.findings[0].detail.also.many
    assert 1 == report.counts["failed"]
    assert report.counts["evaluations"] <= 72


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    "spoil",
    [
        lambda g: np.where(np.arange(g.size) < g.size // 2, g, 0.0),
        lambda g: np.where(np.arange(g.size) % 3 == 0, 0.0, g),
        lambda g: np.where(np.arange(g.size) % 20 == 0, 0.0, g),
        lambda g: np.where(np.arange(g.size) % 7 < 3, -g, g),
        lambda g: np.where(np.arange(g.size) < g.size // 4, 1.01 * g, g),
    ],
    ids=["half is left out", "every third", "every twentieth", "three in seven", "a quarter"],
)
def test_where_a_part_is_wrong_the_search_finds_a_proof_at_once(spoil, seed):
    def vjp(x, w):
        return spoil(w * (np.sin(x) + x * np.cos(x)))

    x = np.random.default_rng(seed).uniform(0.1, 2, 100_000)
    report = examine(ByHand(lambda x: x * np.sin(x), vjp=vjp), x, seed=seed, modes=["R"])

    assert report.verdict is Verdict.FAIL
    assert report.entries
    assert report.counts["evaluations"] <= 44


def test_a_whole_row_and_a_whole_column_end_the_search_early():
    random = np.random.default_rng(8)
    A, X = random.normal(size=(60, 50)), random.normal(size=(50, 40))

    def vjp(A, X, w):
        of_A, of_X = w @ X.T, A.T @ w
        of_A[31] = 0
        of_X[:, 4] = 0
        return of_A, of_X

    report = examine(ByHand(np.matmul, vjp=vjp), (A, X), mode="projected", seed=8)

    assert all(
        wrt.startswith("inputs[0][31, ") or (wrt.startswith("inputs[1]") and wrt.endswith(" 4]"))
        for _, wrt in named(report)
    )
    assert report.findings[0].detail.also.many
    assert report.counts["evaluations"] <= 300


@pytest.mark.parametrize("n", [100, 10_000])
def test_a_deviation_within_the_tolerance_of_its_projection_is_traced(n):
    x = point(n)
    k = int(np.argmax(np.abs(x * np.cos(x))))

    report = examine(sines([k], 1 + 1e-8 * np.sqrt(n)), x, mode="projected", seed=9)

    assert report.verdict is Verdict.FAIL
    assert {("out", f"inputs[0][{k}]")} == named(report)


@pytest.mark.parametrize("n", SIZES)
def test_a_right_function_names_nothing(n):
    report = examine(sines([], 1.0), point(n), mode="projected", seed=10)

    assert report.verdict is Verdict.PASS
    assert set() == named(report)
    assert report.counts["evaluations"] <= 4


# -- the search itself, on numbers


def searched(errors, noise=0.0, seed=0):
    """A search for the nonzero ones of `errors`; how many sums it took."""
    random = np.random.default_rng(seed)
    v = random.choice([-1.0, 1.0], errors.size) * random.uniform(0.5, 1, errors.size)
    sums = []

    def measure(weights):
        sums.append(weights)
        here = weights != 0
        value = float(weights[here] @ (errors * v)[here] + noise * random.normal())
        return weights, Residual(value, noise)

    def alone(k):
        return Residual(float(errors[k] * v[k]), noise), bool(errors[k] != 0)

    search = Search(errors.size, measure, alone, lambda: np.abs(v))
    search.run(Residual(float(errors @ v), noise))
    return search, len(sums)


@pytest.mark.parametrize("noise", [1e-12, 1e-3, 0.05])
@pytest.mark.parametrize("seed", seeds(5))
def test_the_search_finds_one_error_under_noise(noise, seed):
    errors = np.zeros(20_000)
    errors[777 * (seed + 1)] = 1.0

    search, sums = searched(errors, noise, seed)

    assert [777 * (seed + 1)] == search.wrong
    assert sums <= 40


def test_the_search_follows_what_is_not_finite():
    errors = np.zeros(1_000)
    errors[400] = np.nan

    search, _ = searched(errors)

    assert [400] == search.wrong


def test_the_search_tests_nothing_where_the_residual_is_noise():
    search, _ = searched(np.zeros(1_000), noise=1.0)

    assert [] == search.wrong
    assert not search.many


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("jvp", "said"),
    [
        (lambda x, v: -v * np.cos(x), "has the opposite sign in 6 of 6 entries"),
        (lambda x, v: 1.1 * v * np.cos(x), "is 1.1 times the reference in 6 of 6 entries"),
        (lambda x, v: v * np.where(np.arange(6) == 2, 0, np.cos(x)), r"at [2]: it is zero"),
    ],
)
@pytest.mark.parametrize("mode", ["projected", "full"])
def test_forward_mode_names_an_entry_and_the_likely_mistake_too(jvp, said, mode, seed):
    report = examine(ByHand(np.sin, jvp=jvp), np.linspace(-2, 2, 6), seed=seed, mode=mode)

    assert said in str(report)
    assert "along one random direction" not in report.headline


def test_replays_count_as_work_of_the_search():
    """A replay of a transform of 57,120 numbers takes a second, and a search many of them."""
    counts, space = Counts(evaluations=20), SimpleNamespace(size=50)
    base = SimpleNamespace(problem=SimpleNamespace(counts=counts, X=space), Y=space)
    work = SearchWork.after(base)
    counts.evaluations += 20
    counts.replayed += 1000

    assert not work.spent(found=1, explained=lambda: False)
    assert work.spent(found=1, explained=lambda: True)
    counts.replayed += 10**5
    assert work.spent(found=1, explained=lambda: False)
    assert not work.spent(found=0, explained=lambda: True)
    counts.replayed += 10**6
    assert work.spent(found=0, explained=lambda: False)


def test_a_search_of_what_agrees_begins_only_where_its_replays_fit():
    counts, space = Counts(evaluations=20), SimpleNamespace(size=500)
    base = SimpleNamespace(problem=SimpleNamespace(counts=counts, X=space), Y=space)
    work = SearchWork.after(base)

    assert work.by_replays(5000).spent(found=0, explained=lambda: True) is False
    assert work.by_replays(50_000) is None
    counts.replayed += 3 * 50_000  # half as much again is allowed, which is no search
    assert SearchWork.after(base).by_replays(50_000) is None
