"""Inputs that live on a set, in PyTorch and JAX: the engine differentiates the chart as well."""

import importlib

import numpy as np
import pytest
from scenarios import cells, on_both
from sets import SEED, adjoint, matrix, orthogonal, positive_definite, simplex, sphere, symmetric

from adjudge import InputError, Verdict, examine, gradgradcheck

BOTH = ["R", "F"]
SECOND = ["RR", "FR", "RF"]


POINTS = {
    "symmetric": [symmetric(n=3), symmetric("complex", 3)],
    "positive definite": [positive_definite(n=3), positive_definite("complex", 3)],
    "simplex": [simplex(2, 3)],
    "sphere": [sphere(rows=2, n=3), sphere("complex", 2, 3)],
    "orthogonal": [orthogonal(n=3), orthogonal(n=4, m=2), orthogonal("complex", 3)],
    "sorted": [np.sort(matrix((2, 3))), np.asarray([1.0, 1.0, 2.0, 2.0])],
    "positive": [np.exp(matrix((4,)))],
}
CASES = [(name, k) for name, points in POINTS.items() for k in range(len(points))]
FEW = [("symmetric", 1), ("simplex", 0), ("sphere", 0), ("orthogonal", 0), ("sorted", 1)]
FEWER = [("symmetric", 1), ("simplex", 0)]
"""For the slower engine: a complex set and a real one. What is done with a set is the core's."""


@pytest.fixture
def torch():
    return importlib.import_module("torch")


def wave(xp):
    return lambda x: xp.sin(2 * x) + x * x / 2


# ---------------------------------------------------------------- right derivatives


# on JAX a point of the simplex is checked outside of 64-bit mode, below
@cells(("name", "k"), torch=CASES)
def test_a_right_derivative_passes_in_every_mode_and_order(adjudge_backend, name, k):
    x, f = adjudge_backend.array(POINTS[name][k]), wave(adjudge_backend.xp)

    report = examine(f, x, directions=name, modes=[*BOTH, *SECOND], seed=SEED, blame=False)

    assert report.verdict is Verdict.PASS, str(report)
    assert set(report.modes) == {*BOTH, *SECOND}
    assert f"inputs[0] along {POINTS_WORDS.get((name, k), '')}" in report.footer


POINTS_WORDS = {
    ("symmetric", 0): "symmetric matrices",
    ("symmetric", 1): "Hermitian matrices",
    ("positive definite", 0): "positive definite matrices",
    ("orthogonal", 0): "orthogonal matrices",
    ("orthogonal", 1): "matrices of orthonormal columns",
    ("orthogonal", 2): "unitary matrices",
    ("simplex", 0): "the simplex",
    ("sphere", 0): "the unit sphere",
}


@pytest.mark.parametrize("adjudge_backend", ["torch"], indirect=True)
@pytest.mark.parametrize(("name", "k"), FEW)
def test_a_float32_point_is_judged_in_float64(adjudge_backend, spoiled, name, k):
    wide = POINTS[name][k]
    x = adjudge_backend.array(wide.astype("complex64" if np.iscomplexobj(wide) else "float32"))
    f = wave(adjudge_backend.xp)

    report = examine(f, x, directions=name, modes=BOTH, seed=SEED, blame=False)
    wrong = examine(spoiled(f, lambda x, g: g * 1.01), x, directions=name, seed=SEED, blame=False)

    assert report.verdict is Verdict.PASS, str(report)
    assert "formula judged in float64" in report.footer
    assert wrong.verdict is Verdict.FAIL, str(wrong)


def decompositions(xp):
    linalg = xp.linalg
    return {
        "cholesky": (linalg.cholesky, "positive definite"),
        "logdet": (lambda a: linalg.slogdet(a)[1], "positive definite"),
        "inverse": (linalg.inv, "positive definite"),
        "eigenvalues": (lambda a: linalg.eigh(a)[0], "symmetric"),
        "triangle": (lambda a: xp.tril(a) ** 2, "symmetric"),
    }


DECOMPOSITIONS = [
    (which, kind)
    for which in ("cholesky", "logdet", "inverse", "eigenvalues", "triangle")
    for kind in ("real", "complex")
]


# the rules of each decomposition are an engine's own; JAX, which compiles each of their operations,
# is asked about a factorisation, an inverse and eigenvalues
@cells(
    ("which", "kind"),
    torch=DECOMPOSITIONS,
    jax=[("cholesky", "complex"), ("inverse", "real"), ("eigenvalues", "real")],
)
def test_functions_that_read_a_triangle_pass_along_the_set(adjudge_backend, which, kind):
    f, name = decompositions(adjudge_backend.xp)[which]
    x = adjudge_backend.array(positive_definite(kind, 3))

    assert examine(f, x, directions=name, seed=SEED, blame=False).verdict is Verdict.PASS
    report = gradgradcheck(f, x, directions=name, seed=SEED, raise_exception=False)
    assert report.verdict is Verdict.PASS, str(report)


@cells("which", torch=["cholesky", "eigenvalues"])
def test_they_fail_without_directions_where_the_engine_symmetrises_the_gradient(
    adjudge_backend, which
):
    f, _ = decompositions(adjudge_backend.xp)[which]

    report = examine(f, adjudge_backend.array(positive_definite(n=3)), seed=SEED, blame=False)

    assert report.verdict is Verdict.FAIL, str(report)


# ---------------------------------------------------------------- conventions and planted errors


def normal(name, x):
    """A part of a gradient that no tangent of the set sees."""
    if name in ("symmetric", "positive definite"):
        a = matrix(x.shape, "complex" if np.iscomplexobj(x) else "real")
        return a - adjoint(a)
    if name == "simplex":
        return matrix((*x.shape[:-1], 1)) * np.ones_like(x)
    if name == "sphere":
        return matrix((*x.shape[:-1], 1)) * x
    return x @ symmetric("complex" if np.iscomplexobj(x) else "real", x.shape[1])


CURVED = [c for c in CASES if c[0] not in ("sorted", "positive")]
ERRORS = {
    "sign": lambda g: -g,
    "factor": lambda g: 2 * g,
    "one part in a million": lambda g: g * (1 + 1e-6),
    "zero": lambda g: 0 * g,
}


@cells(("name", "k"), torch=CURVED, jax=FEWER)
def test_a_convention_outside_of_the_set_fails_without_directions_and_passes_with(
    adjudge_backend, spoiled, name, k
):
    x, xp = POINTS[name][k], adjudge_backend.xp
    off = adjudge_backend.array(normal(name, x))
    f = wave(xp)

    def total(x):
        y = f(x)
        return xp.sum(xp.real(y) if np.iscomplexobj(POINTS[name][k]) else y)

    # the size of the gradient is that of its cotangent, to which it is linear
    loose = spoiled(total, lambda x, g: g + off * (xp.sum(xp.abs(g)) / 10))
    # additive it is not: that is another finding, which projected mode does not look for
    bare = examine(loose, adjudge_backend.array(x), seed=SEED, blame=False)
    along = examine(loose, adjudge_backend.array(x), directions=name, seed=SEED, blame=False)

    assert bare.verdict is Verdict.FAIL, str(bare)
    assert "MISMATCH" in str(bare)
    assert "MISMATCH" not in str(along)
    assert along.verdict is Verdict.PASS, str(along)


@cells(
    ("name", "k", "error"),
    torch=[(*case, list(ERRORS)[k % 4]) for k, case in enumerate(CASES)],
    jax=[(*FEW[0], "one part in a million"), (*FEW[-1], "factor")],
)
def test_an_error_along_the_set_fails(adjudge_backend, spoiled, name, k, error):
    rule = spoiled(wave(adjudge_backend.xp), lambda x, g: ERRORS[error](g))

    report = examine(
        rule, adjudge_backend.array(POINTS[name][k]), directions=name, seed=SEED, blame=False
    )

    assert report.verdict is Verdict.FAIL, str(report)


@cells(("name", "k"), torch=FEW, jax=FEWER)
def test_one_wrong_entry_is_named(adjudge_backend, spoiled, name, k):
    x = POINTS[name][k]
    mask = np.ones(x.shape)
    mask.reshape(-1)[1] = 1.3
    factor = adjudge_backend.array(mask)
    rule = spoiled(wave(adjudge_backend.xp), lambda x, g: g * factor)
    entry = ", ".join(str(i) for i in np.unravel_index(1, x.shape))

    report = examine(
        rule, adjudge_backend.array(x), directions=name, mode="full", seed=SEED, blame=False
    )

    assert report.verdict is Verdict.FAIL, str(report)
    assert any(f"inputs[0][{entry}]" in entry_.wrt for entry_ in report.entries), str(report)


# ---------------------------------------------------------------- the rest of the interface


@on_both
def test_a_chart_of_ones_own_is_differentiated_by_the_engine(adjudge_backend, spoiled):
    xp = adjudge_backend.xp
    x = adjudge_backend.array(np.asarray([0.6, 0.8]))

    def circle(z):
        angle = z[0] - 0.6 + np.arctan2(0.8, 0.6)
        return xp.stack([xp.cos(angle), xp.sin(angle)])

    def f(x):
        return x[0] * x[0] * x[1]

    loose = spoiled(f, lambda x, g: g + 5 * x * (g[1] / x[0] ** 2))
    wrong = spoiled(f, lambda x, g: g * 1.0001)

    assert examine(loose, x, seed=SEED, blame=False).verdict is Verdict.FAIL
    report = examine(loose, x, directions={0: circle}, seed=SEED, blame=False)
    assert report.verdict is Verdict.PASS, str(report)
    assert "inputs[0] along the chart circle" in str(report)
    assert examine(wrong, x, directions=circle, seed=SEED, blame=False).verdict is Verdict.FAIL


@on_both
def test_only_the_leaves_that_are_named_have_directions(adjudge_backend):
    xp = adjudge_backend.xp
    a, b = adjudge_backend.arrays(symmetric(n=3), matrix((3, 3)))
    inputs = ({"a": a, "b": b},)

    def f(tree):
        return xp.matmul(tree["a"], tree["b"])

    report = examine(f, inputs, directions={"inputs[0]['a']": "symmetric"}, seed=SEED, blame=False)

    assert report.verdict is Verdict.PASS, str(report)
    assert "inputs[0]['a'] along symmetric matrices" in report.footer
    assert "['b'] along" not in report.footer
    with pytest.raises(InputError, match=r"inputs\[0\]\['b'\] differs from its transpose"):
        examine(f, inputs, directions="symmetric", blame=False)


@on_both
def test_batched_derivatives_go_along_the_set(adjudge_backend):
    x = adjudge_backend.array(symmetric(n=3))

    report = examine(
        wave(adjudge_backend.xp), x, directions="symmetric", check_forward_ad=True, seed=SEED,
        check_batched_grad=True, check_batched_forward_grad=True, blame=False)  # fmt: skip

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.backend("jax")
def test_a_float64_point_outside_of_64_bit_mode(double, jnp):
    x = double(POINTS["simplex"][0])

    report = examine(
        wave(jnp), x, directions="simplex", modes=["R", "F", "RR"], seed=SEED, blame=False
    )

    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.backend("torch")
def test_a_tensor_that_requires_grad_or_has_strides_keeps_both(torch):
    x = torch.asarray(symmetric(n=3)).requires_grad_()
    seen = []

    def f(a):
        seen.append(a.requires_grad)
        return a.sin()

    report = examine(f, x, directions="symmetric", seed=SEED, blame=False)

    assert report.verdict is Verdict.PASS, str(report)
    assert all(seen)
    q = torch.asarray(orthogonal(n=5, m=5)).T
    assert examine(f, q, directions="orthogonal", seed=SEED, blame=False).verdict is Verdict.PASS


@pytest.mark.backend("torch")
def test_a_sparse_tensor_has_no_directions(torch):
    x = torch.eye(3, dtype=torch.float64).to_sparse()

    with pytest.raises(InputError, match="which is sparse"):
        examine(lambda a: a.to_dense(), x, directions="symmetric", blame=False)
