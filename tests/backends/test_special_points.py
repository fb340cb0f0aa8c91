"""Special points under PyTorch and JAX: the classic NaN of a guarded division, and what passes."""

import importlib

import numpy as np
import pytest
from scenarios import cells, on_both

from adjudge import Verdict, examine, special_points
from adjudge.engine import backend_named

X = np.asarray([0.3, -1.2, 0.8, 2.0])
MATRIX = np.asarray([[0.9, 0.2, -0.3], [0.1, 1.7, 0.4], [-0.5, 0.6, 2.5]])


def sinc(xp, *, guarded):
    """`sin(x) / x`, guarded at 0 for its value only, or for its derivative as well."""

    def f(x):
        safe = xp.where(x == 0, xp.ones_like(x), x) if guarded else x
        return xp.where(x == 0, xp.ones_like(x), xp.sin(safe) / safe)

    return f


def some(x, *names):
    """These of the special points of x: every one of them is the core's."""
    return {point.name: point.inputs for point in special_points((x,)) if point.name in names}


@on_both
def test_a_division_guarded_for_its_value_only_fails_at_zero(adjudge_backend):
    xp, x = adjudge_backend.xp, adjudge_backend.array(X)

    points = some(x, "zeros", "zero_entry", "ones")
    wrong = examine(sinc(xp, guarded=False), x, points=points)
    right = examine(sinc(xp, guarded=True), x, points=points)

    assert "at zeros: " in wrong.headline
    assert wrong.points["given"].verdict is Verdict.PASS
    assert {"zeros", "zero_entry"} <= failing(wrong)
    assert right.verdict is Verdict.PASS, str(right)


def failing(report):
    return {name for name, there in report.points.items() if there.verdict is Verdict.FAIL}


def products(xp, x):
    """Of each entry the product of the others."""
    flat = [x[k] for k in range(x.shape[0])]
    parts = []
    for k in range(len(flat)):
        part = xp.ones_like(x[0])
        for j, entry in enumerate(flat):
            part = part if j == k else part * entry
        parts.append(part)
    return xp.stack(parts)


@on_both
def test_a_product_whose_rule_divides_fails_at_an_exact_zero(adjudge_backend, with_vjp):
    xp, x = adjudge_backend.xp, adjudge_backend.array(X)
    wrong = with_vjp(xp.prod, lambda x, w: w * xp.prod(x) / x)
    right = with_vjp(xp.prod, lambda x, w: w * products(xp, x))

    points = some(x, "zeros", "zero_entry", "two_zeros_in_a_row", "ones")
    reports = [examine(f, x, points=points) for f in (right, wrong)]

    assert [Verdict.PASS, Verdict.FAIL] == [r.verdict for r in reports], str(reports[0])
    assert {"zeros", "zero_entry", "two_zeros_in_a_row"} <= failing(reports[1])


def eigenvalues(xp, matrix):
    return xp.linalg.eigvalsh((matrix + matrix.T) / 2)


FUNCTIONS = {
    "sin": lambda xp, x: xp.sin(x),
    "exp": lambda xp, x: xp.exp(x),
    "tanh": lambda xp, x: xp.tanh(x),
    "expm1": lambda xp, x: xp.expm1(x),
    "product": lambda xp, x: xp.prod(x),
    "cumulative product": lambda xp, x: xp.cumprod(x, 0),
    "sum of eigenvalues": lambda xp, x: xp.sum(eigenvalues(xp, x)),
    "matrix product": lambda xp, x: x @ x,
    "inverse": lambda xp, x: xp.linalg.inv(x),
}
OF_MATRICES = {"sum of eigenvalues", "matrix product", "inverse"}


@cells(
    ("name", "dtype"),
    torch=[*((name, "float64") for name in FUNCTIONS), ("tanh", "float32")],
    jax=[("exp", "float64"), ("cumulative product", "float64")],
)
def test_what_is_right_everywhere_passes_at_every_special_point(adjudge_backend, name, dtype):
    xp = adjudge_backend.xp
    x = adjudge_backend.array(MATRIX if name in OF_MATRICES else X, dtype)

    report = examine(lambda x: FUNCTIONS[name](xp, x), x, points="special", seed=1)

    assert report.verdict is Verdict.PASS, str(report)


@on_both
def test_eigenvalues_are_not_smooth_where_they_repeat_and_their_sum_is(adjudge_backend):
    xp, x = adjudge_backend.xp, adjudge_backend.array(MATRIX)

    points = some(x, "identity", "repeated_eigenvalues")

    each = examine(lambda x: eigenvalues(xp, x), x, points=points, seed=1)
    whole = examine(lambda x: xp.sum(eigenvalues(xp, x) ** 2), x, points=points, seed=1)

    assert failing(each) == set(), str(each)
    identity = each.points["identity"]
    assert "not smooth" in identity.silent or "kink" in str(identity)
    assert whole.points["identity"].verdict is Verdict.PASS
    assert whole.points["repeated_eigenvalues"].verdict is Verdict.PASS


@pytest.mark.backend("torch")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float64"])
def test_points_of_a_tensor_are_tensors_like_it(dtype):
    torch = importlib.import_module("torch")
    kind = getattr(torch, dtype)
    x = torch.tensor(MATRIX, dtype=kind).T.requires_grad_()
    other = torch.tensor([1, 2])
    before = x.detach().clone()

    points = special_points(({"x": x}, other))

    assert {"zeros", "identity", "subnormal", "huge"} <= {point.name for point in points}
    for point in points:
        there = point.inputs[0]["x"]
        assert (there.dtype, there.stride(), there.requires_grad) == (kind, x.stride(), True)
        assert there.is_leaf
        assert there.data_ptr() != x.data_ptr()
        assert bool(torch.isfinite(there).all())
        assert torch.equal(point.inputs[1], other)
    assert torch.equal(before, x)


@pytest.mark.backend("jax")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float64"])
def test_points_of_a_jax_array_have_its_dtype_outside_of_64_bit_mode(dtype, double, jnp):
    x = double(X) if dtype == "float64" else jnp.asarray(X, dtype=dtype)

    points = special_points((x, 3))

    assert all(str(point.inputs[0].dtype) == dtype for point in points)
    assert all(point.inputs[1] == 3 for point in points)
    assert {"zeros", "plus_40", "large"} <= {point.name for point in points}


@pytest.mark.backend("torch")
def test_complex_inputs_are_checked_at_special_points():
    torch = importlib.import_module("torch")
    z = torch.tensor([0.3 + 1j, -1.2 - 0.4j], requires_grad=True)

    right = examine(torch.prod, z, points="special", seed=1)
    wrong = examine(
        lambda z: torch.where(z == 0, z * 0, z.sin() * z / z), z, points="special", blame=False
    )

    assert right.verdict is Verdict.PASS, str(right)
    assert "zeros" in failing(wrong)


@pytest.mark.backend("jax")
def test_a_function_is_compiled_once_for_all_points(jnp, monkeypatch):
    compiled, backend = [], type(backend_named("jax"))
    compile_it = backend.compile
    monkeypatch.setattr(backend, "compile", lambda *a: compiled.append(1) or compile_it(*a))

    x = jnp.asarray([0.3, -1.2])
    report = examine(lambda x: jnp.tanh(x) * x, x, order=1, points="special", seed=0)

    assert report.ways["jit"]["R"] is Verdict.PASS
    assert len(compiled) == 1
