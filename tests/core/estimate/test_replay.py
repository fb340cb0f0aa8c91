import mpmath
import numpy as np
import pytest
from scenarios import seeds

flint = pytest.importorskip("flint")

from adjudge.engine import INPUT, ArrayOperations, Operation, Place, ProgramBuilder, Ref  # noqa: E402
from adjudge.estimate import matrices  # noqa: E402
from adjudge.estimate.balls import Truth, UndecidedError, lifted  # noqa: E402
from adjudge.estimate.matrices import adjoint, matmul  # noqa: E402
from adjudge.estimate.replay import (  # noqa: E402
    DoubtError,
    Roundings,
    mistranslated,
    precision,
    replay,
)

X = Ref(INPUT, 0)
RNG = np.random.default_rng(3)
SQUARE = RNG.normal(size=(3, 3))
TALL = RNG.normal(size=(2, 4, 3))
COMPLEX = SQUARE + 1j * RNG.normal(size=(3, 3))


def builder(*inputs):
    return ProgramBuilder(ArrayOperations("numpy", np), inputs)


def sym(a):
    return a @ a.conj().swapaxes(-1, -2) + 5 * np.diag([1.0, 2.0, 3.0])


def program_of(name, x, results, operands=(X,), **params):
    made = builder(x)
    found = made.emit(name, list(operands), results, **params)
    return made.finished([found] if isinstance(found, Ref) else found)


def of_definite(name, x, results, **params):
    made = builder(x)
    turned = made.emit("conj", [made.take([X], np.arange(9).reshape(3, 3).T)], x.conj().T)
    squared = made.emit("matmul", [X, turned], x @ x.conj().T)
    whole = made.emit("add", [squared, 5 * np.diag([1.0, 2.0, 3.0])], sym(x))
    found = made.emit(name, [whole], results, **params)
    return made.finished([found] if isinstance(found, Ref) else found)


def floats(jets, part):
    ball = jets.parts.get(part)
    if ball is None:
        return np.zeros(jets.shape)
    return np.vectorize(lambda one: complex(one.mid()), otypes=[complex])(ball)


def slope(f, x, v, h=1e-5):
    return [(a - b) / (2 * h) for a, b in zip(f(x + h * v), f(x - h * v), strict=True)]


LINEAR = {
    "inv": lambda a: [np.linalg.inv(a)],
    "det": lambda a: [np.linalg.det(a)],
    "slogdet": lambda a: list(np.linalg.slogdet(a)),
}


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("x", [SQUARE, COMPLEX], ids=["real", "complex"])
def test_linear_algebra_has_the_derivative_of_its_equations(name, x):
    compared(program_of(name, x, LINEAR[name](x)), LINEAR[name], x)


@pytest.mark.parametrize("name", ["cholesky", "eigh"])
@pytest.mark.parametrize("x", [SQUARE, COMPLEX], ids=["real", "complex"])
def test_a_definite_matrix_is_taken_apart(name, x):
    def f(a):
        found = getattr(np.linalg, name)(sym(a))
        if name == "cholesky":
            return [found]
        # eigenvectors have a phase that only their products do not show
        return [found[0], np.abs(found[1])]

    recorded = np.linalg.cholesky(sym(x)) if name == "cholesky" else list(np.linalg.eigh(sym(x)))
    program = of_definite(name, x, recorded)
    with precision(128):
        outputs = replay(program, [[np.ones_like(x)]])
        assert mistranslated(program) is None
    differences = slope(f, x, np.ones_like(x))
    for found, true in zip(outputs, differences, strict=True):
        rate = floats(found, 1)
        if name == "eigh" and found.shape == (3, 3):  # of the modulus
            value = floats(found, 0)
            rate = (rate * value.conj()).real / np.abs(value)
        assert np.allclose(rate, true, atol=1e-7)


def in_sixty_digits(a, v, t, found):
    """What mpmath finds for `a + t v`."""
    matrix = mpmath.matrix(a.tolist()) + t * mpmath.matrix(v.tolist())
    if found == "matrix_exp":
        return list(mpmath.expm(matrix))
    if found == "svd":
        squares = mpmath.eighe(matrix.H * matrix, eigvals_only=True)
        return sorted(map(mpmath.sqrt, squares), reverse=True)
    return sorted(mpmath.eig(matrix)[0], key=lambda z: (float(z.real), float(z.imag)))


@pytest.mark.parametrize("x", [SQUARE, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize("name", ["matrix_exp", "svd", "eig"])
def test_a_function_of_a_matrix_is_that_of_sixty_digits(name, x):
    with mpmath.workdps(15):
        exponential = mpmath.expm(mpmath.matrix(x.tolist())).tolist()
    values, vectors = np.linalg.eig(x)
    order = np.lexsort((values.imag, values.real))
    recorded = {
        "matrix_exp": np.array(exponential, x.dtype),
        "svd": list(np.linalg.svd(x)),
        "eig": [values[order], vectors[:, order]],
    }[name]
    program = program_of(name, x, recorded)
    v = np.random.default_rng(8).normal(size=x.shape)
    with mpmath.workdps(60), precision(250):
        assert mistranslated(program) is None
        outputs = replay(program, [[v], [v]])
        found = outputs[1] if name == "svd" else outputs[0]
        h = mpmath.mpf(10) ** -15
        low, middle, high = (in_sixty_digits(x, v, t, name) for t in (-h, mpmath.mpf(0), h))
        for k, true in enumerate(middle):
            value, slope, bend = (number(found.parts[part].flat[k]) for part in (0, 1, 3))
            assert abs(value - true) < 1e-50
            assert abs(slope - (high[k] - low[k]) / (2 * h)) < 1e-25
            assert abs(bend - (high[k] - 2 * true + low[k]) / h**2) < 1e-20


def number(ball):
    """The middle of a ball that is narrow, in mpmath."""
    parts = flint.acb(ball)
    for one in (parts.real, parts.imag):
        assert one.rad() < 1e-50
    return mpmath.mpc(
        *(mpmath.mpf(one.mid().str(70, radius=False)) for one in (parts.real, parts.imag))
    )


@pytest.mark.parametrize("x", [SQUARE, COMPLEX], ids=["real", "complex"])
def test_the_factors_of_a_matrix_make_it_up_along_a_tangent(x):
    wide, v = x[:2], np.random.default_rng(8).normal(size=x.shape)
    programs = [
        (program_of("svd", one, list(np.linalg.svd(one, full_matrices=False))), one)
        for one in (wide, wide.T, x)
    ]
    with precision(128):
        for program, one in programs:
            tangent = v[: one.shape[0], : one.shape[1]]
            u, s, vh = replay(program, [[tangent]])
            assert np.allclose(floats(matmul(u * s, vh), 1), tangent)
            assert np.allclose(floats(matmul(adjoint(u), u), 1), 0)
        w, vectors = replay(program_of("eig", x, list(np.linalg.eig(x))), [[v]])
        made = matmul(vectors * w, matrices.inverse(vectors))
        assert np.allclose(floats(made, 1), v)
        assert np.allclose(floats(matmul(adjoint(vectors), vectors), 1).diagonal(), 0)


@pytest.mark.parametrize("name", ["qr", "eigh", "eig", "svd"])
def test_vectors_with_recorded_phases_have_the_length_one_to_all_digits(name):
    hermitian = COMPLEX + COMPLEX.conj().T
    recorded = list(getattr(np.linalg, name)(hermitian))
    with precision(128):
        found = replay(program_of(name, hermitian, recorded), [])
        vectors = found[name in ("eigh", "eig")]
        squares = matmul(adjoint(vectors), vectors).value.diagonal()
        assert all(abs(one - 1) < 1e-30 for one in squares)


def test_equal_eigenvalues_have_no_derivative():
    with precision(128):
        for name in ("eig", "svd"):
            recorded = list(getattr(np.linalg, name)(np.eye(2)))
            outputs = replay(program_of(name, np.eye(2), recorded), [[np.ones((2, 2))]])
            assert not any(one.is_finite() for one in outputs[0].parts[1].flat)


def test_qr_has_the_derivative_of_its_equations():
    f = lambda a: list(np.linalg.qr(a))  # noqa: E731
    compared(program_of("qr", TALL, f(TALL)), f, TALL)


def test_a_triangular_system_has_the_derivative_of_its_equations():
    b = RNG.normal(size=(3, 2))
    for lower, unit in [(True, False), (False, True)]:

        def f(a, lower=lower, unit=unit):
            t = np.tril(a) if lower else np.triu(a)
            return [np.linalg.solve(t - np.diag(np.diag(t) - 1) if unit else t, b)]

        options = {"lower": lower, "unit_diagonal": unit}
        compared(program_of("solve_triangular", SQUARE, f(SQUARE), (X, b), **options), f, SQUARE)


ARRAYS = {
    "sum": (lambda x: x.sum(1, keepdims=True), {"axis": (1,), "keepdims": True}),
    "prod": (lambda x: x.prod((0, 2)), {"axis": (0, 2), "keepdims": False}),
    "max": (lambda x: x.max(), {"axis": None, "keepdims": False}),
    "min": (lambda x: x.min(-1), {"axis": (-1,), "keepdims": False}),
    "logsumexp": (lambda x: np.log(np.exp(x).sum(1)), {"axis": (1,), "keepdims": False}),
    "cumulative_sum": (lambda x: x.cumsum(1), {"axis": 1}),
    "cumulative_prod": (lambda x: x.cumprod(2), {"axis": 2}),
    "cumulative_max": (lambda x: np.maximum.accumulate(x, 1), {"axis": 1}),
    "cumulative_min": (lambda x: np.minimum.accumulate(x, 0), {"axis": 0}),
    "cumulative_logsumexp": (lambda x: np.logaddexp.accumulate(x, 1), {"axis": 1}),
    "sort": (lambda x: np.sort(x, 1), {"axis": 1, "indices": np.argsort(TALL, 1)}),
    "fft": (lambda x: np.fft.fft(x, axis=1), {"axis": 1, "inverse": False}),
    "segment_sum": (
        lambda x: np.bincount(np.arange(24) % 5, x.ravel(), 5),
        {"segments": np.arange(24) % 5, "shape": (5,)},
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_operation_on_arrays_is_that_of_numpy(name):
    f, params = ARRAYS[name]
    compared(program_of(name, TALL, f(TALL), **params), lambda x: [f(x)], TALL)


def test_an_index_and_a_boolean_follow_what_was_recorded():
    made = builder(SQUARE)
    index = made.emit("argmax", [X], SQUARE.argmax(1), axis=1, keepdims=False)
    chosen = made.take([X], made.rely(index) + np.array([0, 3, 6]))
    program = made.finished([chosen])
    with precision(64):
        (found,) = replay(program, [[np.ones((3, 3))]])
    assert np.allclose(floats(found, 0), SQUARE.max(1))


def test_a_tie_is_reported_and_not_guessed():
    x = np.array([1.0, 1.0, 0.0])
    program = program_of("argmax", x, x.argmax(), axis=0, keepdims=False)
    with precision(64), pytest.raises(DoubtError, match="tie"):
        replay(program, [[np.array([1.0, 0.0, 0.0])]])


def test_a_branch_that_is_not_decided_is_reported():
    made = builder(np.array([0.0]))
    made.rely(made.emit("greater", [X, 0.0], np.array([False])))
    program = made.finished([X])
    with precision(64), pytest.raises(DoubtError, match="branch"):
        replay(program, [[np.ones(1)]])
    with precision(64):
        replay(program, [[np.zeros(1)]])


def test_an_opaque_operation_is_named_with_its_line():
    made = builder(SQUARE)
    left = made.opaque([X], SQUARE, Place("model.py", 7), "mystery")
    with precision(64), pytest.raises(DoubtError, match="no translation") as raised:
        replay(made.finished([left]), [[SQUARE]])
    operation = raised.value.doubt.operation
    assert (operation.step, str(operation.place)) == ("mystery", "model.py:7")


@pytest.mark.parametrize("seed", seeds(10))
@pytest.mark.parametrize(
    ("name", "right", "wrong", "params"),
    [
        ("sin", np.sin, np.cos, {}),
        ("expm1", np.expm1, np.exp, {}),
        ("tanh", np.tanh, np.arctan, {}),
        ("cumulative_sum", np.cumsum, lambda x: x[::-1].cumsum()[::-1], {"axis": 0}),
    ],
)
def test_a_wrong_translation_is_found(seed, name, right, wrong, params):
    x = np.random.default_rng(seed).normal(size=5)
    with precision(64):
        assert mistranslated(program_of(name, x, right(x), **params)) is None
        assert mistranslated(program_of(name, x, wrong(x), **params)) is not None


def test_a_value_that_is_off_by_a_little_is_found_in_float64_only():
    x = np.linspace(0.5, 2.0, 5)
    with precision(64):
        assert mistranslated(program_of("exp", x, np.exp(x) * (1 + 1e-10))) is not None
        narrow = x.astype(np.float32)
        assert mistranslated(program_of("exp", narrow, np.exp(narrow))) is None


def test_the_precision_is_put_back_also_after_an_exception():
    before = flint.ctx.prec
    with pytest.raises(ZeroDivisionError), precision(333):
        assert 1 / (flint.ctx.prec - 333)
    assert flint.ctx.prec == before


def compared(program, f, x):
    """Compares values and first derivatives with NumPy, and asks whether the translation holds."""
    v = np.random.default_rng(1).normal(size=x.shape)
    with precision(128):
        assert mistranslated(program) is None
        outputs = replay(program, [[v]])
    for found, value, rate in zip(outputs, f(x), slope(f, x, v), strict=True):
        assert np.allclose(floats(found, 0), value)
        assert np.allclose(floats(found, 1), rate, rtol=1e-6, atol=1e-7)


def test_integers_are_not_rounded():
    """A branch that was taken on an integer would be undecided if they were."""
    recorded = np.array([1, 0])
    operation = Operation("negative", (), (recorded,), 2.0**-52)
    with precision(128):
        (found,) = Roundings(2.0**-52).performed(operation, [lifted(-recorded)])
        assert all((one - int(k)).is_zero() for one, k in zip(found.value, recorded, strict=True))


def test_a_mask_that_is_decided_is_a_number_and_one_that_is_not_is_undecided():
    both, none = np.array([True, True]), np.array([False, False])
    assert [float(one) for one in lifted(Truth(both, none)).value] == [1.0, 1.0]
    with pytest.raises(UndecidedError, match="not decided"):
        lifted(Truth(both, both))
