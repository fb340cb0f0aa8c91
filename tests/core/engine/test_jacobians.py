"""Gradients, Jacobians and Hessians as optimisers take them: right ones pass, planted errors are
found by their order and entry, and what is no such derivative is refused in words.
"""

import types
from functools import cached_property, partial

import array_api_strict
import numpy as np
import pytest

from adjudge import ByHand, InputError, Verdict, examine, gradgradcheck
from adjudge.engine import ArraysByNumpy, AutodiffBackend

X = np.asarray([0.3, -0.8, 1.1])


def energy(x):
    return x[0] * x[1] ** 2 + np.sin(x[2]) * x[0]


def gradient(x):
    return np.asarray([x[1] ** 2 + np.sin(x[2]), 2 * x[0] * x[1], np.cos(x[2]) * x[0]])


def hessian(x):
    a, b, c = 2 * x[1], np.cos(x[2]), -np.sin(x[2]) * x[0]
    return np.asarray([[0, a, b], [a, 2 * x[0], 0], [b, 0, c]])


def residuals(x):
    return np.asarray([x[0] * x[1], np.exp(x[2])])


def jacobian(x):
    return np.asarray([[x[1], x[0], 0], [0, 0, np.exp(x[2])]])


def off(derivative, *index):
    """A derivative with one entry that is off by 1 %."""

    def wrong(x):
        found = derivative(x)
        found[index] *= 1.01
        return found

    return wrong


class Operator:
    """`shape`, `@` and `.T`, as sparse matrices and linear operators have them."""

    def __init__(self, matrix, adjoint=None):
        self.matrix, self.adjoint = matrix, matrix.T if adjoint is None else adjoint
        self.shape = matrix.shape

    @property
    def T(self):
        return Operator(self.adjoint, self.matrix)

    def __matmul__(self, v):
        return self.matrix @ v


AS_GIVEN = {"dense": lambda M: M, "list": lambda M: M.tolist(), "rows": tuple, "operator": Operator}
HESSIANS = {
    "hess": lambda H: {"hess": H},
    "list": lambda H: {"hess": lambda x: H(x).tolist()},
    "operator": lambda H: {"hess": lambda x: Operator(H(x))},
    "hessp": lambda H: {"hessp": lambda x, p: H(x) @ p},
}

seeds = pytest.mark.parametrize("seed", range(10))


@seeds
@pytest.mark.parametrize("name", ["grad", "jac"])
def test_a_gradient_is_right_or_its_wrong_entry_is_named(name, seed):
    right = examine(ByHand(energy, **{name: gradient}), X, seed=seed)
    wrong = examine(ByHand(energy, **{name: off(gradient, 1)}), X, seed=seed)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert "d out / d inputs[0][1]: automatic" in wrong.headline


@seeds
@pytest.mark.parametrize("form", AS_GIVEN)
def test_a_jacobian_is_right_or_its_wrong_entry_is_named(form, seed):
    given = AS_GIVEN[form]
    right = examine(ByHand(residuals, jac=lambda x: given(jacobian(x))), X, seed=seed)
    wrong = examine(ByHand(residuals, jac=lambda x: given(off(jacobian, 1, 2)(x))), X, seed=seed)

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
    assert "d out[1] / d inputs[0][2]: automatic" in wrong.headline


@pytest.mark.parametrize("wrong_product", ["J v", "J* w"])
def test_both_products_of_an_operator_are_checked(wrong_product):
    def jac(x):
        pair = jacobian(x), off(jacobian, 1, 2)(x)
        right, wrong = pair if wrong_product == "J* w" else pair[::-1]
        return Operator(right, wrong.T)

    report = examine(ByHand(residuals, jac=jac), X, seed=1)

    failed = [mode for mode, verdict in report.modes.items() if verdict is Verdict.FAIL]
    assert failed == ["R" if wrong_product == "J* w" else "F"]


def test_the_two_products_of_a_complex_jacobian_are_adjoint():
    z = np.asarray([0.3 + 0.2j, -0.8 + 0.5j])
    right = examine(ByHand(lambda z: z**2, jac=lambda z: np.diag(2 * z)), z, seed=1)
    wrong = examine(ByHand(lambda z: z**2, jac=lambda z: np.diag(2 * z.conj())), z, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@seeds
@pytest.mark.parametrize("form", HESSIANS)
def test_every_check_compares_a_hessian_with_differences_of_the_gradient(form, seed):
    given = HESSIANS[form]
    right = examine(ByHand(energy, grad=gradient, **given(hessian)), X, seed=seed)
    wrong = examine(ByHand(energy, grad=gradient, **given(off(hessian, 0, 1))), X, seed=seed)

    assert right.verdict is Verdict.PASS
    assert list(right.modes) == ["R", "RR" if form in ("hess", "list") else "FR"]
    assert wrong.verdict is Verdict.FAIL
    assert wrong.modes["R"] is Verdict.PASS
    assert "d grad(inputs[0])[0] / d inputs[0][1]: automatic" in wrong.headline


@pytest.mark.parametrize("form", HESSIANS)
def test_a_hessian_is_the_second_derivative_in_reverse_mode_as_well(form):
    given = HESSIANS[form]
    right, wrong = (
        gradgradcheck(ByHand(energy, grad=gradient, **given(H)), X, seed=1, raise_exception=False)
        for H in (hessian, off(hessian, 0, 1))
    )

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("form", HESSIANS)
def test_an_order_asks_for_no_derivatives_of_a_jvp_that_nobody_wrote(form):
    right, wrong = (
        examine(ByHand(energy, grad=gradient, **HESSIANS[form](H)), X, order=2, seed=1)
        for H in (hessian, off(hessian, 0, 1))
    )
    without = examine(ByHand(energy, grad=gradient), X, order=2, seed=1)

    assert dict.fromkeys(["R", "F", "RR", "FR"], Verdict.PASS) == right.modes
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert without.verdict is Verdict.INCONCLUSIVE


def test_a_gradient_that_is_wrong_beside_its_own_hessian_fails():
    rule = ByHand(energy, grad=lambda x: 2 * gradient(x), hess=lambda x: 2 * hessian(x))

    report = examine(rule, X, seed=1)

    assert report.modes["R"] is Verdict.FAIL


def test_hessian_products_with_swapped_arguments_fail():
    rule = ByHand(energy, grad=gradient, hessp=lambda p, x: hessian(x) @ p)

    report = examine(rule, X, seed=1)

    assert report.verdict is Verdict.FAIL
    assert "the jvp is not linear in its tangent" in str(report)
    assert "hessp= is called as hessp(x, p), and passes with its arguments swapped" in str(report)


@pytest.mark.parametrize(
    "value", [float, lambda y: y, lambda y: [y], lambda y: np.asarray([y])], ids=range(4)
)
def test_the_value_may_be_any_number_that_scipy_takes(value):
    f = lambda x: value(energy(x))  # noqa: E731

    right = examine(ByHand(f, grad=gradient, hess=hessian), X, seed=1)
    wrong = examine(ByHand(f, grad=off(gradient, 1), hess=hessian), X, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize("x", [[1, 2, 3], [1.0, 2.0, 3.0], np.asarray([1, 2, 3])], ids=range(3))
def test_a_point_of_integers_or_a_list_is_made_float64_as_by_scipy(x):
    seen = []

    def recorded(x):
        seen.append(x.dtype.name)
        return energy(x)

    report = examine(ByHand(recorded, grad=gradient), x, seed=1)

    assert report.verdict is Verdict.PASS
    assert set(seen) == {"float64"}


def test_a_gradient_of_integers_is_one_of_floats():
    right = examine(ByHand(lambda x: x @ np.arange(3.0), grad=lambda x: np.arange(3)), X, seed=1)
    wrong = examine(ByHand(energy, grad=lambda x: gradient(x).astype(int)), X, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_several_inputs_have_a_tuple_of_gradients():
    dot, inputs = lambda a, b, n: n * (a @ b), (X, X + 1, 2)
    right = examine(ByHand(dot, grad=lambda a, b, n: (n * b, n * a, None)), inputs, seed=1)
    wrong = examine(ByHand(dot, grad=lambda a, b, n: (n * b, a, None)), inputs, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_any_namespace_and_any_shape_of_input_will_do():
    xp = array_api_strict
    x = xp.asarray(X[:2])[:, None]
    rule = partial(ByHand, lambda x: xp.sum(x**3))
    diagonal = lambda x: xp.eye(2, dtype=xp.float64) * x  # noqa: E731

    right = examine(rule(grad=lambda x: 3 * x**2, hess=lambda x: 6 * diagonal(x)), x, seed=1)
    wrong = examine(rule(grad=lambda x: 3 * x**2, hess=lambda x: 5 * diagonal(x)), x, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


@pytest.mark.parametrize(
    "given", [lambda H: {"hess": H}, lambda H: {"hessp": lambda x, p, *args: H(x, *args) @ p}]
)
def test_numbers_beside_the_array_are_further_arguments_as_of_scipy(given):
    def scaled(derivative):
        return lambda x, factor, n: factor * derivative(x)

    inputs = (X.tolist(), 2.0, 3)
    for wrong in (hessian, off(hessian, 0, 1)):
        rule = ByHand(scaled(energy), grad=scaled(gradient), **given(scaled(wrong)))
        report = examine(rule, inputs, modes=["R", "RR", "FR"], seed=1)

        assert (report.verdict is Verdict.PASS) == (wrong is hessian)


def test_special_points_begin_at_numbers_as_well():
    right = examine(ByHand(energy, grad=gradient), [1, 2, 3], points="special", seed=1)
    wrong = examine(ByHand(energy, grad=off(gradient, 1)), [1, 2, 3], points="special", seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert len(right.points) > 10


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"grad": off(gradient, 1)}, "grad"),
        ({"jac": off(gradient, 1)}, "jac"),
        ({"grad": gradient, "hess": off(hessian, 0, 1)}, "hess"),
        ({"grad": gradient, "hessp": lambda x, p: off(hessian, 0, 1)(x) @ p}, "hessp"),
    ],
)
def test_a_report_calls_the_derivative_by_the_name_under_which_it_was_given(given, name):
    report = examine(ByHand(energy, **given), X, seed=1)

    assert f"\n  look at what {name}= returns\n" in str(report)


def test_a_gradient_that_writes_into_its_input_is_found():
    def writes(x):
        g = gradient(x)
        x *= 2
        return g

    report = examine(ByHand(energy, grad=writes), X, seed=1)

    assert report.verdict is Verdict.FAIL
    assert "writes into inputs[0], which it was handed (or grad= does)" in report.headline


def test_a_report_points_to_the_derivative_that_was_given():
    first = examine(ByHand(energy, grad=off(gradient, 1), hess=hessian), X, seed=1)
    second = examine(ByHand(energy, grad=gradient, hess=off(hessian, 0, 1)), X, seed=1)

    line = off.__code__.co_firstlineno + 3
    assert [(r.file, r.line) for r in (first, second)] == [(__file__, line)] * 2


# ---------------------------------------------------------------- what is refused

SEVERAL = (X, X)
TRANSPOSED = "this looks transposed"
REFUSED = {
    "a gradient as vjp": (
        {"vjp": gradient},
        "vjp of ByHand(energy) is called as vjp(x, w), and gradient(x) was given",
        "for a gradient give grad=, for a Jacobian jac=",
    ),
    "a closure as vjp": (
        {"vjp": lambda x: (energy(x), lambda w: w * gradient(x))},
        "called as vjp(x, w), and <lambda>(x) was given", "is pullback=",
    ),
    "a ufunc as vjp": (
        {"vjp": np.cos}, "called as vjp(x, w), and cos(x) was given", "for a gradient give grad=",
    ),
    "a ufunc as jvp": (
        {"jvp": np.cos}, "called as jvp(x, v), and cos(x) was given", "for a gradient give grad=",
    ),
    "a Jacobian as jvp": (
        {"jvp": jacobian}, "called as jvp(x, v), and jacobian(x) was given", "give grad=",
    ),
    "a vjp as gradient": (
        {"grad": lambda x, w: w * gradient(x)}, "called as grad(x), and <lambda>(x, w)", "vjp=",
    ),
    "a Hessian as product": (
        {"grad": gradient, "hessp": hessian}, "called as hessp(x, p), and hessian(x)", "hess=",
    ),
    "a product as Hessian": (
        {"grad": gradient, "hess": lambda x, p: p}, "called as hess(x), and <lambda>(x", "hessp=",
    ),
    "a gradient too short": (
        {"grad": lambda x: gradient(x)[:2]},
        "grad of ByHand(energy) returned ndarray of shape (2,), float64 for x of shape (3,)",
        "return an array of shape (3,)",
    ),
    "a gradient as a column": (
        {"grad": lambda x: gradient(x)[:, None]}, "shape (3, 1), float64", "of shape (3,)",
    ),
    "a gradient without return": (
        {"grad": lambda x: None}, "grad of ByHand(energy) returned None", "is a `return` missing?",
    ),
    "a gradient of words": ({"grad": lambda x: "x"}, "returned a str", "of shape (3,)"),
    "a Hessian as gradient": ({"grad": hessian}, "returned ndarray of shape (3, 3)", "(3,)"),
    "a gradient as Hessian": (
        {"grad": gradient, "hess": gradient}, "hess of ByHand(energy) returned ndarray of shape",
        "return an array of shape (3, 3)",
    ),
    "a product too long": (
        {"grad": gradient, "hessp": lambda x, p: hessian(x)}, "hessp of ByHand(energy) returned",
        "of shape (3,)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_derivative_says_what_was_expected_and_found(case):
    given, found, remedy = REFUSED[case]
    forward = "jvp" in given

    with pytest.raises(InputError) as caught:
        examine(ByHand(energy, **given), X, check_forward_ad=forward, check_backward_ad=not forward)

    assert found in caught.value.found
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("given", [np.transpose, lambda J: Operator(J.T), lambda J: J.T.tolist()])
def test_a_transposed_jacobian_is_called_that(given):
    with pytest.raises(InputError) as caught:
        examine(ByHand(residuals, jac=lambda x: given(jacobian(x))), X)

    assert "of shape (3, 2)" in caught.value.found
    assert "return an array of shape (2, 3)" in caught.value.remedy
    assert TRANSPOSED in caught.value.remedy


def test_a_jacobian_of_another_shape_is_not_called_transposed():
    with pytest.raises(InputError) as caught:
        examine(ByHand(residuals, jac=lambda x: Operator(jacobian(x)[:1])), X)

    assert "jac of ByHand(residuals) returned Operator of shape (1, 3)" in caught.value.found
    assert TRANSPOSED not in caught.value.remedy


def test_an_operator_without_an_adjoint_is_refused_or_checked_forward():
    class OneWay(Operator):
        @property
        def T(self):
            raise NotImplementedError("rmatvec is not defined")

    rule = ByHand(residuals, jac=lambda x: OneWay(jacobian(x)))

    with pytest.raises(InputError, match="without the product J\\* w: rmatvec is not defined"):
        examine(rule, X)
    assert examine(rule, X, check_backward_ad=False, check_forward_ad=True)


@pytest.mark.parametrize(
    ("rule", "options", "found", "remedy"),
    [
        (
            ByHand(lambda x, c=1.0: c * np.sin(x), vjp=lambda x, w: w * np.cos(x)),
            {"kwargs": {"c": 2.0}},
            "is called as vjp(x, w, c=...), and <lambda>(x, w) was given",
            "the keyword arguments of the function",
        ),
        (
            ByHand(lambda x: (np.sin(x), np.cos(x)), vjp=lambda x, w, v: w * v),
            {},
            "is called as vjp(x, w), and <lambda>(x, w, v) was given",
            "w has the structure of y, so that it is one tuple",
        ),
        (
            ByHand(
                lambda a, b: a * b,
                vjp=lambda a, b, w: (w * b, w * a),
                double_vjp=lambda a, b, w, ua, ub: (w * ub, w * ua, ua * b + ub * a),
            ),
            {"inputs": (X, X), "order": 2},
            "double_vjp of ByHand(<lambda>) is called as double_vjp(*x, w, u), and <lambda>(a, b",
            "u has the structure of x, so that it is one tuple",
        ),
        (
            ByHand(lambda a, b: a * b, jvp=lambda x, v: v[0] * x[1]),
            {"inputs": (X, X)},
            "is called as jvp(*x, *v), and <lambda>(x, v) was given",
            "an argument of its own: jvp(x0, x1, v0, v1)",
        ),
    ],
)
def test_a_derivative_of_other_arguments_says_how_it_is_called(rule, options, found, remedy):
    given = {"inputs": X, **options}

    with pytest.raises(InputError) as caught:
        examine(rule, **given)

    assert found in caught.value.found
    assert remedy in caught.value.remedy


def test_what_a_rule_by_hand_was_not_given_is_to_be_given():
    report = examine(ByHand(energy, grad=gradient), X, order=2)

    assert "give hess= or hessp=" in str(report)


def test_a_gradient_of_several_outputs_asks_for_the_jacobian():
    with pytest.raises(InputError) as caught:
        examine(ByHand(residuals, grad=gradient), X)

    assert "grad= is for a function of one number" in caught.value.found
    assert "shape (2,)" in caught.value.found
    assert "jac=" in caught.value.remedy


@pytest.mark.parametrize(
    ("f", "inputs", "found"),
    [
        (lambda x: (x, x), X, "returns a tuple"),
        (lambda x: x["a"] @ x["a"], {"a": X}, "is a dict"),
        (lambda a, b: a @ b, SEVERAL, "returned ndarray of shape (3,), float64 for 2 inputs"),
        (lambda x: x @ x, [[1.0], [1.0, 2.0]], "is a list and no array of numbers"),
    ],
)
def test_structures_ask_for_a_vjp_or_a_tuple(f, inputs, found):
    with pytest.raises(InputError) as caught:
        examine(ByHand(f, grad=lambda *x: X), inputs)

    assert found in caught.value.found
    assert caught.value.remedy


def test_a_hessian_is_that_of_one_array():
    rule = ByHand(lambda a, b: a @ b, grad=lambda a, b: (b, a), hess=lambda a, b: np.eye(3))

    with pytest.raises(InputError, match="hess= is for one array"):
        examine(rule, SEVERAL)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"grad": gradient, "jac": gradient}, "both grad= and jac="),
        ({"vjp": gradient, "grad": gradient}, "both vjp= and grad="),
        ({"jvp": gradient, "jac": gradient}, "both jvp= and jac="),
        ({"grad": gradient, "hess": hessian, "hessp": hessian}, "both hess= and hessp="),
        ({"hess": hessian}, "hess= without the gradient"),
        ({"vjp": gradient, "hessp": hessian}, "hessp= without the gradient"),
        ({"grad": gradient(X)}, "grad= is ndarray of shape (3,), float64, which cannot be called"),
        ({"hess": True, "grad": gradient}, "hess= is a bool"),
        ({"jac": "2-point"}, "jac= is a str"),
    ],
)
def test_a_rule_of_too_many_derivatives_or_of_none_is_refused(given, found):
    with pytest.raises(InputError) as caught:
        ByHand(energy, **given)

    assert found in caught.value.found
    assert caught.value.remedy


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    ("value", "derivative", "name"),
    [(energy, gradient, "grad"), (energy, gradient, "jac"), (residuals, jacobian, "jac")],
)
@pytest.mark.parametrize("pair", [tuple, list])
def test_one_function_may_return_the_value_and_the_derivative(value, derivative, name, pair, seed):
    right = ByHand(lambda x: pair((value(x), derivative(x))), **{name: True})
    wrong = ByHand(lambda x: pair((value(x), off(derivative, 0)(x))), **{name: True})

    assert examine(right, X, seed=seed).verdict is Verdict.PASS
    assert examine(wrong, X, seed=seed).verdict is Verdict.FAIL
    assert right(X) == pytest.approx(value(X))


def test_a_hessian_may_stand_beside_a_function_that_returns_its_gradient():
    both = lambda x: (energy(x), gradient(x))  # noqa: E731

    right = examine(ByHand(both, grad=True, hess=hessian), X, seed=0)
    wrong = examine(ByHand(both, grad=True, hess=off(hessian, 1, 0)), X, seed=0)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    assert "RR" in right.modes


def test_a_function_that_returns_no_derivative_beside_its_value_is_told_so():
    with pytest.raises(InputError, match=r"float64 of shape .*, and grad=True") as caught:
        examine(ByHand(energy, grad=True), X)
    assert "return the value and the gradient" in caught.value.remedy

    pair = lambda x: (energy(x), gradient(x))  # noqa: E731
    with pytest.raises(InputError, match="give grad=True"):
        examine(ByHand(pair, grad=gradient), X)
    for pullback in (pair, energy):
        with pytest.raises(InputError, match="grad=True"):
            examine(ByHand(pullback=pullback), X)


def test_gradients_of_python_numbers_come_in_lists_and_in_arrays_of_objects():
    def given(make, c=1.0):
        return ByHand(energy, grad=lambda x: make([float(c * one) for one in gradient(x)]))

    for make in (list, tuple, lambda row: np.array(row, dtype=object)):
        assert examine(given(make), X, seed=0).verdict is Verdict.PASS
        assert examine(given(make, 1.01), X, seed=0).verdict is Verdict.FAIL
    with pytest.raises(InputError, match="returned a list for x"):
        examine(ByHand(energy, grad=lambda x: [1.0, [2.0, 3.0], 4.0]), X)


@pytest.mark.parametrize("form", ["vjp", "grad"])
def test_the_gradients_of_several_inputs_may_be_a_list(form):
    def rule(c=1.0):
        if form == "grad":
            return ByHand(lambda a, b: a @ b, grad=lambda a, b: [b, c * a])
        return ByHand(lambda a, b: a @ b, vjp=lambda a, b, w: [w * b, c * w * a])

    assert examine(rule(), SEVERAL, seed=0).verdict is Verdict.PASS
    assert examine(rule(1.01), SEVERAL, seed=0).verdict is Verdict.FAIL


def test_a_ufunc_of_two_arguments_may_be_a_vjp():
    right = examine(ByHand(lambda x: x**2 / 2, vjp=np.multiply), X, seed=1)
    wrong = examine(ByHand(lambda x: x**2, vjp=np.multiply), X, seed=1)

    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)


def test_a_type_error_of_the_derivative_itself_comes_through():
    def broken(x):
        return x + "1"

    with pytest.raises(TypeError, match="ufunc"):
        examine(ByHand(energy, grad=broken), X)


class Tensor:
    """An array of an engine that is known by its adapter alone: no protocol of NumPy or of the
    Array API, no transpose, and products of matrices alone.
    """

    def __init__(self, values):
        self.values = np.asarray(values)
        self.shape, self.dtype = self.values.shape, self.values.dtype.name

    def __mul__(self, other):
        return Tensor(self.values * getattr(other, "values", other))

    def __add__(self, other):
        return Tensor(self.values + getattr(other, "values", other))

    __rmul__, __radd__ = __mul__, __add__


def product_of_matrices(a, b):
    assert len(a.shape) == len(b.shape) == 2
    return Tensor(a.values @ b.values)


class TensorArrays(ArraysByNumpy):
    floating = ("float64", "float32", "complex128")

    def numpy(self, array):
        return array.values

    def tensor(self, values, dtype, device, like=None):
        return Tensor(np.array(values, dtype=dtype))


class TensorBackend(AutodiffBackend):
    name = "tensors"
    xp = types.SimpleNamespace(
        zeros=lambda shape: Tensor(np.zeros(shape)),
        reshape=lambda x, shape: Tensor(x.values.reshape(shape)),
        sum=lambda x: Tensor(x.values.sum()),
        permute_dims=lambda x, axes: Tensor(x.values.transpose(axes)),
        conj=lambda x: Tensor(x.values.conj()),
        matmul=product_of_matrices,
    )

    @cached_property
    def arrays(self):
        return TensorArrays(self.name, self.xp)

    def owns(self, leaf):
        return isinstance(leaf, Tensor)

    def vjp(self, f, x):
        raise self.lacks("reverse mode")


def cubes(x):
    return Tensor((x.values**3).sum())


def as_tensor_rule(rule, wrong=1.0):
    return lambda *x: Tensor(wrong * rule(*[one.values for one in x]))


def as_numpy_rule(rule, wrong=1.0):
    return lambda *x: wrong * rule(*[one.values for one in x])


def as_list_rule(rule, wrong=1.0):
    return lambda *x: (wrong * rule(*[one.values for one in x])).tolist()


KINDS = [as_tensor_rule, as_numpy_rule, as_list_rule]
SQUARE = np.arange(6.0).reshape(2, 3) - 1.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("f", "given"),
    [
        (cubes, {"grad": lambda x: 3 * x**2}),
        (lambda x: Tensor(SQUARE @ x.values), {"jac": lambda x: SQUARE}),
        (lambda x: x * 2, {"jac": lambda x: np.eye(3, dtype=int) * 2}),
        (lambda x: 2.0 * x.values[1], {"grad": lambda x: np.array([0.0, 2.0, 0.0])}),
        (cubes, {"grad": lambda x: 3 * x**2, "hess": lambda x: np.diag(6 * x)}),
        (cubes, {"grad": lambda x: 3 * x**2, "hessp": lambda x, p: 6 * x * p}),
    ],
    ids=["grad", "jac", "integers", "a number", "hess", "hessp"],
)
def test_forms_take_the_arrays_of_any_engine(kind, f, given):
    x = Tensor([0.5, -1.0, 2.0])
    last = list(given)[-1]
    right = {name: kind(rule) for name, rule in given.items()}
    wrong = {**right, last: kind(given[last], 1.5)}

    assert examine(ByHand(f, **right), x, backend=TensorBackend(), seed=1)
    found = examine(ByHand(f, **wrong), x, backend=TensorBackend(), seed=1)
    assert found.verdict is Verdict.FAIL


@pytest.mark.parametrize("form", ["sparse", "operator"])
def test_sparse_jacobians_and_operators_take_the_arrays_of_any_engine(form):
    sparse = pytest.importorskip("scipy.sparse")
    operator = pytest.importorskip("scipy.sparse.linalg").aslinearoperator
    make = sparse.csr_array if form == "sparse" else operator
    x = Tensor([0.5, -1.0, 2.0])

    def check(factor):
        rule = ByHand(lambda x: Tensor(SQUARE @ x.values), jac=lambda x: make(factor * SQUARE))
        return examine(rule, x, backend=TensorBackend(), seed=1)

    assert check(1.0)
    assert check(1.5).verdict is Verdict.FAIL


def test_several_inputs_further_arguments_and_complex_ones_are_of_any_engine():
    x, z = Tensor([0.5, -1.0, 2.0]), Tensor([0.5 + 1j, -1.0 + 0.5j, 2j])
    matrix = SQUARE + 1j * SQUARE[::-1]
    both = ByHand(
        lambda x, y: cubes(x) * cubes(y),
        grad=lambda x, y: (x * x * 3 * cubes(y), y * y * 3 * cubes(x)),
    )
    further = ByHand(
        lambda x, c: cubes(x) * c,
        grad=lambda x, c: x * x * 3 * c,
        hessp=lambda x, p, c: x * p * 6 * c,
    )
    of_complex = ByHand(lambda z: Tensor(matrix @ z.values), jac=lambda z: Tensor(matrix))

    backend = TensorBackend()
    assert examine(both, (x, x * 2), backend=backend, seed=1)
    assert examine(further, (x, 2.0), backend=backend, seed=1)
    assert examine(of_complex, z, backend=backend, check_forward_ad=True, seed=1)


@pytest.mark.parametrize("asked", [{"order": 1}, {"modes": ["R"]}])
def test_a_hessian_that_is_not_asked_for_is_told(asked):
    with_hessian = examine(ByHand(energy, grad=gradient, hess=hessian), X, seed=1, **asked)
    without = examine(ByHand(energy, grad=gradient), X, seed=1, **asked)
    judged = examine(ByHand(energy, grad=gradient, hess=hessian), X, seed=1)

    assert with_hessian
    assert "not checked, since no second derivative is asked for: hess=" in str(with_hessian)
    assert "not checked" not in f"{without}{judged}"


def square(x):
    return np.asarray([[1.0, 2.0, 3.0], [0.0, 1.0, 4.0], [5.0, 0.0, 1.0]]) @ np.sin(x)


def of_square(x):
    return np.asarray([[1.0, 2.0, 3.0], [0.0, 1.0, 4.0], [5.0, 0.0, 1.0]]) * np.cos(x)


SLIPS = {
    "vjp": ("vjp(x, w), and passes with its arguments swapped", lambda w, x: of_square(x).T @ w),
    "vjp ": ("what was given as vjp= passes as jvp=", lambda x, v: of_square(x) @ v),
    "jvp": ("jvp(x, v), and passes with its arguments swapped", lambda v, x: of_square(x) @ v),
    "jac": ("the transpose of what jac= returns passes", lambda x: of_square(x).T),
    "hess": ("not symmetric, and passes with its upper", lambda x: np.triu(hessian(x))),
    "hess ": ("not symmetric, and passes with its lower", lambda x: np.tril(hessian(x))),
}


@pytest.mark.parametrize("name", SLIPS)
def test_a_slip_that_is_undone_with_success_is_told(name):
    words, function = SLIPS[name]
    of_energy = {"grad": gradient} if name.startswith("hess") else {}
    f = energy if of_energy else square
    twice = lambda *args: 2 * function(*args)  # noqa: E731

    report = examine(ByHand(f, **of_energy, **{name.strip(): function}), X, seed=1)
    other = examine(ByHand(f, **of_energy, **{name.strip(): twice}), X, seed=1)

    assert (report.verdict, other.verdict) == (Verdict.FAIL, Verdict.FAIL)
    assert words in str(report)
    assert report.to_dict()["slip"] == report.slip.name
    assert other.slip is None


def test_a_vjp_that_raises_and_would_run_with_its_arguments_swapped_says_so():
    tall = np.asarray([[1.0, 2.0, 3.0], [0.0, 1.0, 4.0]])

    for vjp, told in ((lambda w, x: tall.T @ w, True), (lambda x, w: tall @ w, False)):
        with pytest.raises(ValueError, match="matmul") as raised:
            examine(ByHand(lambda x: tall @ x, vjp=vjp), X, seed=1)
        notes = raised.value.__notes__
        assert any("runs as vjp(w, x)" in note for note in notes) is told


def test_arguments_are_swapped_for_a_trial_where_the_rule_is_not_linear_and_x_is_free():
    seen = []

    def vjp(x, w):
        seen.append(x)
        return 2 * of_square(x).T @ w

    swapped = lambda w, x: of_square(x).T @ w  # noqa: E731

    assert examine(ByHand(square, vjp=vjp), X, seed=1).verdict is Verdict.FAIL
    assert all(np.allclose(x, X, atol=0.5) for x in seen)
    assert examine(ByHand(square, vjp=swapped), X, seed=1).slip is not None
    assert examine(ByHand(square, vjp=swapped), X, seed=1, bounds=(-9.0, 9.0)).slip is None


def test_the_trial_of_a_slip_takes_few_evaluations():
    x = np.random.default_rng(0).standard_normal(1000)

    report = examine(ByHand(np.sin, vjp=lambda x, w: 1.01 * w * np.cos(x)), x, seed=0)

    assert report.verdict is Verdict.FAIL
    assert report.counts["evaluations"] <= 40


def test_a_gradient_of_another_dtype_is_not_taken_for_a_jvp():
    rule = ByHand(lambda x: x**2, vjp=lambda x, w: (2 * x * w).astype(np.float32))
    report = examine(rule, np.array([1.0, 2.0]), modes=["R"], blame=False)

    assert report.verdict is Verdict.FAIL
    assert "has dtype float32" in str(report)
    assert "passes as jvp=" not in str(report)
