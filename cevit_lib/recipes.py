"""The studies of the compendium: the version of each recipe and the function that fits one of its records again.

Raise a version by hand when a change of code could move the numbers of a study: its older records then count as
outdated and no page draws them. A study is one line in each table; its owner adds both.
"""

# study -> recipe version
RECIPES: dict[str, int] = {
}

# study -> "module:function"; the function takes a record and returns a fresh one (see ``cevit_lib.verify``)
REFITS: dict[str, str] = {
}
