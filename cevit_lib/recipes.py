"""The studies of the compendium: the version of each recipe, how a record is fitted again, and how close it must come.

Raise a version by hand when a change of code could move the numbers of a study: its older records then count as
outdated and no page draws them. A study is one line in the first two tables; its owner adds both.
"""

# study -> recipe version
RECIPES: dict[str, int] = {
    "fit-grape": 1,
    "fit-synthetic": 1,
}

# study -> "module:function"; the function takes a record and returns a fresh one (see ``cevit_lib.verify``)
REFITS: dict[str, str] = {
    "fit-grape": "cevit_lib.fit:refit",
    "fit-synthetic": "cevit_lib.fit:refit",
}

# study -> {place of a number, or its beginning: largest difference}; only where the spread of seeds will not do
TOLERANCES: dict[str, dict[str, float]] = {
}
