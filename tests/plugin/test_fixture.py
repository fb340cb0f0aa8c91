"""The fixture: one parameter an engine, arrays that are the same everywhere, checks that raise."""

import re

import pytest

RIGHT = """
    def test_square(adjudge_backend):
        adjudge_backend.check(square, *adjudge_backend.arrays((3,)))
"""


def test_a_test_runs_once_on_every_engine_in_the_order_given(run):
    result = run(RIGHT, engines="array_api_strict,numpy")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["PASSED *test_square[[]array_api_strict]*", "PASSED *test_square[[]numpy]*"]
    )


def test_by_default_engines_are_those_that_differentiate(run):
    result = run(RIGHT, "--collect-only", "-q", engines=None)

    result.stdout.fnmatch_lines(["*test_square[[]jax]", "*test_square[[]torch]"])
    result.stdout.no_fnmatch_line("*numpy*")


def test_a_test_may_name_its_engines_itself(run):
    source = """
        @pytest.mark.parametrize("adjudge_backend", ["numpy"], indirect=True)
        def test_square(adjudge_backend):
            adjudge_backend.check(square, *adjudge_backend.arrays((3,)))
    """

    run(source, engines=None).assert_outcomes(passed=1)


def test_a_test_whose_engines_are_none_is_skipped_and_the_others_run(run):
    source = """
        @pytest.mark.parametrize(("adjudge_backend", "n"), [], indirect=["adjudge_backend"])
        def test_nothing(adjudge_backend, n):
            pass

        def test_square(adjudge_backend):
            adjudge_backend.check(square, *adjudge_backend.arrays((3,)))
    """

    run(source, engines="numpy").assert_outcomes(passed=1, skipped=1)


def test_an_engine_that_a_test_misspells_is_a_usage_error(run):
    source = """
        @pytest.mark.parametrize("adjudge_backend", ["nunpy"], indirect=True)
        def test_square(adjudge_backend):
            pass
    """

    result = run(source)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*test_square[[]nunpy]: no engine is called 'nunpy'*"])
    result.stderr.fnmatch_lines(["*Did you mean 'numpy'*"])


def test_a_wrong_derivative_fails_with_a_first_line_that_stands_alone(run):
    source = """
        def test_cubed(adjudge_backend):
            adjudge_backend.check(cubed, *adjudge_backend.arrays([1.0, 2.0]))
    """

    result = run(source, engines="numpy")

    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"E .*GradcheckError: FAIL ByHand\(<lambda>\): MISMATCH: d out\[1\] .* automatic 8, "
            "reference 12"
        ]
    )


def test_a_traceback_ends_at_the_line_of_the_test(run):
    source = """
        @pytest.mark.parametrize("verb", ["check", "gradcheck", "adjudge"])
        def test_cubed(adjudge_backend, verb):
            x = adjudge_backend.array([1.0, 2.0])
            if verb == "check":
                adjudge_backend.check(cubed, x)
            if verb == "gradcheck":
                adjudge_backend.gradcheck(cubed, x)
            adjudge.gradcheck(cubed, x)
    """

    result = run(source, "--tb=short", engines="numpy")

    result.assert_outcomes(failed=3)
    places = re.findall(r"^(\S+\.py):\d+: in ", result.stdout.str(), re.MULTILINE)
    assert places == ["test_it.py"] * 3


def test_the_verbs_check_second_order_and_hand_back_the_report(run):
    source = """
        right = adjudge.ByHand(
            lambda x: x**3,
            vjp=lambda x, w: 3 * x**2 * w,
            double_vjp=lambda x, w, u: (6 * x * w * u, 3 * x**2 * u),
        )
        wrong = adjudge.ByHand(
            lambda x: x**3,
            vjp=lambda x, w: 3 * x**2 * w,
            double_vjp=lambda x, w, u: (x * w * u, 3 * x**2 * u),
        )

        def test_verbs(adjudge_backend):
            x = adjudge_backend.array([1.0, 2.0])
            assert "RR" in adjudge_backend.check(right, x, modes=["R", "RR"]).modes
            assert adjudge_backend.check(wrong, x, modes=["R"])
            assert adjudge_backend.gradgradcheck(right, (x,))
            for verb in (adjudge_backend.gradgradcheck,
                         lambda f, x: adjudge_backend.check(f, *x, modes=["R", "RR"])):
                with pytest.raises(adjudge.GradcheckError):
                    verb(wrong, (x,))
    """

    run(source).assert_outcomes(passed=2)


def test_values_are_placed_as_they_are_and_shapes_are_filled_at_random(run):
    source = """
        def test_arrays(adjudge_backend):
            xp = adjudge_backend.xp
            table = np.array([[1, 2], [3, 4]])
            a, b, c, d, k = adjudge_backend.arrays(
                [1.5, 2.5], np.float32([1, 2]), (3, 4), (), table, dtype=None
            )
            assert [a.dtype, b.dtype, c.dtype, k.dtype] == [
                xp.float64, xp.float32, xp.float64, xp.int64
            ]
            assert [tuple(one.shape) for one in (a, c, d, k)] == [(2,), (3, 4), (), (2, 2)]
            assert float(a[1]) == 2.5 and int(k[1, 0]) == 3
            low, whole, k = adjudge_backend.arrays((2,), [1, 2], table, dtype="float32")
            assert low.dtype == whole.dtype == xp.float32 and k.dtype == xp.int64
            assert adjudge_backend.array((2,), "complex128").dtype == xp.complex128
            assert adjudge_backend.backend.owns(a)
            assert adjudge_backend.name in repr(adjudge_backend)

        @pytest.mark.parametrize("spec, dtype", [
            (3, None), (True, None), ((2, -1), None), ((1.0,), None), ("text", None),
            ((2,), "int64"), ([1j], "float64"),
        ])
        def test_what_is_no_array_is_refused(adjudge_backend, spec, dtype):
            with pytest.raises(adjudge.InputError):
                adjudge_backend.array(spec, dtype)

        def test_the_engine_is_fixed(adjudge_backend):
            with pytest.raises(adjudge.InputError, match="leave it out"):
                adjudge_backend.gradcheck(square, adjudge_backend.array((2,)), backend="torch")

        def test_arrays_of_numpy_are_placed_on_the_engine(adjudge_backend):
            owned = []

            def f(x):
                owned.append(adjudge_backend.backend.owns(x))
                return x * x

            def vjp(x, w):
                return 2 * x * w

            adjudge_backend.check(adjudge.ByHand(f, vjp=vjp), np.ones(2))
            assert owned and all(owned)
            with pytest.raises(adjudge.GradcheckError):
                adjudge_backend.check(adjudge.ByHand(f, vjp=lambda x, w: x * w), np.ones(2))
    """

    run(source).assert_outcomes(passed=20)


NUMBERS = """
    import pathlib

    @pytest.mark.parametrize("n", [1, 2])
    def test_numbers(adjudge_backend, n):
        x, y = adjudge_backend.arrays((2,), (2,))
        report = adjudge_backend.check(square, x)
        again = adjudge_backend.check(square, x)
        seeds = report.provenance.seed, again.provenance.seed
        line = f"{n} {adjudge_backend.name} {np.asarray(x).tolist()} {np.asarray(y)} {seeds}"
        with pathlib.Path("numbers.txt").open("a") as file:
            file.write(line + "\\n")
"""


def numbers(pytester):
    path = pytester.path / "numbers.txt"
    lines = sorted(path.read_text(encoding="utf-8").splitlines())
    path.unlink()
    return {tuple(line.split(" ", 2)[:2]): line.split(" ", 2)[2] for line in lines}


def test_random_numbers_depend_on_the_test_and_the_seed_and_on_nothing_else(run, pytester):
    assert run(NUMBERS).ret == 0
    first = numbers(pytester)
    assert run(NUMBERS, "-k", "numpy", "-p", "no:cacheprovider").ret == 0
    alone = numbers(pytester)
    assert run(NUMBERS, "--adjudge-seed", "7").ret == 0
    varied = numbers(pytester)

    assert first["1", "numpy"] == first["1", "array_api_strict"]  # the same on every engine
    assert first["1", "numpy"] != first["2", "numpy"]
    assert alone["1", "numpy"] == first["1", "numpy"]
    assert varied["1", "numpy"] != first["1", "numpy"]
    for line in first.values():
        one, two = re.findall(r"\d+", line.partition("(")[2])
        assert one != two


def test_a_failure_says_how_to_have_the_same_numbers_again(run):
    source = """
        def test_cubed(adjudge_backend):
            adjudge_backend.check(cubed, *adjudge_backend.arrays((2,)))
    """

    first, again = (run(source, "--adjudge-seed", "3", engines="numpy") for _ in range(2))

    (line,) = re.findall(r"random arrays .*", first.stdout.str())
    assert "--adjudge-seed 3" in line
    assert line in again.stdout.str()


def test_a_negative_seed_is_refused(run):
    result = run(RIGHT, "--adjudge-seed", "-1")

    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_seed_that_is_no_number_is_refused_with_the_option(run):
    result = run(RIGHT, "--adjudge-seed", "abc")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "argument --adjudge-seed: 'abc' is no seed" in result.stderr.str()


def test_an_option_that_there_is_not_is_told_with_what_was_meant(run):
    source = """
        def test_check(adjudge_backend):
            with pytest.raises(TypeError, match="Did you mean 'subtests'"):
                adjudge_backend.check(np.sin, adjudge_backend.array([1.0]), subtest=True)
    """

    run(source).assert_outcomes(passed=2)


def test_state_is_as_it_was_after_a_test(run):
    source = """
        def test_first(adjudge_backend):
            jax = pytest.importorskip("jax")
            assert jax.config.jax_enable_x64
            assert adjudge_backend.array([1.0]).dtype == "float64"

        def test_second():
            jax = pytest.importorskip("jax")
            assert not jax.config.jax_enable_x64
    """

    result = run(source, engines="jax", apart=True)

    assert result.ret == 0


def test_without_an_argument_the_fixture_says_what_to_do(run):
    source = """
        def test_late(request):
            request.getfixturevalue("adjudge_backend")
    """

    result = run(source)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*name it among the arguments of the test*"])


SUBTESTS = """
    def test_points(adjudge_backend):
        x = adjudge_backend.array([1.0, 2.0])
        there = {{"here": (x,), "there": (x + 1,)}}
        adjudge_backend.check({f}, x, points=there, subtests=True)
        print("went on")
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9 has subtests")
def test_points_are_subtests_where_there_are_any(run):
    right, wrong = (run(SUBTESTS.format(f=f), engines="numpy") for f in ("square", "cubed"))

    assert right.ret == 0
    assert wrong.ret == pytest.ExitCode.TESTS_FAILED
    wrong.stdout.fnmatch_lines(["SUBFAILED*here*", "SUBFAILED*there*"])
    wrong.stdout.fnmatch_lines(["*went on*"])
    assert wrong.stdout.str().count("seed=") >= 3


def test_without_subtests_there_is_one_failure(run, monkeypatch):
    monkeypatch.delattr(pytest, "Subtests", raising=False)

    result = run(SUBTESTS.format(f="cubed"), engines="numpy")

    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("SUBFAILED*")


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="pytest 9 has subtests")
def test_modes_are_subtests_without_points(run):
    source = """
        wrong = adjudge.ByHand(
            lambda x: x**2, vjp=lambda x, w: 2 * x * w, jvp=lambda x, v: x * v
        )

        def test_modes(adjudge_backend):
            adjudge_backend.check(
                wrong, adjudge_backend.array([1.0, 2.0]), modes=["R", "F"], subtests=True
            )
    """

    result = run(source, engines="numpy")

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["SUBFAILED[[]F]*"])
    result.stdout.no_fnmatch_line("SUBFAILED[[]R]*")


def test_a_crosscheck_that_fails_is_a_failed_test_like_any_other(run):
    source = """
        def test_two_functions(adjudge_backend):
            x = np.ones(2)
            adjudge.examine(adjudge.ByHand(np.sin, vjp=lambda x, w: w), x)
            wrong = lambda x: 1.001 * x.__array_namespace__().sin(x)
            right = adjudge.ByHand(np.sin, vjp=lambda x, w: w * np.cos(x))
            functions = {"numpy": right, "array_api_strict": wrong}
            adjudge.crosscheck(functions, (x,), list(functions))

        def test_after_it(adjudge_backend):
            adjudge_backend.check(square, *adjudge_backend.arrays([1.0, 2.0]))
    """

    result = run(source, engines="numpy")

    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert result.parseoutcomes().get("failed") == 1
    result.stdout.fnmatch_lines(["*CrosscheckError: FAIL*"])
