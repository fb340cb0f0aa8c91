"""The doors: the signature, the exceptions and the answers of `torch.autograd.gradcheck`."""

from contextlib import suppress

import pytest

import adjudge

with suppress(ImportError):  # absent: every test here is skipped by its mark
    import torch
    from torch.autograd.gradcheck import GradcheckError as PeerError

    import adjudge_torch

pytestmark = pytest.mark.backend("torch")

NAMES = ["gradcheck", "gradgradcheck"]


def test_the_answer_is_a_bool(x, scaled_sin):
    assert True is adjudge_torch.gradcheck(torch.sin, (x,))
    assert True is adjudge_torch.gradgradcheck(torch.sin, (x,))
    wrong = scaled_sin(-1.0)
    assert False is adjudge_torch.gradcheck(wrong, (x,), raise_exception=False)
    assert False is adjudge_torch.gradgradcheck(wrong, (x,), raise_exception=False)


@pytest.mark.parametrize("name", NAMES)
def test_a_failure_is_the_exception_of_pytorch_and_an_assertion(x, scaled_sin, name):
    with pytest.raises(PeerError) as caught:
        getattr(adjudge_torch, name)(scaled_sin(-1.0), (x,))

    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, RuntimeError)
    assert isinstance(caught.value, adjudge.GradcheckError)
    assert adjudge.Verdict.FAIL is caught.value.report.verdict


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("inputs", [(1.0,), {"a": 1}, ()])
def test_no_tensor_that_requires_grad_is_a_value_error_with_the_words_of_pytorch(name, inputs):
    with pytest.raises(ValueError, match="expects at least one input tensor") as peer:
        torch.autograd.gradcheck(torch.sin, inputs)
    with pytest.raises(ValueError, match="expects at least one input tensor") as door:
        getattr(adjudge_torch, name)(torch.sin, inputs)

    assert str(peer.value) == str(door.value)


def test_inputs_without_requires_grad_are_checked_by_the_library(x):
    assert adjudge.gradcheck(torch.sin, (x.detach(),))
    with pytest.raises(ValueError, match="none of them have requires_grad=True"):
        adjudge_torch.gradcheck(torch.sin, (x.detach(),))


@pytest.mark.parametrize("convert", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_output_is_a_value_error_with_the_words_of_pytorch(convert):
    x = torch.eye(2, dtype=torch.float64).requires_grad_()

    def f(x):
        return getattr(x, convert)()

    with pytest.raises(ValueError, match="Sparse output is not supported") as peer:
        torch.autograd.gradcheck(f, (x,))
    with pytest.raises(ValueError, match="Sparse output is not supported") as door:
        adjudge_torch.gradcheck(f, (x,), raise_exception=False)

    assert str(peer.value) == str(door.value)


def test_an_mkldnn_output_is_a_value_error_with_the_words_of_pytorch():
    x = torch.ones(2, 3, requires_grad=True)

    with pytest.raises(ValueError, match="MKLDNN output is not supported at gradcheck yet"):
        adjudge_torch.gradcheck(lambda x: x.to_mkldnn(), (x,))


@pytest.mark.parametrize("raise_exception", [True, False])
def test_unsupported_forward_mode_comes_through_with_the_words_of_pytorch(x, raise_exception):
    inputs = (x.detach().abs(), x.detach().abs().requires_grad_())
    options = {"check_forward_ad": True, "raise_exception": raise_exception}

    with pytest.raises(NotImplementedError, match="forward AD with igamma") as peer:
        torch.autograd.gradcheck(torch.igamma, inputs, **options)
    with pytest.raises(NotImplementedError, match="forward AD with igamma") as door:
        adjudge_torch.gradcheck(torch.igamma, inputs, **options)

    assert str(peer.value) == str(door.value)


def test_a_function_without_jvp_comes_through_with_the_words_of_pytorch(rule, x):
    f = rule(lambda x: x.sin(), lambda x, w: w * x.cos())

    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        adjudge_torch.gradcheck(f, (x,), check_forward_ad=True)


def test_nested_inputs_are_for_the_library(x):
    def f(pair):
        return pair[0] * pair[1]

    assert adjudge.gradcheck(f, ([x, x],))
    with pytest.raises(ValueError, match="at least one input tensor"):
        adjudge_torch.gradcheck(f, ([x, x],))


def test_no_warning_is_given_for_single_precision(x):
    single = x.detach().float().requires_grad_()

    assert adjudge_torch.gradcheck(torch.sin, (single,))
    with pytest.warns(UserWarning, match="double precision"):
        torch.autograd.gradcheck(torch.sin, (single,), raise_exception=False)


def test_a_message_names_the_function_of_the_user(x):
    def twice_too_large(x):
        return 2 * x.detach()

    with pytest.raises(adjudge.GradcheckError, match="twice_too_large: DETACHED"):
        adjudge_torch.gradcheck(twice_too_large, (x,))


def test_the_doors_take_the_place_of_the_checks_of_pytorch(monkeypatch, scaled_sin, x):
    common = pytest.importorskip("torch.testing._internal.common_utils", exc_type=ImportError)
    monkeypatch.setattr(torch.autograd, "gradcheck", adjudge_torch.gradcheck)
    monkeypatch.setattr(torch.autograd, "gradgradcheck", adjudge_torch.gradgradcheck)

    assert common.gradcheck(torch.sin, (x,))
    assert common.gradcheck(torch.sin, (x,), check_forward_ad=True, fast_mode=False)
    assert common.gradgradcheck(torch.sin, (x,))
    with pytest.raises(adjudge.GradcheckError):
        common.gradcheck(scaled_sin(-1.0), (x,))
    with pytest.raises(adjudge.GradcheckError):
        common.gradgradcheck(scaled_sin(-1.0), (x,))
