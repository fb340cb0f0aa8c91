"""`device=`: the check runs on copies there, and gradients have to come back there."""

import array_api_strict
import numpy as np
import pytest

import adjudge
from adjudge import ByHand, Status, Verdict
from adjudge.errors import InputError


@pytest.fixture
def sine():
    """`sin` by hand on any namespace, with the devices that it was called on."""
    seen = []

    def forward(x, b):
        seen.extend([str(x.device), str(b.device)])
        return array_api_strict.sin(x) * b

    def vjp(x, b, w):
        return w * array_api_strict.cos(x) * b, array_api_strict.sum(w * array_api_strict.sin(x))

    return ByHand(forward, vjp=vjp), seen


def strict(*values, device=None):
    there = None if device is None else array_api_strict.Device(device)
    return array_api_strict.asarray(np.array(values), device=there)


def named(device):
    return str(array_api_strict.Device(device))


def test_the_function_runs_on_copies_on_that_device(sine):
    rule, seen = sine
    x, b = strict(0.5, -1.0), array_api_strict.asarray(2.0)

    report = adjudge.gradcheck(rule, (x, b), device=named("device1"))

    assert set(seen) == {named("device1")}
    assert report.provenance.device == named("device1")
    assert str(x.device) == named("CPU_DEVICE")


def test_without_it_every_array_stays_where_it_is(sine):
    rule, seen = sine
    x = strict(0.5, -1.0, device="device1")

    with pytest.raises(ValueError, match="device"):  # the namespace itself refuses to mix them
        adjudge.examine(rule, (x, array_api_strict.asarray(2.0)))

    assert set(seen) == {named("device1"), named("CPU_DEVICE")}


def test_a_gradient_that_comes_back_on_another_device_is_found():
    def vjp(x, w):
        g = w * array_api_strict.cos(x)
        return array_api_strict.asarray(np.asarray(g.to_device(cpu)), device=cpu)

    cpu = array_api_strict.Device("CPU_DEVICE")
    rule = ByHand(array_api_strict.sin, vjp=vjp)
    there = named("device1")

    assert adjudge.examine(rule, strict(0.5), device=named("CPU_DEVICE"))
    report = adjudge.examine(rule, strict(0.5), device=there)

    assert report.verdict is Verdict.FAIL
    assert "WRONG_DEVICE" in report.headline


def test_a_device_without_float64_cannot_take_double_inputs(sine):
    with pytest.raises((InputError, ValueError), match=r"float64|device"):
        adjudge.gradcheck(sine[0], (strict(0.5), strict(1.0)), device=named("no_float64"))


@pytest.mark.parametrize("verb", [adjudge.gradcheck, adjudge.gradgradcheck, adjudge.examine])
def test_an_unknown_device_is_named_with_those_that_there_are(sine, verb):
    with pytest.raises(InputError, match=r"device='gpu7'(.|\n)*device1"):
        verb(sine[0], (strict(0.5), strict(1.0)), device="gpu7")


@pytest.mark.backend("torch")
def test_torch_keeps_the_marks_of_tensors_and_says_which_devices_it_has():
    import torch

    x = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([2.0, 3.0], dtype=torch.float64)

    report = adjudge.gradcheck(lambda x, c: x.sin() * c, (x, c), device="cpu")

    assert report.counts["comparisons"] > 0
    assert not any("inputs[1]" in entry.wrt for entry in report.entries)
    with pytest.raises(InputError, match=r"device='meta'(.|\n)*the devices are cpu"):
        adjudge.gradcheck(lambda x: x.sin(), x, device="meta")


@pytest.mark.backend("torch")
def test_torch_gradients_on_another_device_are_found(rule):
    import torch

    astray = rule(lambda x: x.sin(), lambda x, w: w.to("meta"))

    # PyTorch itself looks at the device of a gradient, and refuses
    with pytest.raises(RuntimeError, match="meta"):
        adjudge.examine(astray, torch.tensor([0.5], dtype=torch.float64))


@pytest.mark.backend("torch")
@pytest.mark.parametrize("fails", [False, True])
def test_the_default_device_of_torch_is_as_before(fails):
    import torch

    def f(x):
        torch.set_default_device("meta")
        if fails:
            raise KeyError("f")
        return x.sin()

    x = torch.tensor([0.5], dtype=torch.float64)
    try:
        adjudge.examine(f, x, device="cpu")
    except KeyError:
        assert fails
    assert torch.get_default_device() == torch.device("cpu")


def meta(*values):
    import torch

    return torch.tensor(values, dtype=torch.float64).to("meta")


@pytest.mark.backend("torch")
@pytest.mark.parametrize("verb", [adjudge.gradcheck, adjudge.gradgradcheck, adjudge.examine])
@pytest.mark.parametrize("options", [{}, {"device": "cpu"}, {"device": "meta"}])
def test_a_tensor_without_values_is_refused_before_work_starts(verb, options):
    calls = []

    with pytest.raises(InputError, match=r"meta tensors have a shape and a dtype, and hold no"):
        verb(lambda x: calls.append(1) or x.sin(), meta(0.5, 1.0), **options)

    assert [] == calls


@pytest.mark.backend("torch")
def test_which_of_several_inputs_has_no_values_is_said():
    import torch

    x = torch.tensor([0.5], dtype=torch.float64)

    with pytest.raises(InputError, match=r"inputs\[1\] is an array whose values cannot be read"):
        adjudge.gradcheck(lambda x, y: x.sin(), (x, meta(0.5)))
    # one that is not checked may serve for its shape
    assert adjudge.gradcheck(lambda x, y: x.sin() * y.numel(), (x, meta(0.5)), wrt=0)


@pytest.mark.backend("torch")
def test_an_output_without_values_is_said():
    import torch

    x = torch.tensor([0.5], dtype=torch.float64)

    with pytest.raises(InputError, match=r"out\[1\] is an array whose values cannot be read"):
        adjudge.gradcheck(lambda x: (x.sin(), x.to("meta")), x)


@pytest.mark.backend("torch")
@pytest.mark.parametrize("there", ["cpu", "meta"])
def test_a_gradient_by_hand_on_another_device_is_found_in_torch(there):
    import torch

    x, y = (torch.tensor([v], dtype=torch.float64) for v in (0.5, 0.7))
    rule = ByHand(
        lambda x, y: x.sin() * y,
        vjp=lambda x, y, w: (w * x.cos() * y, (w * x.sin()).to(there)),
        jvp=lambda x, y, u, v: u * x.cos() * y + v * x.sin(),
    )

    report = adjudge.examine(rule, (x, y))

    assert report.verdict is (Verdict.PASS if there == "cpu" else Verdict.FAIL)
    assert report or report.findings[0].status is Status.WRONG_DEVICE
    assert report or "the gradient of inputs[1] is on device meta, the input is on cpu" in str(
        report
    )


@pytest.mark.backend("torch")
@pytest.mark.parametrize("there", ["cpu", "meta"])
def test_a_tangent_of_a_torch_rule_on_another_device_is_found(there, rule):
    import torch

    sine = rule(lambda x: x.sin(), None, lambda x, v: (v * x.cos()).to(there))
    x = torch.tensor([0.5, -1.0], dtype=torch.float64)

    report = adjudge.examine(sine, x, check_forward_ad=True, check_backward_ad=False)

    assert report.verdict is (Verdict.PASS if there == "cpu" else Verdict.FAIL)
    assert report or report.findings[0].status is Status.WRONG_DEVICE


@pytest.mark.backend("torch")
def test_a_default_device_of_the_user_changes_nothing():
    import torch

    x = torch.tensor([0.5, -1.0], dtype=torch.float32)
    expected = adjudge.examine(torch.sin, x, order=2, seed=0)
    torch.set_default_device("meta")
    try:
        report = adjudge.examine(torch.sin, x, order=2, seed=0)
        assert torch.get_default_device() == torch.device("meta")
    finally:
        torch.set_default_device(None)

    assert report.verdict is expected.verdict is Verdict.PASS
    assert expected.counts == report.counts


def test_adjudge_backends_names_the_devices(capsys):
    from adjudge.cli import main

    assert main(["backends"]) == 0

    by_hand, *_ = (line for line in capsys.readouterr().out.splitlines() if "by hand" in line)
    assert " cpu " in by_hand
