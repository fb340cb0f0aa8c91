"""References beside the derivatives of PyTorch and JAX."""

import numpy as np
import pytest
from precise import exp, mpmath
from scenarios import cells, long, on_both, seeds

from adjudge import Verdict, examine, gradgradcheck, reference
from adjudge.errors import NotSupportedError

WRONG = [2.0, -1.0, 0.0, 1 + 1e-6]


def slope(x):
    return np.exp(-x) / (1 + np.exp(-x)) ** 2


def stable(x):
    return 1 / (1 + np.exp(-x))


REFERENCES = {
    "mpmath": reference.mpmath(lambda x: 1 / (1 + exp(-x))),
    "jvp": reference.derivative(jvp=lambda x, v: slope(x) * v),
    "vjp": reference.derivative(vjp=lambda x, w: slope(x) * w),
}
POINTS = {"tail": [38.5, 40.0, 45.0], "ordinary": [0.3, -0.7], "mixed": [0.3, 40.0, 1.0]}


@pytest.fixture
def planted(adjudge_backend, with_vjp):
    """`planted(factor)`: the sigmoid with its gradient multiplied by a factor."""
    exp = adjudge_backend.xp.exp

    def make(factor):
        return with_vjp(
            lambda x: 1 / (1 + exp(-x)), lambda x, w: w * factor * exp(-x) / (1 + exp(-x)) ** 2
        )

    return make


# what a reference does is the core's: the slower engine sees each, and each point
@cells(
    ("name", "point"),
    torch=[
        long(name, point) if (name, point) == ("mpmath", "mixed") else (name, point)
        for name in REFERENCES
        for point in POINTS
    ],
    jax=[
        ("vjp", "mixed"),
        long("mpmath", "tail"),
        long("mpmath", "mixed"),
        long("jvp", "ordinary"),
    ],
)
def test_a_right_derivative_passes_and_a_wrong_one_fails(adjudge_backend, planted, name, point):
    x, given = adjudge_backend.array(POINTS[point]), REFERENCES[name]

    options = {"seed": 0, "reference": given, "blame": False}
    found = [examine(planted(c), x, **options).verdict for c in (1.0, *WRONG)]

    assert found == [Verdict.PASS, *[Verdict.FAIL] * len(WRONG)]


@on_both
@pytest.mark.parametrize("factor", WRONG)
def test_without_a_reference_what_is_wrong_in_a_tail_stays_open(adjudge_backend, planted, factor):
    report = examine(planted(factor), adjudge_backend.array([40.0]), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "pass reference=" in str(report)


@on_both
@pytest.mark.parametrize("seed", seeds(10))
def test_what_is_right_in_a_tail_is_proved_by_an_exact_replay(adjudge_backend, planted, seed):
    report = examine(planted(1.0), adjudge_backend.array([40.0]), seed=seed)

    assert report.verdict is Verdict.PASS
    assert report.stages["exact replay"].decided == 1


@on_both
@pytest.mark.parametrize("factor", [1.0, *WRONG])
def test_without_python_flint_a_tail_stays_open(adjudge_backend, planted, monkeypatch, factor):
    monkeypatch.setattr("adjudge.estimate.estimator.flint_is_installed", lambda: False)

    report = examine(planted(factor), adjudge_backend.array([40.0]), seed=0)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert "pass reference=" in str(report)


@pytest.mark.backend("torch")
def test_the_zero_of_torch_is_in_doubt_and_wrong_beside_a_reference():
    torch = pytest.importorskip("torch")
    x = torch.tensor([40.0], dtype=torch.float64, requires_grad=True)

    assert examine(torch.sigmoid, x).verdict is Verdict.INCONCLUSIVE
    assert examine(torch.sigmoid, x, reference=REFERENCES["mpmath"]).verdict is Verdict.FAIL


@pytest.mark.backend("torch")
@pytest.mark.parametrize(
    ("name", "verdict"),
    [("relu", Verdict.PASS), ("hardsigmoid", Verdict.PASS), ("hardtanh", Verdict.PASS)],
)
def test_flat_pieces_of_torch_pass(name, verdict):
    torch = pytest.importorskip("torch")
    values = [-5.0, -4.0] if name == "relu" else [4.0, 5.0]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)

    assert examine(getattr(torch.nn.functional, name), x, seed=0).verdict is verdict


@pytest.mark.backend("torch")
def test_float32_of_torch_is_compared_with_its_own_tolerance():
    torch = pytest.importorskip("torch")
    x = torch.tensor([0.5, 3.0, -16.0], requires_grad=True)
    given = reference.twin(stable, "float64")

    right = examine(torch.sigmoid, x, reference=given)
    wrong = examine(lambda x: torch.sigmoid(x) + 0.01 * (x - x.detach()), x, reference=given)

    assert [Verdict.PASS, Verdict.FAIL] == [right.verdict, wrong.verdict]
    assert "formula judged" not in right.provenance.note


@pytest.mark.backend("torch")
@pytest.mark.parametrize("values", [[0.4, -1.0], [-30.0, -40.0]])
def test_second_derivatives_of_torch_agree_with_mpmath(values):
    torch = pytest.importorskip("torch")
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)

    report = gradgradcheck(
        torch.sigmoid, x, check_fwd_over_rev=True, reference=REFERENCES["mpmath"]
    )

    assert {"R", "RR", "FR"} == set(report.modes)


@pytest.mark.backend("jax")
def test_every_mode_of_jax_agrees_with_mpmath(double, jnp):
    report = examine(
        lambda x: jnp.sin(x) * x,
        double([0.4, -1.0]),
        modes=["R", "F", "RR", "FR", "RF", "FF"],
        reference=reference.mpmath(lambda x: np.vectorize(mpmath.sin, otypes=[object])(x) * x),
    )

    assert {Verdict.PASS} == set(report.modes.values()), report


@on_both
@pytest.mark.parametrize("size", [2, 60_000])
def test_large_arrays_are_not_replayed_without_being_asked(
    adjudge_backend, planted, monkeypatch, size
):
    recorded = []

    def program(*_):
        recorded.append(size)
        raise NotSupportedError("no program", "none is needed")

    monkeypatch.setattr(type(adjudge_backend.backend), "program", program)

    examine(planted(1.0), adjudge_backend.array(np.full(size, 40.0)), seed=0)

    assert bool(recorded) == (size == 2)
