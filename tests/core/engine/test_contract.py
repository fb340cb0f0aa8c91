"""The three objects of the contract, and what adapters share."""

from contextlib import suppress
from types import SimpleNamespace

import array_api_compat.numpy
import numpy as np
import pytest

from adjudge import ByHand, NotSupportedError, Verdict, examine
from adjudge.engine import (
    ArrayOperations,
    AutodiffBackend,
    Environment,
    OtherDerivatives,
    PlainBackend,
    Precision,
    Refusals,
    Setting,
    WrappedBackend,
    backend_named,
    memory_span,
    replaced,
    restored,
)

SINE = ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
X = np.array([0.5, -1.0, 2.0])


class Doubling(AutodiffBackend):
    """It differentiates x -> 2 x, with the three required members and nothing else."""

    name = "doubling"
    refusals = Refusals((TypeError, NotSupportedError), ("has no rule", "not today"))

    @property
    def xp(self):
        return array_api_compat.numpy

    def owns(self, leaf):
        return isinstance(leaf, np.ndarray)

    def vjp(self, f, x):
        return f(x), lambda w: (2 * w[0],)


def test_three_members_make_an_engine():
    report = examine(lambda x: 2 * x, X, backend=Doubling(), seed=0)

    assert report.verdict is Verdict.PASS
    assert report.provenance.version == np.__version__
    assert Doubling().capabilities == frozenset()


def test_a_refusal_of_the_rule_of_the_caller_says_what_to_write():
    class Particular(Doubling):
        refusals = Refusals((TypeError,), ("has no rule",), (("no rule for bar", "write one"),))

    for words, remedy in (
        ("has no rule for bar", "write one"),
        ("has no rule for baz", "leave that"),
    ):
        with pytest.raises(NotSupportedError, match=remedy), Particular().refusing("vjp"):
            raise TypeError(words)


def test_an_object_is_replaced_and_the_others_are_shared():
    class Elsewhere(Environment):
        def random_state(self):
            return 7

    backend = PlainBackend(np)
    changed = replaced(backend, environment=Elsewhere("0.3"))

    assert changed.arrays is backend.arrays
    assert (changed.environment.version, changed.environment.random_state()) == ("0.3", 7)
    assert backend.environment.random_state() is None
    assert type(changed) is type(backend)


def test_other_derivatives_keep_arrays_and_environment_and_nothing_else():
    class Half(OtherDerivatives):
        def vjp(self, f, x):
            y, pullback = self.inner.vjp(f, x)
            return y, lambda w: tuple(g / 2 for g in pullback(w))

    inner = Doubling()
    inner.jvp = None  # a further derivative of `inner`, which must not be seen
    backend = Half(inner)

    assert backend.arrays is inner.arrays
    assert backend.environment is inner.environment
    assert examine(lambda x: x, X, backend=backend, seed=0).verdict is Verdict.PASS
    with pytest.raises(NotSupportedError, match=r"forward mode \(jvp\)"):
        backend.jvp(None, (), ())


def test_a_wrapper_passes_every_derivative_on():
    given = {"self", "inner", "name", "arrays", "environment", "xp", "owns"}
    refusals = {"refusals", "refusing", "refuse"}
    of_the_way = {"way", "ways", "compiled_way", "usually_compiled", *refusals}
    derived = {"lacks", "precision", "effective_eps"}
    # in constructors, and by other derivatives
    taken_over = {"program", "differentiates_numbers", "recorded_unasked", "no_products"}

    members = {name for name in vars(AutodiffBackend) if not name.startswith("_")}

    assert members - given - of_the_way - derived - taken_over <= set(vars(WrappedBackend))


HANDED_ON = [name for name, value in vars(WrappedBackend).items() if callable(value)]


@pytest.mark.parametrize("name", [name for name in HANDED_ON if not name.startswith("_")])
def test_a_wrapper_asks_what_it_wraps(name):
    inner = SimpleNamespace(
        name="inner", arrays=None, environment=None,
        differentiates_numbers=False, recorded_unasked=True, no_products=False,
        **{name: lambda *given: (name, given)},
    )  # fmt: skip
    wrapper = WrappedBackend(inner)
    found = getattr(wrapper, name)(1, 2)

    if name == "closing_over":  # a wrapper of the engine that closes over
        found = found.inner
    assert found == (name, (1, 2))


def test_a_wrapper_differentiates_the_numbers_that_its_engine_does():
    backend = PlainBackend(np)
    assert not WrappedBackend(backend).differentiates_numbers

    backend.differentiates_numbers = True

    assert WrappedBackend(backend).differentiates_numbers
    assert WrappedBackend(backend).recorded_unasked
    backend.recorded_unasked = False
    assert not WrappedBackend(backend).recorded_unasked


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (TypeError("sin has no rule here"), NotSupportedError),
        (TypeError("another mistake"), TypeError),
        (ValueError("sin has no rule here"), ValueError),
        (KeyError("has no rule"), KeyError),
    ],
)
def test_a_refusal_is_told_by_its_type_and_its_words(error, expected):
    with pytest.raises(expected) as raised, Doubling().refusing("reverse mode"):
        raise error

    if expected is NotSupportedError:
        assert "reverse mode is not supported by backend 'doubling': sin has" in str(raised.value)
        assert raised.value.__cause__ is error
    else:
        assert raised.value is error


def test_what_is_not_supported_already_is_not_said_again():
    inner = NotSupportedError("not today", "do something else")

    with pytest.raises(NotSupportedError) as raised, Doubling().refusing("reverse mode"):
        raise inner

    assert raised.value is inner


def test_other_phrases_take_the_place_of_the_usual_ones():
    with pytest.raises(TypeError, match="has no rule"), Doubling().refusing("nesting", "nested"):
        raise TypeError("has no rule")
    with (
        pytest.raises(NotSupportedError, match="nesting"),
        Doubling().refusing("nesting", "nested"),
    ):
        raise TypeError("nested twice")


@pytest.mark.parametrize(("coarse", "expected"), [(0.0, 2.0**-23), (2.0**-10, 2.0**-10)])
def test_the_effective_eps_is_that_of_the_dtype_or_of_coarser_products(coarse, expected):
    class Coarse(Environment):
        def precision(self, array):
            return Precision(coarse, "SETTING=1")

    backend = replaced(PlainBackend(np), environment=Coarse())

    assert backend.effective_eps(X.astype(np.float32)) == expected


def test_the_arrays_of_a_namespace_without_such_a_dtype_or_device_refuse():
    arrays = ArrayOperations("mine", array_api_compat.numpy)

    with pytest.raises(NotSupportedError, match="dtype float12 is not supported by backend 'mine'"):
        arrays.make(X, "float12")
    with pytest.raises(NotSupportedError, match=r"device 'moon' .* the devices are cpu"):
        arrays.make(X, "float64", "moon")
    assert arrays.make(X, "float32", "cpu").dtype == np.float32


def test_coordinates_of_dense_arrays_need_no_other_operations():
    arrays = backend_named("numpy").arrays

    assert arrays.stored_only() is arrays
    assert arrays.expand({"a": X}) is None


# ---------------------------------------------------------------- what adapters share


@pytest.mark.parametrize("raises", [False, True])
def test_settings_are_put_back_in_order_and_only_where_they_changed(raises):
    state, written = {"a": 1, "b": 2, "c": 3}, []

    def setting(name):
        def write(value):
            written.append(name)
            state[name] = value

        return Setting(lambda: state[name], write)

    with suppress(KeyError), restored(setting("c"), setting("a"), setting("b")):
        state.update(a=10, c=30)
        if raises:
            raise KeyError

    assert state == {"a": 1, "b": 2, "c": 3}
    assert written == ["c", "a"]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda a: a, 24),
        (lambda a: a.T, 24),
        (lambda a: a[:, ::2], 23),
        (lambda a: a[::-1, ::-1], 24),
        (lambda a: a[1, 1], 1),
        (lambda a: a[1:2], 6),
        (lambda a: np.broadcast_to(a[0], (4, 6)), None),
        (lambda a: np.lib.stride_tricks.as_strided(a, (3, 3), (8, 8)), None),
        (lambda a: np.zeros((64, 64))[:, 0], None),
    ],
)
def test_the_memory_of_a_view_is_its_span_unless_a_copy_should_not_have_it(view, expected):
    array = view(np.zeros((4, 6)))
    steps = [stride // array.itemsize for stride in array.strides]

    assert memory_span(array.shape, steps) == expected
