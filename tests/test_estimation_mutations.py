"""Each planted mutation of the estimators is killed by the test that it names (see ``tests/mutations.py``)."""

import importlib.util
from pathlib import Path


def test_every_mutation_is_killed_by_its_named_test():
    spec = importlib.util.spec_from_file_location(
        "mutations", Path(__file__).with_name("mutations.py")
    )
    mutations = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mutations)
    fates = mutations.run()
    assert len(fates) == len(mutations.MUTATIONS) >= 12
    assert {what: fate for what, fate in fates.items() if fate != "killed"} == {}
