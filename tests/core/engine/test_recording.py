"""What a function of NumPy arrays does, as a program: its values and its derivatives by replay."""

import numpy as np
import pytest

pytest.importorskip("flint")

import adjudge
from adjudge import ByHand, Verdict
from adjudge.engine import Place, PlainBackend, Ref
from adjudge.engine.recording import recorded
from adjudge.errors import NotSupportedError
from adjudge.estimate.replay import mistranslated, precision, replay

BACKEND = PlainBackend(np)
X = np.random.default_rng(0).uniform(0.2, 0.9, (3, 3))


def program(f, *x):
    def call(function):
        y = function(*x)
        return tuple(y) if isinstance(y, tuple | list) else (y,)

    return recorded(call, f, x, BACKEND.arrays)


def definite(a):
    return a @ a.T + 3 * np.eye(3)


def written(x):
    y = np.zeros_like(x) + 2 * x
    z = np.ones_like(x)
    z[1:] = x[:2] * 3
    y[0] = x[1] ** 2
    y[:, 1] += x[:, 0]
    return y * z


def in_loops(x):
    total = 0.0
    for row in x:
        total = total + row[0] * np.sin(row[1:]).sum()
    return total


FUNCTIONS = {
    "operators": lambda x: (2 * x - x**2 / 3 + 1 / x) ** 1.5 - (-x) + abs(x - 0.5),
    "elementary": lambda x: np.sin(x) * np.exp(-x) + np.log1p(x) * np.arctan(x) + np.hypot(x, 1),
    "inverse": lambda x: np.arcsin(x) + np.arccosh(x + 1) + np.arctan2(x, 1 + x) + np.cbrt(x),
    "reductions": lambda x: x.sum(0) + x.mean(1) * np.prod(x, axis=0) + x.max() - x.min(axis=1),
    "variance": lambda x: np.std(x, axis=0) + x.var() + np.var(x, 1, ddof=1),
    "cumulative": lambda x: np.cumsum(x, axis=1) + np.cumprod(x, axis=0) + np.cumsum(x)[-1],
    "moved": lambda x: np.concatenate([x.T, x[::-1]], axis=1).reshape(2, 9)[:, ::2],
    "chosen": lambda x: x[x > 0.5].sum() * x[[0, 2], 1] + x[1, ..., None][:2, 0],
    "stacked": lambda x: np.stack([x[0], x[1] ** 2]).ravel() + np.tile(x[2], 2),
    "triangles": lambda x: np.tril(x) @ np.triu(x, 1) + np.diag(np.diag(x)) + np.roll(x, 1, 0),
    "written into": written,
    "loops": in_loops,
    "where": lambda x: np.where(x > 0.5, np.exp(x), x**2) + np.clip(x, 0.3, 0.6),
    "compared": lambda x: (x > 0.5) * x + np.maximum(x, x.T) + np.sort(x, axis=0),
    "branch": lambda x: x.sin() if False else (x**2 if x.sum() > 1 else x),
    "products": lambda x: np.dot(x, x[0]) + np.outer(x[0], x[1])[1] + np.vdot(x, x) + np.trace(x),
    "tensors": lambda x: (
        np.tensordot(x, x, 1) + np.einsum("ij,kj->ik", x, x) + np.inner(x[0], x[1])
    ),
    "solve": lambda x: np.linalg.solve(definite(x), x) + np.linalg.solve(definite(x), x[0]),
    "inverse of a matrix": lambda x: np.linalg.inv(definite(x)) + np.linalg.det(x),
    "determinant": lambda x: np.linalg.slogdet(definite(x))[1] + np.linalg.norm(x),
    "factors": lambda x: np.linalg.cholesky(definite(x)) + np.linalg.eigh(definite(x))[0],
    "transform": lambda x: np.fft.fft(x, axis=0).real + np.abs(np.fft.ifft(x)),
    "complex": lambda x: np.abs(np.exp(1j * x) + x) + (x + 2j * x).imag,
    "differences": lambda x: np.diff(x, axis=1) * np.ptp(x) + np.logaddexp(x[:, :2], 0.3),
}


def differences(f, x, v):
    steps = [h * (f(x + h * v) - f(x - h * v)) / (2 * h * h) for h in (2e-4, 1e-4)]
    return steps[1] + (steps[1] - steps[0]) / 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_program_of_a_function_has_its_values_and_derivatives(name):
    f = FUNCTIONS[name]
    made = program(f, X.copy())
    assert not made.opaque, [(one.step, one.why) for one in made.opaque]
    v = np.random.default_rng(1).normal(size=X.shape)
    with precision(128):
        assert mistranslated(made) is None
        (found,) = replay(made, [[v]])
        values, slopes = (
            np.vectorize(lambda one: float(one.mid()), otypes=[float])(found.parts[key])
            for key in (0, 1)
        )
    assert np.allclose(values, f(X), 1e-12, 1e-12)
    assert np.allclose(slopes, differences(f, X, v), 1e-7, 1e-7)


def test_functions_of_scipy_are_recorded():
    special = pytest.importorskip("scipy.special")
    names = ["expit", "erf", "erfc", "gammaln", "psi", "ndtr", "log_ndtr", "i0", "j1", "erfinv"]
    for name in names:
        f = getattr(special, name)
        made = program(f, X.copy())
        with precision(128):
            assert mistranslated(made) is None, name
            assert not made.opaque


def test_a_step_has_the_line_of_the_user():
    def f(x):
        return np.sin(x)

    (operation,) = program(f, X.copy()).operations
    assert operation.place == Place(__file__, f.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    "f",
    [lambda x: x * float(x[0, 0]), lambda x: np.asarray(x) * x, lambda x: x * x.item(1)],
    ids=["float", "asarray", "item"],
)
def test_numbers_that_are_handed_out_leave_nothing_proved(f):
    assert program(f, X.copy()).opaque


def test_a_function_without_translation_is_opaque_and_told_by_name():
    (operation,) = program(lambda x: np.nextafter(x, 0.0) * x, X.copy()).opaque
    assert operation.step == "numpy.nextafter"


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * (2.0 if isinstance(x, np.ndarray) else 3.0),
        lambda x: x.flags.writeable * x,
        lambda x: np.add(x, 1, out=np.empty((3, 3))),
        lambda x: np.cross(x, x.nowhere() if not isinstance(x, np.ndarray) else x),
    ],
    ids=["another branch", "flags", "out", "no method"],
)
def test_what_is_another_function_of_recorded_arrays_is_refused(f):
    assert f(X).shape == X.shape
    with pytest.raises(NotSupportedError, match="recording"):
        program(f, X.copy())


def test_what_a_function_writes_into_its_arrays_is_recorded_and_not_written():
    x = X.copy()

    def into(x):
        x *= 2
        x[0] = 1.0
        return x

    def call(function):
        y = function(x)
        assert np.array_equal(x, X) == (function is not into)
        return (y,)

    (output,) = recorded(call, into, (x,), BACKEND.arrays).outputs
    assert isinstance(output, Ref)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def pulled(x, w):
    p = softmax(x)
    return p * (w - (p * w).sum(-1, keepdims=True))


def test_a_derivative_by_hand_is_judged_by_an_exact_reference():
    for seed in range(10):
        x = np.random.default_rng(seed).normal(size=(2, 4))
        right = adjudge.examine(ByHand(softmax, vjp=pulled), x, reference="exact", seed=seed)
        assert right.verdict is Verdict.PASS, str(right)
        assert right.certified
        part = 1e-11 if seed % 2 else 1e-8
        off = ByHand(softmax, vjp=lambda x, w, part=part: pulled(x, w) * (1 + part))
        wrong = adjudge.examine(off, x, reference="exact", seed=seed)
        assert wrong.verdict is Verdict.FAIL
        assert wrong.entries[0].enclosure


def test_a_function_of_numpy_is_not_recorded_unless_that_is_asked():
    seen = []

    def f(x):
        seen.append(type(x))
        return 1e10 + np.sin(x)

    report = adjudge.examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), X[0], seed=0)
    assert {*seen} == {np.ndarray}
    assert report.verdict is Verdict.INCONCLUSIVE
