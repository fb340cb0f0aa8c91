"""What a function of NumPy arrays does, as a program: its values and its derivatives by replay."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scenarios import over_seeds

pytest.importorskip("flint")

import adjudge
from adjudge import ByHand, Verdict
from adjudge.engine import Place, PlainBackend, Ref
from adjudge.engine.recording import recorded
from adjudge.errors import NotSupportedError, Source, running
from adjudge.estimate.replay import mistranslated, precision, replay

BACKEND = PlainBackend(np)
X = np.random.default_rng(0).uniform(0.2, 0.9, (3, 3))


def program(f, *x):
    def call(function):
        with running(Source.FUNCTION):
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


def filled(x):
    out = np.zeros(4)
    for k in range(3):
        out[k] = x[k, 0] * x[k].sum()
    out[3] += x[0, 0]
    return out


def put_together(x):
    rows = np.array([[x[0, 0], 2.0 * x[0, 1]], [1.0, x[1, 1] ** 2]])
    return rows @ np.asarray([x[2, 0], 3])


def added_up(x):
    total, counts = np.zeros(3), np.zeros(3)
    np.add.at(total, [0, 0, 2], x[0])
    np.subtract.at(counts, [1, 2], x[1, :2])
    total += x[2] * 2
    return total * counts + np.multiply.outer(x[0], x[1])[0]


def added_into_zeros(x):
    total = np.zeros(3)
    np.add.at(total, [0, 0, 2], x[0])
    return total * x[1]


def copied_into_zeros(x):
    held = np.zeros((3, 3))
    np.copyto(held, x)
    return held * x


def put_in_place(x):
    y = 2 * x
    np.put(y, [0, 4], [x[0, 1], 5])
    np.fill_diagonal(y, x[0])
    z = np.empty_like(x)
    np.copyto(z, np.exp(x))
    np.putmask(z, X > 0.5, 7)
    row = 2 * x[2]
    row.sort()
    z[1:] = [row, x[1]]
    return y * z


def by_views(x):
    y = np.zeros((3, 3))
    for k, row in enumerate(y):
        row[:] = x[k] * (k + 1)
        row[1:] += x[0, :2]
    y[1:][:, 0] *= 2
    first = y[0, 0]
    first += 1.0
    last, inner = y[-1, ...], y[1:][1]
    last -= y[0]
    inner *= last
    y[2, 1:] += x[1, 1:]
    return y * first + last * inner


FUNCTIONS = {
    "views": by_views,
    "an array of its own": filled,
    "numbers put together": put_together,
    "added up at places": added_up,
    "added into zeros": added_into_zeros,
    "copied into zeros": copied_into_zeros,
    "written in place": put_in_place,
    "joined with integers": lambda x: np.concatenate([x[0], np.array([1, 2])]) * 3,
    "appended": lambda x: np.append(x[0], 1.5) * np.insert(x[0], 1, 2),
    "padded": lambda x: (
        np.pad(x, 1) @ np.pad(x, ((1, 1), (1, 1)), mode="edge") + np.pad(x, 1, constant_values=2.0)
    ),
    "in blocks": lambda x: np.block([[x, np.ones((3, 1))], [np.zeros((1, 3)), 4]]) ** 2,
    "grids": lambda x: np.multiply(*np.meshgrid(x[0], x[1])) + np.delete(x, 1, 0)[0],
    "quantiles": lambda x: (
        np.median(x, axis=0) * np.quantile(x, 0.3)
        + np.percentile(x, [10, 60], axis=1)[1]
        + np.median(x, axis=1, keepdims=True)
    ),
    "orders": lambda x: x[0][np.argsort(x[1])] * x.ravel()[np.flatnonzero(x > 0.5)[:3]],
    "bins": lambda x: (
        np.arange(5.0)[np.digitize(x, [0.3, 0.5, 0.7])] * x
        + np.searchsorted(np.sort(x[0]), x[1])
        + np.bincount([0, 0, 2], weights=x[0])
    ),
    "without NaN": lambda x: np.nansum(x, axis=0) * np.nanmean(x) + np.nan_to_num(x),
    "statistics": lambda x: np.cov(x) + np.corrcoef(x) + np.average(x, axis=0, weights=x[:, 0]),
    "grid derivatives": lambda x: (
        np.gradient(x, 0.5, axis=1) + np.gradient(x)[0] + np.trapezoid(x, x[0].cumsum())
    ),
    "accumulated": lambda x: (
        np.maximum.accumulate(x, axis=1) + np.logaddexp.accumulate(x) + np.diff(x, 2).sum()
    ),
    "interpolated": lambda x: (
        np.interp(x, [0.0, 0.4, 0.7, 1.0], [1.0, 3.0, -1.0, 0.0])
        + np.interp(0.35, np.cumsum(x[0]), x[1])
    ),
    "polynomials": lambda x: (
        np.polyval([1.0, -2.0, 3], x) + np.vander(x[0]) + np.polyval(x[0], 2.0)
    ),
    "convolved": lambda x: (
        np.convolve(x[0], x[1])[1:4] * np.convolve(x[0], [1, 2, 3], "same")
        + np.correlate(x.ravel(), x[1], "valid")[2:5]
    ),
    "Kronecker": lambda x: np.kron(x, x[0])[:, :3] + np.cross(x, x[::-1]),
    "other sums": lambda x: np.einsum("ii->i", x) + np.einsum("iij->j", np.stack([x] * 3)),
    "powers of a matrix": lambda x: (
        np.linalg.matrix_power(x, 3)
        + np.linalg.multi_dot([x, x, x])
        + np.linalg.matrix_power(definite(x), -2)
    ),
    "singular values": lambda x: (
        np.linalg.svd(x, compute_uv=False) + np.linalg.norm(x, "nuc") + np.linalg.norm(x, 2)
    ),
    "norms": lambda x: (
        np.linalg.norm(x, 1) * np.linalg.norm(x[0], 3)
        + np.linalg.norm(x, np.inf, axis=1)
        + np.linalg.vector_norm(x)
        + np.linalg.matrix_norm(x)
    ),
    "triangular factor": lambda x: np.linalg.qr(x)[1] + np.linalg.qr(x, mode="r"),
    "least squares": lambda x: (
        np.linalg.pinv(x[:, :2]) @ x + np.linalg.lstsq(x[:, :2], x[:, 2], rcond=None)[0][:, None]
    ),
    "eigenvalues": lambda x: (
        np.linalg.eigvals(definite(x)).real + np.sort(np.abs(np.linalg.eigvals(x)))
    ),
    "real transforms": lambda x: (
        np.fft.rfft(x, n=4).imag[:, :2].sum()
        + np.fft.irfft(np.fft.rfft(x[0], n=4) ** 2)[:3]
        + np.fft.fft2(x, norm="ortho").real
        + np.fft.fftshift(np.abs(np.fft.ifftn(x)))
    ),
    "along an axis": lambda x: np.apply_along_axis(lambda row: row / row.sum(), 1, x),
    "ramps": lambda x: np.select([x < 0.4, x < 0.7], [x, x**2], 3.0) + np.linspace(x[0], x[1], 3),
    "angles": lambda x: np.angle(x + 1j) + np.deg2rad(x) + np.sinc(x) + np.heaviside(x, 0.5) * x,
    "divided": lambda x: np.divmod(3 * x, 0.4)[1] + np.modf(5 * x)[0] + np.ldexp(x, 2) // 0.3 + x,
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
    has_its_derivatives(f, made)


def has_its_derivatives(f, made):
    """Holds the values and the slopes of a program against those of the function."""
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


def of_scipy():
    special, linalg = pytest.importorskip("scipy.special"), pytest.importorskip("scipy.linalg")
    names = ["expit", "erf", "erfc", "gammaln", "psi", "ndtr", "log_ndtr", "i0", "j1", "erfinv"]
    names += ["gamma", "loggamma", "logit", "log_expit", "entr", "exprel", "cosm1"]
    functions = {name: getattr(special, name) for name in names}
    return functions | {
        "betaln": lambda x: special.betaln(x, 2.5) + special.beta(1.5, x),
        "rel_entr": lambda x: special.rel_entr(x, x.T) + special.kl_div(x, 0.5),
        "huber": lambda x: special.huber(0.5, x) + special.pseudo_huber(0.5, x),
        "boxcox": lambda x: special.boxcox(x, 0.3) * special.inv_boxcox(x, 0.3),
        "chdtr": lambda x: special.chdtr(3.0, x) + special.gdtr(2.0, 1.5, x),
        "jv": lambda x: special.jv(1, x) + special.kv(0, x) + special.polygamma(1, x),
        "softmax": lambda x: special.softmax(x, axis=1) + special.log_softmax(x),
        "logsumexp": lambda x: special.logsumexp(x, axis=0) * special.logsumexp(x),
        "expm": linalg.expm,
        "another expm": lambda x: linalg.expm(x) @ x,
        "triangular": lambda x: (
            linalg.solve_triangular(x, x[0], lower=True)
            + linalg.solve_triangular(x, x, trans=1, unit_diagonal=True)
        ),
        "Cholesky": lambda x: (
            linalg.cho_solve(linalg.cho_factor(definite(x)), x)
            + linalg.cholesky(definite(x), lower=True)
        ),
    }


def test_functions_of_scipy_are_recorded():
    for f in of_scipy().values():
        has_its_derivatives(f, program(f, X.copy()))


def test_a_step_has_the_line_of_the_user():
    def f(x):
        return np.sin(x)

    (operation,) = program(f, X.copy()).operations
    assert operation.place == Place(__file__, f.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * float(x[0, 0]),
        lambda x: np.asarray(x.tolist()) * x,
        lambda x: x * x.item(1),
        lambda x: x * np.vectorize(lambda one: one)(x),
    ],
    ids=["float", "tolist", "item", "vectorize"],
)
def test_numbers_that_are_handed_out_leave_nothing_proved(f):
    assert program(f, X.copy()).opaque


def test_a_function_without_translation_is_opaque_and_told_by_name():
    (operation,) = program(lambda x: np.nextafter(x, 0.0) * x, X.copy()).opaque
    assert operation.step == "numpy.nextafter"


GIVEN = np.zeros((3, 3))
"""An array of the user, into which a function writes."""


def into_a_view(x):
    y = 2 * x
    row = y.ravel()
    row[:3] = x[1]
    return y


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * (2.0 if isinstance(x, np.ndarray) else 3.0),
        lambda x: x.flags.writeable * x,
        lambda x: np.add(x, 1, out=GIVEN),
        into_a_view,
        lambda x: np.add.at(GIVEN, (0, 0), x[0, 0]) or GIVEN * x,
        lambda x: np.copyto(GIVEN, x) or GIVEN * x,
        lambda x: np.cross(x, x.nowhere() if not isinstance(x, np.ndarray) else x),
    ],
    ids=["another branch", "flags", "out", "view", "at", "copyto", "no method"],
)
def test_what_is_another_function_of_recorded_arrays_is_refused(f):
    assert f(X).shape == X.shape
    with pytest.raises(NotSupportedError, match="recording"):
        program(f, X.copy())


def test_functions_of_numpy_are_as_they_were_afterwards_and_in_other_threads():
    before, seen = np.zeros, []

    def f(x):
        out = np.zeros(3)
        with ThreadPoolExecutor(1) as other:
            seen.append((type(out), type(other.submit(lambda: np.zeros(3)).result())))
        out[:] = x[0]
        if len(seen) == 7:
            raise ValueError("where arrays of its own are recorded")
        return out

    assert not program(f, X.copy()).opaque
    assert np.zeros is before
    assert program(f, X.copy()).opaque
    assert np.zeros is before
    assert {other for _, other in seen} == {np.ndarray}
    assert [one is np.ndarray for one, _ in seen] == [True, True, False, True] * 2


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


@over_seeds(10)
def test_a_derivative_by_hand_is_judged_by_an_exact_reference(seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=(2, 4))
        right = adjudge.examine(ByHand(softmax, vjp=pulled), x, reference="exact", seed=seed)
        assert right.verdict is Verdict.PASS, str(right)
        assert right.certified
        part = 1e-11 if seed % 2 else 1e-8
        off = ByHand(softmax, vjp=lambda x, w, part=part: pulled(x, w) * (1 + part))
        wrong = adjudge.examine(off, x, reference="exact", seed=seed)
        assert wrong.verdict is Verdict.FAIL
        assert wrong.entries[0].enclosure


def smoothed(x):
    y = np.zeros(len(x))
    for k in range(len(x)):
        y[k] = np.sin(x[k]) + (0.5 * y[k - 1] if k else 0.0)
    return y


def smoothed_back(x, w):
    g = w.copy()
    for k in range(len(x) - 1, 0, -1):
        g[k - 1] += 0.5 * g[k]
    return g * np.cos(x)


@over_seeds(10)
def test_a_function_that_fills_an_array_of_its_own_is_judged_so_too(seeds):
    for seed in seeds:
        x = np.random.default_rng(seed).normal(size=5)
        right = adjudge.examine(
            ByHand(smoothed, vjp=smoothed_back), x, reference="exact", seed=seed
        )
        assert right.verdict is Verdict.PASS, str(right)
        assert right.certified
        off = 1 + 1e-10 * (np.arange(5) == seed % 5)
        wrong = adjudge.examine(
            ByHand(smoothed, vjp=lambda x, w, off=off: smoothed_back(x, w) * off),
            x,
            reference="exact",
            seed=seed,
        )
        assert wrong.verdict is Verdict.FAIL, str(wrong)
        assert f"[{seed % 5}]" in wrong.entries[0].name


def test_a_function_of_numpy_is_not_recorded_unless_that_is_asked():
    seen = []

    def f(x):
        seen.append(type(x))
        return 1e10 + np.sin(x)

    report = adjudge.examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), X[0], seed=0)
    assert {*seen} == {np.ndarray}
    assert report.verdict is Verdict.INCONCLUSIVE
