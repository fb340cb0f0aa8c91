"""Conventions for symmetric matrices, and functions that refuse points beside x, are named."""

import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine

RANDOM = np.random.default_rng(3)
SEEDS = range(4)


def normal(*shape):
    return RANDOM.normal(size=shape)


def definite(*shape, complex=False):
    a = normal(*shape) + 1j * normal(*shape) if complex else normal(*shape)
    return a @ np.swapaxes(a.conj(), -1, -2) + 3 * np.eye(shape[-1])


U, V = normal(4), normal(4)


def adjoint(g):
    return np.swapaxes(g.conj(), -1, -2)


def symmetrised(g):
    return (g + adjoint(g)) / 2


def lower(g):
    return np.tril(g + adjoint(g)) - np.eye(g.shape[-1]) * g.real


def upper(g):
    return adjoint(lower(g))


def skewed(g):
    return g + 0.3 * (np.tril(g, -1) - adjoint(np.tril(g, -1)))


CONVENTIONS = {
    symmetrised: "is symmetrised",
    lower: "in the lower one",
    upper: "in the upper one",
    skewed: "by an antisymmetric part",
}


def bilinear(convention):
    def vjp(x, w):
        return convention(np.multiply.outer(w, np.outer(U, V)))

    return ByHand(lambda x: x @ V @ U, vjp=vjp)


def hermitian(convention):
    return ByHand(
        lambda x: (x @ V @ U).real, vjp=lambda x, w: convention(w * np.outer(U, V) * (1 + 0j))
    )


def reads_one_triangle(convention):
    """The log-determinant, by a factorisation that reads the lower triangle."""

    def forward(x):
        return 2 * np.log(np.diagonal(np.linalg.cholesky(x)).real).sum()

    return ByHand(forward, vjp=lambda x, w: convention(w * np.linalg.inv(x)))


CASES = {
    "bilinear": (bilinear, definite(4, 4)),
    "batch": (bilinear, definite(2, 4, 4)),
    "Hermitian": (hermitian, definite(4, 4, complex=True)),
    "one triangle": (reads_one_triangle, definite(4, 4)),
}


@pytest.mark.parametrize("convention", CONVENTIONS)
@pytest.mark.parametrize("case", CASES)
def test_a_convention_for_symmetric_matrices_is_named_with_the_option_that_checks_it(
    case, convention
):
    make, x = CASES[case]
    if make is reads_one_triangle and convention in (lower, skewed):
        return  # the first is right in every direction, the second is symmetrised and skewed
    for seed in SEEDS:
        report = examine(make(convention), x, seed=seed)
        along = examine(make(convention), x, seed=seed, directions="symmetric")

        assert report.verdict is Verdict.FAIL
        assert CONVENTIONS[convention] in str(report), str(report)
        assert "along symmetric matrices it is right" in str(report)
        assert "directions='symmetric'" in str(report)
        assert along.verdict is Verdict.PASS, str(along)


def doubled(g):
    return g + adjoint(g)


@pytest.mark.parametrize(("make", "x"), CASES.values())
def test_a_mistake_along_symmetric_matrices_is_no_convention(make, x):
    for seed in SEEDS:
        report = examine(make(doubled), x, seed=seed)

        assert report.verdict is Verdict.FAIL
        assert "it is right" not in str(report)
        assert not examine(make(doubled), x, seed=seed, directions="symmetric")


def test_a_matrix_that_is_not_symmetric_has_no_convention():
    report = examine(bilinear(symmetrised), normal(4, 4), seed=0)

    assert report.verdict is Verdict.FAIL
    assert "it is right" not in str(report)


def test_the_option_names_the_input_where_there_are_several():
    rule = ByHand(
        lambda b, x: b * (x @ V @ U),
        vjp=lambda b, x, w: (w * (x @ V @ U), symmetrised(w * b * np.outer(U, V))),
    )
    x = (np.asarray(0.7), definite(4, 4))
    option = {"inputs[1]": "symmetric"}

    report = examine(rule, x, seed=0)

    assert f"directions={option}" in str(report)
    assert examine(rule, x, seed=0, directions=option)


# ---------------------------------------------------------------- curved sets


def on_sphere(n):
    x = normal(n)
    return x / np.linalg.norm(x)


def on_simplex(n):
    x = np.exp(normal(n))
    return x / x.sum()


def orthonormal(n):
    return np.linalg.qr(normal(n, 3))[0]


def radial_part_left_out(g, x):
    return g - x * (x * g).sum()


def mean_left_out(g, _):
    return g - g.mean()


def symmetric_part_left_out(g, x):
    product = x.T @ g
    return g - x @ (product + product.T) / 2


CURVED = {
    "sphere": (on_sphere, radial_part_left_out),
    "simplex": (on_simplex, mean_left_out),
    "orthogonal": (orthonormal, symmetric_part_left_out),
}


def exponential(x, convention):
    """`exp <x, v>`, whose gradient is brought into a convention."""
    v = np.random.default_rng(3).standard_normal(x.shape) / x.size**0.5
    return ByHand(
        lambda x: np.exp((x * v).sum()),
        vjp=lambda x, w: convention(w * np.exp((x * v).sum()) * v, x),
    )


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("name", CURVED)
def test_a_gradient_along_a_curved_set_is_named_with_the_option_that_checks_it(name, n):
    make, convention = CURVED[name]
    rule, x = exponential(make(n), convention), make(n)
    for seed in SEEDS:
        report = examine(rule, x, seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL
        assert f"check it there: directions={name!r}" in str(report), str(report)
        assert examine(rule, x, seed=seed, directions=name).verdict is Verdict.PASS


@pytest.mark.parametrize("n", [5, 40])
@pytest.mark.parametrize("name", CURVED)
def test_a_gradient_that_is_wrong_along_a_curved_set_is_no_convention(name, n):
    make, convention = CURVED[name]
    rule, x = exponential(make(n), lambda g, x: 1.05 * convention(g, x)), make(n)
    for seed in SEEDS:
        report = examine(rule, x, seed=seed, blame=False)

        assert report.verdict is Verdict.FAIL
        assert "directions=" not in str(report), str(report)
        assert examine(rule, x, seed=seed, directions=name, blame=False).verdict is Verdict.FAIL


# ---------------------------------------------------------------- what refuses points beside x


def refusing(holds):
    def forward(x):
        if not holds(x):
            raise ValueError("off the set")
        return (x * W[x.shape]).sum()

    return ByHand(forward, vjp=lambda x, w: w * W[x.shape])


W = {(4, 4): symmetrised(normal(4, 4)), (5,): normal(5)}
REFUSING = {
    "positive definite": (definite(4, 4), lambda x: np.array_equal(x, x.T)),
    "symmetric": (symmetrised(normal(4, 4)), lambda x: np.array_equal(x, x.T)),
    "simplex": (np.arange(1.0, 6) / 15, lambda x: abs(x.sum() - 1) < 1e-13),
    "sphere": (
        np.asarray([0.5, -0.5, 0.5, 0.1, -0.7]) / np.sqrt(1.25),
        lambda x: abs(x @ x - 1) < 1e-13,
    ),
    "orthogonal": (
        np.linalg.qr(normal(4, 4))[0],
        lambda x: np.allclose(x.T @ x, np.eye(4), atol=1e-13),
    ),
    "sorted": (np.full(5, 0.3), lambda x: np.all(np.diff(x) >= 0)),  # hardly a tangent stays in
}


@pytest.mark.parametrize("name", REFUSING)
def test_the_exception_points_to_the_set_that_x_is_in(name):
    x, holds = REFUSING[name]
    for seed in SEEDS:
        with pytest.raises(ValueError, match="off the set") as caught:
            examine(refusing(holds), x, seed=seed)
        assert f"directions={name!r}" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize("name", ["positive definite", "symmetric", "simplex", "sphere"])
def test_the_option_is_then_enough(name):
    x, holds = REFUSING[name]
    for seed in SEEDS:
        assert examine(refusing(holds), x, seed=seed, directions=name)


def test_what_raises_at_x_or_along_the_set_is_not_pointed_anywhere():
    def forward(x):
        raise ValueError("always")

    for options in ({}, {"directions": "symmetric"}):
        with pytest.raises(ValueError, match="always") as caught:
            examine(ByHand(forward, vjp=lambda x, w: w), definite(4, 4), **options)
        assert "directions=" not in " ".join(caught.value.__notes__)
