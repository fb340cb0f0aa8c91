"""What `reference="exact"` says at kinks, jumps and ties, in narrow dtypes, beside large constants,
and of what it cannot prove; and when a report calls itself certified.
"""

import subprocess
import sys

import numpy as np
import pytest
from scenarios import over_seeds, seeds

torch = pytest.importorskip("torch")
pytest.importorskip("flint")

import adjudge  # noqa: E402
from adjudge import ByHand, Status, Verdict, examine  # noqa: E402
from adjudge.estimate import exact  # noqa: E402

PASS, FAIL, OPEN = Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE


def tensor(*numbers, dtype=torch.float64):
    return torch.tensor(numbers, dtype=dtype, requires_grad=True)


def planted(f, gradient, factor=1.0, entry=slice(None), refused=()):
    """`f`, whose gradient is off by a factor in one entry, or in all of them."""

    class Rule(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype in refused:
                raise TypeError(f"no kernel for {x.dtype}")
            ctx.save_for_backward(x)
            return f(x)

        @staticmethod
        def backward(ctx, w):
            (x,) = ctx.saved_tensors
            off = torch.ones_like(x)
            off[entry] = factor
            return w * gradient(x) * off

    return Rule.apply


def exactly(f, *inputs, **options):
    options = {"seed": 0, "blame": False, **options}
    return adjudge.examine(f, inputs, reference="exact", **options)


def statuses(report):
    return {finding.status for finding in report.findings}


class SharedMaximum(torch.autograd.Function):
    """Right where entries are tied, and three times too large elsewhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.max()

    @staticmethod
    def backward(ctx, w):
        (x,) = ctx.saved_tensors
        tied = x == x.max()
        return w * tied / tied.sum() * (1.0 if tied.sum() > 1 else 3.0)


@over_seeds(10)
def test_a_rule_that_is_right_at_a_tie_alone_fails(seeds):
    for seed in seeds:
        wrong = exactly(SharedMaximum.apply, tensor(1.0, 1.0, 0.4), seed=seed)
        right = exactly(torch.amax, tensor(1.0, 1.0, 0.4), seed=seed)
        assert (wrong.verdict, right.verdict) == (FAIL, PASS)
        assert Status.NONSMOOTH in statuses(right)
        assert not right.certified  # the hull of two branches proves nothing


@pytest.mark.parametrize(
    ("f", "x"),
    [
        (lambda x: torch.where(x > 0, x + 1, x), (0.0, 1.0)),
        (lambda x: torch.sort(x).values, (1.0, 1.0, 2.0)),
        (lambda x: x[x >= 0].sum(), (0.0, 1.0)),
        (lambda x: torch.floor(x) * x, (1.0, 0.5)),
    ],
    ids=["jump", "tie in an order", "edge of a mask", "step"],
)
def test_where_no_branch_is_decided_the_report_says_so_with_the_line(f, x):
    report = exactly(f, tensor(*x))

    assert report.verdict is OPEN
    assert statuses(report) == {Status.NONSMOOTH}
    assert "not finite" not in str(report)
    assert "x lies at a jump, a tie or the edge of a branch" in str(report)
    assert f"({__file__}:" in str(report)


def test_slopes_of_two_branches_are_told_from_the_least_to_the_largest():
    assert "slopes      -1 least, 1 most" in str(exactly(lambda x: -x.abs(), tensor(0.0, 1.0)))


@pytest.mark.parametrize("f", [torch.linalg.eigvalsh, torch.linalg.svdvals])
def test_what_has_no_enclosure_is_unsupported_by_name(f):
    report = exactly(f, torch.eye(3, dtype=torch.float64, requires_grad=True))

    assert report.verdict is OPEN
    assert statuses(report) == {Status.UNSUPPORTED}
    assert "are there equal eigenvalues" in str(report)


@pytest.mark.parametrize("take", ["item", "tolist", "numpy"])
def test_numbers_that_python_gets_are_named_with_their_line(take):
    def f(x):
        return x * np.sum(getattr(x.detach()[0], take)())

    report = exactly(f, tensor(2.0, 1.0))

    assert statuses(report) == {Status.UNSUPPORTED}
    assert f"({__file__}:{f.__code__.co_firstlineno + 1})" in str(report)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_the_index_of_an_extreme_is_replayed(name):
    index = getattr(torch, name)
    matrix = torch.tensor([[1.0, 2.0], [4.0, 3.0]], dtype=torch.float64, requires_grad=True)

    assert exactly(lambda x: x[index(x)] ** 2, tensor(2.0, 1.0)).certified
    assert exactly(lambda x: x.gather(1, index(x, 1, keepdim=True)) ** 2, matrix).certified
    tied = exactly(lambda x: x[index(x)] ** 2, tensor(2.0, 2.0))
    assert tied.verdict is OPEN


# ------------------------------------------------------------------ narrow dtypes

SLOPE = (lambda x: torch.sin(x) * torch.exp(-x), lambda x: (x.cos() - x.sin()) * torch.exp(-x))
NARROW = {
    "float32, one entry": (torch.float32, 1 + 1e-6, 1, ()),
    "float32 alone, all entries": (torch.float32, 1 + 1e-5, slice(None), (torch.float64,)),
    "bfloat16, one entry": (torch.bfloat16, 1 + 1e-3, 1, ()),
    "bfloat16 and float32, all entries": (torch.bfloat16, 1.02, slice(None), (torch.float64,)),
}


@over_seeds(3)
@pytest.mark.parametrize("name", NARROW)
def test_an_error_that_is_found_without_it_is_found_beside_an_exact_reference(name, seeds):
    dtype, factor, entry, refused = NARROW[name]
    x = tensor(0.3, 2.0, 0.9, 1.4, -0.7, dtype=dtype)
    for seed in seeds:
        right, wrong = (
            exactly(planted(*SLOPE, by, entry, refused), x, seed=seed) for by in (1.0, factor)
        )
        assert (right.verdict, wrong.verdict) == (PASS, FAIL)
        assert right.certified


# ------------------------------------------------------------------ large constants

CONSTANTS = {
    "1e10 + sin": (lambda x: 1e10 + torch.sin(x), torch.cos),
    "1e12 + tanh": (lambda x: 1e12 + torch.tanh(x), lambda x: 1 - torch.tanh(x) ** 2),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("entry", [slice(None), 1], ids=["all", "one"])
def test_the_rounding_of_values_excuses_no_error_of_a_rule_without_them(name, entry):
    for seed, by in zip(range(3), (1e-12, 1e-8, 1e-6), strict=True):
        right, wrong = (
            exactly(planted(*CONSTANTS[name], factor, entry), tensor(0.3, 0.9, 1.7), seed=seed)
            for factor in (1.0, 1 + by)
        )
        assert (right.verdict, wrong.verdict) == (PASS, FAIL)
        assert right.certified
        assert wrong.certified


def test_the_rounding_of_values_excuses_what_is_computed_from_them():
    class Sigmoid(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.sigmoid(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, w):
            (y,) = ctx.saved_tensors
            return w * y * (1 - y)

    verdicts = [exactly(Sigmoid.apply, tensor(x, x + 0.3)).verdict for x in (5.0, 20.0, 36.0)]
    assert verdicts == [PASS, PASS, OPEN]


# ------------------------------------------------------------------ errors of 1e-8

FORMULAS = {
    "atanh": (torch.atanh, lambda x: 1 / (1 - x * x)),
    "log": (torch.log, lambda x: 1 / x),
    "prod": (torch.prod, lambda x: torch.prod(x) / x),
    "entr": (torch.special.entr, lambda x: -x.log() - 1),
}


@over_seeds(10)
@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", FORMULAS)
def test_an_error_of_one_entry_is_not_taken_for_scatter(name, mode, seeds):
    """Seen through a projection one wrong entry is another part of the whole at each point."""
    for seed in seeds:
        x = tensor(*np.random.default_rng(seed).uniform(0.1, 0.9, 12))
        right, wrong = (
            exactly(planted(*FORMULAS[name], factor, 5), x, seed=seed, mode=mode)
            for factor in (1.0, 1 + 1e-8)
        )
        assert (right.verdict, wrong.verdict) == (PASS, FAIL)
        assert wrong.entries[0].wrt == "inputs[0][5]"


@over_seeds(10)
def test_an_error_at_x_alone_is_not_taken_for_scatter(seeds):
    def wrong_at(numbers):
        here = torch.tensor(numbers, dtype=torch.float64)
        return lambda x: (1 + torch.where(x == here, 1e-8 * x, 0.0)) * torch.cos(x)

    for seed in seeds:
        numbers = np.random.default_rng(seed).uniform(0.1, 0.9, 3).tolist()
        report = exactly(planted(torch.sin, wrong_at(numbers)), tensor(*numbers), seed=seed)
        assert report.verdict is FAIL


@over_seeds(10)
@pytest.mark.parametrize("x", [1e-2, 1e-3, 1e-4])
def test_a_rule_that_loses_digits_is_not_called_wrong(x, seeds):
    """`1 - cos x` has ten digits at 1e-3, and the same ten at all points close to it."""
    x, f = tensor(x, 2 * x), lambda x: x - torch.sin(x)

    for seed in seeds:
        right, wrong = (
            exactly(planted(f, lambda x: 1 - torch.cos(x), factor), x, seed=seed)
            for factor in (1.0, 1.001)
        )
        assert right.verdict is not FAIL
        assert wrong.verdict is FAIL


# ------------------------------------------------------------------ certificates


def test_a_certified_pass_shows_the_interval_that_is_least_close():
    report = exactly(torch.sin, tensor(0.3, 1.0))

    assert report.certified
    found = report.to_dict()["certificate"]
    assert found["enclosure"]["middle"].startswith("0.")
    assert "exact replay of 1 operation" in found["method"]
    assert f"farthest from its interval: {report.certificate.name}" in str(report)
    assert report.stages.keys() <= {"two evaluations", "rounding of the program"}


def test_only_what_intervals_decide_is_certified():
    x = tensor(0.3, 1.0)
    wrong = planted(torch.sin, torch.cos, 1 + 1e-4)
    empty = torch.zeros(0, dtype=torch.float64, requires_grad=True)
    by_value = adjudge.examine(torch.square, x, blame=False, seed=0)

    assert exactly(wrong, x).certified
    assert not exactly(wrong, x, atol=1e-3).certified  # a tolerance of the caller accepts it
    assert not exactly(torch.sin, empty).certified
    assert not exactly(torch.log, tensor(-1.0, 1.0)).certified
    assert not by_value.certified
    assert by_value.to_dict()["certificate"] is None


def test_a_usual_check_that_intervals_alone_decide_is_certified():
    f = planted(*CONSTANTS["1e10 + sin"])
    assert adjudge.examine(f, tensor(0.3, 0.9), blame=False, seed=0).certified


def test_an_approximation_is_named_where_one_entry_is_off():
    def root(x):
        y = x / 2 + 0.5
        for _ in range(3):
            y = (y + x / y) / 2
        return y

    wrong = exactly(planted(root, lambda x: 0.5 / torch.sqrt(x)), tensor(1.0, 3.0))

    assert wrong.verdict is FAIL
    assert "or of an approximation" in str(wrong)


def test_a_broken_installation_of_flint_is_told_and_stops_no_usual_check(tmp_path):
    (tmp_path / "flint.py").write_text("raise ImportError('libflint.so is missing')\n")
    script = (
        "import adjudge, numpy as np\n"
        "f = adjudge.ByHand(np.tanh, vjp=lambda x, w: w * (1 - np.tanh(x) ** 2))\n"
        "print(adjudge.examine(f, np.array([40.0])).verdict)\n"
        "try:\n"
        "    adjudge.examine(f, np.array([1.0]), reference='exact')\n"
        "except adjudge.InputError as error:\n"
        "    print(error)\n"
    )
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{script}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "libflint.so is missing" in done.stdout
    assert done.stdout.startswith(("PASS", "INCONCLUSIVE"))


@pytest.mark.parametrize(("n", "searched"), [(600, True), (6000, False)])
def test_what_agrees_is_searched_only_where_replays_are_few(monkeypatch, n, searched):
    """Each step of a search for one wrong entry among many that agree is a replay of all."""
    replays = []

    def counted(*given, made=exact.replay):
        replays.append(1)
        return made(*given)

    monkeypatch.setattr(exact, "replay", counted)
    off = 20 * 2.0**-52  # what agrees by less than it should
    f = adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * (1 + off))

    assert adjudge.examine(f, np.linspace(-1.2, 1.2, n), reference="exact", seed=1)
    assert (len(replays) > 20) == searched


def test_a_saturated_rule_is_told_what_is_known_and_what_rounding_makes():
    """The reference was said to be unable to decide, above an interval of 40 digits."""
    x = tensor(40.0, 0.3)
    cancels = planted(torch.sigmoid, lambda x: torch.sigmoid(x) * (1 - torch.sigmoid(x)))
    report = exactly(cancels, x)

    assert exactly(planted(torch.sigmoid, lambda x: torch.sigmoid(x) * torch.sigmoid(-x)), x)
    assert report.verdict is OPEN
    assert "cannot decide" not in str(report)
    for words in ("the interval is narrow", "4.2483542552915", "in which nothing cancels"):
        assert words in str(report)
    # What it loses is harmless beside the other entry, and not by itself.
    assert adjudge.examine(cancels, x, seed=1)
    assert 'pass reference="exact"' in str(adjudge.examine(cancels, tensor(40.0, 42.0), seed=1))


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(("residue", "verdict"), [(1e-17, Verdict.PASS), (1e-8, Verdict.FAIL)])
def test_rounding_where_the_derivative_is_zero_is_measured_beside_the_other_entries(
    residue, verdict, seed
):
    matrix = np.array([[2.0, 0.0], [0.0, 3.0]])
    rule = ByHand(lambda x: matrix @ x, vjp=lambda x, w: (matrix + residue * (matrix == 0)) @ w)
    x = np.random.default_rng(seed).uniform(0.5, 2, 2)
    report = examine(rule, x, mode="full", reference="exact", seed=seed)
    assert report.verdict is verdict, str(report)
    if verdict is Verdict.PASS:
        assert report.resolution < 1e-15


def gelu_slope(x):
    density = torch.exp(-x * x / 2) / (2 * torch.pi) ** 0.5
    return (1 + torch.erf(x / 2**0.5)) / 2 + x * density


class Softmax(torch.autograd.Function):
    """A softmax whose gradient is off by a factor."""

    @staticmethod
    def forward(ctx, x, factor):
        y = torch.softmax(x, -1)
        ctx.save_for_backward(y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx, w):
        (y,) = ctx.saved_tensors
        return ctx.factor * y * (w - (w * y).sum()), None


@over_seeds(10)
@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize("x", [(10.0, -24, 16, 40, -14, 22), (5.0, 26, 3), (0.0, 20, 1)])
def test_a_bar_of_rounding_that_is_too_wide_is_settled_by_its_scatter(x, factor, seeds):
    """The derivatives of a saturated softmax, where neither differences nor the worst of what
    rounding can do say enough.
    """
    for seed in seeds:
        rule = lambda x: Softmax.apply(x, factor)  # noqa: E731
        report = examine(rule, tensor(*x), seed=seed, blame=False)
        assert report.verdict is (PASS if factor == 1 else FAIL), str(report)


def test_what_was_compared_twice_is_counted_once_among_what_would_show():
    for seed in range(10):
        rule = lambda x: Softmax.apply(x, 1.001)  # noqa: E731
        report = examine(rule, tensor(0.0, 20, 1), seed=seed, blame=False)
        assert all(0 <= part <= 1 for part in report.power.values()), report.power


@pytest.mark.parametrize("others", [(), (-35.7143,), (-14.3, -24.5, -35.7, 2.0)])
def test_a_saturated_tail_is_no_kink(others):
    """`1 + erf(x)` at -25 has the same ball in 128 bits and in 512, as the hull of two branches
    has: the right derivative of a gelu at -8.3 failed beside it by the steps of its values. It is
    off by the rounding of that sum, which is 4e-3 of it.
    """
    x = tensor(18.0, *others, -8.306813671257029)
    for seed in range(3):
        right = examine(torch.nn.functional.gelu, x, seed=seed, blame=False)
        wrong = examine(planted(torch.nn.functional.gelu, gelu_slope, 1.01), x, seed=seed)
        assert right.verdict is PASS, right
        assert wrong.verdict is FAIL, wrong


def test_a_tail_beyond_the_digits_that_a_replay_begins_with_has_one_slope():
    """At a kink the hull of two slopes is as wide in all digits."""
    for f, x, one in ((torch.nn.functional.gelu, -35.7143, True), (torch.relu, 0.0, False)):
        found, *_ = exactly(f, tensor(x)).findings
        assert (found.status is not Status.NONSMOOTH) is one


def test_what_differs_from_run_to_run_is_not_certified_by_a_replay_of_another_run():
    torch = pytest.importorskip("torch")
    calls = []

    def counted(x):
        calls.append(None)
        return x * len(calls)

    x = torch.linspace(0.3, 2.0, 6, dtype=torch.float64, requires_grad=True)
    report = examine(counted, x, seed=0, nondet_tol=1e6)

    assert not report.certified
    assert "exact replay" not in str(report)
