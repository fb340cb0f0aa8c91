"""What crosscheck takes, what it refuses, and what it leaves as it was."""

import random

import array_api_strict
import numpy as np
import pytest

from adjudge import ByHand, InputError, Status, Verdict, crosscheck
from adjudge.engine.arrays import PlainArrays, PlainBackend
from adjudge.engine.contract import Environment, replaced
from adjudge.engine.registry import backend_named
from adjudge.errors import BackendNotInstalledError, FlagError, UnknownFrameworkError

ENGINES = ["numpy", "array_api_strict"]
SQUARE = ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w)
X = np.array([1.0, 2.0, 3.0])


class Named(PlainBackend):
    """NumPy under another name."""

    def __init__(self, name="named"):
        super().__init__(backend_named("numpy").xp)
        self.name = name


class Doubling(Named):
    """It differentiates x -> 2 x, with `xp` or without."""

    def vjp(self, f, x):
        return f(x), lambda w: (2 * w[0],)


def first(xp, x):
    return xp.asarray(x) * 2


def named_only(x, *, xp):
    return xp.asarray(x) * 2


def plain(x):
    return x * 2


@pytest.mark.parametrize("f", [first, named_only, plain, {"named": first, "numpy": plain}])
def test_the_namespace_is_given_to_who_asks_for_it(f):
    assert crosscheck(f, (X,), [Doubling(), "numpy"], seed=0)


def test_nested_lists_are_arrays():
    assert crosscheck(SQUARE, ([[1.0, 2.0], [3.0, 4.0]],), ENGINES, seed=0)
    assert crosscheck(SQUARE, X, ENGINES, seed=0)


@pytest.mark.parametrize("backends", [[], ["numpy"], "numpy"])
def test_one_engine_is_for_gradcheck(backends):
    with pytest.raises(InputError, match="gradcheck"):
        crosscheck(SQUARE, (X,), backends)


def test_two_engines_of_one_name_are_refused():
    with pytest.raises(InputError, match="two backends are called 'numpy'"):
        crosscheck(SQUARE, (X,), ["numpy", "numpy"])


def test_an_unknown_engine_is_named():
    with pytest.raises(UnknownFrameworkError, match="Did you mean 'numpy'"):
        crosscheck(SQUARE, (X,), ["numpi", "array_api_strict"])


def test_an_engine_that_can_hold_nothing_is_refused():
    class NoDriver(Environment):
        def unavailable(self):
            return "no driver"

    with pytest.raises(BackendNotInstalledError, match="no driver"):
        crosscheck(SQUARE, (X,), ["numpy", replaced(Named(), environment=NoDriver())])


def test_engines_without_derivatives_alone_are_refused():
    with pytest.raises(InputError, match="none of the backends"):
        crosscheck(lambda x: x * x, (X,), ENGINES)


def test_functions_and_backends_belong_together():
    with pytest.raises(InputError, match="'array_api_strict' is among the backends only"):
        crosscheck({"numpy": SQUARE}, (X,), ENGINES)
    with pytest.raises(InputError, match="'torsch' is among the functions only"):
        crosscheck({"numpy": SQUARE, "array_api_strict": SQUARE, "torsch": SQUARE}, (X,), ENGINES)
    with pytest.raises(InputError, match="cannot be called"):
        crosscheck(3, (X,), ENGINES)


@pytest.mark.parametrize(
    "option", [{"kwargs": {"b": 1}}, {"points": "special"}, {"backend": "numpy"}]
)
def test_options_that_make_no_sense_are_refused(option):
    with pytest.raises(FlagError, match="is not for crosscheck"):
        crosscheck(SQUARE, (X,), ENGINES, **option)


def test_other_bad_arguments_are_refused():
    with pytest.raises(InputError, match="order=3"):
        crosscheck(SQUARE, (X,), ENGINES, order=3)
    with pytest.raises(InputError, match="reference='torch'"):
        crosscheck(SQUARE, (X,), ENGINES, reference="torch")
    with pytest.raises(TypeError, match="atoll"):
        crosscheck(SQUARE, (X,), ENGINES, atoll=1.0)
    with pytest.raises(InputError, match="seed=-1"):
        crosscheck(SQUARE, (X,), ENGINES, seed=-1)
    with pytest.raises(InputError, match="of dtype"):
        crosscheck(SQUARE, (np.array(["a"]),), ENGINES)


def test_engines_that_make_other_arrays_are_named():
    class Narrow(PlainArrays):
        def info(self, array):
            info = super().info(array)
            return type(info)(info.shape, "float64", info.device)

        def make(self, values, dtype, device=None):
            return np.asarray(values, dtype=np.float32)

    narrow = replaced(Named("narrow"), arrays=Narrow("narrow", np))

    with pytest.raises(InputError, match="other values on narrow"):
        crosscheck(SQUARE, (X / 3,), ["numpy", narrow])


def test_a_result_of_another_shape_is_the_first_divergence():
    f = {
        "numpy": ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w),
        "array_api_strict": ByHand(
            lambda x: array_api_strict.reshape(x * x, (1, 3)),
            vjp=lambda x, w: 2 * x * array_api_strict.reshape(w, (3,)),
        ),
    }

    report = crosscheck(f, (X,), ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert "out has shape (3,) on numpy and (1, 3) on array_api_strict" in report.headline
    assert not report.comparisons


def test_a_result_of_another_dtype_or_structure_is_said():
    def f(x):
        return np.astype(x * x, np.float32)

    narrow = {"numpy": ByHand(f, vjp=lambda x, w: 2 * x * w), "array_api_strict": SQUARE}
    listed = {
        "numpy": SQUARE,
        "array_api_strict": ByHand(lambda x: [x * x], vjp=lambda x, w: 2 * x * w[0]),
    }

    one = crosscheck(narrow, (X,), ENGINES, seed=0, raise_exception=False)
    two = crosscheck(listed, (X,), ENGINES, seed=0, raise_exception=False)

    assert "out has dtype float32 on numpy and float64 on array_api_strict" in one.headline
    assert "the results differ in structure" in two.headline


@pytest.mark.parametrize("same", [True, False])
def test_outputs_that_are_not_differentiable_are_compared_too(same):
    def rule(index):
        return ByHand(lambda x: (x * x, index), vjp=lambda x, w: 2 * x * w[0])

    f = {"numpy": rule(1), "array_api_strict": rule(1 if same else 2)}
    report = crosscheck(f, (X,), ENGINES, seed=0, raise_exception=False)

    assert bool(report) is same
    if not same:
        assert "out[1] is 1 on numpy and 2 on array_api_strict" in report.headline


def test_a_function_that_raises_on_one_engine_is_still_checked_on_the_others():
    def broken(x):
        raise ValueError("not here\nsecond line")

    f = {
        "numpy": SQUARE,
        "array_api_strict": ByHand(broken, vjp=lambda x, w: w),
        "named": SQUARE,
    }

    report = crosscheck(f, (X,), [*ENGINES, Named()], seed=0, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.raised == {"array_api_strict": "ValueError: not here"}
    assert report.cells["value"]["array_api_strict"] == "RAISED"
    assert report.comparisons["R"] == {"numpy, named": 12}
    assert "it raises on array_api_strict: ValueError: not here" in report.headline


def test_a_failure_is_worse_than_an_engine_that_raises():
    def broken(x):
        raise ValueError("not here")

    wrong = ByHand(lambda x: x * x, vjp=lambda x, w: x * w)
    f = {"numpy": SQUARE, "array_api_strict": ByHand(broken, vjp=lambda x, w: w), "named": wrong}

    report = crosscheck(f, (X,), [*ENGINES, Named()], seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert report.divergences[0].accused == ("named",)


def test_a_function_that_raises_everywhere_is_reported():
    report = crosscheck(
        ByHand(lambda x: x.nothing, vjp=lambda x, w: w), (X,), ENGINES, raise_exception=False
    )

    assert report.verdict is Verdict.INCONCLUSIVE
    assert set(report.raised) == set(ENGINES)
    assert "it raises on numpy: AttributeError" in report.headline
    with pytest.raises(InputError, match="nothing that can be differentiated"):
        crosscheck(ByHand(lambda x: None, vjp=lambda x, w: w), (X,), ENGINES)


def test_inputs_that_are_not_finite_are_compared_as_they_are():
    report = crosscheck(SQUARE, (np.array([np.nan, 1.0]),), ENGINES, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert not report.divergences


def test_an_empty_array_passes_and_is_told_as_in_a_check_on_one_engine():
    report = crosscheck(SQUARE, (np.zeros(0),), ENGINES, seed=0)

    assert report.comparisons["value"] == {"numpy, array_api_strict": 0}
    assert any("which is empty" in note for note in report.left_out)


def test_an_empty_array_of_another_shape_fails():
    f = {"numpy": SQUARE, "array_api_strict": ByHand(lambda x: x[:0], vjp=lambda x, w: 0 * x)}

    report = crosscheck(f, (X,), ENGINES, seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("reverse", [False, True])
def test_an_engine_that_refused_f_lends_no_derivative(reverse):
    class Refusing(Named):
        """Its derivative is refused, as that of a function that returns a number of Python."""

        def vjp(self, f, x):
            raise InputError("the function returns a number", "return an array")

    engines = [Refusing(), "numpy"]

    with pytest.raises(InputError, match="the function returns a number"):
        crosscheck(plain, (X,), engines[::-1] if reverse else engines, seed=0)


@pytest.mark.parametrize("odd", range(3))
def test_the_like_are_compared_wherever_the_one_with_another_shape_stands(odd):
    right = ByHand(lambda x: x * x, vjp=lambda x, w: 2 * x * w)
    other = ByHand(
        lambda x: (x * x)[:2], vjp=lambda x, w: np.concatenate([2 * x[:2] * w, np.zeros(1)])
    )
    names = ["one", "two", "three"]
    f = {name: other if k == odd else right for k, name in enumerate(names)}

    report = crosscheck(f, (X,), [Named(n) for n in names], seed=0, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert {d.status for d in report.divergences} == {Status.WRONG_SHAPE}
    (pair,) = report.comparisons["R"]
    assert names[odd] not in pair


def test_a_reference_without_derivatives_is_refused():
    with pytest.raises(InputError, match="reference='numpy' has no derivatives"):
        crosscheck(plain, (X,), [Doubling(), "numpy"], reference="numpy", seed=0)


def test_inputs_and_global_state_stay_as_they_were():
    def noisy(x):
        np.random.random(3)  # noqa: NPY002 the global state is what is tested
        random.random()  # noqa: S311 the same
        x *= 1.0
        if isinstance(x, np.ndarray):
            raise ValueError("on numpy")
        return x * x

    x = X.copy()
    x.flags.writeable = False
    before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    report = crosscheck(
        ByHand(noisy, vjp=lambda x, w: 2 * x * w), (x,), ENGINES, seed=0, raise_exception=False
    )

    assert report.raised == {"numpy": "ValueError: on numpy"}
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before  # noqa: NPY002
    assert x.tolist() == X.tolist()


def test_a_reference_among_the_engines_holds_the_others():
    f = {"numpy": SQUARE, "array_api_strict": SQUARE, "named": SQUARE}

    report = crosscheck(f, (X,), [*ENGINES, Named()], reference="named", seed=0)

    assert set(report.comparisons["value"]) == {"numpy, named", "array_api_strict, named"}
    assert report.reference == "held against named"
