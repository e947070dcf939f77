"""The one entry to every study: for people, workers and the jobs of an engine.

python -m studies encoder-size                        fits what has no record yet
python -m studies simulation --device cuda:0,cuda:1   shared out over two devices
python -m studies simulation --list                   its fits, their record ids, which exist
python -m studies simulation --number 7               one of them, on a device that is free
"""

import argparse
import json

from cevit_lib.clinic.devices import claim
from cevit_lib.edge import at_least, check_output, guarded
from studies.study import find


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m studies``."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m studies", description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("studies", nargs="+", metavar="STUDY", help="a name in cevit_lib/records/studies.json")
    add("--scale", choices=("paper", "smoke"), default="paper")
    add("--device", help="one, or several by commas (default: the accelerator that is there)")
    add("--share", type=at_least(1), default=1, help="fits that use one device at once")
    add("--list", action="store_true", help="print the fits as JSON and make none")
    add("--number", type=at_least(0), metavar="K", help="make this one alone, counted from 0")
    add("--results", help="folder of the records (default: results)")
    options = parser.parse_args(arguments)
    return guarded("python -m studies", lambda: _run_all(options), refused=1)


def _run_all(options) -> int:
    if options.results and not options.list:
        check_output(options.results, "folder", "--results")
    for study in map(find, options.studies):
        _run(study, options)
    return 0


def _run(study, options) -> None:
    if options.list:
        print(json.dumps(study.listing(options.scale, options.results)))
        return
    if options.number is None:
        names = options.device.split(",") if options.device else [None]
        study.run(options.scale, options.results, names * options.share)
        return
    with claim(options.device, options.share) as device:
        study.run(options.scale, options.results, (device,), [options.number])


if __name__ == "__main__":
    raise SystemExit(main())
