"""How far a fit is: a bar on a terminal, a line an epoch in a log, both with the time that is left.

Training logs its epochs and estimators their iterations, as ``(name, done, of how many)``; this
listens. An estimator's iterations are shown and not counted: how many it needs nobody knows.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

from cevit_lib.clinic.options import ARMS

CROSS_FITS = 3  # further warm-ups of a fold whose estimate is cross-fitted
PAUSE = 1.0  # seconds between two lines of a log, but for a stage's last epoch


def stages_of(configuration: dict[str, Any]) -> dict[str, int]:
    """Return the stages of one fold with their epochs, in their order."""
    if configuration["preset"] == "paper":
        from cevit_lib.training.recipe import PAPER_COPULA, PAPER_WARM_UP

        first, further, crossed = PAPER_WARM_UP.epochs, PAPER_COPULA.epochs, 0
    else:
        recipes = configuration["recipes"]
        first, further = (recipes[stage]["epochs"] for stage in ("warm_up", "copula"))
        crossed = CROSS_FITS * (configuration["estimate_on"] == "cross-fitted")
    crosses = {f"cross-fit {number + 1}": first for number in range(crossed)}
    return {"warm-up": first, **crosses, "copula": further, ARMS[1]: further}


class Watch(logging.Handler):
    """Shows where a command with several folds is.

    Parameters
    ----------
    folds : int
    stages : dict of str to int
        Epochs of each stage of a fold, in their order.
    stream : text stream
        A terminal gets a bar (tqdm), anything else lines.
    """

    def __init__(self, folds: int, stages: dict[str, int], stream: TextIO | None = None) -> None:
        super().__init__(logging.INFO)
        self.stream, self.stages = stream or sys.stderr, stages
        self.each, self.folds = sum(stages.values()), folds
        self.before, self.done, self.name = 0, 0, ""
        self.made, self.spent, self.last, self.told = 0, 0.0, time.monotonic(), 0.0
        self.bar = None
        if self.stream.isatty():
            from tqdm import tqdm

            size = shutil.get_terminal_size()  # 80 by 24 where a terminal tells none
            self.bar = tqdm(
                total=folds * self.each,
                file=self.stream,
                ncols=size.columns,
                nrows=size.lines,
                bar_format="{desc} {percentage:3.0f}%|{bar}|",
                leave=False,
                delay=1e-9,
            )

    @contextlib.contextmanager
    def fold(self, name: str) -> Iterator[None]:
        """Show a fold by its name; afterwards it counts as done, whatever it did."""
        self.name, self.last = name, time.monotonic()
        try:
            yield
        finally:
            self.before += self.each
            self.done = self.before
            if self.bar is not None:
                self.bar.clear()

    def emit(self, record: logging.LogRecord) -> None:
        stage, done, of = record.args
        if stage not in self.stages:
            self._show(f"{stage}, iteration {done} of at most {of}", False)
            return
        now, names = time.monotonic(), list(self.stages)
        earlier = sum(self.stages[name] for name in names[: names.index(stage)])
        self.done = self.before + earlier + done
        self.made, self.spent, self.last = self.made + 1, self.spent + now - self.last, now
        self._show(f"{stage}, epoch {done} of {of}{getattr(record, 'said', '')}", done == of)

    def left(self) -> str:
        """Return about how long the rest takes, from the epochs (and estimates) so far."""
        if not self.made:
            return "time left unknown yet"
        epochs = self.folds * self.each - self.done
        return f"about {in_time(epochs * self.spent / self.made)} left"

    def _show(self, text: str, last: bool) -> None:
        text = f"{self.name}: {text}"
        if self.bar is not None:
            self.bar.n = self.done
            self.bar.set_description_str(f"{text}; {self.left()}")
            if self.done == self.before + self.each:
                self.bar.clear()  # a line on the fold comes next
        elif last or time.monotonic() - self.told >= PAUSE:
            print(f"{text}; {self.left()}", file=self.stream, flush=True)
            self.told = time.monotonic()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        super().close()


def in_time(seconds: float) -> str:
    """Return a duration as a person says it: ``40 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def watching(folds: int, stages: dict[str, int], shown: bool = True) -> Iterator[Watch]:
    """Let a watch listen to the library inside the block; a process that shows nothing only
    counts.
    """
    watch, logger = Watch(folds, stages), logging.getLogger("cevit_lib")
    level = logger.level
    if shown:
        logger.addHandler(watch)
        logger.setLevel(logging.INFO)
    try:
        yield watch
    finally:
        logger.removeHandler(watch)
        logger.setLevel(level)
        watch.close()
