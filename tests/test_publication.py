"""What is published beside the pages: reference, notebooks for Colab, archives, PDF, the workflows'
promises."""

import ast
import doctest
import importlib
import json
import pkgutil
import re
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from rocrate.rocrate import ROCrate

import cevit_lib
from tools import pages, publication, sphinx_extension
from tools.crate import LICENCE

ROOT = Path(__file__).resolve().parents[1]
ROOMS = {each.name for each in pkgutil.iter_modules(cevit_lib.__path__)} - {"paths", "edge"}


def test_every_name_of_the_notation_page_is_in_the_library():
    text = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    code = re.findall(r"(?<!\})`([^`\n]+)`", re.sub(r"^```.*$", "", text, flags=re.MULTILINE))
    used = {name for piece in code for name in re.findall(r"[A-Za-z_]\w*", piece)}
    trees = [ast.parse(path.read_text()) for path in (ROOT / "cevit_lib").rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    known = {getattr(node, key, None) for node in nodes for key in ("name", "arg", "attr", "id")}
    assert used - known - {"cevit_lib"} == set()
    assert {"log_density", "CopulaParameters", "bivariate_normal_cdf", "threshold"} <= used


def test_every_room_of_the_library_stands_in_the_reference():
    listed = {Path(name).name for name in pages.contents(ROOT) if name.startswith("book/api/")}
    named = (ROOT / "book" / "api" / "index.md").read_text()
    assert listed == {"index", *ROOMS} and all(f"  cevit_lib.{room}\n" in named for room in ROOMS)


def test_buttons_lead_to_a_notebook_that_is_written_and_to_the_source_of_a_page():
    """Colab opens what the workflow writes from a committed copy; the reference has no source."""
    for name in pages.contents(ROOT):
        colab = sphinx_extension.colab_address(name, "owner/name")
        source = sphinx_extension.source_address(name, "owner/name")
        assert (colab is None, source is None) == ("/executed/" not in name, "/api/" in name)
        if colab:
            assert (ROOT / "notebooks" / "ipynb" / Path(colab).name).is_file()
        if source:
            assert (ROOT / source.split("/edit/main/")[1]).is_file()


@pytest.mark.parametrize("package", sorted(ROOMS))
def test_the_examples_of_the_reference_run(package):
    module = importlib.import_module(f"cevit_lib.{package}")
    inside = {each.name for each in pkgutil.iter_modules(getattr(module, "__path__", []))}
    names = [f"cevit_lib.{package}.{name}" for name in inside - {"__main__"}]
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    known = {name: thing for name, thing in vars(module).items() if not name.startswith("__")}
    for place in [module, *map(importlib.import_module, names)]:
        done = doctest.testmod(place, extraglobs=known, optionflags=options)
        assert not done.failed, place


def test_every_action_is_pinned_to_a_commit():
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        for used in re.findall(r"uses: *(.+)", path.read_text()):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v[\d.]+", used), f"{path.name}: {used}"


def test_a_release_describes_every_record_by_study_date_and_licence(tmp_path, monkeypatch):
    monkeypatch.setattr(publication, "EXECUTED", Path("notebooks/ipynb"))
    notebooks, records = publication.write_assets(tmp_path)
    with zipfile.ZipFile(notebooks) as packed:
        assert "notebooks/ipynb/data.ipynb" in packed.namelist()
    crate = ROCrate(records)
    assert crate.license.id == LICENCE and crate.name and crate.description and crate.datePublished
    told = {each.id: each for each in crate.data_entities}
    there = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert set(told) == {"LICENSE-text"} | {str(path.relative_to(ROOT)) for path in there}
    for path in there:
        each, study = told[str(path.relative_to(ROOT))], path.parent.name
        record = json.loads(path.with_suffix(".json").read_text())
        assert each.get("dateCreated") == record.get("created")
        assert "license" not in each, "files of a crate inherit the licence of the whole"
        assert study == "paper" or each["about"]["name"] == f"Study {record['study']}"


def workflow() -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / "publish.yml").read_text())["jobs"]


def test_only_main_deploys_and_its_buttons_lead_to_notebooks_that_are_there():
    jobs = workflow()
    assert "refs/heads/main" in jobs["colab"]["if"] and "colab" in jobs["pages"]["needs"]
    assert jobs["release"]["if"] == "github.ref_type == 'tag'" and "environment" in jobs["pages"]
    steps = jobs["book"]["steps"]
    (made,) = [step for step in steps if "'release' || 'site colab'" in step.get("run", "")]
    assert "CEVIT_REPOSITORY" in made["env"]
    assert "_build/html" in [step.get("with", {}).get("path") for step in steps]


MAKER = """#!/bin/sh
case "$*" in
  *pages*) mkdir -p _build/html/book;;
  *student) mkdir -p build/student && : > build/student/cevit-9.zip;;
  *slides) mkdir -p build/slides && : > build/slides/index.html;;
  *pdf) : > _build/cevit.pdf;;
esac
"""


def test_the_site_has_what_the_pages_link_to_where_the_book_has_an_address(tmp_path):
    """The Makefile runs as it is, with makers that leave an empty file each."""
    for name in ("requirements.lock", "pyproject.toml", "Makefile"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").write_text(MAKER)
    (tmp_path / ".venv" / "bin" / "python").chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    done = subprocess.run(["make", "site"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    links = {}
    for page in (ROOT / "book").glob("*.md"):
        for box in re.findall(r"```\{only\} published.*?```", page.read_text(), re.DOTALL):
            links[page.stem] = re.findall(r'href="([^"]+)"', box)
    assert set(links) == {"preface", "teaching_notes"}
    for link in {link for found in links.values() for link in found}:
        assert (tmp_path / "_build" / "html" / "book" / link).is_file(), link
