"""What JAX computes in the vocabulary that engines share, and checks by exact replay."""

from dataclasses import replace

import numpy as np
import pytest
from scenarios import over_seeds, seeds

jax = pytest.importorskip("jax")
pytest.importorskip("flint")

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

import adjudge  # noqa: E402
from adjudge import Verdict  # noqa: E402
from adjudge.engine import OPAQUE, OPERATIONS, backend_named  # noqa: E402
from adjudge.estimate.replay import DoubtError, mistranslated, precision, replay  # noqa: E402
from adjudge_jax.translation import RULES  # noqa: E402


@pytest.fixture(autouse=True)
def _double():
    with backend_named("jax").environment.widening():
        yield


FROM_0_11 = jax.__version_info__ >= (0, 11)
RNG = np.random.default_rng(0)
LINE, SQUARE = RNG.normal(size=4), RNG.normal(size=(3, 3))
COMPLEX = SQUARE + 1j * RNG.normal(size=(3, 3))
IMAGES, KERNEL = RNG.normal(size=(2, 5, 4, 4)), RNG.normal(size=(2, 3, 2, 4))


def convolution(x, kernel):
    return lax.conv_general_dilated(
        x,
        kernel,
        (2, 1),
        ((1, 0), (1, 1)),
        lhs_dilation=(1, 2),
        feature_group_count=2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


CASES = {
    "sign bit": (lambda x: jnp.copysign(x, -x[::-1]) * jnp.where(jnp.signbit(x), x, 2.0), LINE),
    "gamma": (jax.scipy.special.gamma, np.array([-1.3, 0.4, 2.5])),
    "gelu": (jax.nn.gelu, LINE),
    "log_softmax": (jax.nn.log_softmax, LINE),
    "custom rule": (jax.nn.relu6, LINE),
    "log_ndtr": (jax.scipy.special.log_ndtr, np.array([-45.0, 0.3, 40.0])),
    "solve": (jnp.linalg.solve, SQUARE, LINE[:3]),
    "slogdet": (lambda a: jnp.linalg.slogdet(a)[1], COMPLEX),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.T + jnp.eye(3)), SQUARE),
    "qr": (jnp.linalg.qr, SQUARE),
    "eigh": (jnp.linalg.eigh, SQUARE + SQUARE.T),
    "triangle": (
        lambda a: lax.linalg.triangular_solve(a, a + 1, lower=True, transpose_a=True),
        SQUARE,
    ),
    "sort": (jnp.sort, LINE),
    "top_k": (lambda x: lax.top_k(x, 2)[0], LINE),
    "median": (jnp.median, LINE),
    "index": (lambda x: x[jnp.argmax(x)], LINE),
    "add at": (lambda x: x.at[jnp.array([0, 0, 9])].add(x[:3] * 2), LINE),
    "set at": (lambda x: x.at[1].set(x[0] ** 2), LINE),
    "missing": (lambda x: jnp.take(x, jnp.array([1, 7]), mode="fill", fill_value=3.0), LINE),
    "rfft": (jnp.fft.rfft, LINE),
    "irfft2": (jnp.fft.irfft2, COMPLEX),
    "fft2": (jnp.fft.fft2, COMPLEX),
    "pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2,), (1,), "SAME"), LINE),
    "convolution": (convolution, IMAGES, KERNEL),
    "back": (lambda x: lax.cumsum(x, reverse=True), LINE),
    "einsum": (lambda a, b: jnp.einsum("ijk,ikl->il", a[None], b[None]), SQUARE, SQUARE),
    "scan": (lambda x: lax.scan(lambda c, t: (c * jnp.sin(t) + t, c), 1.0, x), LINE),
    "while": (
        lambda x: lax.while_loop(
            lambda c: c[1] < 3.0, lambda c: (jnp.sin(c[0]), c[1] + abs(c[0]).sum()), (x, 0.0)
        )[0],
        LINE,
    ),
    "fold": (lambda x: lax.reduce(x, 1.0, lax.mul, (0,)), LINE),
    "windows": (lambda x: lax.reduce_window(x, 1.0, lax.mul, (2,), (1,), "SAME"), LINE),
    "mask": (lambda x: (x > 0).astype(float) * x + jnp.where(x > 1, x, 0.5), LINE),
    "modulus": (lambda z: jnp.abs(z) + jnp.angle(z), COMPLEX),
    "power": (lambda x: lax.pow(jnp.abs(x), x).reshape(2, 2), LINE),
    "between bounds": (
        lambda x: jnp.where(x <= 0.5, x, 2.0) * jnp.digitize(x, jnp.array([-1.0, 0.0, 1.0])),
        LINE,
    ),
    "switch": (lambda a: lax.switch(jnp.argmax(a[0]), [jnp.sin, jnp.cos, jnp.exp], a), SQUARE),
    "least at": (lambda x: x.at[jnp.array([0, 0, 9])].min(x[:3] * 2), LINE),
    "largest at": (lambda x: x.at[jnp.array([0, 0, 2])].max(x[1:] * 2), LINE),
    "times at": (
        lambda x: x.at[jnp.array([1, 9, 3])].mul(x[:3] * 2, unique_indices=True),
        LINE,
    ),
    "tridiagonal": (
        lambda d, b: lax.linalg.tridiagonal_solve(d[0], 3 + d[1], d[2], b @ b),
        SQUARE,
        SQUARE,
    ),
    "svd": (lambda a: jnp.linalg.svd(a[:, :2], full_matrices=False), SQUARE),
    "singular values": (lambda a: jnp.linalg.svd(a[:2], compute_uv=False), COMPLEX),
    "eigenvalues": (jnp.linalg.eigvals, SQUARE),
    "approximately largest": (lambda x: lax.approx_max_k(x, 2)[0], LINE),
    "approximately smallest": (lambda x: lax.approx_min_k(x, 2)[0], LINE),
    "where the largest are": (
        lambda x: jax.linearize(
            lambda t: lax.reduce_window(t, -jnp.inf, lax.max, (2,), (1,), "VALID"), x
        )[1](x * x),
        LINE,
    ),
    "to where the largest are": (
        lambda x: jax.grad(
            lambda t: (lax.reduce_window(t, -jnp.inf, lax.max, (2,), (1,), "SAME") ** 2).sum()
        )(x),
        LINE,
    ),
}


def translated(f, arrays):
    backend = backend_named("jax")
    return backend.program(lambda leaves: tuple(jax.tree.leaves(f(*leaves))), arrays)


def number(ball):
    return complex(ball.mid())


@pytest.mark.parametrize("name", CASES)
def test_a_replay_has_the_values_and_the_derivative_of_jax(name):
    f, *given = CASES[name]
    arrays = tuple(map(jnp.asarray, given))
    moves = [
        jnp.asarray(np.random.default_rng(k).normal(size=a.shape), a.dtype)
        for k, a in enumerate(arrays)
    ]
    program = translated(f, arrays)
    y, rates = jax.jvp(lambda *x: jax.tree.leaves(f(*x)), arrays, tuple(moves))
    assert not program.opaque
    assert {one.name for one in program.operations} <= set(OPERATIONS)
    with precision(64):
        assert mistranslated(program) is None
    with precision(128):
        outputs = replay(program, [[np.asarray(one) for one in moves]])
    for jets, value, rate in zip(outputs, y, rates, strict=True):
        found = np.array([number(one) for one in jets.value.flat]).reshape(jets.shape)
        assert np.allclose(found, value, rtol=1e-9)
        if 1 in jets.parts:
            along = np.array([number(one) for one in jets.parts[1].flat]).reshape(jets.shape)
            assert np.allclose(along, rate, rtol=1e-9, atol=1e-11)


def of_least(one):
    """The translation of a scattered maximum, for a minimum."""
    return replace(one, name=one.name.replace("min", "max"))


def with_diagonals_exchanged(one):
    low, middle, high, b = one.operands
    return replace(one, operands=[high, middle, low, b])


def slightly_larger(one):
    operand = one.operands[0]
    scaled = one.emit("multiply", operand, 1 + 1e-9, result=one.builder.value(operand))
    return replace(one, operands=[scaled, *one.operands[1:]])


@pytest.mark.parametrize(
    ("case", "primitive", "mistake"),
    [
        ("least at", "scatter-min", of_least),
        ("times at", "scatter-mul", slightly_larger),
        ("tridiagonal", "tridiagonal_solve", with_diagonals_exchanged),
        ("svd", "svd", slightly_larger),
        ("singular values", "svd", slightly_larger),
        ("eigenvalues", "eig", slightly_larger),
        ("approximately largest", "approx_top_k", slightly_larger),
        ("to where the largest are", "select_and_scatter_add", slightly_larger),
    ],
)
def test_a_wrong_translation_is_found(monkeypatch, case, primitive, mistake):
    f, *given = CASES[case]
    arrays, right = tuple(map(jnp.asarray, given)), RULES[primitive]
    monkeypatch.setitem(RULES, primitive, lambda one: right(mistake(one)))
    with precision(64):
        assert mistranslated(translated(f, arrays)) is not None


def test_an_eigenvector_has_no_translation_from_the_left():
    left = lambda a: lax.linalg.eig(a, compute_right_eigenvectors=False)  # noqa: E731
    (step,) = translated(left, (jnp.asarray(SQUARE),)).opaque
    assert step.step == "eig"


def test_what_has_no_translation_is_opaque_and_has_its_line():
    program = translated(lambda x: jnp.nextafter(x, 0.0) * 2, (jnp.ones(2),))
    (step,) = program.opaque
    assert (step.name, step.step) == (OPAQUE, "nextafter")
    assert step.place.file == __file__


def rule(error):
    """`sin(x) exp(x)` with a jvp that is off by this part."""

    @jax.custom_jvp
    def f(x):
        return jnp.sin(x) * jnp.exp(x)

    @f.defjvp
    def jvp(primals, tangents):
        (x,), (v,) = primals, tangents
        return f(x), v * (jnp.cos(x) + jnp.sin(x)) * jnp.exp(x) * (1 + error)

    return f


@pytest.mark.parametrize("seed", seeds(10))
def test_an_error_in_the_twelfth_digit_shows(seed):
    x = jnp.asarray(np.random.default_rng(seed).normal(size=3))
    exact = {"reference": "exact", "seed": seed}
    right = adjudge.examine(rule(0.0), x, **exact)
    assert right.verdict is Verdict.PASS
    assert right.certified
    assert right.to_dict()["certified"] is True
    assert adjudge.examine(rule(1e-12), x, blame=False, **exact).verdict is Verdict.FAIL


@over_seeds(10)
@pytest.mark.parametrize(
    "f", [jnp.tanh, jax.nn.sigmoid, jax.lax.erf], ids=["tanh", "sigmoid", "erf"]
)
def test_the_rounding_of_a_rule_in_a_tail_is_no_error(f, seeds):
    for seed in seeds:
        x = jnp.asarray(4 * np.random.default_rng(seed).normal(size=6))
        report = adjudge.examine(f, x, reference="exact", seed=seed, mode="projected")
        assert report.verdict is Verdict.PASS


def test_where_f_is_not_defined_there_is_no_derivative():
    with precision(64):
        outputs = replay(translated(lax.igamma, (jnp.array([-0.4]), jnp.array([8.0]))), [])
    assert not outputs[0].value[0].is_finite()


def test_the_second_order_is_replayed_too():
    x = jnp.asarray(LINE)
    report = adjudge.examine(jax.nn.gelu, x, reference="exact", order=2, compile=False)
    assert report.verdict is Verdict.PASS
    assert set(report.modes) == {"R", "F", "RR", "FR", "RF", "FF"}


def test_a_kink_is_told_and_a_wrong_slope_beside_it_too():
    x = jnp.array([0.0, 1.0])
    assert adjudge.examine(jax.nn.relu, x, reference="exact").verdict is Verdict.PASS
    twice = lambda x: jnp.where(x > 0, x, 0.0) + jnp.where(x > 0, 1.0, 0.0)  # noqa: E731
    assert adjudge.examine(twice, x, reference="exact").verdict is Verdict.INCONCLUSIVE


def test_an_opaque_step_makes_the_mode_unsupported_with_its_name():
    report = adjudge.examine(lambda x: jnp.nextafter(x, 0.0), jnp.ones(2), reference="exact")
    assert report.verdict is not Verdict.PASS
    assert "nextafter" in str(report)
    assert not report.certified
    assert not adjudge.examine(jnp.sin, jnp.ones(2)).certified


TIES = {
    "order": lambda x: x[jnp.argsort(x)],
    "order alone": lambda x: x * jnp.argsort(x),
    "largest": lambda x: x[lax.top_k(x, 1)[1]],
    "sorted by another": lambda x: lax.sort((x, 2 * x), num_keys=1)[1],
}


@pytest.mark.parametrize("name", TIES)
def test_a_tie_is_seen_where_only_the_order_is_read(name):
    tie, order = (translated(TIES[name], (jnp.array(x),)) for x in ([1.0, 1.0], [2.0, 1.0]))
    with precision(128):
        with pytest.raises(DoubtError):
            replay(tie, [[np.ones(2)]])
        replay(order, [[np.ones(2)]])


def test_the_end_of_a_domain_is_not_decided_by_what_is_undefined_beyond():
    program = translated(
        lambda x: jnp.where(jnp.isnan(jnp.sqrt(x - 0.5)), x, 2 * x), (jnp.full(1, 0.5),)
    )
    with precision(128):
        found = replay(program, [[np.ones(1)]])[0]
    assert not found.parts[1][0].is_finite()


def test_a_loop_that_each_entry_leaves_by_itself_is_replayed():
    def turned(a, b):
        return lax.while_loop(lambda c: (c < b).all(), lambda c: (1 + b) * c, a)

    def f(x):
        return jax.vmap(turned)(x, 1 + 0.01 * x)

    x = jnp.array([[0.3, 0.2], [0.7, 0.6], [2.0, 0.1]])
    for reference in (None, "exact"):
        options = {"check_forward_ad": True, "check_backward_ad": False, "reference": reference}
        report = adjudge.examine(f, x, **options)
        assert report.verdict is Verdict.PASS, str(report)
    assert report.certified


@pytest.mark.parametrize("batch", [False, True])
def test_a_loop_has_the_turns_that_it_took_unless_it_ends_at_a_tie(batch):
    def doubled(x, step):  # without rounding ten steps of 0.1 reach 1
        return lax.while_loop(
            lambda c: c[1] < 1.0, lambda c: (2 * c[0], c[1] + step * x), (x, 0.0 * x)
        )[0]

    def f(x):
        if batch:
            return jax.vmap(doubled)(x, jnp.array([0.1, 0.3]))
        return doubled(x[0], 0.1)

    with precision(128):
        slope = replay(translated(f, (jnp.ones(2),)), [[np.ones(2)]])[0].parts[1]
        with pytest.raises(DoubtError, match="whether a loop goes on"):
            replay(translated(lambda x: doubled(x[0], 0.125), (jnp.ones(1),)), [[np.ones(1)]])
    assert [float(one.mid()) for one in slope.flat] == ([2.0**11, 2.0**4] if batch else [2.0**11])


def test_a_continued_fraction_is_replayed_to_its_end():
    x = jnp.array([1.45])
    report = adjudge.examine(jax.scipy.special.exp1, x, reference="exact", seed=0)
    assert report.certified
    assert report.verdict is Verdict.PASS


def test_a_cholesky_factor_is_that_of_the_triangle_that_is_read():
    """Before JAX 0.11 the primitive's derivative is that of the symmetric part, and so it fails."""
    a = jnp.array([[2.0, 0.3], [0.3, 1.5]])
    lower = jnp.array([[0.0, 0.0], [1.0, 0.0]])

    def f(x):
        return lax.linalg.cholesky(x, symmetrize_input=False)

    slopes = {}
    with precision(128):
        for name, tangent in (("lower", lower), ("upper", lower.T)):
            (found,) = replay(translated(f, (a,)), [[np.asarray(tangent)]])
            slopes[name] = [float(one.mid()) for one in found.parts[1].flat]
    step = 1e-6
    both = (f(a + step * (lower + lower.T)) - f(a - step * (lower + lower.T))) / (2 * step)
    np.testing.assert_allclose(slopes["lower"], both.ravel(), rtol=1e-8)
    assert not any(slopes["upper"])
    report = adjudge.examine(f, a, reference="exact", seed=0)
    assert report.verdict is (Verdict.PASS if FROM_0_11 else Verdict.FAIL)
    right = adjudge.examine(lax.linalg.cholesky, a, reference="exact", seed=0)
    assert right.verdict is Verdict.PASS, str(right)
    assert right.certified


def test_functions_that_split_numbers_into_bits_are_replayed():
    x = jnp.array([0.3, -5.0, 24.5])
    for f in (lambda x: jnp.ldexp(x, jnp.array([1, -3, 200])), lambda x: jnp.frexp(x)[0]):
        report = adjudge.examine(f, x, reference="exact", seed=0)
        assert report.verdict is Verdict.PASS, str(report)
        assert report.certified
    power_of_two = adjudge.examine(
        lambda x: jnp.frexp(x)[0], jnp.array([0.3, 4.0]), reference="exact", seed=0
    )
    assert not power_of_two.certified


def test_an_index_beyond_the_cases_is_the_last_one():
    which = jnp.array([0, 5, 1])
    f = lambda x: lax.select_n(which, x, 2 * x)  # noqa: E731
    report = adjudge.examine(f, jnp.array([0.3, 0.7, 1.1]), reference="exact", seed=0)
    assert report.certified


def test_a_mask_of_unknown_length_cannot_be_translated():
    x = jnp.array([0.3, 0.7, 1.1])
    report = adjudge.examine(lambda x: x[x > 0.5], x, reference="exact", seed=0)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "boolean" in str(report)


@pytest.mark.skipif(FROM_0_11, reason="JAX orders no complex numbers any more")
def test_what_orders_complex_numbers_is_left_open():
    z = jnp.array([0.3 + 1j, 0.7 - 0.2j])
    report = adjudge.examine(jax.nn.log_softmax, z, reference="exact", seed=0)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert "an order of complex numbers" in str(report)


def test_the_sign_bit_of_zero_is_no_comparison():
    at_zero = translated(lambda x: jnp.where(jnp.signbit(x), x, 2 * x), (jnp.array([-0.0, 1.0]),))
    with precision(64):
        assert mistranslated(at_zero) is not None


@pytest.mark.parametrize("seed", [0, 7])
def test_the_rounding_of_a_decomposition_is_no_error(seed):
    """Derivatives of singular values failed for that at these seeds."""
    a = jnp.asarray(np.random.RandomState(2923346000).randn(29, 29) * 3)
    report = adjudge.examine(
        lambda a: jnp.linalg.svd(a, compute_uv=False),
        a,
        reference="exact",
        seed=seed,
        modes=["R", "F"],
        blame=False,
    )
    assert report.verdict is Verdict.PASS, str(report)


def symmetric(x):
    """Returns a matrix whose singular vectors LAPACK finds to 3e-14."""
    a = jnp.array([[2, 0.35, 0.175], [0.35, 1.7, 0.175], [0.175, 0.175, 1.4]])
    return a.at[2, 0].add(x[0]).at[1, 1].multiply(x[1])


@pytest.mark.parametrize("mode", ["R", "F"])
@pytest.mark.parametrize("seed", seeds(3))
def test_what_a_decomposition_leaves_out_is_no_error(mode, seed):
    """LAPACK ends its iterations early, so that singular vectors are off by the same at all points
    close by: their right derivatives failed by 1e-13.
    """
    report = adjudge.examine(
        lambda x: jax.scipy.linalg.svd(symmetric(x)),
        jnp.array([0.0, 1.0]),
        reference="exact",
        mode="full",
        seed=seed,
        modes=[mode],
        blame=False,
    )
    assert report.verdict is Verdict.PASS, str(report)


@pytest.mark.parametrize("seed", seeds(10))
def test_an_error_beyond_what_a_decomposition_leaves_out_is_one(seed):
    @jax.custom_jvp
    def f(x):
        return jax.scipy.linalg.svd(symmetric(x))

    @f.defjvp
    def _(primals, tangents):
        y, (du, ds, dv) = jax.jvp(lambda x: jax.scipy.linalg.svd(symmetric(x)), primals, tangents)
        return y, (du.at[seed % 3, 1].multiply(1 + 3e-11), ds, dv)

    report = adjudge.examine(
        f,
        jnp.array([0.0, 1.0]),
        reference="exact",
        mode="full",
        seed=seed,
        modes=["F"],
        blame=False,
    )
    assert report.verdict is Verdict.FAIL, str(report)


def test_an_error_beyond_the_rounding_of_a_decomposition_is_one():
    @jax.custom_jvp
    def f(a):
        return jnp.linalg.svd(a, compute_uv=False)

    @f.defjvp
    def _(primals, tangents):
        y, dy = jax.jvp(lambda a: jnp.linalg.svd(a, compute_uv=False), primals, tangents)
        return y, dy.at[1].multiply(1 + 1e-11)

    report = adjudge.examine(f, jnp.asarray(SQUARE), reference="exact", seed=0, blame=False)
    assert report.verdict is Verdict.FAIL, str(report)
