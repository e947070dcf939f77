"""Rules that moved after their records had been seen: a closed list, shown on the verdicts page."""

from dataclasses import dataclass

from studies.verdicts.judge import FALSE, IN_PART, NOT_REPRODUCED, NOT_RUN, REPRODUCED


@dataclass(frozen=True)
class Moved:
    """What a rule was before.

    Attributes
    ----------
    rule : str
        The old rule in words.
    word : str
        What it says of the same records.
    why : str
        Why it moved.
    """

    rule: str
    word: str
    why: str


_BEFORE = "none: the rule was committed minutes after these records were made, as it stands"
_WORD = "The bounds are the same; *misprint* was not yet a word, and the corrected form meets them."

#: Key of a claim -> its rule before. The list is closed: a rule that moves from now on gets new
#: records.
MOVED = {
    "theorem-2-1": Moved("false if the printed bracket is not positive", FALSE, _WORD),
    "corollary-a-1": Moved("false if the printed sum is not positive", FALSE, _WORD),
    "mcem-objective": Moved("false if the printed objective grows along k S", FALSE, _WORD),
    "trace": Moved(
        "false if it varies by more than .1 while V belongs to the old Gamma",
        FALSE,
        "The identity is true where V and Gamma belong together.",
    ),
    "prediction": Moved("false if a printed cell is negative for some patients", FALSE, _WORD),
    "proposition-2": Moved(
        "false if at the largest strength some eigenvalue is below 1e-3 and the mean of rho34 "
        "above .99",
        REPRODUCED,
        "The loss refuses a matrix for its eigenvalue, whatever rho34 is.",
    ),
    "minimal-variance": Moved(
        "false if it falls below .01", FALSE, "For bounded scores there is a positive bound."
    ),
    "underfit-r12": Moved(
        "the same at 350 features",
        NOT_RUN,
        "With 350 features some replications separated the classes; the study now ends at 250.",
    ),
    "remark-4": Moved(
        "false if its mean decreases for some means of the scores",
        FALSE,
        "It does increase unless the means are strongly opposite.",
    ),
    "gradient": Moved(
        "reproduced if a gradient exceeds 1e6",
        NOT_REPRODUCED,
        "The grid's last step cannot reach 1e6; the growth with 1 / (1 - rho34) is there at every "
        "step.",
    ),
    "toy-r12": Moved(_BEFORE, NOT_RUN, "Rules and runs were written side by side."),
    "toy-mixed": Moved(_BEFORE, NOT_RUN, "As above."),
    "toy-r34": Moved(_BEFORE, NOT_RUN, "As above."),
    "toy-mcmc": Moved(_BEFORE, NOT_RUN, "As above."),
    "toy-iterations": Moved(_BEFORE, NOT_RUN, "As above."),
    "toy-speed": Moved(
        "reproduced if the fastest setting is above half of that, in part if above 10",
        REPRODUCED,
        "The claim is not about the most favourable setting.",
    ),
    "vanishing": Moved(
        "reproduced if below a fifth of .72 at the last checkpoint, in part if it falls",
        IN_PART,
        "The correlation passes through zero and comes back as the training goes on.",
    ),
}
