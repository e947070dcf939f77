"""Figures of "Stronger covariance", "When it helps" and "Proofs, checked"; all draw records or closed forms."""

import numpy as np

from cevit_lib.clinic.old_style import color, mark_smoke, new_figure, style

TRUE_R34, TRUE_R12 = 0.569, 0.72
LABELS = {
    "none": "none",
    "shared-noise": "shared noise",
    "shared-noise-rescaled": "shared noise, rescaled",
    "constant-shift": "constant shift",
    "scaling": "scaling",
    "label-tracking": "label tracking",
    "own-latent-tracking": "own-latent tracking",
    "shared-latent-tracking": "shared-latent tracking",
    "averaging": "averaging of the eyes",
}
"""Distortion -> words."""
ROLES = {
    "maximum-likelihood": ("maximum likelihood", "exact", "o", "-"),
    "posterior": ("proper posterior", "likelihood", "v", ":"),
    "exact-em": ("exact E-step + cov2cor", "mcem", "^", "-."),
    "gibbs": ("Gibbs, inverse Wishart + cov2cor", "rank", "P", (0, (5, 1))),
    "fmcem": ("fMCEM (univariate)", "fmcem", "s", "--"),
    "fmcem-bivariate": ("fMCEM (bivariate)", "score", "d", (0, (1, 1))),
}
"""Estimator -> words, colour's meaning, marker, line."""
_PATH = [
    ("o", "-"),
    ("s", "--"),
    ("^", "-."),
    ("v", ":"),
    ("D", "-"),
    ("P", "--"),
    ("X", "-."),
    ("d", ":"),
]
_INK = ["#0072B2", "#D55E00", "#117755", "#A34A79", "#B07A00", "#3B8FBF", "#6f6f6f", "#1a1a1a"]


def _finish(figure, records):
    records = records if isinstance(records, list) else [records]
    return mark_smoke(figure) if any(r["scale"] == "smoke" for r in records) else figure


def _mean(record, name):
    entry = record["metrics"].get(name) or {}
    value = entry.get("mean")
    return np.nan if value is None else value


def _error(record, name):
    value = (record["metrics"].get(name) or {}).get("se")
    return 0.0 if value is None else 2 * value


def _of(records, **wanted):
    return [r for r in records if all(r["configuration"].get(k) == v for k, v in wanted.items())]


def _line(ax, role, x, records, name, prefix=""):
    label, meaning, marker, line = ROLES[role]
    key = f"{prefix}{role}:{name}"
    values, errors = [_mean(r, key) for r in records], [_error(r, key) for r in records]
    ax.errorbar(
        x,
        values,
        errors,
        color=color(meaning),
        marker=marker,
        linestyle=line,
        label=label,
        markersize=4,
    )


def _truth(ax, value, label=None):
    ax.axhline(value, color=color("truth"), linestyle=":", linewidth=1.2, label=label)


def plot_paths(records, role="maximum-likelihood", axes=None):
    """Proposition 1: estimate of rho34 against Cov(q-hat)/Cov(q), one path per distortion, bars of 2 SE.

    The proposition says that every point right of 1 lies above the dotted line.
    """
    with style():
        figure, ax = (
            new_figure("tall" if axes is None else "single")
            if axes is None
            else (axes.figure, axes)
        )
        ax.axvspan(1.0, 400, color=color("light"), alpha=0.35, linewidth=0)
        start = _of(records, distortion="none")[0]
        for (name, label), (marker, line), ink in zip(
            list(LABELS.items())[1:], _PATH, _INK, strict=True
        ):
            path = sorted(
                _of(records, distortion=name), key=lambda r: r["configuration"]["strength"]
            )
            below = [r for r in path if r["configuration"]["strength"] < 1 and name == "scaling"]
            path = below + [start] + [r for r in path if r not in below]
            x = [_mean(r, "ratio34") for r in path]
            y, e = [_mean(r, f"{role}:r34") for r in path], [_error(r, f"{role}:r34") for r in path]
            ax.errorbar(
                x, y, e, color=ink, marker=marker, linestyle=line, label=label, markersize=5
            )
        _truth(ax, TRUE_R34, "truth")
        ax.set(
            xscale="log",
            xlabel="Cov of the plug-in scores / Cov of the true ones",
            ylabel="estimate of rho34",
        )
        ax.set_ylim(-0.1, 1.05)
        ax.legend(ncols=3, loc="upper center", bbox_to_anchor=(0.5, -0.14))
    return _finish(figure, records)


def plot_gallery(
    records, roles=("maximum-likelihood", "exact-em", "fmcem", "fmcem-bivariate"), quantity="r34"
):
    """Every distortion in its own panel: four estimators of rho34 against the strength, bars of 2 SE."""
    with style():
        figure, axes = new_figure((7.2, 5.6), 2, 4, sharey=True)
        start = _of(records, distortion="none")[0]
        for ax, (name, label) in zip(axes.ravel(), list(LABELS.items())[1:], strict=True):
            path = sorted(
                _of(records, distortion=name), key=lambda r: r["configuration"]["strength"]
            )
            steps = [r["configuration"]["strength"] for r in path]
            path, steps = ([*path], steps) if name == "scaling" else ([start, *path], [0.0, *steps])
            for role in roles:
                _line(ax, role, range(len(path)), path, quantity)
            _truth(ax, TRUE_R34)
            ax.set_xticks(range(len(path)), [f"{s:g}" for s in steps])
            ax.set_title(label, fontsize=9)
        for ax in axes[:, 0]:
            ax.set_ylabel("estimate of rho34")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return _finish(figure, records)


def plot_samplers(records):
    """Chosen distortions: the proper posterior goes with maximum likelihood, the Gibbs sampler with cov2cor."""
    with style():
        figure, axes = new_figure("wide", 1, 2, sharey=True)
        order = sorted(records, key=lambda r: list(LABELS).index(r["configuration"]["distortion"]))[
            ::-1
        ]
        words = [
            f"{LABELS[r['configuration']['distortion']]} {r['configuration']['strength']:g}"
            for r in order
        ]
        for ax, quantity in zip(axes, ("r34", "smallest_eigenvalue"), strict=True):
            for shift, role in zip(
                (0.24, 0.08, -0.08, -0.24),
                ("maximum-likelihood", "posterior", "gibbs", "exact-em"),
                strict=True,
            ):
                label, meaning, marker, _ = ROLES[role]
                x, e = ([f(r, f"{role}:{quantity}") for r in order] for f in (_mean, _error))
                y = np.arange(len(order)) + shift
                ax.errorbar(
                    x, y, xerr=e, color=color(meaning), marker=marker, linestyle="none", label=label
                )
            ax.set_yticks(range(len(order)), [w.replace("none 0", "no distortion") for w in words])
        axes[0].axvline(TRUE_R34, color=color("truth"), linestyle=":", linewidth=1.2)
        axes[0].set_xlabel("estimate of rho34 (dotted: truth)")
        axes[1].set_xlabel("smallest eigenvalue of the estimate")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return _finish(figure, records)


def plot_singularity(records):
    """Proposition 2: fMCEM's smallest eigenvalue under label tracking, and R2(u3 | u1, u2) without any distortion."""
    with style():
        figure, (left, right) = new_figure("wide", 1, 2)
        tracked = sorted(
            _of(records, correlation="exchangeable"), key=lambda r: r["configuration"]["strength"]
        )
        spread = sorted(_of(records, correlation="toy"), key=lambda r: r["configuration"]["sd"])
        for role in ("maximum-likelihood", "exact-em", "fmcem"):
            label, meaning, marker, line = ROLES[role]
            worst = [max(min(r["columns"][f"{role}:smallest_eigenvalue"]), 1e-7) for r in tracked]
            k = [r["configuration"]["strength"] for r in tracked]
            left.plot(k, worst, color=color(meaning), marker=marker, linestyle=line, label=label)
            _line(right, role, [r["configuration"]["sd"] for r in spread], spread, "r_squared_3")
        left.axhline(1e-3, color=color("grey"), linewidth=0.8)
        left.text(2.15, 1.25e-3, "the loss refuses below", fontsize=8, color=color("grey"))
        left.set(
            yscale="log",
            xlabel="k in q + k (2y - 1)",
            ylabel="smallest eigenvalue, worst replication",
        )
        right.set(
            xscale="log",
            xlabel="SD of the true scores",
            ylabel="R2 of u3 on u1, u2",
            ylim=(0, 1.02),
        )
        right.axhline(0.0884, color=color("truth"), linestyle=":", linewidth=1.2)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return _finish(figure, records)


def plot_residuals(record, linear):
    """Proposition 3: residual correlation under each distortion (left), least squares with many features (right)."""
    with style():
        figure, (left, right) = new_figure((7.2, 4.2), 1, 2)
        left.axvspan(1.0, 60, color=color("light"), alpha=0.35, linewidth=0)
        paths = record["metrics"]["paths"]
        for (name, path), (marker, line), ink in zip(paths.items(), _PATH, _INK, strict=False):
            left.plot(path["ratio"], path["limit"], color=ink, linestyle=line, linewidth=1.4)
            left.plot(
                path["points"]["ratio"],
                path["points"]["estimate"],
                color=ink,
                marker=marker,
                linestyle="none",
                label=LABELS[name].replace("latent", "error"),
            )
        _truth(left, TRUE_R12)
        left.set(
            xscale="log",
            xlabel="Cov of plug-in means / true",
            ylabel="limit of the estimate of rho12",
        )
        left.legend(fontsize=7.5, loc="lower right")
        for shared, marker in ((True, "o"), (False, "s")):
            rows = sorted(_of(linear, shared=shared), key=lambda r: r["configuration"]["features"])
            x = [r["configuration"]["features"] / r["configuration"]["n"] for r in rows]
            for kind, ink, line in (("in-sample", "fmcem", "--"), ("cross-fitted", "exact", "-")):
                key = f"{kind}:maximum-likelihood:r12"
                y, e = [_mean(r, key) for r in rows], [_error(r, key) for r in rows]
                label = f"{kind}, {'shared' if shared else 'separate'} weights"
                right.errorbar(
                    x, y, e, color=color(ink), marker=marker, linestyle=line, label=label
                )
        _truth(right, TRUE_R12)
        right.set(xlabel="features per eye / patients", ylabel="estimate of rho12", ylim=(0.3, 0.8))
        right.legend(fontsize=8, loc="lower left")
    return _finish(figure, [record, *linear])


def plot_recalibration(records):
    """Before and after recalibrating each eye's scores on other patients: what miscalibration alone does."""
    with style():
        figure, ax = new_figure("wide")
        names = [n for n in LABELS if _of(records, distortion=n)][::-1]
        for y, name in enumerate(names):
            before, after = (
                _of(records, distortion=name, recalibrate=flag)[0] for flag in (False, True)
            )
            for role, offset in (("maximum-likelihood", 0.15), ("exact-em", -0.15)):
                label, meaning, marker, _ = ROLES[role]
                a, b = (_mean(r, f"{role}:r34") for r in (before, after))
                ax.annotate(
                    "",
                    (b, y + offset),
                    (a, y + offset),
                    arrowprops={"arrowstyle": "->", "color": color(meaning)},
                )
                ax.plot(
                    [a],
                    [y + offset],
                    marker=marker,
                    color=color(meaning),
                    markerfacecolor="white",
                    label=f"{label}: before" if y == 0 else None,
                    linestyle="none",
                )
                ax.plot(
                    [b],
                    [y + offset],
                    marker=marker,
                    color=color(meaning),
                    linestyle="none",
                    label=f"{label}: after" if y == 0 else None,
                )
        ax.axvline(TRUE_R34, color=color("truth"), linestyle=":", linewidth=1.2)
        ax.set_yticks(
            range(len(names)), [LABELS[n].replace("none", "no distortion") for n in names]
        )
        ax.set_xlabel("estimate of rho34 (dotted: truth)")
        handles, labels = ax.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return _finish(figure, records)


def plot_overfitting(records):
    """Linear models: estimates of rho34 and log-likelihood of new patients, from in-sample and cross-fitted outputs."""
    with style():
        figure, axes = new_figure("tall", 2, 2, sharex=True)
        for column, shared in enumerate((True, False)):
            rows = sorted(_of(records, shared=shared), key=lambda r: r["configuration"]["features"])
            x = [r["configuration"]["features"] / r["configuration"]["n"] for r in rows]
            top, bottom = axes[:, column]
            for kind, fill in (("in-sample", "white"), ("cross-fitted", None)):
                for role in ("maximum-likelihood", "fmcem"):
                    label, meaning, marker, line = ROLES[role]
                    options = {
                        "color": color(meaning),
                        "marker": marker,
                        "linestyle": line,
                        "markerfacecolor": fill or color(meaning),
                        "label": f"{label}, {kind}",
                    }
                    for ax, name in ((top, "r34"), (bottom, "test_log_likelihood")):
                        key = f"{kind}:{role}:{name}"
                        ax.errorbar(
                            x,
                            [_mean(r, key) for r in rows],
                            [_error(r, key) for r in rows],
                            **options,
                        )
            _truth(top, TRUE_R34)
            top.set_title(f"{'shared' if shared else 'separate'} weights")
            bottom.set_xlabel("features per eye / patients")
        axes[0, 0].set_ylabel("estimate of rho34")
        axes[1, 0].set_ylabel("log-likelihood per new patient")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
    return _finish(figure, records)


def plot_network(record):
    """A network from its first steps to past interpolation: Cov ratio, rho12, rho34 and new patients' likelihood."""
    steps = record["configuration"]["checkpoints"]

    def series(name):
        return [_mean(record, f"{s}:{name}") for s in steps], [
            _error(record, f"{s}:{name}") for s in steps
        ]

    with style():
        figure, axes = new_figure("tall", 2, 2, sharex=True)
        ratio, r12, r34, score = axes.ravel()
        for kind, ink, line, marker in (
            ("in-sample", "fmcem", "--", "s"),
            ("cross-fitted", "exact", "-", "o"),
        ):
            options = {"color": color(ink), "linestyle": line, "marker": marker, "label": kind}
            ratio.errorbar(steps, *series(f"{kind}:ratio34"), **options)
            for ax, name in ((r12, "r12"), (r34, "r34")):
                ax.errorbar(steps, *series(f"{kind}:maximum-likelihood:{name}"), **options)
            loss, error = map(np.array, series(f"{kind}:maximum-likelihood:test_log_likelihood"))
            score.errorbar(steps, -loss, [np.minimum(error, -0.9 * loss), error], **options)
            r34.errorbar(
                steps,
                *series(f"{kind}:fmcem:r34"),
                **(options | {"marker": "d", "linestyle": ":", "label": f"{kind}, fMCEM"}),
            )
        ratio.axhline(1, color=color("truth"), linestyle=":", linewidth=1.2)
        ratio.set(yscale="log", ylabel="Cov of scores / truth (classification)", xscale="log")
        _truth(r12, TRUE_R12)
        _truth(r34, TRUE_R34)
        r12.set_ylabel("estimate of rho12")
        r34.set_ylabel("estimate of rho34")
        score.set(ylabel="negative log-likelihood\nper new patient", yscale="log")
        for ax in axes[1]:
            ax.set_xlabel("training step")
        handles, labels = r34.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return _finish(figure, record)


def plot_total_covariance(record):
    """Remark 4: what is left for the latent correlation (left), and the within part at a fixed rho34 (right)."""
    metrics = record["metrics"]
    gamma = np.array(metrics["covariance"])
    with style():
        figure, (left, right) = new_figure("wide", 1, 2)
        change = np.linspace(-0.25, 0.5, 7)  # rho12 stays below 1
        left.plot(
            change, TRUE_R12 - change, color=color("left"), marker="o", label="rho12 (regression)"
        )
        left.plot(
            change,
            TRUE_R34 - change,
            color=color("copula"),
            marker="s",
            linestyle="--",
            label="rho34 (classification)",
        )
        left.set(
            xlabel="error of Cov of the scores",
            ylabel="correlation that keeps the responses'\njoint distribution",
        )
        left.legend()
        for (name, curve), line in zip(metrics["curves"].items(), ("-", "--", "-."), strict=True):
            label = "centred scores" if name == "centred" else f"scores of {name}"
            right.plot(gamma, curve["within"], linestyle=line, label=label)
        right.set(xlabel="Cov(q3, q4)", ylabel="mean Cov(y3, y4 | images)", ylim=(0, None))
        right.legend()
    return _finish(figure, record)


def plot_rules(record):
    """Joint and per-eye accuracy of the marginal, the joint and the printed rule, for three populations."""
    with style():
        figure, axes = new_figure("wide", 1, 2, sharey=True)
        names = [k for k in record["metrics"]]
        words = {"uniform": "p uniform", "logit-1.5": "logits, SD 1.5", "logit-3": "logits, SD 3"}
        rules = (
            ("marginal", "grey", "s", -0.2),
            ("joint", "exact", "o", 0.0),
            ("printed", "paper", "D", 0.2),
        )
        for ax, metric, label in zip(
            axes, ("per_eye", "joint"), ("one eye right", "both eyes right"), strict=True
        ):
            for rule, ink, marker, shift in rules:
                y = [record["metrics"][n][rule][metric] for n in names]
                ax.plot(
                    np.arange(len(names)) + shift,
                    y,
                    marker,
                    color=color(ink),
                    label=f"{rule} rule",
                    markersize=7,
                )
            ax.set_xticks(range(len(names)), [words[n] for n in names])
            ax.set_title(f"probability of {label}")
        axes[0].set_ylabel("expected accuracy")
        axes[0].legend(loc="lower left")
        axes[0].set_ylim(0.35, 0.9)
    return _finish(figure, record)


def plot_gain(record):
    """OLS / GLS mean-squared-error ratio against the correlation of the two eyes' images."""
    found, rho = record["metrics"], record["configuration"]["rho"]
    with style():
        figure, ax = new_figure("single")
        r = np.linspace(0, 1, 101)
        ax.plot(
            r,
            (1 - rho**2 * r**2) / (1 - rho**2),
            color=color("truth"),
            linestyle=":",
            label="large-sample limit",
        )
        for kind, meaning, marker in (("separate", "exact", "o"), ("shared", "copula", "s")):
            rows = [(float(k.split(":")[1]), v) for k, v in found.items() if k.startswith(kind)]
            x = [a for a, _ in rows]
            ax.errorbar(
                x,
                [v["monte_carlo"] for _, v in rows],
                [2 * v["se"] for _, v in rows],
                color=color(meaning),
                marker=marker,
                linestyle="none",
                label=f"{kind} weights",
            )
        ax.axhline(1, color=color("grey"), linewidth=0.8)
        ax.set(xlabel="correlation of the two eyes' regressors", ylabel="MSE of OLS / MSE of GLS")
        ax.legend()
    return _finish(figure, record)


def plot_minima(record):
    """Where a wrong rho34 drives the margins of an unrestricted model."""
    metrics = record["metrics"]
    with style():
        figure, ax = new_figure("single")
        rho = np.array([float(k) for k in metrics["binary_pair"]])
        values = np.array(list(metrics["binary_pair"].values()))
        for j, (name, marker, line) in enumerate((("left", "o", "-"), ("right", "s", "--"))):
            shift = 100 * (values[:, j] - metrics["true_margins"][j])
            label = f"{name} eye, true P(y = 1) = {metrics['true_margins'][j]:.3f}"
            ax.plot(rho, shift, color=color(name), marker=marker, linestyle=line, label=label)
        ax.axhline(0, color=color("truth"), linestyle=":", linewidth=1.2)
        ax.axvline(TRUE_R34, color=color("grey"), linewidth=0.8)
        ax.set(
            xlabel="rho34 in the loss (true: .569)",
            ylabel="error of the margin (percentage points)",
        )
        ax.legend()
    return _finish(figure, record)


def plot_truncation(record):
    """The Tallis lemma: conditional correlation against the threshold, right and printed claim."""
    from studies.theory import (
        printed_quadrant_covariance,
        quadrant_correlation,
        quadrant_covariance,
    )

    c = np.linspace(-3, 3, 61)
    with style():
        figure, (left, right) = new_figure("wide", 1, 2)
        left.plot(
            c,
            quadrant_correlation(c, c, TRUE_R34),
            color=color("ours"),
            label="Corr(Z1, Z2 | both > c)",
        )
        _truth(left, TRUE_R34, "rho = .569; the lemma says above this")
        left.set(xlabel="threshold c of both", ylabel="correlation in the quadrant", ylim=(0, 0.75))
        left.legend(fontsize=8, loc="upper right")
        right.plot(
            c, quadrant_covariance(c, c, TRUE_R34), color=color("ours"), label="right covariance"
        )
        right.plot(
            c,
            printed_quadrant_covariance(c, c, TRUE_R34),
            color=color("paper"),
            linestyle="-.",
            label="printed form",
        )
        right.set(xlabel="threshold c of both", ylabel="Cov(Z1, Z2 | both > c)", ylim=(0, 0.75))
        right.legend(fontsize=8, loc="upper right")
    return _finish(figure, record)


def plot_printed_density(record):
    """How often Eq. (10) as printed is no probability, and how far its log is off."""
    rows = record["metrics"]["by_logit_sd"]
    x = range(len(rows))
    with style():
        figure, (left, right) = new_figure("wide", 1, 2)
        left.bar(x, [100 * r["share_not_positive"] for r in rows.values()], color=color("paper"))
        left.set(ylabel="patients with P(y3, y4) <= 0 (%)")
        right.bar(x, [r["mean_log_error"] for r in rows.values()], color=color("paper"))
        right.set(ylabel="mean |error of log P|, where it exists")
        for ax in (left, right):
            ax.set_xticks(x, list(rows))
            ax.set_xlabel("SD of the logits")
    return _finish(figure, record)


def plot_counter_example(record):
    """Two joint distributions with equal margins: the one with the larger covariance is less concordant."""
    example = record["metrics"]["counter_example"]
    with style():
        figure, axes = new_figure("wide", 1, 2)
        support = [f"{s:g}" for s in example["support"]]
        for ax, size, value in zip(
            axes, ("small", "large"), ("its_concordance", "its_smaller_concordance"), strict=True
        ):
            weights = np.array(example[f"{size}_weights"])
            ax.imshow(weights.T, origin="lower", vmin=0, vmax=0.25, cmap="cividis")
            for i, j in zip(*np.nonzero(weights > 1e-9), strict=True):
                ink = "black" if weights[i, j] > 0.14 else "white"
                ax.text(
                    i, j, f"{weights[i, j]:.2f}", ha="center", va="center", color=ink, fontsize=8
                )
            ax.set_xticks(range(len(support)), support)
            ax.set_yticks(range(len(support)), support)
            ax.set(xlabel="q3", ylabel="q4")
            ax.grid(False)
            ax.set_title(
                f"Cov = {abs(example[f'{size}_covariance']):.2f}, E P(y3 = y4) = {example[value]:.3f}"
            )
    return _finish(figure, record)
