"""The reference, made at each build: a page for each room of the library that ``_toc.yml`` lists
under ``book/api``."""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path

from tools.pages import REFERENCE, contents

_INDEX = """# Reference

Every public object of the library, from its docstring. The chapters explain them: the first
mention of a name on a page leads here.

| Room | What it is |
|---|---|
"""
_ROOM = """# `cevit_lib.{room}`

```{{eval-rst}}
.. automodule:: cevit_lib.{room}
   :members:
   :undoc-members:
   {imported}
{constants}
```
"""


def rooms(root: Path | None = None) -> list[str]:
    """The rooms that have a page, in the order of the contents."""
    names = [Path(name) for name in contents(root) if Path(name).parent == REFERENCE]
    return [name.name for name in names if name.name != "index"]


def public_names(room: str) -> list[str]:
    """Names in a room's ``__all__``; of a module without one, its own classes and functions."""
    module = import_module(f"cevit_lib.{room}")
    if hasattr(module, "__all__"):
        return list(module.__all__)
    things = inspect.getmembers(module, lambda thing: inspect.getmodule(thing) is module)
    return [name for name, _ in things if not name.startswith("_")]


def room_page(room: str) -> str:
    """The source of a room's page: autodoc makes the rest of it."""
    module = import_module(f"cevit_lib.{room}")
    # autodoc passes over an imported constant: it carries no docstring
    things = {name: getattr(module, name) for name in public_names(room)}
    constants = {
        name: " ".join(repr(thing).split())
        for name, thing in things.items()
        if not (inspect.isclass(thing) or inspect.isroutine(thing))
    }
    entries = [
        f"\n.. py:data:: {name}\n   :module: cevit_lib.{room}\n   :value: {value}\n"
        for name, value in constants.items()
    ]
    imported = ":imported-members:\n   " if hasattr(module, "__all__") else ""
    left_out = f":exclude-members: {', '.join(constants)}" if constants else ""
    return _ROOM.format(room=room, imported=imported + left_out, constants="".join(entries))


def index_page(names: list[str]) -> str:
    """The source of the first page: each room and the first paragraph of its docstring."""
    modules = {name: import_module(f"cevit_lib.{name}") for name in names}
    texts = {name: inspect.getdoc(module).split("\n\n")[0] for name, module in modules.items()}
    return _INDEX + "".join(
        f"| {{doc}}`{name}` | {' '.join(text.split())} |\n" for name, text in texts.items()
    )


def write_reference(root: Path) -> None:
    """Write the pages that are not there in this form yet; an unchanged one is not read again."""
    names = rooms(root)
    texts = {name: room_page(name) for name in names}
    if names:
        texts["index"] = index_page(names)
    for name, text in texts.items():
        page = root / REFERENCE / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        if not page.is_file() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
