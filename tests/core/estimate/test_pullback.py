"""The vjp of each operation of the vocabulary, beside its derivatives along one input after the
other.
"""

import numpy as np
import pytest
from scenarios import seeds

flint = pytest.importorskip("flint")

from adjudge.engine import INPUT, OPERATIONS, Operation, Program, Ref  # noqa: E402
from adjudge.estimate import pullback as pullbacks  # noqa: E402
from adjudge.estimate.balls import Jets, lifted  # noqa: E402
from adjudge.estimate.pullback import pullback  # noqa: E402
from adjudge.estimate.replay import Roundings, Truth, perform, precision, replay  # noqa: E402

RNG = np.random.default_rng(5)
WIDE = RNG.uniform(0.2, 0.8, (2, 3))
ROW = RNG.uniform(0.2, 0.8, 3)
STACK = RNG.normal(size=(2, 3, 3)) + 4 * np.eye(3)
TALL = RNG.normal(size=(2, 4, 3))
SYMMETRIC = STACK + STACK.swapaxes(-1, -2) + np.diag([1.0, 3.0, 6.0])


def turned(x, by):
    """The same with an imaginary part."""
    return x + 1j * by * np.cos(np.arange(x.size)).reshape(x.shape)


ELSEWHERE = {"acosh": (WIDE + 1,), "zeta": (WIDE + 2, ROW), "gammainc": (WIDE + 1, ROW)}
ELSEWHERE |= {"gammaincc": (WIDE + 1, ROW), "betainc": (WIDE + 1, ROW + 1, ROW)}
ELSEWHERE |= {
    "polygamma": (np.array([1, 2, 3]), WIDE),
    "round": (WIDE * 9,),
    "fmod": (9 * WIDE, ROW),
}
AXES = {"axis": (1,), "keepdims": False}
ORDER = np.argsort(-RNG.normal(size=(2, 3)), 1)
INDICES = np.array([[5, 0, 5, -1], [7, 2, 2, 8]])
SEGMENTS = np.array([0, 2, 2, -1, 1, 0, 3, 3, 0])

CASES = {
    "where": [(WIDE > 0.5, WIDE, ROW)],
    "sort": [(np.take_along_axis(WIDE, ORDER, 1),)],
    "take": [(WIDE, ROW), (turned(WIDE, 1), turned(ROW, 1))],
    "segment_sum": [(WIDE, ROW), (turned(WIDE, 1), turned(ROW, 1))],
    "matmul": [
        (STACK, TALL.swapaxes(-1, -2)), (STACK[0], ROW), (ROW, STACK), (ROW, ROW),
        (STACK[0], TALL.swapaxes(-1, -2)), (turned(STACK, 1), STACK), (TALL, turned(STACK[:1], 1)),
    ],
    "solve": [(STACK, STACK[:, :, :2]), (turned(STACK, 1), STACK[0]), (STACK[0], STACK)],
    "solve_triangular": [(STACK, STACK[:, :, :2])],
    "fft": [(turned(WIDE, 1),), (WIDE,)],
    "cholesky": [(STACK @ STACK.swapaxes(-1, -2),)],
    "eigh": [(SYMMETRIC,)],
    "qr": [(TALL,), (turned(TALL, 1),)],
    "svd": [(TALL,), (turned(TALL, 1),)],
    "lu": [(STACK,)],
    "eig": [(SYMMETRIC[0] + np.triu(STACK[0]),)],
    "complex": [(WIDE, ROW)],
}  # fmt: skip
for name in ("inv", "det", "slogdet", "matrix_exp"):
    CASES[name] = [(STACK,), (turned(STACK, 1),)]
for name in ("prod", "sum", "cumulative_prod", "cumulative_sum"):
    CASES[name] = [(WIDE,), (turned(WIDE, 1),)]
PARAMS = {
    "take": {"indices": INDICES, "fill": 2.0},
    "segment_sum": {"segments": SEGMENTS, "shape": (4,)},
    "sort": {"axis": 1, "indices": np.argsort(CASES["sort"][0][0], 1)[:, :2]},
    "solve_triangular": {"lower": True, "unit_diagonal": False},
    "fft": {"axis": 1, "inverse": False},
    "lu": {"permutation": np.tile(np.arange(3), (2, 1))},
}
WITH_PHASES = {
    "eigh": np.linalg.eigh, "qr": np.linalg.qr, "eig": np.linalg.eig,
    "svd": lambda a: np.linalg.svd(a, full_matrices=False),
}  # fmt: skip
BOOLEANS = {
    name for name, (_, meaning, *_) in OPERATIONS.items()
    if "boolean" in meaning
} | {"not_equal", "isfinite", "isnan", "any", "all", "argmax", "argmin"}  # fmt: skip


def params_of(name):
    if name.startswith("cumulative"):
        return {"axis": 1}
    return AXES if "keepdims" in OPERATIONS[name].arguments else PARAMS.get(name, {})


def cases_of(name):
    if name in CASES:
        return CASES[name]
    if "axis" in OPERATIONS[name].arguments:
        return [(WIDE,)]
    count = OPERATIONS[name].arguments.count(",") + 1
    given = ELSEWHERE.get(name, (WIDE, ROW, ROW)[:count])
    complex_too = OPERATIONS[name].domain.startswith("complex") and name not in ("astype",)
    return [given, tuple(turned(x, 0.1) for x in given)] if complex_too else [given]


CHECKED = [
    (name, k) for name in OPERATIONS if name not in BOOLEANS for k in range(len(cases_of(name)))
]


def numbers(balls):
    return np.array([complex(one.mid()) for one in np.ravel(balls)])


def program_of(name, given):
    refs = tuple(
        Ref(INPUT, k) if x.dtype.kind in "fc" else x
        for k, x in zip(np.cumsum([x.dtype.kind in "fc" for x in given]) - 1, given, strict=True)
    )
    inputs = tuple(x for x in given if x.dtype.kind in "fc")
    if name in WITH_PHASES:
        recorded = tuple(WITH_PHASES[name](given[0]))
    else:
        alone = Operation(name, refs, (np.zeros(()),), 2.0**-52, params_of(name))
        with precision(128):
            found = perform(alone, [lifted(x) if x.dtype.kind in "fc" else x for x in given])
        recorded = tuple(
            numbers(one.value).reshape(one.shape)
            if one.is_complex
            else numbers(one.value).reshape(one.shape).real
            for one in map(lifted, found)
        )
    operation = Operation(name, refs, recorded, 2.0**-52, params_of(name))
    return Program(inputs, [operation], tuple(Ref(0, k) for k in range(len(recorded))), frozenset())


def like(x, random):
    real = random.normal(size=x.shape)
    return real + 1j * random.normal(size=x.shape) if x.dtype.kind == "c" else real


def inner(w, balls):
    """The real inner product of a cotangent with balls."""
    arb, acb = flint.arb, flint.acb
    total = arb(0)
    for one, ball in zip(np.ravel(w), np.ravel(balls), strict=True):
        total += (acb(complex(one)).conjugate() * acb(ball)).real
    return total


def part(jets, key):
    return jets.parts.get(key, np.full(jets.shape, flint.arb(0)))


def apart(program, seed=0):
    """Where the pullback and the derivatives along each input, and those along a tangent, have no
    number in common, and how many were compared.
    """
    random = np.random.default_rng(seed)
    outputs = [program.value(one) for one in program.outputs]
    weights, tangent = ([like(x, random) for x in given] for given in (outputs, program.inputs))
    found, compared = [], 0
    with precision(192):
        rows, _ = pullback(program, [lifted(w) for w in weights], tangent)
        for k, x in enumerate(program.inputs):
            for at in np.ndindex(x.shape):
                for unit in (1.0, 1j) if x.dtype.kind == "c" else (1.0,):
                    along = [np.zeros(x.shape, x.dtype) for x in program.inputs]
                    along[k][at] = unit
                    jets = replay(program, [tangent, along])
                    for key in (0, 1):
                        own = part(rows[k], key)[at]
                        own = own.real if unit == 1.0 else own.imag
                        pairs = zip(weights, jets, strict=True)
                        true = sum((inner(w, part(y, key | 2)) for w, y in pairs), flint.arb(0))
                        compared += bool(own.is_finite() and true.is_finite())
                        if own.is_finite() != true.is_finite() or not (
                            own.overlaps(true) or not own.is_finite()
                        ):
                            found.append((k, at, unit, key, str(own), str(true)))
    return found, compared


@pytest.mark.parametrize(("name", "case"), CHECKED)
def test_the_vjp_of_an_operation_is_the_transpose_of_its_derivatives(name, case):
    wrong, compared = apart(program_of(name, cases_of(name)[case]))
    assert not wrong
    assert compared


def test_every_operation_that_has_a_derivative_is_among_the_cases():
    assert {name for name, _ in CHECKED} | BOOLEANS == set(OPERATIONS)
    assert set(pullbacks.TRANSPOSES) <= {name for name, _ in CHECKED}


@pytest.mark.parametrize("name", sorted(pullbacks.TRANSPOSES))
def test_a_wrong_transpose_is_seen(name, monkeypatch):
    right = pullbacks.TRANSPOSES[name]
    wrong = {**pullbacks.TRANSPOSES, name: lambda *given: right(*given) * (1 + 2.0**-40)}
    monkeypatch.setattr(pullbacks, "TRANSPOSES", wrong)
    assert apart(program_of(name, cases_of(name)[0]))[0]


@pytest.mark.parametrize("seed", seeds(10))
def test_cotangents_of_a_number_that_is_used_twice_are_added(seed):
    random = np.random.default_rng(seed)
    x, eps = random.normal(size=(2, 3)), 2.0**-52
    operations = [
        Operation("exp", (Ref(INPUT, 0),), (np.exp(x),), eps),
        Operation("multiply", (Ref(0, 0), Ref(INPUT, 0)), (np.exp(x) * x,), eps),
        Operation("add", (Ref(1, 0), Ref(0, 0)), (np.exp(x) * (x + 1),), eps),
        Operation("multiply", (Ref(2, 0), Ref(2, 0)), ((np.exp(x) * (x + 1)) ** 2,), eps),
    ]
    program = Program((x,), operations, (Ref(3, 0), Ref(1, 0), Ref(INPUT, 0)), frozenset())
    wrong, compared = apart(program, seed)
    assert not wrong
    assert compared == 12


def derivative(operations, x, outputs):
    """The gradient of the sum of the outputs of a program of one input, as strings of balls."""
    program = Program((x,), operations, outputs, frozenset())
    with precision(128):
        rows, _ = pullback(program, [lifted(np.ones(program.value(one).shape)) for one in outputs])
    return part(rows[0], 0)


def test_at_a_kink_there_is_the_hull_of_both_derivatives():
    x, eps = np.array([0.0, 2.0]), 2.0**-52
    operations = [
        Operation("greater", (Ref(INPUT, 0), np.zeros(())), (x > 0,), eps),
        Operation("where", (Ref(0, 0), Ref(INPUT, 0), np.zeros(())), (x,), eps),
    ]
    at_kink, beside = derivative(operations, x, (Ref(1, 0),))
    assert at_kink.contains(0)
    assert at_kink.contains(1)
    assert beside == 1


def test_where_branches_do_not_meet_what_decides_has_no_derivative():
    x, eps = np.array([0.0, 2.0]), 2.0**-52
    operations = [
        Operation("greater", (Ref(INPUT, 0), np.zeros(())), (x > 0,), eps),
        Operation("where", (Ref(0, 0), np.ones(()), np.zeros(())), (1.0 * (x > 0),), eps),
    ]
    at_jump, beside = derivative(operations, x, (Ref(1, 0),))
    assert at_jump.is_nan()
    assert beside == 0


def test_what_is_not_selected_needs_no_derivative_and_what_cancels_does():
    x, eps = np.array([0.0, 4.0]), 2.0**-52
    root = Operation("sqrt", (Ref(INPUT, 0),), (np.sqrt(x),), eps)
    chosen = Operation("where", (np.array([False, True]), Ref(0, 0), np.ones(2)), (x / 2,), eps)
    left_out, kept = derivative([root, chosen], x, (Ref(1, 0),))
    assert left_out == 0
    assert kept == 0.25
    cancelled = Operation("subtract", (Ref(0, 0), Ref(0, 0)), (0 * x,), eps)
    assert not derivative([root, cancelled], x, (Ref(1, 0),))[0].is_finite()


@pytest.mark.parametrize("name", ["exp", "sum", "matmul", "expit", "logsumexp", "inv", "take"])
def test_with_roundings_the_vjp_contains_what_roundings_make(name):
    given = cases_of(name)[0]
    program, eps = program_of(name, given), 2.0**-10
    outputs = [program.value(one) for one in program.outputs]
    weights = [lifted(np.ones(x.shape)) for x in outputs]
    with precision(128):
        sharp, _ = pullback(program, weights)
        loose, _ = pullback(program, weights, None, Roundings(eps, 1))
    for one, other in zip(sharp, loose, strict=True):
        for exact, ball in zip(part(one, 0).flat, part(other, 0).flat, strict=True):
            assert ball.contains(exact)
            if name != "take":
                assert ball.contains(exact * (1 + eps / 2))
            assert float(ball.rad()) <= 64 * eps * max(1.0, abs(float(exact.mid())))
    assert not isinstance(loose[0], Truth)
    assert isinstance(loose[0], Jets)
