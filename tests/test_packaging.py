"""The package as others install it: ranges, lock and conda file agree, layers hold."""

import ast
import graphlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def locked() -> dict[str, list[Requirement]]:
    """Name -> lines of the lock (a package may have one line for each platform)."""
    lines: dict[str, list[Requirement]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        line = line.split(" #")[0].strip()
        if line and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            lines.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return lines


def pinned(requirement: Requirement) -> Version:
    (specifier,) = requirement.specifier
    assert specifier.operator == "==", f"{requirement} is not pinned by =="
    return Version(specifier.version)


DIRECT = [
    Requirement(text) for group in (PROJECT["dependencies"], *EXTRAS.values()) for text in group
]


@pytest.mark.parametrize("wanted", DIRECT, ids=lambda wanted: wanted.name)
def test_every_direct_dependency_is_locked_within_its_range(wanted):
    lines = locked().get(canonicalize_name(wanted.name))
    assert lines, f"{wanted.name} is in pyproject.toml and not in requirements.lock"
    for line in lines:
        assert wanted.specifier.contains(pinned(line), prereleases=True), (
            f"{line} is outside {wanted}"
        )


def test_the_lock_holds_no_wheels_for_one_kind_of_card():
    single = [
        name
        for name in locked()
        if name.startswith(("nvidia-", "cuda-", "triton", "pytorch-triton"))
    ]
    assert not single, (
        f"these exist for one vendor's card only; torch asks for them by itself: {single}"
    )


def test_environment_yml_agrees_with_pyproject():
    """Conda's file asks for the same Python and leaves other ranges to the package."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    *conda, by_pip = environment["dependencies"]
    specs = dict(re.fullmatch(r"(\w+) *(.*)", entry).groups() for entry in conda)
    assert specs == {"python": PROJECT["requires-python"], "pip": ""}
    (package,) = [line for line in by_pip["pip"] if line.startswith("-e ")]
    named = set(re.search(r"\[(.*)\]", package).group(1).split(","))
    assert named == {"vit", "clinic", "book", "dev"} <= set(EXTRAS)


def test_one_version_everywhere():
    version = PROJECT["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    config = yaml.safe_load((ROOT / "_config.yml").read_text())
    code = re.search(r'__version__ = "(.*)"', (ROOT / "cevit_lib/__init__.py").read_text()).group(1)
    sphinx = config["sphinx"]["config"]
    assert {"message", "title", "authors", "license", "references"} <= set(citation)
    assert {citation["version"], sphinx["version"], sphinx["release"], code} == {version}
    assert f"Version {version}." in config["html"]["extra_footer"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


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
TABLES = {"verdicts", "style"}  # what the publication reads of the studies


def ours(path: Path) -> list[tuple[str, str]]:
    """What a file imports of this project, lazily too: (module, name or nothing)."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found += [(node.module, alias.name) for alias in node.names]
    return [(module, name) for module, name in found if module.split(".")[0] in PACKAGES]


PACKAGES = ("cevit_lib", "studies", "tools", "benchmarks")
SOURCES = {package: sorted((ROOT / package).rglob("*.py")) for package in PACKAGES}


def room(module: str, name: str = "") -> str:
    """`cevit_lib.copula.density` -> `copula`; `from cevit_lib import clinic` -> `clinic`."""
    parts = [*module.split("."), *filter(None, [name])]
    return parts[1] if len(parts) > 1 else ""


def test_a_room_of_the_library_imports_only_what_lies_below_it():
    wrong = []
    for path in SOURCES["cevit_lib"]:
        here = path.relative_to(ROOT / "cevit_lib").parts[0].removesuffix(".py")
        if here == "__init__":
            continue
        for module, name in ours(path):
            there = room(module, name)
            fine = module.startswith("cevit_lib") and there in ROOMS[here] | {here, "__version__"}
            if not fine:
                wrong.append(f"{path.relative_to(ROOT)} imports {module} {name}")
    assert not wrong, "\n".join(wrong)


def test_no_way_leads_back_from_the_studies_or_the_publication():
    """Studies read the library, tools read the records and the verdicts; nobody imports tools."""
    wrong = []
    for path in SOURCES["studies"]:
        wrong += [(path, m) for m, _ in ours(path) if m.split(".")[0] in ("tools", "benchmarks")]
    for path in SOURCES["tools"]:
        for module, name in ours(path):
            allowed = SERVICES if module.startswith("cevit_lib") else TABLES
            own = module.split(".")[0] == "tools" or (module, name) == ("cevit_lib", "__version__")
            if not own and room(module, name) not in allowed:
                wrong.append((path, module))
    assert not wrong, "\n".join(
        f"{path.relative_to(ROOT)} imports {module}" for path, module in wrong
    )


def test_neither_the_rooms_nor_the_studies_have_a_circle():
    """A folder of the studies that reads another is not read by it."""
    reads: dict[str, set[str]] = {}
    for path in SOURCES["studies"]:
        here = path.relative_to(ROOT / "studies").parts[0].removesuffix(".py")
        rooms = {room(m, n) for m, n in ours(path) if m.split(".")[0] == "studies"}
        reads.setdefault(here, set()).update(rooms - {here, "__init__"})
    for graph in (ROOMS, reads):
        list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names it


def test_nobody_reaches_into_the_private_names_of_another_room():
    def home(module: str) -> str:
        return ".".join(module.split(".")[:2])

    wrong = []
    for path in (path for paths in SOURCES.values() for path in paths):
        here = home(".".join(path.relative_to(ROOT).with_suffix("").parts))
        foreign = {}
        for module, name in ours(path):
            if home(f"{module}.{name}" if "." not in module else module) == here:
                continue
            foreign[name or module.split(".")[0]] = module
            if any(
                part.startswith("_") and part != "__version__"
                for part in (*module.split("."), name)
            ):
                wrong.append(f"{path.relative_to(ROOT)}: {module} {name}")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and re.match(r"_[^_]", node.attr):
                if isinstance(node.value, ast.Name) and node.value.id in foreign:
                    wrong.append(f"{path.relative_to(ROOT)}: {node.value.id}.{node.attr}")
    assert not wrong, "\n".join(wrong)


def test_functions_take_at_most_six_parameters():
    """More belong together, in a dataclass. (A kernel of the GPU has no dataclasses.)"""
    wide = []
    for path in (path for paths in SOURCES.values() for path in paths):
        if path == ROOT / "cevit_lib/copula/kernel.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                names = [one.arg for one in given if one.arg not in ("self", "cls")]
                if len(names) > 6:
                    wide.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {len(names)}")
    assert not wide, "\n".join(wide)


def test_the_library_imports_no_notebook_and_no_book_tool_reaches_a_reader():
    for path in (ROOT / "cevit_lib").rglob("*.py"):
        assert not re.search(r"^\s*(from|import) notebooks\b", path.read_text(), re.MULTILINE), path
    for path in (ROOT / "notebooks").glob("*.md"):
        text = path.read_text()
        assert "myst_nb" not in text, f"{path.name} would break on Colab"
        assert not re.search(r"^\s*(from|import) tools\b", text, re.MULTILINE), path.name


def test_the_wheel_holds_the_library_alone(tmp_path):
    """Built from what git tracks, without the network: setuptools stands in this environment."""
    for file in (
        path for path in tracked() if path.suffix in (".py", ".toml", ".json", ".js", ".md")
    ):
        copy = tmp_path / "source" / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    shutil.copy(ROOT / "LICENSE", tmp_path / "source")
    code = "from setuptools.build_meta import build_wheel; print(build_wheel('..'))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path / "source"
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        folders = {name.split("/")[0] for name in archive.namelist()}
        assert {name for name in folders if not name.endswith(".dist-info")} == {"cevit_lib"}
        assert "cevit_lib/records/schema.json" in archive.namelist()


def test_a_kernel_in_the_notebooks_folder_finds_the_studies(tmp_path):
    """`pip install -e .` puts the root on the path: the chapters' code is there from any folder."""
    from jupyter_client.manager import start_new_kernel

    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    manager, client = start_new_kernel(cwd=str(ROOT / "notebooks"), env=environment)
    try:
        code = "import studies, cevit_lib; print(studies.__path__[0], cevit_lib.__path__[0])"
        said = []
        client.execute_interactive(
            code,
            timeout=60,
            output_hook=lambda m: said.append(m["content"].get("text") or str(m["content"])),
        )
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert f"{ROOT / 'studies'} {ROOT / 'cevit_lib'}" in "".join(said)


# Not a dependency of the core: the extras `vit` and `book`, and what only they bring along.
HEAVY = sorted(
    {Requirement(text).name.replace("-", "_") for extra in EXTRAS.values() for text in extra}
    | {"PIL", "sklearn", "transformers", "matplotlib", "jupyter_book", "sphinx", "IPython"}
)
BLOCKER = """
import importlib.abc, json, sys
class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ImportError(f"{{name}} is not installed here")
sys.meta_path.insert(0, Blocker())
{code}
"""


def run_without(code: str, blocked=HEAVY) -> subprocess.CompletedProcess:
    program = BLOCKER.format(blocked=set(blocked), code=code)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)


def test_the_core_works_without_timm_peft_and_the_book():
    done = run_without(
        "import torch, cevit_lib.normal, cevit_lib.copula, cevit_lib.estimation\n"
        "x, r = torch.zeros(1, dtype=torch.float64), torch.full((1,), 0.5, dtype=torch.float64)\n"
        "print(float(cevit_lib.normal.bivariate_normal_cdf(x, x, r)))"
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(1 / 3, abs=1e-12)  # 1/4 + arcsin(1/2) / (2 pi)


def test_importing_the_package_is_light():
    """Neither the package, its figures' style, nor the command's help loads torch or matplotlib."""
    code = (
        "import sys, cevit_lib, cevit_lib.clinic.style, cevit_lib.records\n"
        "heavy = ('torch', 'matplotlib', 'timm')\n"
        "print(json.dumps([name for name in heavy if name in sys.modules]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import json\n" + code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if done.returncode:
        pytest.skip("this is not a git checkout, so there is no clone whose size could be measured")
    return [
        ROOT / name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()
    ]


def test_a_clone_is_small_and_holds_no_photograph():
    files = tracked()
    assert sum(path.stat().st_size for path in files) < 15e6
    large = {
        str(path.relative_to(ROOT)): path.stat().st_size
        for path in files
        if path.stat().st_size > 1.5e6
    }
    assert not large
    photographs = {".jpg", ".jpeg", ".tif", ".tiff", ".dcm", ".bmp"}
    assert not [path.name for path in files if path.suffix.lower() in photographs]


def test_outputs_are_not_tracked():
    names = {str(path.relative_to(ROOT)) for path in tracked()}
    assert not [
        name for name in names if name.startswith(("book/executed/", "_build/", "build/", ".venv/"))
    ]


def test_the_makefile_refuses_a_second_installation(tmp_path):
    if not (make := shutil.which("make")):
        pytest.skip("make is not installed, and nobody can use the Makefile here")
    for name in ("Makefile", "requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / ".venv" / ".busy").mkdir(parents=True)
    words = [make, "book", f"PYTHON={sys.executable}"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "another make installs into .venv" in done.stderr
    assert [path.name for path in (tmp_path / ".venv").iterdir()] == [".busy"]


def test_the_readme_says_what_the_records_say():
    """The counts are computed, as the page of verdicts is; a new record may change them."""
    from studies.verdicts.readme import counts

    assert counts() in (ROOT / "README.md").read_text(), "run python -m studies.verdicts.readme"


def test_the_readme_shows_pictures_that_exist_and_names_commands_that_do():
    text = (ROOT / "README.md").read_text()
    for name in re.findall(r"\]\(((?!https?:)[^)#]+)\)", text):
        assert (ROOT / name).is_file(), name
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= targets


def test_the_spelling_is_right():
    """Prose, code and comments; the bibliography, MathJax and generated files are not ours."""
    words = {".md", ".py", ".yml", ".cff", ".css", ".toml"}
    checked = [str(path) for path in tracked() if path.suffix in words]
    command = [sys.executable, "-m", "codespell_lib", "-L", "ttest", *checked]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_example_runs_on_the_core_alone():
    """The code that a reader copies first."""
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = run_without(
        code + "\nassert outputs.grad.isfinite().all() and outputs.grad.abs().sum() > 0"
    )
    assert done.returncode == 0, done.stderr
