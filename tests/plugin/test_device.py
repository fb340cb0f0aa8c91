"""`--adjudge-device`: checks of the fixture run there, and an engine without it is left out."""

import importlib

import pytest

ON = """
    def test_square(adjudge_backend):
        x = adjudge_backend.array((3,))
        report = adjudge_backend.check(square, x)
        where = report.provenance
        print("seen:", adjudge_backend.name, adjudge_backend.device, x.device, where.device,
              where.dtype)
        assert "device1" in str(adjudge_backend)
"""
STRICT = "array_api_strict.Device('{}')"


@pytest.fixture
def seen(run):
    """The words that a test prints after "seen:"."""

    def call(*arguments, **options):
        lines = run(*arguments, **options).outlines
        return [line.removeprefix("seen: ") for line in lines if line.startswith("seen: ")]

    return call


def test_arrays_are_made_and_checked_there(seen):
    there = STRICT.format("device1")

    (words,) = seen(ON, "--adjudge-device", "device1", engines="array_api_strict")

    assert f"array_api_strict {there} {there} {there} array_api_strict.float64" == words


def test_an_engine_without_the_device_is_skipped_with_the_reason(run):
    result = run(ON, "--adjudge-device", "device1")

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "adjudge *: numpy * (no 'device1'), array_api_strict * (on device1); seed 0",
            "adjudge: array_api_strict * (array_api_strict.Device('device1')): * 0 failed",
            "adjudge: numpy: 0 comparisons (skipped: backend 'numpy' has no device 'device1'; "
            "it has: cpu)",
        ]
    )


def test_of_several_names_each_engine_takes_the_first_that_it_has(seen):
    source = """
        def test_square(adjudge_backend):
            report = adjudge_backend.check(square, *adjudge_backend.arrays((3,)))
            print("seen:", adjudge_backend.name, report.provenance.device)
    """

    words = seen(source, "--adjudge-device", "gpu:0,device1", "--adjudge-device", "cpu")

    assert ["numpy cpu", f"array_api_strict {STRICT.format('device1')}"] == words


def test_a_required_engine_without_the_device_is_a_usage_error(run):
    required = ("--adjudge-require", "array_api_strict,numpy")

    result = run(ON, *required, "--adjudge-device", "device1")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --adjudge-require: engine 'numpy' is required, and backend 'numpy' has no "
            "device 'device1'; it has: cpu"
        ]
    )


def test_a_name_that_no_engine_has_is_a_usage_error(run):
    result = run(ON, "--adjudge-device", "device7,gpu")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "ERROR: --adjudge-device: no engine has a device 'device7' or 'gpu'",
            "*the devices are numpy: cpu; array_api_strict: *device1*",
        ]
    )


def test_the_test_itself_may_say_another_device(seen):
    source = """
        def test_square(adjudge_backend):
            on = adjudge_backend.array([1.0], device="device2")
            for options in ({}, {"device": None}, {"device": "CPU_DEVICE"}):
                report = adjudge_backend.check(square, on, **options)
                print("seen:", report.provenance.device)
            print("seen:", adjudge_backend.gradcheck(square, on).provenance.device)
    """

    words = seen(source, "--adjudge-device", "device1", engines="array_api_strict")

    names = ["device1", "device2", "CPU_DEVICE", "device1"]
    assert [STRICT.format(name) for name in names] == words


def test_arrays_that_the_test_made_itself_are_moved(seen):
    source = """
        def test_square(adjudge_backend):
            report = adjudge_backend.check(square, adjudge_backend.xp.asarray([1.0, 2.0]))
            print("seen:", report.provenance.device)
    """

    words = seen(source, "--adjudge-device", "device1", engines="array_api_strict")

    assert [STRICT.format("device1")] == words


def test_random_values_are_of_the_widest_dtype_of_the_device(run):
    source = """
        def test_square(adjudge_backend):
            drawn, listed = adjudge_backend.arrays((3,), [0.5, 0.1])
            report = adjudge_backend.check(square, drawn, in_double=False)
            assert adjudge_backend.check(square, listed, in_double=False)
            assert report.provenance.dtype.endswith("float32")

        def test_double(adjudge_backend):
            with pytest.raises(adjudge.errors.NotSupportedError, match="float64"):
                adjudge_backend.array(np.ones(2))
    """

    result = run(source, "--adjudge-device", "no_float64", engines="array_api_strict")

    result.assert_outcomes(passed=2)


def test_random_values_are_the_same_on_every_device(seen):
    source = """
        def test_square(adjudge_backend):
            x = adjudge_backend.array((2,))
            print("seen:", *map(float, adjudge_backend.backend.arrays.to_host(x)))
    """

    there = seen(source, "--adjudge-device", "device1", engines="array_api_strict")
    here = seen(source, engines="array_api_strict")

    assert there == here


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(
    seen, pytester, monkeypatch
):
    source = """
        def test_square(adjudge_backend):
            print("seen:", adjudge_backend.device)
    """
    pytester.makeini("[pytest]\nadjudge_device = device1")
    in_file = seen(source, engines="array_api_strict")
    monkeypatch.setenv("ADJUDGE_DEVICE", "device2")
    in_environment = seen(source, engines="array_api_strict")
    commanded = seen(source, "--adjudge-device", "CPU_DEVICE", engines="array_api_strict")

    names = ["device1", "device2", "CPU_DEVICE"]
    assert [STRICT.format(name) for name in names] == [*in_file, *in_environment, *commanded]


def test_a_wrong_derivative_is_found_there(run):
    source = """
        def test_cubed(adjudge_backend):
            adjudge_backend.check(cubed, adjudge_backend.array((3,)))

        def test_astray(adjudge_backend):
            cpu = adjudge_backend.backend.arrays.make(np.zeros(1), "float64", "CPU_DEVICE").device
            rule = adjudge.ByHand(lambda x: x**2, vjp=lambda x, w: (2 * x * w).to_device(cpu))
            adjudge_backend.check(rule, adjudge_backend.array((3,)))
    """

    result = run(source, "--adjudge-device", "device1", engines="array_api_strict")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*MISMATCH*", "*WRONG_DEVICE*"])


@pytest.mark.backend("jax")
def test_jax_on_the_second_of_two_devices(run, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    source = """
        import jax.numpy as jnp

        def test_sine(adjudge_backend):
            report = adjudge_backend.check(jnp.sin, jnp.asarray([0.5, 1.0]), order=2)
            print("seen:", report.provenance.device == str(__import__("jax").devices()[1]))
    """
    name = str(importlib.import_module("jax").devices("cpu")[1])

    result = run(source, "--adjudge-device", name, engines="jax,numpy")

    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["seen: True", f"adjudge: jax * ({name}): *"])
