"""Arguments that cannot be checked: each error says what was found, then what to do."""

from functools import partial

import numpy as np
import pytest

from adjudge import (
    AdjudgeError,
    BackendError,
    ByHand,
    Case,
    GradcheckError,
    InputError,
    crosscheck,
    examine,
    gradcheck,
    gradgradcheck,
)

X = np.asarray([0.3, -1.2])
RULE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))


class Foreign:
    """Looks like an array of a framework that nobody registered."""

    shape = (2,)
    dtype = "float32"


Foreign.__module__ = "fancyframe.arrays"


def refused(error, call):
    with pytest.raises(error) as caught:
        call()
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("  ")
    return caught.value


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ((), "no inputs"),
        ((3, "text", None), "inputs[0]: int, inputs[1]: str, inputs[2]: NoneType"),
        ((np.asarray([1, 2]),), "inputs[0]: int64"),
        ((np.int32(2), 3), "inputs[0]: int32, inputs[1]: int"),
        (({"a": np.asarray([True])},), "inputs[0]['a']: bool"),
    ],
)
def test_nothing_to_check_lists_what_there_is(inputs, what):
    error = refused(InputError, lambda: gradcheck(RULE, inputs))

    assert f"no input has a floating or complex array to check ({what})" == error.found
    assert "floating-point arrays" in error.remedy
    assert "scalars" not in error.remedy  # they become arrays where derivatives are by hand


def test_an_array_of_an_unknown_framework_names_it():
    error = refused(BackendError, lambda: gradcheck(RULE, (X, Foreign())))

    assert "inputs[1] is a fancyframe.arrays.Foreign" in error.found
    assert "no adapter is registered for 'fancyframe'" in error.found
    assert isinstance(error, TypeError)


def test_numpy_arrays_without_a_derivative_by_hand_say_which_one_to_pass():
    error = refused(InputError, lambda: gradcheck(np.sin, (X,)))

    assert "numpy has no derivatives" in error.found
    assert "adjudge.ByHand(forward, vjp=backward)" in error.remedy


def test_strict_arrays_without_a_derivative_by_hand_name_their_namespace(strictest):
    error = refused(InputError, lambda: gradcheck(strictest.sin, (strictest.asarray(X),)))

    assert "array_api_strict has no derivatives" in error.found


@pytest.mark.parametrize("name", ["eps", "atol", "rtol", "nondet_tol"])
@pytest.mark.parametrize("value", [-1e-3, float("nan"), "small"])
def test_a_tolerance_that_makes_no_sense_is_refused(name, value):
    error = refused(InputError, lambda: gradcheck(RULE, X, **{name: value}))

    assert f"{name}={value!r}" == error.found
    assert "number" in error.remedy


@pytest.mark.parametrize("seed", [-1, 1.5, "seven"])
def test_a_seed_that_is_no_natural_number_is_refused(seed):
    error = refused(InputError, lambda: gradcheck(RULE, X, seed=seed))

    assert f"seed={seed!r}" == error.found


def test_numbers_of_numpy_are_numbers():
    report = examine(RULE, X, seed=np.int64(3), atol=np.float32(1e-3), eps=np.float32(1e-3))

    assert report
    assert 3 == report.provenance.seed


def test_a_tolerance_for_nondeterminism_cannot_be_automatic():
    error = refused(InputError, lambda: gradcheck(RULE, X, nondet_tol=None))

    assert "nondet_tol=None" == error.found


def test_a_step_of_zero_is_refused():
    error = refused(InputError, lambda: gradcheck(RULE, X, eps=0))

    assert "positive" in error.remedy


def test_a_step_below_the_spacing_of_the_dtype_says_so():
    x = X.astype(np.float32)

    error = refused(InputError, lambda: gradcheck(RULE, x, eps=1e-12, mode="full"))

    assert "a step of 1e-12 does not move inputs[0][0] (float32)" in error.found
    assert "leave eps= out" in error.remedy


def test_an_eps_that_moves_x_is_used():
    right, wrong = (
        examine(ByHand(np.sin, vjp=vjp), X, eps=1e-6, atol=1e-5, rtol=1e-3)
        for vjp in (lambda x, w: w * np.cos(x), lambda x, w: -w * np.cos(x))
    )

    assert right
    assert not wrong


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"check_forward_ad": False, "check_backward_ad": False}, "leave nothing to check"),
        ({"check_batched_grad": True, "check_backward_ad": False, "check_forward_ad": True},
         "check_batched_grad=True needs check_backward_ad=True"),
        ({"check_batched_forward_grad": True},
         "check_batched_forward_grad=True needs check_forward_ad=True"),
        ({"fast_mode": True, "mode": "full"}, "fast_mode=True contradicts mode='full'"),
        ({"fast_mode": False, "mode": "projected"}, "fast_mode=False contradicts mode='projected'"),
        ({"mode": "fulll"}, "mode='fulll'"),
        ({"mode": None}, "mode=None"),
    ],
)  # fmt: skip
def test_flags_that_contradict_one_another_are_refused(options, found):
    error = refused(InputError, lambda: gradcheck(RULE, X, **options))

    assert found in error.found


def test_the_flags_of_second_order_are_called_by_their_own_names():
    options = {"check_rev_over_rev": False, "check_fwd_over_rev": False}

    error = refused(InputError, lambda: gradgradcheck(RULE, X, **options))

    assert "check_rev_over_rev=False and check_fwd_over_rev=False" in error.found


@pytest.mark.parametrize("value", ["no", -1.0, [True]])
def test_a_flag_that_is_neither_true_nor_false_is_refused_under_its_own_name(value):
    for flag in ("check_forward_ad", "thorough", "equal_nan"):
        error = refused(InputError, lambda flag=flag: gradcheck(RULE, X, **{flag: value}))
        assert f"{flag}={value!r}" == error.found

    error = refused(InputError, lambda: gradgradcheck(RULE, X, check_fwd_over_rev=value))
    assert f"check_fwd_over_rev={value!r}" == error.found
    assert gradcheck(RULE, X, check_forward_ad=0, thorough=np.False_, raise_exception=False)


@pytest.mark.parametrize("modes", [[], [""], ["X"], ["RG"], "RX"])
def test_a_word_of_unknown_letters_is_refused(modes):
    error = refused(InputError, lambda: examine(RULE, X, modes=modes))

    assert f"modes={modes!r}" in error.found
    assert '"R" and "F"' in error.remedy


def test_a_function_that_cannot_be_called_is_refused():
    error = refused(InputError, lambda: gradcheck((X,), np.sin))

    assert "of type tuple, which cannot be called" in error.found


@pytest.mark.parametrize(
    ("verb", "option", "hint"),
    [
        (gradcheck, "epsilon", "Did you mean 'eps'?"),
        (gradcheck, "raise_exceptions", "Did you mean 'raise_exception'?"),
        (gradcheck, "nothing_like_it", "'nothing_like_it'"),
        (gradgradcheck, "tol", "Did you mean 'rtol'?"),
        (gradgradcheck, "order", "; adjudge.examine() and adjudge.gradcheck() take it"),
        (examine, "check_forward", "Did you mean 'check_forward_ad'?"),
        (examine, "raise_exception", "examine() returns a report"),
        (partial(crosscheck, backends=["numpy", "torch"]), "sed", "Did you mean 'seed'?"),
    ],
)
def test_an_unknown_keyword_is_a_type_error_that_knows_what_was_meant(verb, option, hint):
    with pytest.raises(TypeError, match=f"argument {option!r}") as caught:
        verb(RULE, X, **{option: 1})

    assert hint in str(caught.value)


@pytest.mark.parametrize("verb", [gradcheck, examine, gradgradcheck, Case, crosscheck])
def test_several_inputs_that_are_no_tuple_ask_for_one(verb):
    with pytest.raises(TypeError) as caught:
        verb(RULE, X, X, X)

    assert "several are a tuple" in str(caught.value)
    assert f"{verb.__name__}(f, (x, y)" in str(caught.value)


def test_a_function_of_more_inputs_than_were_given_asks_for_a_tuple():
    product = ByHand(lambda a, b: a * b, vjp=lambda a, b, w: (w * b, w * a))

    with pytest.raises(TypeError) as caught:
        gradgradcheck(product, X, X)

    assert "several inputs are one tuple, (x, y)" in caught.value.__notes__[-1]


def test_a_type_error_within_the_function_asks_for_nothing():
    with pytest.raises(TypeError) as caught:
        gradcheck(ByHand(lambda x: x + "1", vjp=lambda x, w: w), X)

    assert "tuple" not in "".join(caught.value.__notes__)


def test_an_input_in_the_place_of_the_backends_asks_for_a_tuple():
    error = refused(InputError, lambda: crosscheck(RULE, X, X))

    assert (
        "backends= has float64 of shape (), float64, which is no engine and no name of one"
        == error.found
    )
    assert "a tuple" in error.remedy


@pytest.mark.parametrize(
    ("name", "meant"), [("vpj", "vjp"), ("gradient", "grad"), ("jacobian", "jac"), ("zzz", None)]
)
def test_a_misspelt_derivative_is_a_type_error_that_knows_what_was_meant(name, meant):
    with pytest.raises(TypeError) as caught:
        ByHand(np.sin, **{name: np.cos})

    assert str(caught.value).endswith(f"Did you mean {meant!r}?" if meant else "'zzz'")


def test_a_derivative_without_its_name_asks_for_the_name():
    with pytest.raises(TypeError, match="vjp=, grad=, jac="):
        ByHand(np.sin, np.cos)


@pytest.mark.parametrize("verb", [gradcheck, gradgradcheck])
def test_raise_exception_silences_no_error_of_input(verb):
    with pytest.raises(AdjudgeError) as caught:
        verb(RULE, (), raise_exception=False)

    assert not isinstance(caught.value, GradcheckError)


def test_the_errors_of_input_come_before_any_evaluation():
    calls = []
    rule = ByHand(calls.append, vjp=calls.append)

    for options in ({"mode": "typo"}, {"atol": -1}, {"wrt": 7}):
        refused(InputError, lambda options=options: gradcheck(rule, X, **options))

    assert not calls
