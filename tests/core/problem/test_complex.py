"""Complex numbers are pairs of reals; the gradient is the adjoint of the real inner product."""

import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine, gradgradcheck

Z = np.asarray([0.4 + 1.3j, -1.1 - 0.2j, 0.3 - 2.0j])
X = np.asarray([0.5, -1.5, 2.0])

# f, its vjp, its jvp, and the point
RIGHT = {
    "C to C, holomorphic": (
        lambda z: z**3,
        lambda z, w: np.conj(3 * z**2) * w,
        lambda z, v: 3 * z**2 * v,
        (Z,),
    ),
    "C to C, not holomorphic": (
        lambda z: z * np.conj(z) ** 2,
        lambda z, w: np.conj(np.conj(z) ** 2) * w + 2 * z * np.conj(z) * np.conj(w),
        lambda z, v: v * np.conj(z) ** 2 + 2 * z * np.conj(z) * np.conj(v),
        (Z,),
    ),
    "conjugation": (np.conj, lambda z, w: np.conj(w), lambda z, v: np.conj(v), (Z,)),
    "R to C": (
        lambda x: np.exp(1j * x),
        lambda x, w: np.real(np.conj(1j * np.exp(1j * x)) * w),
        lambda x, v: 1j * np.exp(1j * x) * v,
        (X,),
    ),
    "C to R": (
        lambda z: np.abs(z) ** 2,
        lambda z, w: 2 * z * w,
        lambda z, v: 2 * np.real(np.conj(z) * v),
        (Z,),
    ),
    "mixed": (
        lambda z, x: (z * x, np.imag(z) + x),
        lambda z, x, w: (w[0] * x + 1j * w[1], np.real(np.conj(z) * w[0]) + w[1]),
        lambda z, x, dz, dx: (dz * x + z * dx, np.imag(dz) + dx),
        (Z, X),
    ),
}
# f, a wrong vjp, and the point
WRONG = {
    "missing conjugate": (lambda z: z**3, lambda z, w: 3 * z**2 * w, (Z,)),
    "conjugate too many": (lambda z: np.abs(z) ** 2, lambda z, w: 2 * np.conj(z) * w, (Z,)),
    "half the gradient": (lambda z: np.abs(z) ** 2, lambda z, w: z * w, (Z,)),
    "the holomorphic part only": (
        lambda z: z * np.conj(z) ** 2,
        lambda z, w: np.conj(np.conj(z) ** 2) * w,
        (Z,),
    ),
    "imaginary part dropped": (np.conj, lambda z, w: np.real(w) + 0j, (Z,)),
    "sign of the imaginary part": (
        lambda x: np.exp(1j * x),
        lambda x, w: np.real(1j * np.exp(1j * x) * w),
        (X,),
    ),
}


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", RIGHT)
def test_right_complex_derivatives_pass_in_both_modes(name, mode):
    f, vjp, jvp, inputs = RIGHT[name]

    report = examine(ByHand(f, vjp=vjp, jvp=jvp), inputs, mode=mode, check_forward_ad=True)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_complex_derivatives_fail(name, mode):
    f, vjp, inputs = WRONG[name]

    report = examine(ByHand(f, vjp=vjp), inputs, mode=mode)

    assert report.verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_a_missing_conjugate_in_a_jvp_fails(mode):
    rule = ByHand(np.conj, jvp=lambda z, v: v)

    report = examine(rule, Z, mode=mode, check_forward_ad=True, check_backward_ad=False)

    assert report.verdict is Verdict.FAIL


def test_real_and_imaginary_parts_are_compared_and_named_apart():
    def wrong(z, w):
        g = np.conj(2 * z) * w
        g[1] = 2 * g[1].real + 1j * g[1].imag
        return g

    report = examine(ByHand(lambda z: z**2, vjp=wrong), Z, mode="full")

    assert report.counts["comparisons"] == 36
    assert {entry.wrt for entry in report.entries} == {"inputs[0][1].real"}
    assert {entry.of for entry in report.entries} == {"out[1].real", "out[1].imag"}


def test_the_projection_of_a_complex_gradient_names_the_part_that_is_wrong():
    z = np.random.default_rng(0).normal(size=(200, 2)) @ np.asarray([1, 1j])

    def wrong(z, w):
        g = np.conj(2 * z) * w
        g[77] = g[77].real - 1j * g[77].imag
        return g

    report = examine(ByHand(lambda z: z**2, vjp=wrong), z, mode="projected", seed=0)

    assert report.findings[0].entry.endswith("/ d inputs[0][77].imag")


def test_a_complex_gradient_of_a_real_input_is_of_the_wrong_dtype():
    rule = ByHand(lambda x: np.exp(1j * x), vjp=lambda x, w: np.conj(1j * np.exp(1j * x)) * w)

    report = examine(rule, X)

    assert [Status.WRONG_DTYPE] == [finding.status for finding in report.findings]


def test_a_real_tangent_of_a_complex_output_is_of_the_wrong_dtype():
    rule = ByHand(lambda x: x + 0j, jvp=lambda x, v: v)
    options = {"check_forward_ad": True, "check_backward_ad": False}

    report = examine(rule, X, **options)
    allowed = examine(rule, X, check_grad_dtypes=False, **options)

    assert [Status.WRONG_DTYPE] == [finding.status for finding in report.findings]
    assert allowed.verdict is Verdict.PASS


def test_second_derivatives_of_complex_functions():
    right = ByHand(
        lambda z: z**3,
        vjp=lambda z, w: np.conj(3 * z**2) * w,
        double_vjp=lambda z, w, u: (np.conj(u) * 6 * z * w, 3 * z**2 * u),
    )
    # g = conj(3 z^2) w; Re conj(u) dg with dg = conj(6 z dz) w, so dz = conj of conj(u) w 6 conj(z)
    exact = ByHand(
        lambda z: z**3,
        vjp=lambda z, w: np.conj(3 * z**2) * w,
        double_vjp=lambda z, w, u: (6 * np.conj(z) * w * np.conj(u), 3 * z**2 * u),
    )

    reports = [gradgradcheck(rule, Z, raise_exception=False) for rule in (right, exact)]

    assert [Verdict.FAIL, Verdict.PASS] == [report.modes["RR"] for report in reports]


def test_complex_runs_on_every_namespace(xp):
    z = xp.asarray(Z)

    right, wrong = (
        examine(ByHand(lambda z: z * z, vjp=vjp), z)
        for vjp in (lambda z, w: xp.conj(2.0 * z) * w, lambda z, w: 2.0 * z * w)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("mode", ["full", "projected"])
def test_complex64_is_judged_at_its_own_precision(mode):
    z = Z.astype(np.complex64)

    right, wrong = (
        examine(ByHand(lambda z: z * z, vjp=vjp), z, mode=mode)
        for vjp in (lambda z, w: np.conj(2 * z) * w, lambda z, w: 2 * z * w)
    )

    assert right.verdict is Verdict.PASS
    assert wrong.verdict is Verdict.FAIL
