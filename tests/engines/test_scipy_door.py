"""`adjudge_scipy.check_grad`: SciPy's signature, its number with fewer digits lost, and a warning
that names the wrong entry.
"""

import inspect
import warnings

import numpy as np
import pytest
from scenarios import seeds

import adjudge
from adjudge_scipy import check_grad

X = [1.5, -1.5]


def func(x):
    return x[0] ** 2 - 0.5 * x[1] ** 3


def grad(x):
    return [2 * x[0], -1.5 * x[1] ** 2]


def wrong(x):
    return [2 * x[0], -1.4 * x[1] ** 2]


def squares(x):
    return x**2 + x[0]


def jacobian(x):
    J = np.diag(2 * x)
    J[:, 0] += 1
    return J


def off(f, g, x, *args, **options):
    """The number for a wrong gradient, and the warning."""
    with pytest.warns(UserWarning, match="FAIL") as warned:
        number = check_grad(f, g, x, *args, **options)
    return number, str(warned[0].message)


def test_the_door_has_the_signature_of_scipy():
    scipy = pytest.importorskip("scipy.optimize")
    theirs = inspect.signature(inspect.unwrap(scipy.check_grad)).parameters

    ours = inspect.signature(check_grad).parameters

    assert list(theirs) == [name for name in ours if name != "seed"]
    assert [p.kind for p in theirs.values()] == [p.kind for k, p in ours.items() if k != "seed"]
    assert ours["direction"].default == theirs["direction"].default


def test_the_number_is_that_of_scipy_but_for_rounding():
    scipy = pytest.importorskip("scipy.optimize")

    assert check_grad(func, grad, X) < 1e-9 < scipy.check_grad(func, grad, X) < 1e-6
    assert off(func, wrong, X)[0] == pytest.approx(scipy.check_grad(func, wrong, X), rel=1e-6)
    assert isinstance(check_grad(func, grad, X), float)


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize("direction", ["all", "random"])
def test_a_right_gradient_is_quiet_and_a_wrong_one_is_named(direction, seed):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        right = check_grad(func, grad, X, direction=direction, seed=seed)
    number, said = off(func, wrong, X, direction=direction, rng=np.random.default_rng(seed))

    assert right < 1e-9
    assert number > 1e-6
    assert "d out / d inputs[0][1]: automatic -3.15, reference -3.375" in said
    assert "adjudge.gradcheck(adjudge.ByHand(func, grad=grad), x0)" in said


def test_the_random_direction_is_that_of_the_seed():
    numbers = {off(func, wrong, X, direction="random", seed=seed)[0] for seed in (1, 1, 2)}

    assert len(numbers) == 2


def test_a_warning_points_to_the_line_that_asked():
    with pytest.warns(UserWarning, match="FAIL") as warned:
        check_grad(func, wrong, X)

    assert warned[0].filename == __file__


def test_further_arguments_go_to_both_functions():
    f, g = lambda x, a, b: a * func(x) + b, lambda x, a, b: a * np.asarray(grad(x))

    assert check_grad(f, g, X, 3.0, 4) < 1e-8
    assert off(f, lambda x, a, b: g(x, 2 * a, b), X, 3.0, 4)[0] > 1


def test_an_epsilon_is_the_step_of_the_differences():
    def seen(x):
        points.append(np.array(x))
        return func(x)

    points = []
    check_grad(seen, grad, X, epsilon=2.0**-10)

    moves = {float(np.max(np.abs(x - np.asarray(X)))) for x in points}
    assert 2.0**-10 in moves


@pytest.mark.parametrize("given", [np.asarray, list, tuple])
def test_a_jacobian_of_several_outputs(given):
    x = [0.3, 0.8, -0.5]

    right = check_grad(squares, lambda x: given(jacobian(x)), x)
    number, said = off(squares, lambda x: given(1.01 * jacobian(x)), x)

    assert right < 1e-9
    assert number == pytest.approx(0.01 * np.linalg.norm(jacobian(np.asarray(x))), rel=1e-6)
    assert "ByHand(func, jac=grad)" in said


@pytest.mark.parametrize("x", [2, 2.0, [2], np.float32(2.0)])
def test_numbers_and_integers_become_float64(x):
    assert check_grad(lambda x: x**3, lambda x: 3 * x**2, x) < 1e-8
    assert off(lambda x: x**3, lambda x: 3 * x, x)[0] == pytest.approx(6)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"direction": "rows"}, "is not a valid string"),
        ({"direction": "random", "f": squares}, "can only be used with a scalar valued func"),
        ({"g": lambda x: None}, "grad of ByHand(func) returned None"),
        ({"g": lambda x: [1.0]}, "returned ndarray of shape (1,)"),
    ],
)
def test_what_scipy_refuses_is_refused_and_so_is_no_gradient(options, found):
    f, g = options.pop("f", func), options.pop("g", grad)

    with pytest.raises(ValueError, match=r"\w") as caught:
        check_grad(f, g, X, **options)

    assert found in str(caught.value)
    assert isinstance(caught.value, adjudge.InputError)


def test_what_cannot_be_told_is_no_small_number():
    with pytest.warns(UserWarning, match="INCONCLUSIVE"):
        number = check_grad(func, grad, [np.nan, 1.0])

    assert not number < 1


@pytest.mark.parametrize("number", [0, 1, 12345])
@pytest.mark.parametrize(
    "given",
    [
        lambda n: {"rng": n},
        lambda n: {"seed": n},
        lambda n: {"rng": np.random.default_rng(n)},
        lambda n: {"seed": np.random.default_rng(n)},
        lambda n: {"seed": np.random.RandomState(n)},
    ],
    ids=["rng", "seed", "a generator", "a generator as seed", "a random state"],
)
def test_the_random_direction_is_that_of_scipy(given, number):
    scipy = pytest.importorskip("scipy.optimize")
    ours, theirs = given(number), given(number)

    found, _ = off(func, wrong, X, direction="random", **ours)

    assert found == pytest.approx(
        scipy.check_grad(func, wrong, X, direction="random", **theirs), abs=1e-6
    )
    (one,), (other,) = ours.values(), theirs.values()
    if not isinstance(one, int):  # and the caller's generator stands where SciPy leaves it
        assert one.standard_normal() == other.standard_normal()


@pytest.mark.parametrize("direction", ["all", "random"])
def test_a_point_of_two_axes_is_refused_as_scipy_refuses_it(direction):
    scipy = pytest.importorskip("scipy.optimize")
    f, g, x = lambda x: np.sum(x**2), lambda x: 2 * x, np.ones((2, 2))

    for check in (scipy.check_grad, check_grad):
        with pytest.raises(ValueError, match=r"at most 1 dimension|scalar.valued|shape"):
            check(f, g, x, direction=direction)
    with pytest.raises(TypeError, match="multiple values"):
        check_grad(func, grad, X, rng=1, seed=1)
