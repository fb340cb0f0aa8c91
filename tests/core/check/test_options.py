"""The options are defined once: every verb has the names, types and defaults of that one set."""

import inspect
import re
from typing import get_type_hints

import numpy as np
import pytest

import adjudge
from adjudge import ByHand, InputError
from adjudge.check import (
    CrossOptions,
    EngineOptions,
    MoreOptions,
    Options,
    ScopeOptions,
    SecondOrderOptions,
    SharedOptions,
    TorchOptions,
    checked_signature,
)
from adjudge.check.options import DEFAULTS, settings_of
from adjudge.cross import crosscheck
from adjudge.findings import Beyond

GROUPS = (TorchOptions, SharedOptions, EngineOptions, SecondOrderOptions, ScopeOptions)
SQUARE = ByHand(lambda x: x**2, vjp=lambda x, w: 2 * x * w)
X = np.array([1.0, 2.0, 3.0])


def explained(group):
    """By the name of an option, what the docstring of its group says of it."""
    entries = re.split(r"^    (\w+): ", inspect.getdoc(group), flags=re.MULTILINE)[1:]
    return dict(zip(entries[::2], (" ".join(text.split()) for text in entries[1::2]), strict=True))


def own(group):
    """The names that a group adds to those of the groups that it is made of."""
    names = group.__annotations__
    parts = [
        other.__annotations__ for other in GROUPS if other.__annotations__.keys() < names.keys()
    ]
    return [name for name in names if not any(name in part for part in parts)]


def named(verb):
    """The options that a verb names in its signature, by name."""
    parameters = inspect.signature(verb).parameters
    return {
        name: parameter
        for name, parameter in parameters.items()
        if name in TorchOptions.__annotations__
    }


@pytest.mark.parametrize("group", GROUPS)
def test_every_option_is_explained_once_where_it_is_defined(group):
    assert own(group) == list(explained(group))


def test_the_groups_share_no_option():
    names = [name for group in GROUPS for name in own(group)]

    assert sorted(names) == sorted(Options.__annotations__)


@pytest.mark.parametrize("verb", [adjudge.gradcheck, adjudge.gradgradcheck])
def test_a_verb_names_options_with_the_types_and_defaults_of_the_set(verb):
    hints, known = get_type_hints(verb), get_type_hints(Options)

    for name, parameter in named(verb).items():
        assert known[name] == hints[name], name
        assert DEFAULTS.get(name) == parameter.default, name


def test_gradcheck_names_exactly_those_of_torch():
    assert set(TorchOptions.__annotations__) == set(named(adjudge.gradcheck))
    assert set(Options.__annotations__) == {*named(adjudge.gradcheck), *MoreOptions.__annotations__}


@pytest.mark.parametrize("group", GROUPS)
def test_the_default_that_is_said_is_the_default(group):
    for name, text in explained(group).items():
        default = DEFAULTS.get(name)
        if default is None:
            assert "By default (`None`)" in text, name
        elif name == "mode":
            assert f'The default, `"{default}"`' in text
        else:
            assert text.endswith((f"Default: `{default}`.", f"Default: {default:g}.")), name


def test_what_is_left_out_is_the_default():
    assert settings_of({"seed": 1}) == settings_of({**DEFAULTS, "seed": 1})


@pytest.mark.parametrize(
    ("verb", "keyword", "closest"),
    [
        (adjudge.gradcheck, "atoll", "atol"),
        (adjudge.examine, "mod", "mode"),
        (adjudge.gradgradcheck, "bound", "bounds"),
    ],
)
def test_a_misspelt_keyword_is_refused_and_the_closest_one_named(verb, keyword, closest):
    with pytest.raises(TypeError) as caught:
        verb(SQUARE, X, **{keyword: 1})

    assert str(caught.value) == (
        f"{verb.__name__}() got an unexpected keyword argument {keyword!r}. "
        f"Did you mean {closest!r}?"
    )


def test_a_keyword_of_another_verb_is_refused():
    with pytest.raises(TypeError, match=r"gradgradcheck.* 'points'"):
        adjudge.gradgradcheck(SQUARE, X, points="special")
    with pytest.raises(TypeError, match=r"crosscheck.* 'modes'"):
        crosscheck(SQUARE, (X,), ["numpy", "torch"], modes=["R"])


def test_crosscheck_takes_what_all_verbs_share():
    assert {*TorchOptions.__annotations__, *SharedOptions.__annotations__} == {
        *CrossOptions.__annotations__
    }


def test_gradcheck_takes_an_order():
    report = adjudge.gradcheck(SQUARE, X, order=1, seed=0, raise_exception=False)

    assert "R" in report.modes
    assert "F" in report.modes


def test_modes_and_thorough_are_told_apart():
    plain = adjudge.examine(SQUARE, X, seed=0)
    named = adjudge.examine(SQUARE, X, seed=0, modes=["R"], thorough=False)
    more = adjudge.examine(SQUARE, X, seed=0, modes=["R"])

    assert plain.counts == named.counts
    assert more.counts != plain.counts
    assert more.counts == adjudge.examine(SQUARE, X, seed=0, thorough=True).counts


def test_the_report_says_what_a_thorough_check_has_looked_at():
    plain = adjudge.examine(SQUARE, X, seed=0)
    more = adjudge.examine(SQUARE, X, seed=0, modes=["R"])

    assert plain.beyond == ()
    assert more.beyond == (Beyond.PATTERN,)
    assert "looked at as well" not in str(plain)
    assert f"\nlooked at as well: {Beyond.PATTERN}\n" in str(more)
    assert more.to_dict()["beyond"] == [str(Beyond.PATTERN)]


def test_a_thorough_check_names_what_it_found_to_look_at():
    double = ByHand(lambda x: 2 * x, vjp=lambda x, w: 2 * w, jvp=lambda x, v: 2 * v)
    cube = ByHand(
        lambda x: x**3,
        vjp=lambda x, w: 3 * x**2 * w,
        double_vjp=lambda x, w, u: (6 * x * w * u, 3 * x**2 * u),
    )

    affine = adjudge.examine(double, X, seed=0, modes=["R", "F"])
    second = adjudge.examine(cube, X, seed=0, modes=["R", "RR"])

    assert set(affine.beyond) == {Beyond.AFFINE, Beyond.LINEARITY, Beyond.PATTERN}
    assert set(second.beyond) == {Beyond.SYMMETRY, Beyond.PATTERN, Beyond.AFFINE}  # in w


def test_several_points_say_together_what_was_looked_at():
    report = adjudge.examine(SQUARE, X, seed=0, modes=["R"], points=[X + 1])

    assert report.beyond == (Beyond.PATTERN,)


def test_a_raise_exception_that_is_misspelt_is_told_as_that():
    with pytest.raises(TypeError, match=r"'raise_exeption': gradcheck\(\) raises for a wrong"):
        adjudge.examine(SQUARE, X, raise_exeption=False)


@pytest.mark.parametrize(
    ("given", "hint"),
    [({"ordr": 2}, "'order'"), ({"order": 2, "sead": 1}, "'seed'"), ({"nam": "f"}, "'name'")],
)
def test_a_case_refuses_a_misspelt_keyword_before_it_runs(given, hint):
    with pytest.raises(TypeError, match=rf"Case\(\) got an unexpected .* Did you mean {hint}"):
        adjudge.Case(SQUARE, X, **given)


def test_a_case_of_second_order_has_the_options_of_its_verb():
    adjudge.Case(SQUARE, X, order=2, check_fwd_over_rev=True, bounds=(0, 9))
    with pytest.raises(TypeError, match="'points'"):
        adjudge.Case(SQUARE, X, order=2, points="special")


def test_a_misspelt_reference_is_told_which_one_is_meant():
    with pytest.raises(InputError, match="Did you mean 'exact'"):
        adjudge.examine(SQUARE, X, reference="exct")


def test_a_door_names_its_own_option_for_one_that_examine_has():
    @checked_signature
    def check_grad(f: object, epsilon: float = 1.0, modes: object = None) -> None: ...

    for option, meant in (("eps", "epsilon"), ("mode", "modes")):
        with pytest.raises(TypeError, match=f"Did you mean '{meant}'"):
            check_grad(SQUARE, **{option: 1})
    with pytest.raises(TypeError, match="examine"):
        check_grad(SQUARE, directions=None)


@pytest.mark.parametrize(
    "options",
    [
        {"order": 2.0},
        {"order": "2"},
        {"modes": 5},
        {"modes": [1]},
        {"modes": ["R", None]},
        {"wrt": 0.0},
        {"wrt": True},
        {"outputs": 1.5},
        {"device": 3},
        {"eps": float("inf")},
        {"eps": True},
        {"atol": False},
        {"seed": True},
        {"max_evaluations": True},
    ],
)
def test_an_option_of_another_kind_is_refused_before_any_work(options):
    calls = []
    rule = ByHand(lambda x: calls.append(x) or x, vjp=lambda x, w: w)
    ((name, _),) = options.items()

    with pytest.raises(InputError) as caught:
        adjudge.examine(rule, X, **options)

    assert caught.value.found.startswith(f"{name}=")
    assert caught.value.remedy.startswith("give ")
    assert not calls


def test_a_domain_may_say_it_of_each_entry():
    reports = [
        adjudge.examine(SQUARE, X, points="special", domain=domain, seed=1)
        for domain in (lambda x: x > 0.5, lambda x: bool(np.all(x > 0.5)))
    ]

    assert [*reports[0].points] == [*reports[1].points]


@pytest.mark.parametrize("option", [{"compile": "no"}, {"raise_exception": "yes"}])
def test_a_flag_of_crosscheck_is_true_or_false(option):
    with pytest.raises(InputError, match=r"is a str(.|\n)*give True or False"):
        crosscheck(SQUARE, X, ["numpy", "array_api_strict"], **option)


@pytest.mark.parametrize("verb", [adjudge.gradcheck, adjudge.gradgradcheck])
def test_whether_to_raise_is_true_or_false(verb):
    calls = []

    with pytest.raises(InputError, match=r"is a str(.|\n)*give True or False"):
        verb(calls.append, X, raise_exception="no")

    assert not calls


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"check_forward_ad": None}, "check_forward_ad=None"),
        ({"check_backward_ad": None}, "check_backward_ad=None"),
        ({"equal_nan": np.ones(2)}, "give True or False"),
        ({"equal_nan": 7}, "give True or False"),
        ({"atol": np.inf}, "give a finite non-negative number"),
        ({"rtol": np.nan}, "give a finite non-negative number"),
        ({"wrt": [None]}, "wrt= holds None"),
        ({"kwargs": {1: X}}, "kwargs= has the key 1"),
        ({"bounds": 5}, "is an int"),
        ({"bounds": (0,)}, "has length 1, and not 2"),
    ],
)
def test_an_option_without_meaning_is_refused_before_anything_runs(options, words):
    calls = []

    def f(x):
        calls.append(None)
        return np.sin(x)

    with pytest.raises(InputError, match=re.escape(words)):
        adjudge.examine(ByHand(f, vjp=lambda x, w: w * np.cos(x)), X, **options)
    assert not calls


@pytest.mark.parametrize("options", [{"check_forward_ad": np.True_}, {"wrt": np.int64(0)}])
def test_flags_and_indices_of_numpy_are_those_of_python(options):
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x), jvp=lambda x, v: v * np.cos(x))

    assert adjudge.examine(rule, X, seed=0, **options)


def test_integers_by_hand_are_refused_with_what_to_do():
    rule = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))

    for options in ({}, {"captured": True}):
        with pytest.raises(InputError, match="not integers"):
            adjudge.examine(rule, np.arange(3), **options)
