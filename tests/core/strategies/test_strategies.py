"""Inputs drawn by Hypothesis: in their domains, easy to shrink, and judged in a test of a user."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import adjudge
from adjudge.strategies import Spec, arrays, inputs, judge
from adjudge.strategies.drawing import belongs, dtype_named

SEARCH = settings(deadline=None, derandomize=True, database=None)
FIND = settings(SEARCH, phases=[hypothesis.Phase.generate], report_multiple_bugs=False)
"""Without shrinking, for what is about finding alone: it ends with the first that is found."""
BRIEF = settings(FIND, max_examples=30)
SHORT = settings(FIND, max_examples=10)
"""Where every example takes a whole check, none of which is to find anything."""
SHAPES = st.sampled_from([(), (1,), (3,), (2, 3)])
DOMAINS = [
    (None, (2, 3)),
    ("positive", (3,)),
    ("nonnegative", (3,)),
    ("unit", ()),
    ((0.1, 0.9), (3,)),
    ((-3.0, -1.0), (2, 2)),
    ((-np.inf, -1e-3), (3,)),
    ("symmetric", ("n", "n")),
    ("positive definite", (2, "n", "n")),
    ("simplex", (2, "n")),
    ("sphere", (2, "n")),
    ("orthogonal", ("n", "m")),
    ("sorted", (2, "n")),
    ("away from ties", ("n", "m")),
]
ORDERED = ["positive", "nonnegative", "unit", "simplex", "sorted", "away from ties"]


def planted(wrong: Any) -> adjudge.ByHand:
    """A sum of squares whose gradient is half too large where `wrong` says so."""
    return adjudge.ByHand(
        lambda x: np.sum(x**2), vjp=lambda x, w: w * 2 * x * np.where(wrong(x), 1.5, 1.0)
    )


def search(f: Any, drawn: Any, how: Any = SEARCH, judge: Any = judge, **options: Any) -> Any:
    """The arguments at which Hypothesis finds `f` wrong in the end; `None`: at none."""
    last = []

    @how
    @given(drawn)
    def test(x: Any) -> None:
        last.append(x)
        judge(f, x, **options)

    try:
        test()
    except adjudge.GradcheckError:
        return last[-1]
    return None


# ---------------------------------------------------------------- what is found


def test_a_right_derivative_passes():
    assert search(planted(lambda x: False), arrays(SHAPES), BRIEF) is None


WRONG_AT = {
    "negative": (lambda x: x < 0, SHAPES, [(), (1,)]),
    "ties": (lambda x: x.size > len(np.unique(x)), SHAPES, [(3,)]),
    "large": (lambda x: abs(x) > 100, SHAPES, [(), (1,)]),
    "whole": (lambda x: x == np.round(x), SHAPES, [(), (1,)]),
    "three rows": (lambda x: len(x) == 3, ("n", "m"), [(3, 1)]),
    "more than one entry": (lambda x: len(x) > 1, ("n",), [(2,)]),
}
"""Where a derivative is wrong; what is drawn; and the shapes of the simplest such array."""


def assert_simple(x: Any) -> None:
    """Asserts whole numbers, all of one size or zero: 1, say. Which size is left where shrinking
    ends is Hypothesis's: it draws numbers that stand in the modules that happen to be imported.
    """
    assert np.all(x == np.round(x))
    assert len(np.unique(np.abs(x[x != 0]))) == 1


@pytest.mark.parametrize("name", WRONG_AT)
def test_a_derivative_that_is_wrong_at_some_points_is_found(name):
    wrong, shape, _ = WRONG_AT[name]

    x = search(planted(wrong), arrays(shape), FIND)

    assert x is not None
    assert np.any(wrong(x) & (x != 0))


REPORT = adjudge.examine(planted(lambda x: x > 0), np.ones(1), seed=0)


def judge_by_its_values(f: adjudge.ByHand, x: Any) -> None:
    """What `judge` finds of `planted` in the end, without the evaluations that it takes."""
    if not np.array_equal(f.vjp(x, 1.0), 2 * x):
        raise adjudge.GradcheckError(REPORT)


@pytest.mark.parametrize("name", WRONG_AT)
def test_where_it_is_wrong_shrinks(name):
    wrong, drawn, simplest = WRONG_AT[name]

    x = search(planted(wrong), arrays(drawn), judge=judge_by_its_values)

    assert x.shape in simplest
    assert_simple(x)


def test_a_derivative_that_is_wrong_at_zero_is_found_and_shrunk():
    sine = adjudge.ByHand(
        lambda x: np.sum(np.sin(x)), vjp=lambda x, w: w * np.cos(x) * np.where(x == 0, 2, 1)
    )

    x = search(sine, arrays(SHAPES))

    assert x.shape == ()
    assert x == 0


@pytest.mark.long  # zeros are found and shrunk in every run
def test_a_derivative_that_is_wrong_for_negative_numbers_is_found_and_shrunk():
    x = search(planted(lambda x: x < 0), arrays(SHAPES))

    assert x.size == 1
    assert x < 0
    assert_simple(x)


def test_equal_arguments_are_drawn():
    def backward(a, b, w):
        return w * b, w * a * (2 if np.array_equal(a, b) and np.all(a != 0) else 1)

    product = adjudge.ByHand(lambda a, b: np.sum(a * b), vjp=backward)

    a, b = search(product, inputs(Spec((2,)), Spec((2,))), FIND)

    assert np.array_equal(a, b)


@pytest.mark.parametrize(("domain", "shape"), DOMAINS)
def test_a_right_derivative_passes_in_every_domain(domain, shape):
    f = adjudge.ByHand(lambda x: np.sum(np.sin(x)), vjp=lambda x, w: w * np.cos(x))

    assert search(f, arrays(shape, "float64", domain), SHORT, domain=domain) is None


@pytest.mark.parametrize(("domain", "shape"), DOMAINS[1:])
def test_a_wrong_one_is_found_in_every_domain(domain, shape):
    f = adjudge.ByHand(
        lambda x: np.sum(np.sin(x)),
        vjp=lambda x, w: w * np.cos(x) * (1.5 + np.arange(x.size).reshape(x.shape)),
    )

    x = search(f, arrays(shape, "float64", domain), BRIEF, domain=domain)

    assert x is not None
    assert belongs(x, domain)


# ---------------------------------------------------------------- what is drawn


def drawable():
    """Domains and dtypes that go together.

    float32 has the range of bfloat16 and less rounding, so that one domain is enough for it.
    """
    narrow = "bfloat16" if importlib.util.find_spec("ml_dtypes") else "float16"
    real = ["float64", narrow]
    for domain, shape in DOMAINS:
        ordered = isinstance(domain, tuple) or domain in ORDERED
        whole = domain in (None, "positive", "nonnegative", "unit", "sorted")
        others = [*([] if ordered else ["complex64"]), *(["int8"] if whole else [])]
        for dtype in [*real, *(["float32", "float16"] if domain is None else []), *others]:
            yield pytest.param(domain, shape, dtype, True, id=f"{domain}-{dtype}-special")
        yield pytest.param(domain, shape, real[-1], False, id=f"{domain}-{real[-1]}")


@pytest.mark.parametrize(("domain", "shape", "dtype", "special"), list(drawable()))
def test_every_array_has_its_dtype_and_lies_in_its_domain(domain, shape, dtype, special):
    seen = set()

    @settings(SEARCH, max_examples=16)
    @given(arrays(shape, dtype, domain, special))
    def test(x: Any) -> None:
        assert x.dtype == dtype_named(dtype)
        assert x.flags.writeable
        assert belongs(x, domain)
        assert np.all(np.isfinite(x.astype(complex)))
        seen.add(x.tobytes())

    test()
    assert len(seen) > (1 if dtype == "int8" else 5)


def test_points_of_a_simplex_sum_to_one_and_touch_its_boundary():
    corners = []

    @SEARCH
    @given(arrays((2, 3), domain="simplex"))
    def test(x: Any) -> None:
        assert np.all(x >= 0)
        assert np.allclose(x.sum(-1), 1, rtol=4e-16)
        corners.append(np.any(x == 1))

    test()
    assert 0 < sum(corners) < len(corners)


def test_eigenvalues_are_positive_and_sometimes_repeated():
    gaps = []

    @SEARCH
    @given(arrays((3, 3), "complex128", "positive definite"))
    def test(x: Any) -> None:
        values = np.linalg.eigvalsh(x)
        assert np.array_equal(x, x.conj().T)
        assert values[0] > 0
        gaps.append(np.min(np.diff(values)))

    test()
    assert min(gaps) < 1e-14 < max(gaps)


def test_columns_are_orthonormal():
    @SEARCH
    @given(arrays(("n", "m"), "complex128", "orthogonal"))
    def test(x: Any) -> None:
        gram = x.conj().T @ x if x.shape[0] >= x.shape[1] else x @ x.conj().T
        assert np.allclose(gram, np.eye(len(gram)), atol=1e-14)

    test()


def test_special_points_are_among_those_drawn_and_only_if_asked_for():
    # What Hypothesis draws depends on the modules that other tests have imported, whose constants
    # it tries; of a hundred examples none may be a special one.
    many = settings(FIND, max_examples=1000)
    hypothesis.find(arrays((3,), special=True), lambda x: np.max(np.abs(x)) > 1e30, settings=many)

    @SEARCH
    @given(arrays((3,)))
    def test(x: Any) -> None:
        assert np.max(np.abs(x)) <= 1000

    test()


def test_ties_are_far_enough_apart():
    @SEARCH
    @given(arrays((40,), "bfloat16", "away from ties"))
    def test(x: Any) -> None:
        assert np.min(np.diff(np.sort(x.astype(float)))) >= 0.25

    pytest.importorskip("ml_dtypes")
    test()


def test_large_and_empty_arrays_are_drawn():
    shapes = [(0,), (3, 0), (300,), (40, 20)]

    @settings(SEARCH, suppress_health_check=list(hypothesis.HealthCheck))
    @given(arrays(st.sampled_from(shapes)), arrays((200,), domain="away from ties"))
    def test(x: Any, apart: Any) -> None:
        assert x.shape in shapes
        assert belongs(apart, "away from ties")

    test()


def test_inputs_are_trees_whose_named_sizes_agree():
    drawn = inputs(
        Spec(("n", "m")), {"w": Spec(("m", "k"), "float32"), "b": [Spec(("k",))]}, st.just(3), 2.5,
        sizes=st.integers(0, 2),
    )  # fmt: skip

    @SEARCH
    @given(drawn)
    def test(arguments: Any) -> None:
        x, tree, three, constant = arguments
        assert x.shape[1] == tree["w"].shape[0]
        assert tree["w"].shape[1:] == tree["b"][0].shape
        assert tree["w"].dtype == np.float32
        assert (three, constant) == (3, 2.5)

    test()


def test_a_function_is_a_domain():
    @SEARCH
    @given(arrays((2,), domain=lambda x: bool(x[0] < x[1])))
    def test(x: Any) -> None:
        assert x[0] < x[1]

    test()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: arrays((2,), domain="simplx"), "domain='simplx'"),
        (lambda: arrays((2,), domain=(1.0, 0.0)), r"domain=\(1.0, 0.0\)"),
        (lambda: inputs(Spec((2,), domain=3)), "domain=3"),
        (lambda: arrays((2, 3), domain="symmetric").example(), r"shape \(2, 3\)"),
        (lambda: arrays((), domain="simplex").example(), r"shape \(\)"),
        (lambda: arrays((2,), "complex64", "positive").example(), "dtype complex64"),
        (lambda: arrays((2,), "float17").example(), "dtype='float17'"),
        (lambda: arrays((2,), "float16", (1e6, 1e7)).example(), "no number of dtype float16"),
        (lambda: arrays((5000,), "float16", "away from ties").example(), "tell"),
    ],
)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_a_domain_that_makes_no_sense_is_an_error(make, words):
    with pytest.raises(adjudge.InputError, match=words):
        make()


# ---------------------------------------------------------------- what decides nothing

ABSOLUTE = adjudge.ByHand(lambda x: np.sum(np.abs(x)), vjp=lambda x, w: w * np.sign(x))
SIGN = adjudge.ByHand(np.sign, vjp=lambda x, w: 0 * w)


def test_kinks_and_infinities_decide_nothing():
    def reciprocal(x):
        return np.sum(1 / x)

    assert search(ABSOLUTE, arrays(SHAPES), SHORT) is None
    assert search(SIGN, arrays(SHAPES), SHORT) is None
    inverse = adjudge.ByHand(reciprocal, vjp=lambda x, w: -w / x**2)
    assert search(inverse, arrays((2,)), SHORT) is None


def test_a_search_in_which_no_point_decides_does_not_pass():
    with pytest.raises(hypothesis.errors.Unsatisfiable):
        search(SIGN, st.just(np.zeros(2)))


def test_the_reasons_are_counted(monkeypatch):
    events = []
    monkeypatch.setattr(hypothesis, "event", events.append)

    search(SIGN, arrays((1,)), BRIEF)

    assert "adjudge: decides nothing (f is not smooth (jump))" in events


def test_outside_of_given_such_a_point_is_returned():
    report = judge(SIGN, np.zeros(2))

    assert report.verdict is adjudge.Verdict.INCONCLUSIVE
    assert "not smooth" in report.silent


def test_what_differences_cannot_tell_is_an_error_where_that_is_strict():
    x, options = np.array([0.3]), {"check_forward_ad": True}  # no jvp was written
    f = planted(lambda x: False)

    assert judge(f, x, **options).verdict is adjudge.Verdict.INCONCLUSIVE
    with pytest.raises(adjudge.GradcheckError, match="INCONCLUSIVE"):
        judge(f, x, strict=True, **options)


def test_stairs_are_not_taken_for_a_narrow_dtype():
    floor = adjudge.ByHand(np.floor, vjp=lambda x, w: 0 * w)

    assert judge(floor, np.array([1.5, 1.5, 28.5])).verdict is not adjudge.Verdict.FAIL
    assert judge(floor, np.array([1.5, 1.5, 78.5])).verdict is not adjudge.Verdict.FAIL


# ---------------------------------------------------------------- what a user sees


def test_a_failure_carries_a_script():
    with pytest.raises(adjudge.GradcheckError, match="MISMATCH") as caught:
        judge(planted(lambda x: x < 0), np.array([-1.0]), seed=7, modes=["R"])

    (note,) = caught.value.__notes__
    assert "def planted" not in note
    assert 'np.array([h("-0x1p+0")], ' in note
    assert "modes=['R'], seed=7" in note
    assert "planted.<locals>.<lambda>" in note


def test_what_f_raises_comes_through_with_the_script():
    def f(x):
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user") as caught:
        judge(adjudge.ByHand(f, vjp=f), np.array([-1.0]))

    assert any("adjudge.examine(f, inputs" in note for note in caught.value.__notes__)


def test_under_pytest_with_a_worker_the_script_is_shown_and_no_database_is_written(tmp_path):
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent(
            """
            import numpy as np
            from hypothesis import given, settings
            import adjudge
            from adjudge.strategies import arrays, judge

            f = adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x) * np.where(x < 0, 2, 1))

            @settings(deadline=None, derandomize=True, database=None, max_examples=25)
            @given(arrays(("n",)))
            def test_sine(x):
                judge(f, x)

            @settings(deadline=None, derandomize=True, database=None, max_examples=25)
            @given(arrays(("n",), domain="positive"))
            def test_positive(x):
                judge(f, x, domain="positive")
            """
        )
    )
    # the plugins that are named, and no others that are installed here: each takes time to import
    plugins = ["-p", "no:cacheprovider", "-p", "xdist", "-p", "hypothesis.extra.pytestplugin"]
    command = [sys.executable, "-m", "pytest", "-n", "1", "-q", *plugins, "."]
    around = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=around
    )

    assert "1 failed, 1 passed" in done.stdout
    assert "---- to see it again ----" in done.stdout
    assert "from test_it import f" in done.stdout
    assert not (tmp_path / ".hypothesis" / "examples").exists()
