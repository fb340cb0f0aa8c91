"""What docs/findings.md says of released frameworks: which modes are wrong, which are right."""

from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pytest
from frameworks import torch
from pages import ROOT, differences, examples, printed
from scenarios import long

from adjudge import Status, Verdict, examine

MODES = ("R", "F", "RR", "FR", "RF", "FF")
A = [[2.1, 0.3, -0.4], [0.5, 1.7, 0.2], [-0.3, 0.6, 1.4]]
L = [[1.5, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.7, 0.9]]
B = [[0.7, -0.2], [0.1, 0.9], [-0.5, 0.4]]
ROWS = [[0.3, -1.1, 0.8], [1.7, -0.6, 0.2]]


def released(distribution, number):
    """The findings are about one release: elsewhere they may be mended."""
    try:
        found = version(distribution)
    except PackageNotFoundError:
        found = "absent"
    return pytest.mark.skipif(
        not found.startswith(number), reason=f"{distribution} is {found}, not {number}"
    )


def failing(report):
    return {mode for mode, outcome in report.modes.items() if outcome is Verdict.FAIL}


def passing(report):
    return {mode for mode, outcome in report.modes.items() if outcome is Verdict.PASS}


# ---------------------------------------------------------------- PyTorch


def tensors(*values):
    return tuple(torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in values)


def layer_norm_by_hand(x):
    apart = x - x.mean(1, keepdim=True)
    return apart / (apart.square().mean(1, keepdim=True) + 1e-5).sqrt()


WRONG_IN_TORCH = {
    "logdet": (lambda x: torch.logdet(x), (A,), {"RF", "FF"}),
    "solve": (lambda a, b: torch.linalg.solve(a, b), (A, B), {"RF", "FF"}),
    "layer_norm": (lambda x: torch.nn.functional.layer_norm(x, (3,)), (ROWS,), {"RF", "FF"}),
    "cumprod at a zero": (lambda x: x.cumprod(0), ([0.7, 0.0, -1.2, 0.4],), {"RF", "FF"}),
    # RF is the derivative of a wrong forward rule, and right as that
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(x.tril()), (L,), {"F", "FR", "FF"}),
}
RIGHT_IN_TORCH = {
    "solve": (lambda a, b: torch.linalg.inv(a) @ b, (A, B)),
    "layer_norm": (layer_norm_by_hand, (ROWS,)),
    "cumprod at a zero": (lambda x: x.cumprod(0), ([0.7, 0.5, -1.2, 0.4],)),
    "cholesky_inverse": (lambda x: torch.linalg.inv(x.tril() @ x.tril().mT), (L,)),
}


@released("torch", "2.13.0")
@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", WRONG_IN_TORCH)
def test_the_modes_that_are_wrong_in_pytorch_fail_and_no_others(name):
    f, values, wrong = WRONG_IN_TORCH[name]

    report = examine(f, tensors(*values), order=2, seed=1, blame=False)

    assert failing(report) == wrong
    assert passing(report) == set(MODES) - wrong
    assert report.ways["eager"]["FF"] is Status.UNSUPPORTED


@pytest.mark.backend("torch")
@released("torch", "2.13.0")
@pytest.mark.parametrize("seed", range(3))
def test_a_constant_of_1e_13_in_the_forward_mode_of_pytorch_is_found(seed):
    (x,) = tensors([-30.0, -28.0, 0.5])

    report = examine(lambda x: x.logcumsumexp(0), (x,), modes=["R", "F"], seed=seed)

    assert failing(report) == {"F"}
    assert passing(report) == {"R"}


@pytest.mark.backend("torch")
@pytest.mark.parametrize("name", RIGHT_IN_TORCH)
def test_the_same_function_by_right_rules_passes_in_pytorch(name):
    f, values = RIGHT_IN_TORCH[name]

    report = examine(f, tensors(*values), order=2, seed=1)

    assert passing(report) == set(MODES)


# ---------------------------------------------------------------- JAX


# one of each cause and pattern: `benchmarks/findings.py` has every function of the page
WRONG_IN_JAX = {
    "i0 at 0": (lambda jax: jax.numpy.i0, [0.0, 0.7], {"RR", "FR", "RF", "FF"}),
    "scipy i0 at 0": (lambda jax: jax.scipy.special.i0, [0.0, 0.7], set(MODES)),
}


@released("jax", "0.10.2")
@pytest.mark.backend("jax")
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["i0 at 0", long("scipy i0 at 0")])
def test_the_modes_that_are_wrong_in_jax_fail_and_no_others(jax, double, name):
    make, x, wrong = WRONG_IN_JAX[name]

    x, options = double(np.array(x)), {"compile": False, "blame": False}
    report = examine(make(jax), (x,), order=2, seed=1, **options)

    assert failing(report) == wrong
    assert passing(report) == set(MODES) - wrong


@pytest.mark.backend("jax")
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ["i0 at 0", long("scipy i0 at 0")])
def test_the_same_functions_pass_elsewhere_in_jax(jax, double, name):
    make, _, _ = WRONG_IN_JAX[name]

    report = examine(make(jax), (double(np.array([0.6, 1.7])),), order=2, seed=1, compile=False)

    assert passing(report) == set(MODES)


# ---------------------------------------------------------------- the page itself

PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")


def pairs_of(section):
    """What the page shows below each example of a section, and what the example prints."""
    text = PAGE.partition(f"\n## {section}")[2].partition("\n## ")[0]
    return list(zip((shown for _, shown in examples(text)), printed(text), strict=True))


@released("torch", "2.13.0")
@pytest.mark.backend("torch")
def test_the_examples_of_the_page_print_what_it_shows_in_pytorch():
    pairs = [*pairs_of("See one"), *pairs_of("PyTorch")]

    assert len(pairs) == 9
    assert [found for shown, now in pairs for found in differences(shown, now)] == []


@released("jax", "0.10.2")
@pytest.mark.backend("jax")
@pytest.mark.usefixtures("x64")
def test_the_examples_of_the_page_print_what_it_shows_in_jax(jax, monkeypatch):
    monkeypatch.setattr(jax.config, "update", lambda *_: None)  # 64 bits are on for this test alone
    pairs = pairs_of("JAX")

    assert len(pairs) == 6
    assert [found for shown, now in pairs for found in differences(shown, now)] == []
