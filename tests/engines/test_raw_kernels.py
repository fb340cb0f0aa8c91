"""CUDA kernels that are wrong in the ways of CUDA kernels: caught and named without a GPU.

The source of the example is compiled for the host (cuda_on_host.py), where there is a compiler; its
NumPy twins run everywhere.
"""

import array_api_compat.numpy
import numpy as np
import pytest
from scenarios import long

import adjudge
from adjudge import Status, Verdict
from adjudge.engine import Environment, PlainBackend, replaced

EXAMPLE = "examples/raw_kernel_cupy.py"
SEEDS = range(3)
"""Where each seed costs little. Threads in any order are another order in every launch anyhow."""

# what the report says of each mistake; sums and races differ in what is named
NAMED = {
    "factor": ["inputs[1]", "is 2 times the reference", "missing factor 1/2"],
    "boundary": ["d out[39, 6] / d inputs[0][39, 6]: automatic 0,", "d inputs[1][39]"],
    "race": ["inputs[1]", "automatic 0,"],
    "stale": ["NONDETERMINISTIC: the vjp at inputs[1]"],
    "index": ["MISMATCH", "d inputs[1]", "more entries are wrong"],
}
ALWAYS = {**NAMED, "race": ["inputs[1]"]}


@pytest.fixture
def example(load):
    return load(EXAMPLE)


def report_of(example, name, module, seed):
    # a CPU adds in a fixed order, a GPU does not, and is allowed the last bits
    case = example.case(example.NAMES.index(name), module, np, nondet_tol=1e-13)
    return adjudge.examine(case.f, case.inputs, seed=seed, **case.options)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("order", ["lockstep", "shuffled"])
def test_the_right_kernels_pass_in_any_order_of_threads(example, on_host, order, seed):
    report = report_of(example, "right", on_host.Module(example.SOURCE, order), seed)

    assert report.verdict is Verdict.PASS, report
    assert report.counts["comparisons"] == 2


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_kernel_is_caught_and_named(example, on_host, name):
    report = report_of(example, name, on_host.Module(example.SOURCE), seed=0)

    assert report.verdict is Verdict.FAIL
    for words in NAMED[name]:
        assert words in str(report)


@pytest.mark.parametrize("name", NAMED)
def test_a_wrong_kernel_is_caught_when_threads_run_in_any_order(example, on_host, name):
    report = report_of(example, name, on_host.Module(example.SOURCE, "shuffled"), seed=0)

    assert report.verdict is Verdict.FAIL
    for words in ALWAYS[name]:
        assert words in str(report)
    # by more than the rounding that additions in any order make
    failing = [finding.status for finding in report.findings if not finding.note]
    assert (Status.NONDETERMINISTIC in failing) is (name in ("race", "stale"))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["right", *NAMED])
def test_the_numpy_twin_of_each_kernel_gets_the_same_verdict(example, load, name, seed):
    twins = load("tests/engines/kernel_twins.py")
    f = twins.twin(example, example.NAMES.index(name))

    report = adjudge.examine(f, example.inputs(np), seed=seed)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), report
    for words in NAMED.get(name, ()):
        assert words in str(report)


@pytest.mark.parametrize("name", ["right", "factor", "boundary", "stale", "index"])
def test_the_twins_compute_what_the_kernels_compute(example, on_host, load, name):
    variant = example.NAMES.index(name)
    twin = load("tests/engines/kernel_twins.py").twin(example, variant)
    kernels = example.pair(variant, on_host.Module(example.SOURCE), np)
    x, c = example.inputs(np)
    w = np.random.default_rng(7).normal(size=x.shape)

    np.testing.assert_allclose(kernels(x, c), twin(x, c), rtol=1e-15)
    for _ in range(2):  # the second time there is something stale
        for one, other in zip(kernels.vjp(x, c, w), twin.vjp(x, c, w), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


def in_single(source):
    return source.replace("double", "float").replace("sqrt(", "sqrtf(")


def single_inputs(example):
    return tuple(array.astype(np.float32) for array in example.inputs(np))


# in double precision the race is caught in every run
@pytest.mark.parametrize("name", ["right", "factor", long("race")])
def test_kernels_of_float32_alone_are_judged_as_they_are(example, on_host, name):
    # handed float64 in the search for a twin in double, such a kernel reads bits of something else
    variant = example.NAMES.index(name)
    kernels = example.pair(variant, on_host.Module(in_single(example.SOURCE)), np)

    report = adjudge.examine(kernels, single_inputs(example), seed=0)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), report
    assert "judged natively" in report.provenance.note


@pytest.mark.parametrize("name", ["right", "factor"])
def test_kernels_of_either_dtype_are_judged_in_double(example, on_host, name):
    variant = example.NAMES.index(name)
    pairs = {
        np.dtype(dtype): example.pair(variant, on_host.Module(source), np)
        for dtype, source in (
            (np.float32, in_single(example.SOURCE)),
            (np.float64, example.SOURCE),
        )
    }
    either = adjudge.ByHand(
        lambda x, c: pairs[x.dtype](x, c), vjp=lambda x, c, w: pairs[x.dtype].vjp(x, c, w)
    )

    report = adjudge.examine(either, single_inputs(example), seed=0)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), report
    assert "judged in float64" in report.provenance.note
    if name == "right":
        assert report.resolution < 1e-5


@pytest.mark.parametrize("seed", SEEDS)
def test_atomic_additions_in_any_order_are_noted(example, on_host, seed):
    case = example.case(example.RIGHT, on_host.Module(example.SOURCE, "shuffled"), np)

    report = adjudge.examine(case.f, case.inputs, seed=seed)

    assert report.verdict is Verdict.PASS
    assert "the vjp at inputs[1]" in str(report)
    assert {finding.status for finding in report.findings} == {Status.NONDETERMINISTIC}


class InAnyOrder(Environment):
    """One of which it is said that it adds in any order, as a GPU does."""

    def determinism_setting(self, array):
        return "add in a fixed order"


@pytest.mark.parametrize("name", ["right", "factor", "race", "stale"])
def test_on_a_device_that_adds_in_any_order_the_right_kernels_pass(example, on_host, name):
    case = example.case(
        example.NAMES.index(name), on_host.Module(example.SOURCE, "shuffled"), np,
        backend=replaced(PlainBackend(array_api_compat.numpy), environment=InAnyOrder()),
    )  # fmt: skip

    report = adjudge.examine(case.f, case.inputs, seed=0, **case.options)

    assert report.verdict is (Verdict.PASS if name == "right" else Verdict.FAIL), report
    if name == "right":
        assert "allowed for" in str(report)
        assert "add in a fixed order" in str(report)


BARRIER = r"""
extern "C" __global__ void squares(const double* x, double* y, int columns) {
    __shared__ double part[64];
    int t = threadIdx.x, row = blockIdx.x;
    part[t] = t < columns ? x[row * columns + t] * x[row * columns + t] : 0;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) part[t] += part[t + half];
    }
    if (t == 0) y[row] = part[0];
}

extern "C" __global__ void backward(const double* x, const double* w, double* g, int columns) {
    __shared__ double of_row;
    int t = threadIdx.x, row = blockIdx.x;
    if (t == blockDim.x - 1) of_row = 2 * w[row];
    __syncthreads();
    if (t < columns) g[row * columns + t] = of_row * x[row * columns + t];
}
"""


def squares_of_rows(module):
    def squares(x):
        y = np.empty(len(x))
        module.get_function("squares")((len(x),), (64,), (x, y, np.int32(x.shape[1])))
        return y

    def backward(x, w):
        g = np.empty_like(x)
        module.get_function("backward")((len(x),), (64,), (x, w, g, np.int32(x.shape[1])))
        return g

    return adjudge.ByHand(squares, vjp=backward)


@pytest.mark.parametrize("order", ["lockstep", "shuffled"])
def test_a_barrier_that_is_forgotten_leaves_what_an_earlier_block_wrote(on_host, order):
    x = np.random.default_rng(2).normal(size=(3, 50))
    forward, backward = BARRIER.split('extern "C" __global__ void backward')
    without = backward.replace("__syncthreads();", "")
    hasty = f'{forward}extern "C" __global__ void backward{without}'

    right = adjudge.examine(squares_of_rows(on_host.Module(BARRIER, order)), x, seed=3)
    wrong = adjudge.examine(squares_of_rows(on_host.Module(hasty, order)), x, seed=3)

    assert right.verdict is Verdict.PASS, right
    assert wrong.verdict is Verdict.FAIL
    assert "the vjp" in str(wrong)


def test_what_the_host_cannot_do_is_said(on_host):
    module = on_host.Module(BARRIER)
    kernel = module.get_function("squares")

    with pytest.raises(TypeError, match="takes 3 arguments, not 1"):
        kernel((1,), (64,), (np.ones(3),))
    with pytest.raises(ValueError, match="contiguous"):
        kernel((1,), (64,), (np.ones((2, 3)).T, np.ones(3), np.int32(2)))


ADDING = r"""
extern "C" __global__ void plain(double* y) { y[0] += 1; }
extern "C" __global__ void spelled(double* y) { double t = y[0]; t = t + 1; y[0] = t; }
extern "C" __global__ void atomic(double* y) { atomicAdd(&y[0], 1.0); }
extern "C" __global__ void fenced(double* y) {
    for (int k = 0; k < blockDim.x; k++) {
        if (threadIdx.x == k) y[0] += 1;
        __syncthreads();
    }
}
"""


def added(module, name, threads=32):
    y = np.zeros(1)
    module.get_function(name)((1,), (threads,), (y,))
    return y[0]


def test_threads_on_the_host_race_where_threads_of_a_gpu_may(on_host):
    lockstep, shuffled = (on_host.Module(ADDING, order) for order in ("lockstep", "shuffled"))

    # a warp loads once and stores 32 times
    assert [added(lockstep, name) for name in ("plain", "spelled")] == [1, 1]
    assert [added(lockstep, name) for name in ("atomic", "fenced")] == [32, 32]
    races = {added(shuffled, "plain") for _ in range(20)}
    assert len(races) > 1
    assert max(races) <= 32
    assert {added(shuffled, name) for name in ("atomic", "fenced") for _ in range(5)} == {32}
