"""array-api-strict: its strictest flags, and arrays on other devices than the CPU."""

import array_api_strict
import numpy as np
import pytest

from adjudge import ByHand, Verdict, examine, gradgradcheck

DEVICES = [("CPU_DEVICE", "float64"), ("device1", "float64"), ("no_float64", "float32")]


def on(device, dtype, values):
    return array_api_strict.asarray(
        np.asarray(values, dtype=dtype), device=array_api_strict.Device(device)
    )


@pytest.mark.parametrize("mode", ["full", "projected"])
@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_every_device_passes_right_and_fails_wrong(strictest, device, dtype, mode):
    x = on(device, dtype, [[0.3, -1.2], [0.8, 2.0]])

    verdicts = [
        examine(
            ByHand(
                strictest.sin,
                vjp=lambda x, w, c=c: c * w * strictest.cos(x),
                jvp=lambda x, v, c=c: c * v * strictest.cos(x),
            ),
            x,
            mode=mode,
            check_forward_ad=True,
        ).verdict
        for c in (1.0, -1.0, 2.0)
    ]

    assert [Verdict.PASS, Verdict.FAIL, Verdict.FAIL] == verdicts


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_second_order_runs_on_every_device(strictest, device, dtype):
    x = on(device, dtype, [0.3, -1.2, 0.8])
    rule = ByHand(
        strictest.sin,
        vjp=lambda x, w: w * strictest.cos(x),
        double_vjp=lambda x, w, u: (-u * w * strictest.sin(x), u * strictest.cos(x)),
    )

    report = gradgradcheck(rule, x)

    assert report.verdict is Verdict.PASS


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
def test_the_function_gets_arrays_on_the_device_and_of_the_dtype_of_its_inputs(device, dtype):
    x = on(device, dtype, [0.3, -1.2])
    seen = []

    def forward(x):
        seen.append((x.device, x.dtype))
        return array_api_strict.sin(x)

    def vjp(x, w):
        seen.extend([(x.device, x.dtype), (w.device, w.dtype)])
        return w * array_api_strict.cos(x)

    report = examine(ByHand(forward, vjp=vjp), x)

    assert report
    assert {(x.device, x.dtype)} == set(seen)
    assert device in report.provenance.device


def test_a_random_cotangent_is_of_the_float32_of_a_device_without_float64():
    x = on("no_float64", "float32", np.linspace(0.1, 1, 300))

    report = examine(ByHand(array_api_strict.exp, vjp=lambda x, w: w * array_api_strict.exp(x)), x)

    assert report.verdict is Verdict.PASS
    assert "projected" == report.provenance.mode
