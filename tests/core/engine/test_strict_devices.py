"""array-api-strict: its strictest flags, and arrays on other devices than the CPU."""

import array_api_strict
import numpy as np
import pytest

from adjudge import ByHand, Status, Verdict, examine, gradcheck, gradgradcheck

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


CPU, ONE, TWO = (array_api_strict.Device(name) for name in ("CPU_DEVICE", "device1", "device2"))
xp = array_api_strict


def moved(array, device):
    return array.to_device(device)


def at(device, *values):
    return on(device, "float64", values)


def astray(report):
    """Modes and entries of what is on a wrong device."""
    return [(f.mode, f.entry) for f in report.findings if f.status is Status.WRONG_DEVICE]


@pytest.mark.parametrize("there", [ONE, CPU])
def test_a_tangent_on_another_device_than_its_output_is_found(there):
    rule = ByHand(
        xp.sin,
        vjp=lambda x, w: w * xp.cos(x),
        jvp=lambda x, v: moved(v * xp.cos(x), there),
    )

    report = examine(rule, at("device1", 0.3, -1.2), modes=["R", "F"])

    assert report.verdict is (Verdict.PASS if there is ONE else Verdict.FAIL)
    assert astray(report) == ([] if there is ONE else [("F", "out")])


def third_order(x_there, w_there):
    return ByHand(
        xp.sin,
        vjp=lambda x, w: w * xp.cos(x),
        double_vjp=lambda x, w, u: (
            moved(-u * w * xp.sin(x), x_there),
            moved(u * xp.cos(x), w_there),
        ),
    )


@pytest.mark.parametrize(
    ("places", "wrong"),
    [((ONE, ONE), []), ((CPU, ONE), ["inputs[0]"]), ((ONE, CPU), ["grad_outputs[0]"])],
)
def test_both_gradients_of_second_order_are_looked_at(places, wrong):
    report = gradgradcheck(third_order(*places), at("device1", 0.3), raise_exception=False)

    assert report.verdict is (Verdict.FAIL if wrong else Verdict.PASS)
    assert [("RR", name) for name in wrong] == astray(report)


@pytest.mark.parametrize("there", [ONE, CPU])
def test_a_check_of_second_order_sees_where_the_first_gradient_is(there):
    rule = ByHand(
        xp.sin,
        vjp=lambda x, w: moved(w * xp.cos(x), there),
        double_vjp=lambda x, w, u: (
            -moved(u, ONE) * w * xp.sin(x),
            moved(u, ONE) * xp.cos(x),
        ),
    )
    x = at("device1", 0.3, -1.2)

    reports = [
        gradgradcheck(rule, x, raise_exception=False),
        examine(rule, x, modes=["R", "RR"]),  # said once, though both modes see it
    ]

    for report in reports:
        assert report.verdict is (Verdict.PASS if there is ONE else Verdict.FAIL)
        assert astray(report) == ([] if there is ONE else [("R", "inputs[0]")])


def product(back):
    """`sin(x) y` on the device of `x`, with the gradient of `y` on `back`."""
    return ByHand(
        lambda x, y: xp.sin(x) * moved(y, x.device),
        vjp=lambda x, y, w: (w * xp.cos(x) * moved(y, x.device), moved(w * xp.sin(x), back)),
    )


def test_inputs_on_several_devices_are_kept_where_they_are():
    x, y = at("device1", 0.5, 1.0), at("device2", 0.3, 0.4)
    seen = []

    def forward(x, y):
        seen.append((x.device, y.device))
        return product(TWO)(x, y)

    report = gradcheck(ByHand(forward, vjp=product(TWO).vjp), (x, y))

    assert {(ONE, TWO)} == set(seen)
    assert "array_api_strict.Device('device1')+array_api_strict.Device('device2')" == (
        report.provenance.device
    )


def test_one_gradient_in_the_wrong_place_among_several_is_named():
    x, y = at("device1", 0.5, 1.0), at("device2", 0.3, 0.4)

    report = examine(product(ONE), (x, y))

    assert report.verdict is Verdict.FAIL
    assert [("R", "inputs[1]")] == astray(report)
    assert "Device('device1'), the input is on" in report.headline


def test_outputs_on_several_devices_are_compared_where_they_are():
    rule = ByHand(
        lambda x: (xp.sin(x), moved(xp.cos(x), TWO)),
        vjp=lambda x, w: w[0] * xp.cos(x) - moved(w[1], x.device) * xp.sin(x),
    )
    wrong = ByHand(rule, vjp=lambda x, w: w[0] * xp.cos(x) + moved(w[1], x.device) * xp.sin(x))

    assert gradcheck(rule, at("device1", 0.5, 1.0))
    assert examine(wrong, at("device1", 0.5, 1.0)).verdict is Verdict.FAIL


@pytest.mark.parametrize("w_device", ["CPU_DEVICE", "device2"])
def test_cotangents_that_are_given_follow_the_inputs(w_device):
    x, w = at("CPU_DEVICE", 0.5, 1.0), at(w_device, 2.0, -3.0)

    report = gradgradcheck(third_order(TWO, TWO), x, grad_outputs=w, device=str(TWO))

    assert str(TWO) == report.provenance.device
    assert CPU == x.device


@pytest.mark.parametrize("name", ["device1", str(ONE)])
def test_a_device_has_the_name_that_is_listed_and_the_short_one_in_it(name):
    rule = ByHand(xp.sin, vjp=lambda x, w: w * xp.cos(x))

    assert str(ONE) == gradcheck(rule, at("CPU_DEVICE", 0.5), device=name).provenance.device
