"""Verdicts on CuPy arrays, on simulated devices: the conformance kit, planted errors, twins.

What is simulated, and after which source of CuPy: tests/engines/simulated_cupy.py.
"""

import numpy as np
import pytest

import adjudge
from adjudge import Status, Verdict
from adjudge.conformance import assert_conforms

HOST = np.random.default_rng(11).normal(size=(5, 3))
KINDS = [
    "elementwise", "several inputs and outputs", "nested inputs", "empty array",
    "no dimensions", "captured constant", "low precision", "indexing with repeats",
    "integer and boolean inputs", "integer and boolean outputs", "matrix product",
    "squared modulus",
]  # fmt: skip
"""One scenario of each kind of array: what they compute is computed by NumPy, here as there."""
SMALL = ["several inputs and outputs", "squared modulus"]


def draw(machine):
    """What the kit disturbs."""
    return {"random numbers": (lambda: machine.cupy.random.rand(1), None)}


@pytest.mark.long
def test_cupy_conforms_on_two_devices(cupy):
    summary = assert_conforms("cupy", scenarios=KINDS, disturb=draw(cupy))

    assert summary.comparisons > 6000
    assert summary.scenarios == len(KINDS)


def test_cupy_conforms_where_another_device_is_current(cupy):
    with cupy.Device(1):
        stream = cupy.Stream(non_blocking=True).use()
        summary = assert_conforms("cupy", scenarios=SMALL, disturb=draw(cupy))
        assert cupy.get_current_stream() is stream

    assert summary.comparisons > 500


def softmax_rows(machine):
    """Kernels as of CUDA source, on memory: `forward(x, y)` and `backward(y, w, g, how)`."""

    def forward(x, y):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        y[...] = e / e.sum(axis=1, keepdims=True)

    def backward(y, w, g, how):
        inner = (w * y).sum(axis=1, keepdims=True)
        g[...] = y * (w - inner) * (1.0 if how != "factor" else 1.001)
        if how == "sign":
            g[...] = y * (w + inner)
        if how == "last entry":
            g[-1, -1] = 0.0

    return machine.RawKernel(forward), machine.RawKernel(backward)


def softmax(machine, how=""):
    forward, backward = softmax_rows(machine)
    empty = machine.cupy.empty

    def f(x):
        y = empty(x.shape, x.dtype)
        forward((1,), (x.shape[0],), (x, y))
        return y

    def vjp(x, w):
        y, g = f(x), empty(x.shape, x.dtype)
        backward((1,), (x.shape[0],), (y, w, g, how))
        return g

    return adjudge.ByHand(f, vjp=vjp)


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_pair_of_kernels_passes(device, dtype, cupy):
    with cupy.Device(device):
        x = cupy.cupy.asarray(HOST.astype(dtype))

    report = adjudge.gradcheck(softmax(cupy), x)

    assert report.counts["comparisons"] > 0


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("how", ["sign", "factor", "last entry"])
def test_a_wrong_kernel_fails(device, how, cupy):
    with cupy.Device(device):
        x = cupy.cupy.asarray(HOST)

    report = adjudge.examine(softmax(cupy, how), x)

    assert report.verdict is Verdict.FAIL
    assert report.findings[0].status is Status.MISMATCH
    if how == "last entry":
        assert "[4, 2]" in str(report)


def test_a_placed_check_runs_on_the_named_device(cupy):
    x = cupy.cupy.asarray(HOST)

    report = adjudge.examine(softmax(cupy), x, device="cuda:1")

    assert report
    assert "cuda:1" in str(report)
    assert x.device.id == 0


def test_a_gradient_on_another_device_fails(cupy):
    right = softmax(cupy)

    def vjp(x, w):
        g = right.vjp(x, w)
        cupy.Device().synchronize()
        with cupy.Device(1):
            return g.copy()

    report = adjudge.examine(adjudge.ByHand(right, vjp=vjp), cupy.cupy.asarray(HOST))

    assert report.verdict is Verdict.FAIL
    assert Status.WRONG_DEVICE in [finding.status for finding in report.findings]


# ---------------------------------------------------------------- twins


def cube_sum(xp, x):
    """Written for any namespace."""
    return xp.sum(x * x * x + xp.sin(x), axis=1)


def twins(machine, jnp, rule):
    """A function of CuPy without derivatives, and its twins; that of PyTorch may be a wrong one."""
    return {
        "torch": rule,
        "jax": lambda x: cube_sum(jnp, x),
        "cupy": lambda x: cube_sum(machine.cupy, x),
    }


def torch_twin(rule, factor):
    def forward(x):
        return (x * x * x + x.sin()).sum(1)

    return rule(forward, lambda x, w: factor * w[:, None] * (3 * x * x + x.cos()))


def compared(functions):
    return adjudge.crosscheck(
        functions, (HOST,), list(functions), seed=1, compile=False, raise_exception=False
    )


@pytest.mark.backend("torch", "jax")
def test_a_function_without_derivatives_agrees_with_its_twins(cupy, jnp, rule):
    report = compared(twins(cupy, jnp, torch_twin(rule, 1.0)))

    assert report
    assert report.cells["R"] == {"torch": "PASS", "jax": "PASS", "cupy": "PASS"}
    assert report.reports["cupy"].counts["comparisons"] > 0


@pytest.mark.backend("torch", "jax")
def test_differences_on_the_device_accuse_a_wrong_twin(cupy, jnp, rule):
    report = compared(twins(cupy, jnp, torch_twin(rule, 1.001)))

    assert report.verdict is Verdict.FAIL
    assert report.cells["value"] == {"torch": "PASS", "jax": "PASS", "cupy": "PASS"}
    # on CuPy it is the derivative of the first twin that is held against differences
    assert report.cells["R"] == {"torch": "FAIL", "jax": "PASS", "cupy": "FAIL"}
    assert "derivative of torch" in report.reports["cupy"].headline


@pytest.mark.backend("jax")
def test_a_wrong_function_of_cupy_differs_from_its_twin(cupy, jnp):
    wrong = lambda x: cube_sum(cupy.cupy, x) + 1e-9 * cupy.cupy.sum(x, axis=1)  # noqa: E731

    report = compared({"jax": lambda x: cube_sum(jnp, x), "cupy": wrong})

    assert report.verdict is Verdict.FAIL
    assert report.cells["value"]["cupy"] == "FAIL"
