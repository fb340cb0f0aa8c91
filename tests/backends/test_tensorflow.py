"""The adapter of TensorFlow and its door. It conforms: test_conformance_mutations."""

import importlib
import importlib.util
import inspect

import numpy as np
import pytest
from pages import HOW_TO, examples, printed, without_numbers

import adjudge
from adjudge.errors import InputError, NotSupportedError
from adjudge.findings import Status, Verdict

INSTALLED = importlib.util.find_spec("tensorflow") is not None
pytestmark = [
    pytest.mark.skipif(
        not INSTALLED, reason="TensorFlow is not installed: pip install 'adjudge[tensorflow]'"
    ),
    # the copies of NumPy's arrays that TensorFlow makes
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:"),
]


@pytest.fixture
def tf():
    return importlib.import_module("tensorflow")


@pytest.fixture
def module(tf):
    return importlib.import_module("adjudge_tensorflow.backend")


@pytest.fixture
def x(tf):
    return tf.constant([0.5, -1.2, 2.0], tf.float64)


@pytest.fixture
def scaled(tf):
    """A class of modules with a weight, a buffer and a forward pass that is given."""

    class Scaled(tf.Module):
        def __init__(self, forward, dtype="float64"):
            self.w = tf.Variable([1.0, 2.0, 0.5], dtype=dtype, name="w")
            self.calls = tf.Variable(3.0, trainable=False, name="calls")
            self.forward = forward

        def __call__(self, x):
            self.calls.assign_add(1.0)
            return self.forward(x, self.w)

    return Scaled


# ---------------------------------------------------------------- functions


def test_a_tensor_finds_the_adapter(tf, x):
    assert "tensorflow 2" in str(adjudge.gradcheck(tf.sin, x, seed=1))


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "complex128"])
def test_right_rules_pass_and_a_wrong_one_fails(tf, x, dtype):
    x = tf.cast(x, dtype)

    assert adjudge.examine(lambda x: tf.exp(x) * x, x, seed=1)
    wrong = adjudge.examine(lambda x: tf.exp(x) * tf.stop_gradient(x), x, seed=1)
    assert wrong.verdict is Verdict.FAIL


@pytest.mark.parametrize("seed", range(10))
def test_a_wrong_custom_gradient_of_any_numbers_fails(tf, seed):
    def cube(factor):
        @tf.custom_gradient
        def f(x):
            return x**3, lambda w: factor * x**2 * w

        return f

    x = tf.constant(np.random.default_rng(seed).normal(size=4))

    assert adjudge.examine(cube(3.0), x, seed=seed)
    assert adjudge.examine(cube(3.001), x, seed=seed).verdict is Verdict.FAIL


def test_every_composition_of_modes_is_judged(tf, x):
    report = adjudge.examine(lambda x: tf.sin(x) * x, x, order=2, seed=1)

    assert dict.fromkeys(["R", "F", "RR", "FR", "RF", "FF"], Verdict.PASS) == report.modes


def test_a_compiled_function_is_checked_beside_the_eager_one(tf, x):
    def traced(x):  # right where it runs eagerly, and constant where it is compiled
        return tf.sin(x) if tf.executing_eagerly() else tf.sin(tf.stop_gradient(x))

    assert adjudge.examine(lambda x: tf.sin(x) * x, x, compile=True, seed=1)
    assert adjudge.examine(traced, x, seed=1)
    assert adjudge.examine(traced, x, compile=True, seed=1).verdict is Verdict.FAIL


def test_reverse_over_forward_mode_of_a_compiled_function_is_refused(tf, x):
    """TensorFlow raises an InternalError there, of any function."""
    f = tf.function(lambda x: tf.sin(x) * x)

    report = adjudge.examine(f, x, modes=["R", "F", "RR", "FR", "RF", "FF"], seed=1)

    assert report.modes["RF"] is Status.UNSUPPORTED
    assert {report.modes[name] for name in ("R", "F", "RR", "FR", "FF")} == {Verdict.PASS}


def test_gradients_of_what_is_gathered_are_dense(tf):
    table = tf.constant(np.random.default_rng(0).normal(size=(5, 3)))

    assert adjudge.examine(lambda t: tf.gather(t, [0, 0, 3]) ** 2, table, order=2, seed=1)


def test_forward_mode_twice_of_a_gradient_that_is_gathered_is_refused(tf, x):
    """TensorFlow raises an AttributeError there, and a function that raises one itself is told."""
    segments = adjudge.examine(lambda x: tf.math.segment_sum(x**2, [0, 1, 1]), x, order=2, seed=1)

    assert segments.modes["FF"] is Status.UNSUPPORTED
    assert {segments.modes[name] for name in ("R", "F", "RR", "FR", "RF")} == {Verdict.PASS}
    with pytest.raises(AttributeError, match="sine"):
        adjudge.examine(lambda x: tf.sine(x), x, seed=1)


@pytest.mark.parametrize("seed", range(10))
def test_wrong_rules_of_tensorflow_fail_and_their_neighbours_pass(tf, seed):
    """docs/findings.md has them, as functions of Keras."""
    random = np.random.default_rng(seed)
    x = random.uniform(0.5, 2.0, size=4)
    zero = x * [1.0, 0.0, 1.0, 1.0]
    pixel = tf.constant(random.uniform(0.1, 0.9, size=(1, 1, 3)))

    assert adjudge.examine(tf.math.cumprod, tf.constant(x), seed=seed)
    assert adjudge.examine(tf.image.rgb_to_hsv, pixel, seed=seed)
    for f, wrong in ((tf.math.cumprod, tf.constant(zero)), (tf.image.hsv_to_rgb, pixel)):
        assert adjudge.examine(f, wrong, seed=seed).verdict is Verdict.FAIL


def test_an_operation_without_a_gradient_has_none(tf, x):
    a, b = tf.abs(x), tf.constant([0.3, 1.5, 2.5], tf.float64)

    missing = adjudge.examine(lambda a: tf.math.betainc(a, b, b / 3.0), a, seed=1)

    assert adjudge.examine(lambda x: tf.math.betainc(a, b, x), b / 3.0, seed=1)
    assert {finding.status for finding in missing.findings} == {Status.MISSING}


def test_entries_of_ragged_and_sparse_tensors_are_checked(tf, x):
    ragged = tf.RaggedTensor.from_row_splits(x, [0, 2, 2, 3])
    sparse = tf.SparseTensor([[0, 1], [2, 0], [2, 1]], x, [3, 2])
    slices = tf.IndexedSlices(x, tf.constant([0, 1, 1]), tf.constant([4]))

    for f, value in (
        (lambda r, stop: tf.reduce_sum(r * r.with_flat_values(stop(r.flat_values)), 1), ragged),
        (lambda s, stop: s.with_values(s.values * stop(s.values)), sparse),
        (lambda s, stop: tf.convert_to_tensor(s) * stop(tf.convert_to_tensor(s)), slices),
    ):
        assert adjudge.examine(lambda v, f=f: f(v, tf.identity), value, seed=1)
        wrong = adjudge.examine(lambda v, f=f: f(v, tf.stop_gradient), value, seed=1)
        assert wrong.verdict is Verdict.FAIL
        assert "values" in str(wrong)


def test_gradients_are_on_the_device_of_their_input(tf, module):
    with tf.device("CPU:1"):
        x = tf.constant([0.5, 2.0], tf.float64)

    assert adjudge.examine(lambda x: tf.sin(x) * x, x, seed=1)
    assert adjudge.examine(tf.sin, tf.constant([0.5]), device="CPU:1", seed=1)
    with pytest.raises(InputError, match="the devices are CPU:0, CPU:1"):
        adjudge.examine(tf.sin, x, device="GPU:7")


def test_a_function_that_draws_is_not_repeatable(tf):
    report = adjudge.examine(lambda x: tf.nn.dropout(x, 0.5), tf.ones(20, tf.float64), seed=1)

    assert {finding.status for finding in report.findings} == {Status.NONDETERMINISTIC}


def test_settings_are_as_before_also_when_the_function_raises(tf, x, module):
    def changes(x):
        tf.config.run_functions_eagerly(True)
        raise ZeroDivisionError

    before = [setting.read() for setting in module.SETTINGS]

    with pytest.raises(ZeroDivisionError):
        adjudge.examine(changes, x)

    assert [setting.read() for setting in module.SETTINGS] == before
    assert module.OPEN == []


# ---------------------------------------------------------------- variables


def test_a_variable_is_an_input_and_stays_as_it_is(tf):
    v = tf.Variable([0.5, -1.2, 2.0], dtype="float64")

    def wrong(v):
        return v.read_value() * tf.stop_gradient(v)

    assert adjudge.examine(lambda v: tf.sin(v) * v.read_value(), v, modes=["R", "F", "RR"], seed=1)
    assert adjudge.examine(wrong, v, seed=1).verdict is Verdict.FAIL
    assert v.numpy().tolist() == [0.5, -1.2, 2.0]


def test_what_a_function_closes_over_is_named_and_checked_where_asked_for(tf, x):
    w = tf.Variable([1.0, 2.0, 3.0], dtype="float64")

    named = adjudge.examine(lambda x: tf.sin(x) * w * w, x, seed=1)
    right = adjudge.examine(lambda x: tf.sin(x) * w * w, x, seed=1, captured=True)
    wrong = adjudge.examine(lambda x: tf.sin(x) * w * tf.stop_gradient(w), x, seed=1, captured=True)

    assert "closes over captured['w']" in str(named)
    assert right.counts["comparisons"] == 2
    assert wrong.verdict is Verdict.FAIL
    assert "captured['w']" in str(wrong)
    assert w.numpy().tolist() == [1.0, 2.0, 3.0]


def test_rules_read_the_values_that_a_variable_held(tf, x, module):
    w, value = tf.Variable([1.0, 2.0, 3.0], dtype="float64"), x * 2
    backend = module.TensorflowBackend()

    @tf.custom_gradient
    def times_w(x):
        def rule(u, variables=None):
            return u * w, [u * x]

        return x * w, rule

    def f(leaves):
        with backend.holding((w,), leaves[1:]):
            return (times_w(leaves[0]),)

    _, pullback = backend.closing_over((w,), 1).vjp(f, (x, value))

    of_x, of_w = pullback((tf.ones_like(x),))
    assert of_x.numpy().tolist() == value.numpy().tolist()
    assert of_w.numpy().tolist() == x.numpy().tolist()
    assert w.numpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("way", ["eager", "traced", "compiled"])
def test_a_module_is_checked_with_its_parameters(tf, x, scaled, way):
    right, wrong = lambda x, w: tf.sin(x) * w**2, lambda x, w: tf.sin(x) * w * tf.stop_gradient(w)
    if way == "traced":
        right, wrong = tf.function(right), tf.function(wrong)
    model = scaled(right)

    # forward mode of a compiled function with two kinds of inputs is beyond TensorFlow
    modes = ["R", "RR"] if way == "traced" else ["R", "F", "RR"]
    report = adjudge.examine(model, x, modes=modes, compile=way == "compiled", seed=1)
    failed = adjudge.examine(scaled(wrong), x, compile=way == "compiled", seed=1)

    assert report
    assert failed.verdict is Verdict.FAIL
    assert "parameters['w']" in str(failed)
    assert model.w.numpy().tolist() == [1.0, 2.0, 0.5]
    assert model.calls.numpy() == 3.0


def test_forward_mode_of_parameters_within_another_derivative_is_refused(tf, x, scaled):
    report = adjudge.examine(scaled(lambda x, w: tf.sin(x) * w), x, order=2, seed=1)

    assert report.modes["R"] is report.modes["F"] is report.modes["RR"] is Verdict.PASS
    assert {report.modes[name] for name in ("FR", "RF", "FF")} == {Status.UNSUPPORTED}


def test_parameters_in_single_precision_are_judged_there(tf, x, scaled):
    x = tf.cast(x, "float32")
    wrong = scaled(lambda x, w: tf.sin(x) * w * tf.stop_gradient(w), "float32")

    assert adjudge.examine(scaled(lambda x, w: tf.sin(x) * w**2, "float32"), x, seed=1)
    assert adjudge.examine(wrong, x, seed=1).verdict is Verdict.FAIL


def test_a_value_of_another_dtype_is_not_held(tf, module):
    w = tf.Variable([1.0])

    with (
        pytest.raises(NotSupportedError, match="a float64 in a variable of float32"),
        module.TensorflowBackend().holding((w,), (tf.constant([1.0], tf.float64),)),
    ):
        raise AssertionError


def test_layers_of_keras_are_checked_with_their_parameters(tf):
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("Keras runs on another engine: KERAS_BACKEND")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(3, "tanh"), keras.layers.BatchNormalization()])
    model.build((None, 3))
    x = tf.constant(np.random.default_rng(0).normal(size=(4, 3)), tf.float32)
    before = [np.array(one) for one in model.weights]

    report = adjudge.examine(lambda x: model(x, training=True), x, seed=1, captured=True)

    assert report
    assert "batch_normalization/gamma']: nothing but ones" in str(adjudge.examine(model, x, seed=1))
    assert all(map(np.array_equal, before, [np.array(one) for one in model.weights]))


# ---------------------------------------------------------------- the door


@pytest.fixture
def door(tf):
    return importlib.import_module("adjudge_tensorflow").compute_gradient


def test_the_door_has_the_signature_of_tensorflow(tf, door):
    theirs, ours = map(inspect.signature, (tf.test.compute_gradient, door))

    assert [(p.name, p.default) for p in ours.parameters.values()] == [
        (p.name, p.default) for p in theirs.parameters.values()
    ]


def cases(tf):
    x, y = np.array([0.5, 1.0]), np.array([[1.0], [2.0]])
    return {
        "the example of its documentation": (tf.function(lambda x: x * x), [1.0]),
        "several arguments": (lambda x, y: tf.sin(x) * y, [x, y]),
        "complex": (lambda z: z * tf.math.conj(z) * z, [tf.constant([1 + 2j])]),
        "real to complex": (lambda x: tf.complex(x, x * x), [x]),
        "complex to real": (tf.abs, [tf.constant([1 + 2j])]),
        "an empty output": (lambda x: x[:0], [x]),
        "gathered": (lambda x: tf.gather(x, [0, 0]), [x]),
        "unused": (lambda x, y: tf.sin(x), [x, y]),
    }


@pytest.mark.parametrize("delta", [None, 2.0**-10])
def test_the_jacobians_are_those_of_tensorflow(tf, door, delta):
    for name, (f, x) in cases(tf).items():
        theirs, ours = tf.test.compute_gradient(f, x, 2.0**-10), door(f, x, delta)
        for kind, bound in ((0, 1e-14), (1, 1e-14 if delta else 1e-5)):
            assert len(ours[kind]) == len(x), name
            for one, other in zip(ours[kind], theirs[kind], strict=True):
                assert (one.shape, one.dtype) == (other.shape, other.dtype), name
                np.testing.assert_allclose(one, other, rtol=0, atol=bound, err_msg=name)


def test_the_differences_are_closer_than_those_of_one_step(tf, door):
    x = [np.array([0.5, 1.0])]

    (right,), (theirs,) = tf.test.compute_gradient(tf.exp, x)
    _, (ours,) = door(tf.exp, x)

    assert np.abs(theirs - right).max() > 1e-7
    assert np.abs(ours - right).max() < 1e-10


def test_the_differences_of_bfloat16_are_numbers(tf, door):
    """Its spacing is above the step of TensorFlow, whose differences are zeros."""
    x = [tf.constant([0.5, 2.0], tf.bfloat16)]

    _, (theirs,) = tf.test.compute_gradient(lambda x: x * x, x)
    _, (ours,) = door(lambda x: x * x, x)

    assert not theirs.astype("float32").any()
    assert ours.astype("float32").tolist() == [[1.0, 0.0], [0.0, 4.0]]


@pytest.mark.parametrize("seed", range(10))
def test_a_wrong_gradient_shows_in_the_two_jacobians(tf, door, seed):
    x = np.random.default_rng(seed).normal(size=3)

    right = door(lambda x: x**3, [x])
    wrong = door(lambda x: x**3 * 0.999 + tf.stop_gradient(x) ** 3 * 0.001, [x])

    np.testing.assert_allclose(*right, rtol=1e-6, atol=1e-9)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(*wrong, rtol=1e-6, atol=1e-9)


def test_parameters_of_a_module_are_no_arguments(tf, door, x, scaled):
    (of_x,), _ = door(scaled(lambda x, w: x * w), [x])

    assert of_x.tolist() == np.diag([1.0, 2.0, 0.5]).tolist()


def test_what_tensorflow_refuses_is_refused(tf, door):
    refused = {
        "must be a list or tuple": (lambda x: x, tf.ones(2)),
        r"x\[0\] is of dtype int32": (lambda x: x, [1]),
        "f returns 2 tensors": (lambda x: (x, x), [1.0]),
        "f returns 0 tensors of floats": (tf.argmax, [tf.ones(2)]),
    }

    for words, (f, x) in refused.items():
        with pytest.raises(ValueError, match=words):
            door(f, x)


def test_a_gradient_of_an_empty_output_that_is_not_zero_is_refused_as_by_tensorflow(tf, door):
    @tf.custom_gradient
    def f(x):
        return x[:0], lambda w: tf.ones_like(x)

    for check in (tf.test.compute_gradient, door):
        with pytest.raises(ValueError, match="Empty tensor with nonzero gradients"):
            check(f, [tf.ones(3)])


# ---------------------------------------------------------------- its page


def test_the_examples_of_its_page_print_what_they_show(tf):
    page = (HOW_TO / "tensorflow.md").read_text(encoding="utf-8")

    now = printed(page, __name__="page")  # without a name, its class would be one of Python's
    assert list(map(without_numbers, now)) == [without_numbers(text) for _, text in examples(page)]
