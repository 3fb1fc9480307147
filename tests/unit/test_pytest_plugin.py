"""The plugin of pytest, by real runs of pytest on fake labs (tests/fakes/recorded_labs.py)."""

from __future__ import annotations

import inspect
import re
import subprocess  # noqa: TID251 - runs a program that the test wrote, which runs pytest
import sys
import tomllib
from pathlib import Path

import pytest
import recorded_labs

import winlab

# imported here, because each run of pytest in this process forgets what it has imported
from winlab import files, locks, pytest_plugin, settings  # noqa: F401
from winlab.events import Quiet  # noqa: F401
from winlab.lab_snapshots import Snapshots

pytest_plugins = "pytester"

TOP = Path(__file__).parents[2]
RUN = r"pytest-[0-9a-f]{8}"
PASSES = "def test_{0}(winlab_lab): pass\n"
NO_ARCHIVES = "--winlab-support="


class Runs:
    """Runs of pytest in one folder, with the same labs."""

    def __init__(self, pytester: pytest.Pytester, world: Path) -> None:
        self.pytester = pytester
        self.world = world

    def write(self, **modules: str) -> None:
        self.pytester.makepyfile(**{f"test_{name}": f"import pytest\n{text}" for name, text in modules.items()})

    def run(self, *options: str) -> pytest.RunResult:
        plugins = ("-p", "winlab.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers")
        return self.pytester.runpytest_inprocess(*plugins, *options, no_reraise_ctrlc=True)

    def log(self) -> list[str]:
        """What was done to labs, with RUN in place of the run's name."""
        return [re.sub(RUN, "RUN", line) for line in recorded_labs.log()]

    def uses(self) -> list[str]:
        """The same, without how the labs came and went."""
        return [line for line in self.log() if line.split()[0] in ("copy", "reset", "test", "support", "start")]


@pytest.fixture
def runs(pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    world = tmp_path / "world"
    world.mkdir()
    monkeypatch.setenv("RECORDED_LABS", str(world))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setattr(winlab, "Lab", recorded_labs.Lab)
    monkeypatch.setattr(winlab, "Spec", recorded_labs.Spec)
    return Runs(pytester, world)


MADE = ["create RUN 1-1-1 [] False", "save RUN@ready", "destroy RUN", "copy RUN RUN@ready"]
REMOVED = ["destroy RUN", "delete RUN@ready"]


def test_a_lab_is_made_once_reset_before_each_module_and_removed(runs: Runs) -> None:
    both = PASSES.format("a") + PASSES.format("b")
    runs.write(one=both, three=both, two="def test_without(): pass")
    runs.run().assert_outcomes(passed=5)
    assert runs.log() == [*MADE, "reset RUN RUN@ready", *REMOVED]
    assert recorded_labs.there() == set()


def test_a_run_without_tests_that_use_a_lab_touches_nothing(runs: Runs) -> None:
    runs.write(one="def test_one(): pass\n@pytest.mark.skip\n" + PASSES.format("a"))
    runs.run().assert_outcomes(passed=1, skipped=1)
    assert runs.log() == []
    assert not settings.state_dir().exists()


def test_the_marker_says_when_the_lab_is_reset(runs: Runs) -> None:
    def test(name: str, scope: str = "") -> str:
        mark = f"@pytest.mark.winlab(scope={scope!r})\n" if scope else ""
        return f"{mark}def test_{name}(winlab_lab): recorded_labs.note('test', {name!r})\n"

    first = test("a") + test("b", "session") + test("c") + test("d", "function") + test("e", "function") + test("f")
    rest = "pytestmark = pytest.mark.winlab(scope='session')\n" + test("g") + test("h", "module") + test("i")
    runs.write(**{name: f"import recorded_labs\n{text}" for name, text in (("one", first), ("two", rest))})
    runs.run().assert_outcomes(passed=9)
    done = ["reset" if line.startswith("reset") else line.removeprefix("test ") for line in runs.uses()[1:]]
    assert done == ["a", "b", "c", "reset", "d", "reset", "e", "reset", "f", "g", "reset", "h", "i"]


def test_fixtures_of_a_module_are_set_up_after_the_reset(runs: Runs) -> None:
    text = """
        import recorded_labs
        @pytest.fixture(scope="module")
        def deployed(winlab_lab):
            recorded_labs.note("test", "set-up")
            yield
            recorded_labs.note("test", "tear-down")
        def test_one(deployed): pass
    """
    runs.write(one=inspect.cleandoc(text), two=inspect.cleandoc(text))
    runs.run().assert_outcomes(passed=2)
    once = ["test set-up", "test tear-down"]
    assert runs.uses() == ["copy RUN RUN@ready", *once, "reset RUN RUN@ready", *once]


def test_a_test_that_needs_more_nodes_is_skipped(runs: Runs) -> None:
    text = "pytestmark = pytest.mark.winlab(windows=2, scope='session')\n" + PASSES.format("a")
    runs.write(one=text + "@pytest.mark.winlab(windows=1, linux=1)\n" + PASSES.format("b"))
    result = runs.run("-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*needs 2 windows nodes, and the lab has 1"])


@pytest.mark.parametrize("given", ["'module'", "scope='class'", "windws=1"])
def test_a_marker_that_says_something_else_is_an_error(runs: Runs, given: str) -> None:
    runs.write(one=f"@pytest.mark.winlab({given})\n" + PASSES.format("a"))
    result = runs.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*the marker is winlab(scope=session|module|function, windows=N, linux=N)"])
    assert runs.log() == []


def test_other_fixtures_have_kubectl_and_the_nodes(runs: Runs) -> None:
    text = """
        def test_one(winlab_kubectl, winlab_windows, winlab_linux, winlab_lab):
            assert winlab_kubectl("get", "nodes") == f"kubectl get nodes of {winlab_lab.name}"
            assert winlab_windows[0].execute(["x"]).stdout == f"['x'] on node-1 of {winlab_lab.name}"
            assert [node.name for node in winlab_windows + winlab_linux] == ["node-1", "controller-1"]
    """
    runs.write(one=inspect.cleandoc(text))
    runs.run().assert_outcomes(passed=1)


def test_a_lab_that_is_asked_for_late_is_an_error(runs: Runs) -> None:
    runs.write(one="def test_one(request): request.getfixturevalue('winlab_lab')")
    result = runs.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["Name 'winlab_lab' among the arguments *"])


@pytest.mark.parametrize("where", ["options", "file"])
def test_options_choose_the_spec(runs: Runs, where: str) -> None:
    runs.write(one=PASSES.format("a"))
    options = ["--winlab-spec=mixed", "--winlab-set=a.b=1", "--winlab-set=c=2", "--winlab-rehearse"]
    if where == "file":
        options = []
        runs.pytester.makeini(
            "[pytest]\nwinlab_spec = mixed\nwinlab_rehearse = true\nwinlab_set =\n    a.b=1\n    c=2\n"
        )
    runs.run(*options).assert_outcomes(passed=1)
    assert runs.log()[0] == "create RUN mixed ['a.b=1', 'c=2'] True"


@pytest.mark.parametrize(("name", "more"), [("lab@mine", []), ("lab@off", ["start RUN"])])
def test_a_snapshot_of_the_user_is_copied_and_kept(runs: Runs, name: str, more: list[str]) -> None:
    (runs.world / name).touch()
    runs.write(one=PASSES.format("a"))
    runs.run(f"--winlab-from={name}").assert_outcomes(passed=1)
    assert runs.log() == [f"copy RUN {name}", *more, "destroy RUN"]
    assert recorded_labs.there() == {name}


def test_a_snapshot_is_named_with_its_lab(runs: Runs) -> None:
    result = runs.run("--winlab-from=ready")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--winlab-from takes LAB@SNAPSHOT, and this is 'ready'."])


def test_kept_labs_are_named_and_used_by_the_next_run_with_the_same_options(runs: Runs) -> None:
    runs.write(one=PASSES.format("a"))
    runs.pytester.makefile(".yaml", lab="workers: 1")
    result = runs.run("--winlab-keep", "--winlab-spec=lab.yaml")
    result.assert_outcomes(passed=1)
    (name,) = recorded_labs.Lab.known_names()
    assert recorded_labs.there() == {name, f"{name}@ready"}
    said = [f"These labs are kept: {name}.", f"winlab destroy --lab {name}", f"winlab snapshot delete {name}@ready"]
    result.stdout.fnmatch_lines(said)
    before = len(runs.log())
    runs.run("--winlab-keep", "--winlab-spec=lab.yaml").assert_outcomes(passed=1)
    assert runs.log()[before:] == ["reset RUN RUN@ready"]
    runs.run("--winlab-spec=lab.yaml").assert_outcomes(passed=1)
    assert recorded_labs.there() == {name, f"{name}@ready"}
    runs.pytester.makefile(".yaml", lab="workers: 2")
    runs.run("--winlab-keep", "--winlab-spec=lab.yaml").assert_outcomes(passed=1)
    assert len(recorded_labs.Lab.known_names()) == 2


FAILING = """
@pytest.fixture
def broken(winlab_lab):
    raise ValueError("in the fixture")
def test_fails(winlab_lab):
    assert 1 == 2
def test_error(broken): pass
def test_passes(winlab_lab): pass
@pytest.mark.xfail
def test_known(winlab_lab): assert 0
def test_without(): assert 0
"""


def test_a_failed_test_gets_an_archive(runs: Runs) -> None:
    runs.write(one=FAILING)
    result = runs.run()
    result.assert_outcomes(passed=1, failed=2, errors=1, xfailed=1)
    assert runs.uses()[1:] == ["support RUN", "support RUN"]
    folder = runs.pytester.path / "build/winlab-support"
    contents = {path.name: path.read_text() for path in folder.iterdir()}
    assert contents.keys() == {"test_one.py-test_fails.tar.gz", "test_one.py-test_error.tar.gz"}
    assert "in the fixture" in contents["test_one.py-test_error.tar.gz"]
    result.stdout.fnmatch_lines(["*winlab support*", f"{folder}/test_one.py-test_fails.tar.gz"])


def test_archives_go_where_the_option_says_or_nowhere(runs: Runs) -> None:
    runs.write(one=FAILING)
    runs.run("--winlab-support=a/b")
    assert len(list((runs.pytester.path / "a/b").iterdir())) == 2
    before = len(runs.log())
    runs.run(NO_ARCHIVES)
    assert "support RUN" not in runs.log()[before:]


def test_an_archive_that_fails_does_not_hide_the_test_s_failure(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDED_LABS_BROKEN", "support")
    runs.write(one=FAILING)
    result = runs.run("-k", "fails")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert 1 == 2", "There is no archive: The support failed.*"])


@pytest.mark.parametrize("verb", ["create", "save"])
def test_a_lab_that_can_t_be_made_is_not_tried_again(runs: Runs, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECORDED_LABS_BROKEN", verb)
    runs.write(one=PASSES.format("a") + PASSES.format("b"))
    result = runs.run()
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines([f"The {verb} failed.", "  cure: Try again."])
    assert [line.split()[0] for line in runs.log()].count("create") == 1
    assert runs.log()[-3:] == ["support RUN", *REMOVED]
    assert recorded_labs.there() == set()


def test_a_reset_that_failed_is_tried_again(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os\n" + PASSES.format("a") + "@pytest.mark.winlab(scope='session')\n"
    text += "def test_b(winlab_lab): os.environ['RECORDED_LABS_BROKEN'] = ''\n"
    monkeypatch.setenv("RECORDED_LABS_BROKEN", "reset")
    runs.write(one=PASSES.format("z"), two=text)
    runs.run(NO_ARCHIVES).assert_outcomes(passed=1, errors=2)
    assert runs.uses() == ["copy RUN RUN@ready", "reset RUN RUN@ready", "reset RUN RUN@ready"]


def test_labs_are_removed_after_an_interrupt_and_after_the_session_s_fixtures(runs: Runs) -> None:
    text = """
        import recorded_labs
        @pytest.fixture(scope="session")
        def whole(winlab_lab):
            yield
            recorded_labs.note("test", "tear-down")
        def test_one(whole): raise KeyboardInterrupt
    """
    runs.write(one=inspect.cleandoc(text))
    assert runs.run().ret == pytest.ExitCode.INTERRUPTED
    assert runs.log() == [*MADE, "test tear-down", *REMOVED]


def test_what_can_t_be_removed_is_named_and_the_rest_is_removed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def test_a(winlab_lab, monkeypatch):\n    import os\n    os.environ['RECORDED_LABS_BROKEN'] = 'destroy'\n"
    monkeypatch.setenv("RECORDED_LABS_BROKEN", "")
    runs.write(one=text)
    result = runs.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*= winlab =*", "The destroy failed."])
    assert runs.log()[-2:] == REMOVED


def test_the_example_in_the_documents(runs: Runs) -> None:
    page = (TOP / "docs/testing-with-winlab.md").read_text(encoding="utf-8")
    example, together = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    runs.pytester.path.joinpath("test_cluster.py").write_text(example)
    runs.pytester.path.joinpath("test_together.py").write_text(f"{together}\n{PASSES.format('a')}{PASSES.format('b')}")
    runs.run().assert_outcomes(passed=4, skipped=1)
    assert [line.split()[0] for line in runs.log()].count("reset") == 1


UNUSED = ("-p", "no:hypothesispytest", "-p", "no:timeout")  # plugins that take time to import
PROGRAM = """#!{python}
import sys
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


def test_workers_of_xdist_share_the_snapshot_and_have_a_lab_each(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run it: pytest finds the plugin by the package's entry point."""
    (installed := runs.world.parent / "site/winlab-9.dist-info").mkdir(parents=True)
    (name, module), *others = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["entry-points"][
        "pytest11"
    ].items()
    assert others == []
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n")
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: winlab\nVersion: 9\n")
    (installed / "RECORD").write_text("winlab/__init__.py,,\n")  # pytest rewrites the package's assertions
    text = """
        import recorded_labs, time
        def test_{0}(winlab_lab):
            recorded_labs.note("test", winlab_lab.name)
            for _ in range(1200):  # until the other worker has a lab, too
                if len({{line for line in recorded_labs.log() if line.startswith("test ")}}) == 2:
                    break
                time.sleep(0.05)
    """
    runs.write(**{name: inspect.cleandoc(text.format(name)) for name in ("one", "two")})
    runs.pytester.makeconftest(
        "import recorded_labs, winlab\nwinlab.Lab, winlab.Spec = recorded_labs.Lab, recorded_labs.Spec\n"
    )
    program = runs.pytester.path / "run-pytest"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")
    monkeypatch.setenv("RECORDED_LABS_SLOW", "0.3")  # seconds in which the other worker wants a lab, too
    monkeypatch.setenv("PYTHONPATH", ":".join(map(str, (TOP, TOP / "tests/fakes", installed.parent))))
    done = subprocess.run([program, "-n2", "--dist=loadfile", *UNUSED], capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    log = runs.log()
    assert log[:3] == MADE[:3]
    own = ["RUN-gw0", "RUN-gw1"]
    assert sorted(log[3:-3]) == [*(f"copy {lab} RUN@ready" for lab in own), *(f"test {lab}" for lab in own)]
    assert log[-3:] == [*(f"destroy {lab}" for lab in own), "delete RUN@ready"]
    assert recorded_labs.there() == set()


def test_the_fakes_are_called_as_the_api_is() -> None:
    for fake, real in ((recorded_labs.Lab, winlab.Lab), (recorded_labs.Snapshots, Snapshots)):
        for name in [name for name in vars(fake) if not name.startswith("_")]:
            method = getattr(real, name)
            if callable(method):
                assert set(inspect.signature(getattr(fake, name)).parameters) <= set(
                    inspect.signature(method).parameters
                )


def test_pytest_starts_without_heavy_imports() -> None:
    source = Path(pytest_plugin.__file__).read_text(encoding="utf-8")
    at_once = {
        line.split()[1].partition(".")[0] for line in source.splitlines() if line.startswith(("import ", "from "))
    }
    assert at_once - set(sys.stdlib_module_names) == {"pytest", "winlab"}
    assert [line for line in source.splitlines() if line.startswith("from winlab")] == []
