"""The doors of torch: its words for a failure, tensors of other classes, and in-place functions."""

import re
import warnings

import pytest
from frameworks import adjudge_torch, torch

import adjudge
from adjudge import Status, Verdict

pytest.importorskip("torch")
from torch.autograd.gradcheck import GradcheckError as PeerError
from torch.testing._internal.logging_tensor import LoggingTensor
from torch.testing._internal.two_tensor import TwoTensor

pytestmark = pytest.mark.backend("torch")


def message(gradcheck, *arguments, error=adjudge.GradcheckError, **options):
    with pytest.raises(error) as raised:
        gradcheck(*arguments, **options)
    return str(raised.value)


def words(gradcheck, *arguments, error=None, **options):
    """What PyTorch's check says, and what the door says."""
    name = gradcheck
    theirs = message(
        getattr(torch.autograd, name), *arguments, error=error or RuntimeError, **options
    )
    ours = message(
        getattr(adjudge_torch, name),
        *arguments,
        error=error or PeerError,
        **options,
    )
    return theirs, ours


def first_line(text):
    return text.strip().partition("\n")[0].strip()


def hooked(hook):
    def f(x):
        y = x.clone()
        y.register_hook(hook)
        return y

    return f


# -- the words of PyTorch


@pytest.mark.parametrize("fast_mode", [True, False])
def test_a_mismatch_is_told_in_the_words_of_pytorch(scaled_sin, x, fast_mode):
    options = {"fast_mode": fast_mode}
    wrong, y = scaled_sin(1.5), x.detach().exp().requires_grad_()
    constant = x.detach().clone()
    cases = [(wrong, (x,)), (lambda x, y: (x.sin(), wrong(y)), (x, y))]
    if not fast_mode:  # there PyTorch counts outputs that do not require grad, too
        f = lambda x, c, y: (x.sin() * c, x.detach(), wrong(y))  # noqa: E731
        cases.append((f, (x, constant, y)))

    for f, inputs in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs, ours = words("gradcheck", f, inputs, **options)
        assert re.search(r"Jacobian mismatch for output \d with respect to input \d,", theirs)
        assert first_line(theirs) in ours
    theirs, ours = words("gradgradcheck", lambda x: wrong(x) ** 2, (x,), **options)
    assert "Jacobian mismatch for output 0 with respect to input 0," in ours


def test_a_mismatch_of_forward_mode_is_told_in_the_words_of_pytorch(rule, x):
    y = x.detach().exp().requires_grad_()
    product = rule(
        lambda x, y: x * y,
        lambda x, y, w: (w * y, w * x),
        lambda x, y, v, u: v * y + 1.5 * u * x,
    )

    theirs, ours = words(
        "gradcheck", product, (x, y), check_forward_ad=True, check_undefined_grad=False
    )

    assert (
        "Jacobian computed with forward mode mismatch for output 0 with respect to input 1" in ours
    )
    assert first_line(theirs) in ours


def test_a_mismatch_of_a_complex_output_names_its_part_as_pytorch_does(rule):
    z = torch.tensor([0.3 + 0.2j, -0.7 + 1j], dtype=torch.complex128, requires_grad=True)
    wrong = rule(lambda z: z.exp(), lambda z, w: 1.5 * w * z.exp().conj())

    theirs, ours = words("gradcheck", wrong, (z,))

    assert "While considering the imaginary part of complex outputs only, Jacobian mism" in theirs
    assert first_line(theirs) in ours


def test_other_failures_are_told_in_the_words_of_pytorch(rule, x):
    s = torch.rand(2, 2, dtype=torch.float64).to_sparse().requires_grad_()

    def rearranged(s):
        s = s.clone()
        s.register_hook(lambda w: w.to_dense().to_sparse(1))
        return s.to_dense()

    random = rule(lambda x: x.sin(), lambda x, w: w * x.cos() * (1 + 1e-6 * torch.rand_like(x)))
    sparse = rule(lambda x: 2 * x, lambda x, w: (2 * w).to_sparse())
    square = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    for phrase, f, of, options in (
        ("Backward is not reentrant", random, x, {}),
        ("Numerical gradient for function expected to be zero", lambda x: x.detach().sin(), x, {}),
        ("backward not multiplied by grad_output", hooked(lambda w: w + 1e-2), x, {"atol": 0.1}),
        ("grad is incorrect layout", sparse, square, {}),
        ("grad is sparse tensor, but has incorrect sparse_dim", rearranged, s, {"masked": True}),
    ):
        theirs, ours = words("gradcheck", f, (of,), **options)
        assert phrase in theirs
        assert phrase in ours


def test_a_double_backward_that_varies_is_told_in_the_words_of_pytorch(rule, x):
    def jitter(w):
        return w * (1 + 1e-12 * torch.rand_like(w))

    again = rule(lambda w: w.clone(), lambda w, u: jitter(u))
    random = rule(lambda x: x.clone(), lambda x, w: jitter(again(w)))

    theirs, ours = words("gradgradcheck", random, (x,))

    assert "Backward is not reentrant" in theirs
    assert "Backward is not reentrant" in ours


def test_an_undefined_cotangent_is_told_in_the_words_of_pytorch(rule, x):
    raising = rule(lambda x: x.sin(), lambda x, w: w * x.cos(), undefined=True)

    with pytest.warns(UserWarning, match="Backwards compatibility: New undefined gradient"):
        ours = message(adjudge_torch.gradcheck, raising, (x,))

    assert "Expected backward function to handle undefined output grads" in ours


def test_batched_failures_are_told_in_the_words_of_pytorch(rule, x):
    items = rule(lambda x: x.sin(), lambda x, w: w[0].item() * x.cos())

    assert "failed while testing batched gradient computation" in message(
        adjudge_torch.gradcheck, items, (x,), check_batched_grad=True
    )


def test_outputs_that_change_are_told_in_the_words_of_pytorch():
    one = torch.ones(1, dtype=torch.float64, requires_grad=True)

    def longer(x):
        return torch.cat([x, x]) if (x >= 1).all() else x

    def narrower(x):
        return x.float() if (x >= 1).all() else x

    for f, what in ((longer, "shape"), (narrower, "dtype")):
        for text in words("gradcheck", f, (one,), error=AssertionError):
            assert f"outputs with the same {what} when inputs are perturbed" in text


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("gradcheck", {"check_backward_ad": False}),
        ("gradcheck", {"check_batched_forward_grad": True}),
        ("gradcheck", {"check_forward_ad": True, "check_backward_ad": False,
                       "check_batched_grad": True}),
        ("gradgradcheck", {"check_rev_over_rev": False, "check_undefined_grad": False}),
    ],
)  # fmt: skip
def test_flags_that_contradict_one_another_are_told_in_the_words_of_pytorch(x, name, flags):
    theirs, ours = words(name, torch.sin, (x,), error=AssertionError, **flags)

    assert ours.startswith(theirs)


def test_the_words_of_pytorch_come_after_the_report(scaled_sin, x):
    lines = message(adjudge_torch.gradcheck, scaled_sin(1.5), (x,)).splitlines()

    assert lines[0].startswith("FAIL")
    assert "in the words of torch.autograd.gradcheck:" == lines[-2]
    assert "  Jacobian mismatch for output 0 with respect to input 0," == lines[-1]


# -- forward mode


def test_every_checked_input_is_dual_in_forward_mode(x):
    """PyTorch gives every input a tangent, so that a function may ask each for its own."""
    forward_ad = torch.autograd.forward_ad
    asked = []

    def f(x, y):
        if forward_ad._current_level >= 0:
            asked.append([forward_ad.unpack_dual(t).tangent is not None for t in (x, y)])
            assert not x.requires_grad
        return x * y, y

    options = {"check_forward_ad": True, "check_backward_ad": False, "check_undefined_grad": False}
    y = x.detach().exp().requires_grad_()

    assert adjudge_torch.gradcheck(f, (x, y), **options)
    assert asked
    assert all(map(all, asked))


def test_a_forward_rule_that_cannot_take_undefined_tangents_is_found(x):
    forward_ad = torch.autograd.forward_ad

    def f(x, y):
        if forward_ad._current_level >= 0:
            forward_ad.unpack_dual(y).tangent.sin()
        return x * y

    inputs, options = (x, x.detach().exp().requires_grad_()), {"check_forward_ad": True}

    report = adjudge.examine(f, inputs, **options)

    assert {Status.UNDEFINED} == {finding.status for finding in report.findings}
    assert "raises AttributeError when the tangent of inputs[1] is undefined" in str(report)
    assert adjudge.gradcheck(f, inputs, check_undefined_grad=False, **options)


# -- tensors of other classes, and functions that write into their inputs


def wrapped(kind, dtype):
    torch.manual_seed(0)
    values = torch.randn(4, dtype=dtype)
    tensor = LoggingTensor(values) if kind == "logging" else TwoTensor(values, values.clone())
    return tensor.requires_grad_()


@pytest.mark.parametrize("kind", ["logging", "two"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tensors_without_memory_of_their_own_are_checked(rule, kind, dtype):
    t = wrapped(kind, getattr(torch, dtype))
    wrong = rule(lambda x: x.exp(), lambda x, w: 1.01 * w * x.exp().conj())
    before = torch.empty(4, dtype=t.dtype).copy_(t.detach())
    seen = []

    def f(x):
        seen.append(type(x))
        return x.exp() * x

    assert adjudge_torch.gradcheck(f, t)
    assert {type(t)} == set(seen)
    assert [] == list(adjudge.examine(f, t.detach()).findings)
    for seed in range(2):
        assert adjudge.examine(f, t, seed=seed)
        assert Verdict.FAIL is adjudge.examine(wrong, t, seed=seed).verdict
    assert torch.equal(before, torch.empty(4, dtype=t.dtype).copy_(t.detach()))


def test_an_input_that_is_no_leaf_is_none_in_the_function(x):
    inner = x * 2

    assert adjudge.gradcheck(lambda t: t.clone().mul_(t).sin_(), inner)
    assert adjudge.gradgradcheck(lambda t: t * t * t, inner)
    assert adjudge.gradcheck(lambda t: t * t * t, inner, order=1)
    report = adjudge.examine(lambda t: t.mul_(2), inner)
    assert {Status.MUTATES_INPUT} == {finding.status for finding in report.findings}
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        adjudge.examine(lambda t: t.mul_(2), x)


def test_the_door_says_where_the_function_of_the_caller_is_defined():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].sin()

    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    line = Sine.forward.__code__.co_firstlineno

    said = message(adjudge_torch.gradcheck, Sine.apply, (x,), error=PeerError)

    assert f"defined at {__file__}:{line}" in said
