"""What the library advises its callers, as what a user of the commands can type."""

import re
import sys

OPTIONS = {
    r"raise max_iter \(cevit fit: --max-iter\) or tol\b": "raise --max-iter",
    r"max_iter \(cevit fit: --max-iter\)": "--max-iter",
    r"\bbatch_size=(\d+)": r"--batch-size \1",
    r"\baccumulation=(\d+)": r"--accumulation \1",
    r"a larger held_out_share than [\d.]+, or estimate_on='cross-fitted'": (
        "--estimate-on cross-fitted"
    ),
    r"a tenth of it, schedule='cosine', or other initial weights": (
        "a tenth of it (--learning-rate), or other initial weights (--seed, --weights)"
    ),
    r"pass weights='vit.pth' \(--weights vit.pth\)": "give --weights vit.pth",
    r"take lora_rank=0 \(--lora-rank 0\)": "take --lora-rank 0",
    r"\(pretrained=False\)": "(neither --pretrained nor --weights)",
    r"Pass weights=\.\.\., pretrained=True, or lora_rank=0": (
        "Give --weights FILE, --pretrained, or --lora-rank 0"
    ),
    r"See timm\.list_models\('vit\*', pretrained=True\)": "timm's documentation lists them",
    r"the copula loss will refuse it\. Shrink it \(CopulaParameters\.shrink\), estimate on "
    r"held-out outputs, or check that there are more patients than responses": (
        "it is drawn towards independence before training goes on, and the record says how far. "
        "More patients or fewer responses mend it"
    ),
}


def in_options(text: str) -> str:
    """Return a message of the library in words of the commands."""
    for said, typed in OPTIONS.items():
        text = re.sub(said, typed, text)
    return text


def say_aside(text: str) -> None:
    """Print a remark on the error stream, above a bar that may be there."""
    bars = sys.modules.get("tqdm")
    if bars is None:
        print(text, file=sys.stderr)
    else:
        bars.tqdm.write(text, file=sys.stderr)
