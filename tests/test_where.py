"""Every public object names the page that introduces it, and every name of the notation page is in the library."""

import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import cevit_lib
from tools import where

ROOT = Path(__file__).resolve().parents[1]
# packages of commands and of single studies: their users call them by the command line, or read one page
COMMANDS = (
    "check_data cli doctor download pages paths publication recipes studies teaching verify where"
)
WITHOUT_A_PAGE = {"sphinx_extension", *COMMANDS.split()}


def test_every_package_has_a_page():
    found = {module.name for module in pkgutil.iter_modules(cevit_lib.__path__)}
    assert found - WITHOUT_A_PAGE == set(where.PAGE_OF), (
        "give a new package its page in tools.where.PAGE_OF"
    )


def test_the_page_of_names_is_up_to_date():
    assert (ROOT / where.NAMES).read_text(encoding="utf-8") == where.names_page(), (
        "run python -m tools.where"
    )


@pytest.mark.parametrize("package", where.PAGE_OF)
def test_every_public_object_has_a_page_that_exists_and_says_what_it_is(package):
    for name in where.public_names(package):
        page = where.page_of(package, name)
        assert page in where.texts(), f"{package}.{name}: {page} is not in the book"
        assert len(where.summary(package, name)) > 10, f"{package}.{name} has no docstring"
        elsewhere = [other for other in where.texts() if where.mentions(other, name)]
        assert page in elsewhere or not elsewhere, (
            f"{package}.{name} is shown on {elsewhere}, not on {page}"
        )


def known_names() -> set[str]:
    """Public names, their parameters and attributes, and the words for shapes."""
    known = {"n", "p", "p0", "p1", "y", "torch", "sigmoid", "estimator", "len", "a", "b"}
    for package in where.PAGE_OF:
        module = __import__(f"cevit_lib.{package}", fromlist=["x"])
        for name in where.public_names(package):
            thing = getattr(module, name)
            known.add(name)
            if inspect.isclass(thing):
                known |= {found for found in dir(thing) if not found.startswith("_")}
                for base in (
                    base for base in thing.__mro__ if base.__module__.startswith("cevit_lib")
                ):
                    known |= set(
                        re.findall(r"self\.(\w+_)\b", inspect.getsource(base))
                    )  # what a fit sets
            if callable(thing) and not (
                inspect.isclass(thing) and issubclass(thing, BaseException)
            ):
                known |= set(inspect.signature(thing).parameters)
    return known


def test_every_name_of_the_notation_page_is_in_the_library():
    text = (ROOT / "book" / "notation.md").read_text(encoding="utf-8")
    code = re.findall(r"(?<!\})`([^`\n]+)`", re.sub(r"^```.*$", "", text, flags=re.MULTILINE))
    used = {name for piece in code for name in re.findall(r"[A-Za-z_]\w*", piece)}
    shapes = {"domains", "channels", "height", "width", "cevit_lib"}
    assert used - known_names() - shapes == set()
    assert {
        "log_density",
        "CopulaParameters",
        "bivariate_normal_cdf",
        "threshold",
    } <= used  # the check sees names
