"""PyTorch against JAX: right functions agree, planted errors are put down to their engine."""

import random

import array_api_compat
import numpy as np
import pytest
from frameworks import jnp, torch
from scenarios import over_seeds, seeds

from adjudge import InputError, Status, Verdict, crosscheck
from adjudge.engine.contract import WrappedBackend
from adjudge.engine.registry import backend_named

pytestmark = [pytest.mark.backend("torch"), pytest.mark.backend("jax")]

ENGINES = ["torch", "jax"]
RANDOM = np.random.default_rng(11)
MATRIX = RANDOM.normal(size=(4, 4)) + 4 * np.eye(4)


def softmax(xp, x):
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


FUNCTIONS = {
    "softmax": (softmax, (RANDOM.normal(size=(3, 8)),)),
    "inverse": (lambda xp, a: xp.linalg.inv(a), (MATRIX,)),
    "cholesky": (lambda xp, a: xp.linalg.cholesky(a @ xp.matrix_transpose(a)), (MATRIX,)),
    "saturated": (lambda xp, x: xp.tanh(x), (np.array([5.0, 9.0, 20.0]),)),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, "float64") for name in ("softmax", "cholesky", "saturated")),
        ("inverse", "float32"),
    ],
)
def test_one_function_on_both_engines_agrees(name, dtype):
    f, arrays = FUNCTIONS[name]

    report = crosscheck(f, [a.astype(dtype) for a in arrays], ENGINES, seed=1, compile=False)

    assert report.verdict is Verdict.PASS
    assert list(report.comparisons) == ["value", "R", "F"]
    assert {r.provenance.dtype for r in report.reports.values()} == {dtype}
    expected = "held against one another" if dtype == "float64" else "held against float64 on torch"
    assert report.reference == expected


class Faulty(WrappedBackend):
    """An engine whose vjp is right but for one entry of the first gradient."""

    def __init__(self, name, change):
        super().__init__(backend_named(name))
        self.change = change

    def vjp(self, f, x):
        y, pullback = self.inner.vjp(f, x)

        def changed(w):
            first, *rest = pullback(w)
            host = self.change(self.inner.arrays.to_host(first))
            return (self.inner.arrays.from_host(host, first), *rest)

        return y, changed


def one_entry(factor):
    def change(host):
        host.flat[1] *= factor
        return host

    return change


@pytest.mark.parametrize(
    ("wrong", "dtype", "factor"),
    [
        ("torch", "float64", -1),
        ("jax", "float64", 1 + 1e-6),
        ("torch", "float32", 1 + 1e-3),
        ("jax", "float32", 1 + 1e-3),
    ],
)
def test_one_wrong_entry_is_put_down_to_its_engine(wrong, dtype, factor):
    backends = [Faulty(n, one_entry(factor)) if n == wrong else n for n in ENGINES]
    f, (x,) = FUNCTIONS["softmax"]

    report = crosscheck(
        f, (x.astype(dtype),), backends, seed=1, compile=False, raise_exception=False
    )

    assert report.verdict is Verdict.FAIL
    assert report.cells["R"][wrong] == "FAIL"
    assert {d.accused for d in report.divergences if d.verdict is Verdict.FAIL} == {(wrong,)}
    assert report.divergences[0].entry == "d out / d inputs[0][0, 1] along one random direction"


def test_a_gradient_that_is_not_conjugated_fails():
    z = RANDOM.normal(size=3) + 1j * RANDOM.normal(size=3)

    def f(xp, z):
        return xp.real(z * xp.conj(z))

    good = crosscheck(f, (z,), [*ENGINES, "numpy"], order=2, seed=1, compile=False)
    backends = ["torch", Faulty("jax", np.conj)]
    bad = crosscheck(f, (z,), backends, seed=1, compile=False, raise_exception=False)

    assert good.comparisons["RR"] == {"torch, jax": 2 * 2 * 4 * (6 + 3) // 4}
    assert bad.divergences[0].accused == ("jax",)
    assert bad.divergences[0].entry.endswith(".imag along one random direction")


def test_second_order_compares_what_both_have():
    report = crosscheck(
        lambda xp, x: xp.sin(x) * x, (RANDOM.normal(size=5),), ENGINES, order=2, seed=1
    )

    assert list(report.comparisons) == ["value", "R", "F", "RR", "FR", "RF"]
    assert report.cells["FF"] == {"torch": "UNSUPPORTED", "jax": "not compared"}
    assert any(sentence.startswith("FF on torch") for sentence in report.left_out)


def test_an_output_without_history_on_one_engine():
    def f(xp, x):
        return xp.sign(x), x * x * x

    x = np.array([-1.0, 2.0, 0.5])
    report = crosscheck(f, (x,), ENGINES, order=2, seed=1, compile=False)

    assert report.verdict is Verdict.PASS


def test_engines_that_make_another_dtype_are_told_apart():
    f = {"torch": lambda x: x.double() * 2, "jax": lambda x: x * 2}

    x = np.ones(3, np.float32)
    report = crosscheck(f, (x,), ENGINES, seed=1, compile=False, raise_exception=False)

    assert report.verdict is Verdict.FAIL
    assert "out has dtype float64 on torch and float32 on jax" in report.headline


def test_at_a_kink_both_may_be_right():
    def relu(at_zero):
        return lambda xp, x: xp.where(x >= 0 if at_zero else x > 0, x, xp.zeros_like(x))

    f = {"torch": relu(True), "jax": relu(False)}

    x = np.array([0.0, 1.0])
    report = crosscheck(f, (x,), ENGINES, seed=1, compile=False, raise_exception=False)

    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.divergences[0].status is Status.NONSMOOTH


def test_at_the_middle_of_a_kink_one_report_is_enough():
    report = crosscheck(
        lambda xp, x: xp.abs(x), (np.array([0.0, 1.0]),), ENGINES, seed=1, compile=False,
        raise_exception=False,
    )  # fmt: skip

    assert report.verdict is Verdict.INCONCLUSIVE
    assert {d.status for d in report.divergences} == {Status.NONSMOOTH}


@pytest.mark.parametrize("raises", [False, True])
def test_global_state_is_as_it_was(raises):
    import jax
    import torch

    def f(xp, x):
        torch.rand(1)
        np.random.random()  # noqa: NPY002 the global state is what is tested
        if raises and not isinstance(x, torch.Tensor):
            raise ValueError("no")
        return x * x

    x = np.array([1.0, 2.0])
    state = torch.get_rng_state()
    numpy_state = np.random.get_state()[1].tolist()  # noqa: NPY002
    python_state, wide = random.getstate(), jax.config.jax_enable_x64

    report = crosscheck(f, (x,), ENGINES, seed=1, compile=False, raise_exception=False)

    assert bool(report) is not raises
    assert torch.equal(torch.get_rng_state(), state)
    assert np.random.get_state()[1].tolist() == numpy_state  # noqa: NPY002
    assert random.getstate() == python_state
    assert jax.config.jax_enable_x64 == wide
    assert torch.get_default_dtype() == torch.float32
    assert x.tolist() == [1.0, 2.0]


def test_a_dtype_that_an_engine_lacks_is_refused():
    import ml_dtypes

    x = np.ones(3, dtype=ml_dtypes.bfloat16)
    with pytest.raises((InputError, NotImplementedError), match="bfloat16"):
        crosscheck(lambda x: x * x, (x,), ["torch", "jax", "numpy"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bits_are_held_against_double(dtype):
    import ml_dtypes

    x = RANDOM.normal(size=6).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    def checked(torch):
        return crosscheck(
            lambda x: x * x, (x,), [torch, "jax"], seed=1, compile=False, raise_exception=False
        )

    assert checked("torch").verdict is Verdict.PASS
    assert checked(Faulty("torch", one_entry(1.5))).verdict is Verdict.FAIL


def test_numpy_is_a_witness_of_both():
    engines = ["numpy", "jax", "torch"]
    report = crosscheck(softmax, (RANDOM.normal(size=5),), engines, seed=1, compile=False)

    assert report.cells["R"] == {"numpy": "PASS", "jax": "PASS", "torch": "PASS"}
    assert report.reports["numpy"].function.endswith("derivative of jax)")


def test_the_namespaces_are_those_of_the_engines():
    seen = []

    def f(xp, x):
        seen.append(xp)
        return x * 2

    crosscheck(f, (np.ones(2),), ENGINES, seed=1, compile=False)

    assert {backend_named(name).xp for name in ENGINES} == set(seen)
    assert array_api_compat.is_torch_namespace(backend_named("torch").xp)


AWAY_FROM_ZERO = {
    "a largest of ties": (
        lambda x: torch.max(x, -1).values, lambda x: jnp.max(x, -1), [1.0, 1.0, -1.0],
    ),
    "a relu": (lambda x: torch.relu(x - 1), lambda x: jnp.maximum(x - 1, 0), [1.0, 2.0]),
    "a clamp": (lambda x: x.clamp(max=1), lambda x: jnp.minimum(x, 1), [1.0, 2.0, 0.5]),
    "rows": (
        lambda x: torch.max(x, -1).values, lambda x: jnp.max(x, -1), [[1.0, 1, -1], [2, 2, 0]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("name", AWAY_FROM_ZERO)
def test_two_choices_at_a_kink_are_open_wherever_it_is(name, seed):
    """Away from zero x moves by a unit of rounding past the kink, and the numbers jump."""
    of_torch, of_jax, at = AWAY_FROM_ZERO[name]
    options = {"seed": seed, "raise_exception": False, "compile": False}
    x = (np.array(at),)

    def judged(of_jax):
        return crosscheck({"torch": of_torch, "jax": of_jax}, x, ["torch", "jax"], **options)

    assert judged(of_jax).verdict is Verdict.INCONCLUSIVE
    assert judged(lambda x: 1.0001 * of_jax(x)).verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", seeds(3))
def test_the_same_choice_at_a_kink_agrees(seed):
    functions = {"torch": lambda x: torch.amax(x, -1), "jax": lambda x: jnp.max(x, -1)}
    x, names = (np.array([1.0, 1.0, -1.0]),), ["torch", "jax"]

    assert crosscheck(functions, x, names, seed=seed, compile=False).verdict is Verdict.PASS


@over_seeds(4)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("odd", ["torch", "jax", "numpy"])
def test_of_three_engines_the_one_that_differs_is_told_wherever_it_stands(odd, dtype, seeds):
    factor = dict.fromkeys(("torch", "jax", "numpy"), 1.0) | {odd: 1.001}
    functions = {
        "torch": lambda x: torch.tanh(x) * factor["torch"],
        "jax": lambda x: jnp.tanh(x) * factor["jax"],
        "numpy": lambda x: np.tanh(x) * factor["numpy"],
    }
    x = np.array([0.1, -0.7, 1.2], dtype)

    for seed in seeds:
        report = crosscheck(
            functions, (x,), list(functions), seed=seed, compile=False, raise_exception=False
        )

        assert report.verdict is Verdict.FAIL
        assert [odd] == [name for name, cell in report.cells["value"].items() if cell == "FAIL"]


def test_a_python_number_as_result_is_refused_and_no_witness_judges_it():
    def number(xp, x):
        return float(xp.sum(x * x))

    for engines in (["torch", "jax", "numpy"], ["numpy", "jax"]):
        with pytest.raises(InputError, match=r"nothing that can be differentiated: out \(float\)"):
            crosscheck(number, (np.ones(3),), engines, seed=1, compile=False)


def test_arrays_of_an_engine_are_no_host_arrays():
    with pytest.raises(InputError, match=r"inputs\[0\] belongs to torch, and the check is on jax"):
        crosscheck(softmax, (torch.ones(3),), ENGINES)


def test_modules_are_no_engines_and_their_names_are():
    with pytest.raises(InputError, match=r"backends= has the module torch(.|\n)*name: 'torch'"):
        crosscheck(softmax, (np.ones(3),), [torch, jnp])
    with pytest.raises(InputError, match=r"backends= has the module jax.numpy(.|\n)*name: 'jax'"):
        crosscheck(softmax, (np.ones(3),), jnp)


def test_results_of_another_length_fail():
    f = {"torch": lambda x: x.sum(0), "jax": lambda x: x.sum(1)}

    report = crosscheck(f, (np.ones((2, 3)),), ENGINES, seed=1, raise_exception=False)

    assert "out has shape (3,) on torch and (2,) on jax" in report.headline
