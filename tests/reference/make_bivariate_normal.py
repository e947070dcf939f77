"""Make ``bivariate_normal.json``: log Phi_2(x, y; rho) and its derivative in rho, by mpmath with 40
digits.

Run as ``python tests/reference/make_bivariate_normal.py`` (two minutes). The integral is the
textbook one over the first coordinate, ``int_{-inf}^{x} phi(t) Phi((y - rho t) / s) dt``, cut into
pieces round the integrand's mode: another route than the library's. The limits are stored as the
doubles they are.
"""

import json
import random
from pathlib import Path

import mpmath as mp

CORRELATIONS = [
    0.0,
    1e-3,
    -1e-3,
    0.1,
    -0.1,
    0.5,
    -0.5,
    0.9,
    -0.9,
    0.924,
    -0.926,
    0.99,
    -0.99,
    0.999,
    -0.999,
]
CORRELATIONS += [0.9999, -0.9999]


def log_phi(x):
    """log Phi(x), also where Phi underflows any double."""
    return mp.log(mp.erfc(-x / mp.sqrt(2)) / 2)


def bivariate(x, y, rho):
    """Phi_2 by the integral over the first coordinate (mpmath numbers)."""
    s = mp.sqrt((1 - rho) * (1 + rho))

    def integrand(t):
        return mp.exp(-t * t / 2) * mp.erfc((rho * t - y) / s / mp.sqrt(2)) / 2 / mp.sqrt(2 * mp.pi)

    def slope(t):  # of the log integrand, decreasing in t
        k = (y - rho * t) / s
        return -t - rho / s * mp.exp(-k * k / 2) / mp.sqrt(2 * mp.pi) / (
            mp.erfc(-k / mp.sqrt(2)) / 2
        )

    low, high = mp.mpf(-300), mp.mpf(300)
    for _ in range(70):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    mode = min(low, x)
    decay = max(-slope(mode), slope(mode), mp.mpf(1))
    steps = {mode + side * mp.mpf(2) ** e / decay for e in range(-4, 9) for side in (-1, 1)}
    steps |= {mode + side * mp.mpf(2) ** e for e in range(-3, 6) for side in (-1, 1)}
    if rho:
        steps |= {
            y / rho + side * s / abs(rho) * mp.mpf(2) ** e for e in range(-3, 5) for side in (-1, 1)
        }
    lowest = mode - 45
    points = sorted({p for p in steps if lowest < p < x} | {lowest, x, mode})
    return mp.quad(integrand, points, maxdegree=5)


def grid(seed=20260101):
    """Points in [-30, 8]^2: at random, along the ridge, and close to ties with the correlation near
    -1.
    """
    source = random.Random(seed)
    for number in range(510):
        rho = CORRELATIONS[number % len(CORRELATIONS)]
        kind = number // len(CORRELATIONS) % 5
        if kind == 0:
            x, y = source.uniform(-8, 8), source.uniform(-8, 8)
        elif kind == 1:
            x, y = source.uniform(-30, 8), source.uniform(-30, 8)
        elif kind == 2:
            x = source.uniform(-8, 8)
            y = -x + source.gauss(0, 1) * 10.0 ** source.uniform(-4, 0)
        elif kind == 3:
            x = source.uniform(-20, 3)
            y = min(8.0, rho * x + source.gauss(0, 1.5) * (1 - rho * rho) ** 0.5)
        else:
            x = source.uniform(-30, 3)
            y = x * (1 + 0.01 * source.gauss(0, 1) * (1 - rho * rho) ** 0.5)
        yield x, y, rho
    yield from [(0.0, 0.0, r) for r in CORRELATIONS] + [(a, -a, -0.9999) for a in (0.5, 3.0, 6.0)]
    for a in (3.0, 3.5, 4.0, 5.0, 7.0):
        for offset in (-0.03, -1e-3, 1e-3, 1e-6):
            yield a, -a + offset, -0.9999
            yield a, -a + offset, -0.999


def main():
    mp.mp.dps = 40
    rows = []
    for x, y, rho in grid():
        value = mp.log(bivariate(mp.mpf(x), mp.mpf(y), mp.mpf(rho)))
        rows.append([x, y, rho, mp.nstr(value, 22)])
    text = ",\n".join(json.dumps(row) for row in rows)
    Path(__file__).with_name("bivariate_normal.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
