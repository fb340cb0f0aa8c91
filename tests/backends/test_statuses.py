"""Every status appears where it must, and not in the case beside it, which is right."""

from concurrent.futures import ThreadPoolExecutor

import array_api_strict
import numpy as np
import pytest
from frameworks import torch
from scenarios import torch_function

import adjudge
from adjudge import ByHand, Status, examine, gradgradcheck

pytestmark = pytest.mark.backend("torch")

X = np.array([0.3, -1.2, 2.5, 0.8, -0.4])
LAST = {"calls": 0}


def cosine(x, w):
    return w * np.cos(x)


def sine(vjp=cosine, **rules):
    return ByHand(np.sin, vjp=vjp, **rules)


def counting(x):
    """The sine, and a little more at every call."""
    LAST["calls"] += 1
    return np.sin(x) + 1e-7 * LAST["calls"]


def writing(x, w):
    w *= np.cos(x)
    return w


def drawing(x):
    np.random.rand()  # noqa: NPY002 the global state is what is watched
    return np.sin(x)


def steps_of_float32(x):
    return np.sin(x.astype(np.float32).astype(np.float64))


def double(*values):
    return torch.tensor(values, dtype=torch.float64)


def with_an_axis_more():
    """An engine whose gradients have an axis more than their inputs."""
    from adjudge_torch import TorchBackend

    class Loose(TorchBackend):
        def vjp(self, f, x):
            y, pull = super().vjp(f, x)
            return y, lambda w: tuple(g[None] for g in pull(w))

    return Loose()


def on_device(elsewhere):
    x = array_api_strict.asarray(X, device=array_api_strict.Device("device1"))
    cpu = array_api_strict.Device("CPU_DEVICE")

    def vjp(x, w):
        gradient = w * array_api_strict.cos(x)
        return gradient.to_device(cpu) if elsewhere else gradient

    return examine(ByHand(array_api_strict.sin, vjp=vjp), x, seed=0)


def at(f, x=X, **options):
    return examine(f, x, seed=0, **options)


THREAD = ThreadPoolExecutor(1)

CASES = {
    Status.MISMATCH: lambda bad: at(sine(lambda x, w: (1 + 1e-6 * bad) * cosine(x, w))),
    Status.NONSMOOTH: lambda bad: at(
        ByHand(lambda x: np.maximum(x, 0), vjp=lambda x, w: w * (x >= 0)),
        X * [0, 1, 1, 1, 1] if bad else X,
    ),
    Status.NONDETERMINISTIC: lambda bad: at(ByHand(counting if bad else np.sin, vjp=cosine)),
    Status.NONFINITE: lambda bad: at(torch.log, double(0.0 if bad else 0.3, 2.0)),
    Status.DETACHED: lambda bad: at(
        lambda x: (x.sin(), x.detach().sin() if bad else x.cos()), double(0.3, 2.0)
    ),
    Status.MISSING: lambda bad: at(
        torch_function(lambda x, y: x * y, lambda x, y, w: (w * y, None if bad else w * x)),
        (double(0.3, 2.0), double(1.5, -1.0)),
    ),
    Status.SPURIOUS: lambda bad: at(
        ByHand(
            lambda x: np.sin(x[:3]),
            vjp=lambda x, w: np.r_[w * np.cos(x[:3]), np.full(2, bad * w.sum())],
        ),
        mode="full",
    ),
    Status.MUTATES_INPUT: lambda bad: at(sine(writing if bad else cosine)),
    Status.WRONG_SHAPE: lambda bad: at(
        torch.sin, double(0.3, 2.0), backend=with_an_axis_more() if bad else "torch"
    ),
    Status.WRONG_DTYPE: lambda bad: at(
        sine(lambda x, w: cosine(x, w).astype(np.float32 if bad else np.float64))
    ),
    Status.WRONG_DEVICE: on_device,
    Status.WRONG_LAYOUT: lambda bad: at(
        torch_function(lambda x: 2 * x, lambda x, w: (2 * w).to_sparse() if bad else 2 * w),
        torch.eye(3, dtype=torch.float64).requires_grad_(),
    ),
    Status.NONLINEAR: lambda bad: at(sine(lambda x, w: cosine(x, w) + bad * 1e-5)),
    Status.UNDEFINED: lambda bad: at(
        torch_function(
            torch.sin,
            lambda x, w: (torch.ones_like(x) if bad else None) if w is None else w * x.cos(),
            undefined=True,
        ),
        double(0.3, 2.0).requires_grad_(),
    ),
    Status.INCONSISTENT: lambda bad: at(
        sine(jvp=lambda x, v: cosine(x, v) * (1 + 1e-3 * bad)), modes=["R", "F"]
    ),
    Status.UNRESOLVED: lambda bad: at(
        ByHand(
            lambda x: 1 / (1 + np.exp(-x)), vjp=lambda x, w: w * np.exp(-x) / (1 + np.exp(-x)) ** 2
        ),
        np.array([40.0]) if bad else X,
    ),
    Status.REFERENCE: lambda bad: at(
        sine(), reference=adjudge.reference.twin(np.cos if bad else np.sin)
    ),
    Status.UNFINISHED: lambda bad: at(
        sine(lambda x, w: 1.5 * cosine(x, w)) if bad else sine(),
        max_evaluations=12 if bad else 200,
        mode="projected",
    ),
    Status.UNSUPPORTED: lambda bad: at(sine(jvp=None if bad else cosine), modes=["R", "F"]),
    Status.IMPRECISE: lambda bad: at(ByHand(steps_of_float32 if bad else np.sin, vjp=cosine)),
    Status.RAISED: lambda bad: at(
        sine(lambda x, w: np.linalg.inv(x) if bad else cosine(x, w)), modes=["R"]
    ),
    Status.INACCURATE: lambda bad: at(
        ByHand(
            lambda x: 1 / (1 + np.exp(-x)),
            vjp=lambda x, w: (
                w / (1 + np.exp(-x)) * (1 - 1 / (1 + np.exp(-x)))
                if bad
                else w * np.exp(-x) / (1 + np.exp(-x)) ** 2
            ),
        ),
        np.float32([9.0, 10.5, 12.25, 14.0]),
    ),
    Status.SEQUENTIAL: lambda bad: at(
        ByHand(drawing if bad else np.sin, vjp=cosine), executor=THREAD
    ),
    Status.UNCHECKED: lambda bad: at(sine(cosine), np.zeros(3) if bad else X),
    Status.DRAWS_RANDOM: lambda bad: at(ByHand(drawing if bad else np.sin, vjp=cosine)),
}


def statuses(report):
    return {finding.status for finding in report.findings}


@pytest.mark.parametrize("status", list(Status))
def test_a_status_appears_where_it_must_and_only_there(status):
    bad, good = CASES[status](True), CASES[status](False)

    assert status in statuses(bad), bad
    assert status not in statuses(good), good
    assert good, good


def test_a_second_order_status_names_its_mode():
    rule = ByHand(
        np.sin,
        vjp=cosine,
        double_vjp=lambda x, w, u: (-0.9 * u * w * np.sin(x), u * np.cos(x)),
    )

    report = gradgradcheck(rule, X, seed=0, raise_exception=False)

    assert {f.mode for f in report.findings} == {"RR"}
