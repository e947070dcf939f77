"""The package as others install it: ranges, lock and conda file agree, layers hold."""

import ast
import graphlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from setuptools import find_packages

from cevit_lib import __version__

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]


LINES = re.sub(r" *#.*", "", (ROOT / "requirements.lock").read_text()).splitlines()
LOCKED = [Requirement(line) for line in LINES if line and not line.startswith("-")]
DIRECT = [
    Requirement(text) for group in (PROJECT["dependencies"], *EXTRAS.values()) for text in group
]


@pytest.mark.parametrize("wanted", DIRECT, ids=lambda wanted: wanted.name)
def test_every_direct_dependency_is_locked_within_its_range(wanted):
    """By one line, or one for each platform."""
    name = canonicalize_name(wanted.name)
    lines = [line for line in LOCKED if canonicalize_name(line.name) == name]
    assert lines, f"{wanted.name} is in pyproject.toml and not in requirements.lock"
    for line in lines:
        (pin,) = line.specifier
        within = wanted.specifier.contains(pin.version, prereleases=True)
        assert pin.operator == "==" and within, f"{line} is outside {wanted}"


def test_the_lock_holds_no_wheels_for_one_kind_of_card():
    kinds = ("nvidia-", "cuda-", "triton", "pytorch-triton")
    single = [line.name for line in LOCKED if line.name.startswith(kinds)]
    assert not single, "these exist for one vendor's card only; torch asks for them by itself"


def test_environment_yml_agrees_with_pyproject():
    """Conda's file asks for the same Python and leaves other ranges to the package."""
    python, pip, inner = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert (python, pip) == (f"python {PROJECT['requires-python']}", "pip")
    assert inner == {"pip": ["-e .[vit,clinic,book,dev]"]}


def test_one_version_and_one_citation_everywhere():
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    zenodo = json.loads((ROOT / ".zenodo.json").read_text())
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    sphinx = config["sphinx"]["config"]
    assert {each["version"] for each in (citation, zenodo)} == {version, __version__}
    assert {sphinx["version"], sphinx["release"]} == {version}
    assert f"Version {version}." in config["html"]["extra_footer"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    for told in ("title", "license", "keywords"):
        assert zenodo[told] == citation[told]
    assert [each["name"] for each in zenodo["creators"]] == [
        each["name"] for each in citation["authors"]
    ]


# Who may import whom: room -> the rooms that it may read.
GROUND = {"errors", "paths", "edge"}
SERVICES = GROUND | {
    "metrics",
    "records",
    "runner",
}  # stand on the ground; whatever lies above may use them
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "paths": {"errors"},
    "edge": {"errors", "paths"},
    "metrics": GROUND,
    "records": GROUND,
    "runner": GROUND,
    "normal": GROUND,
    "copula": GROUND | {"normal"},
    "estimation": SERVICES | {"normal", "copula"},
    "datasets": GROUND,
    "encoder": GROUND,
}
ROOMS["training"] = SERVICES | set(ROOMS)
ROOMS["clinic"] = SERVICES | set(ROOMS)
TABLES = {"verdicts", "style", "exercises"}  # what the publication reads of the studies
HOUSE = ("cevit_lib", "studies", "tools", "benchmarks")
TREES = {
    path.relative_to(ROOT): ast.parse(path.read_text())
    for package in HOUSE
    for path in sorted((ROOT / package).rglob("*.py"))
}


def home(name: str) -> str:
    """The room: `cevit_lib.copula.density` -> `cevit_lib.copula`."""
    return ".".join(name.split(".")[:2])


def ours(tree: ast.AST) -> set[str]:
    """What a file imports of this project, lazily too: dotted names."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            found |= {module + alias.name for alias in node.names}
    return {name for name in found if name.split(".")[0] in HOUSE}


#: (file, its room, what it imports)
IMPORTS = [
    (path, home(".".join(path.with_suffix("").parts)), name)
    for path, tree in TREES.items()
    for name in sorted(ours(tree))
]


def lies_below(here: str, there: str) -> bool:
    """Whether a room may read another: the library from below, studies the library, tools the
    records and the verdicts; nobody reads tools."""
    (package, own), (other, read) = here.split("."), (*there.split("."), "")[:2]
    if package == "cevit_lib":
        return other == package and read in ROOMS[own] | {own, "__version__"}
    if package == "tools":
        return other == package or read in TABLES | SERVICES | {"__version__"}
    return other == package or other in ("cevit_lib", "studies")


def test_a_room_imports_only_what_lies_below_it():
    wrong = [
        f"{path} imports {name}"
        for path, here, name in IMPORTS
        if here != "cevit_lib.__init__" and not lies_below(here, home(name))
    ]
    assert not wrong, "\n".join(wrong)


def test_neither_the_rooms_nor_the_studies_have_a_circle():
    """A folder of the studies that reads another is not read by it."""
    reads: dict[str, set[str]] = {}
    for _, here, name in IMPORTS:
        if here.startswith("studies") and home(name).startswith("studies"):
            reads.setdefault(here, set()).update({home(name)} - {here})
    for graph in (ROOMS, reads):
        list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names it


def test_nobody_reaches_into_the_private_names_of_another_room():
    foreign = [(path, name) for path, here, name in IMPORTS if home(name) != here]
    wrong = [
        f"{path} imports {name}"
        for path, name in foreign
        if re.search(r"\._", name.removesuffix("__version__"))
    ]
    bound = {(path, name.split(".")[-1]) for path, name in foreign}
    wrong += [
        f"{path}: {node.value.id}.{node.attr}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr)
        if isinstance(node.value, ast.Name) and (path, node.value.id) in bound
    ]
    assert not wrong, "\n".join(wrong)


def test_a_notebook_needs_no_tool_of_the_book():
    """It would break on Colab."""
    for page in (ROOT / "notebooks").glob("*.md"):
        assert not re.search(r"^\s*(from|import) (tools|myst_nb)\b", page.read_text(), re.M), page


def test_the_wheel_holds_the_library_alone():
    found = find_packages(ROOT, **PYPROJECT["tool"]["setuptools"]["packages"]["find"])
    assert {name.split(".")[0] for name in found} == {"cevit_lib"}


# Not a dependency of the core: the extras `vit` and `book`, and what only they bring along.
HEAVY = {Requirement(text).name.replace("-", "_") for extra in EXTRAS.values() for text in extra}
HEAVY |= {"PIL", "sklearn", "transformers", "matplotlib", "jupyter_book", "sphinx", "IPython"}
BLOCKER = """
import importlib.abc, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is not installed here")
sys.meta_path.insert(0, Blocker())
{code}
"""
README = (ROOT / "README.md").read_text()
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
LEARNS = "assert outputs.grad.isfinite().all() and outputs.grad.abs().sum() > 0"


@pytest.mark.parametrize(
    ("code", "blocked"),
    [
        (f"import cevit_lib.estimation\n{EXAMPLE}\n{LEARNS}", HEAVY),
        (
            "import cevit_lib, cevit_lib.clinic.style, cevit_lib.records",
            {"torch", "matplotlib", "timm"},
        ),
    ],
    ids=["the README's example on the core alone", "records and style without torch"],
)
def test_what_works_without_what(code, blocked):
    program = BLOCKER.format(blocked=blocked, code=code)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("this is not a git checkout, so there is no clone whose size could be measured")
    names = done.stdout.decode().split("\0")
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


def test_a_clone_is_small_and_holds_no_photograph_and_no_output():
    size = {path: (ROOT / path).stat().st_size for path in tracked()}
    assert sum(size.values()) < 15e6
    assert not {path: found for path, found in size.items() if found > 1.5e6}
    photographs = {".jpg", ".jpeg", ".tif", ".tiff", ".dcm", ".bmp"}
    outputs = re.compile(r"(book/executed|_?build|\.venv)/")
    assert not [
        str(path)
        for path in size
        if path.suffix.lower() in photographs or outputs.match(path.as_posix())
    ]


def test_the_readme_shows_pictures_that_exist_and_names_commands_that_do():
    for name in re.findall(r"\]\(((?!https?:)[^)#]+)\)", README):
        assert (ROOT / name).is_file(), name
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", README, re.MULTILINE)) <= targets


def test_style_and_spelling_are_right():
    """Ruff holds lines, imports and at most six parameters; codespell reads prose, code and
    comments, but for the bibliography, MathJax and generated files, which are not ours."""
    words = {".md", ".py", ".yml", ".cff", ".css", ".toml"}
    prose = [str(path) for path in tracked() if path.suffix in words]
    for tool in (["ruff", "check", "-q"], ["codespell_lib", "-L", "ttest", *prose]):
        command = [sys.executable, "-m", *tool]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout + done.stderr
