// Figures that a reader moves: the mathematics first, without a document, then the drawing. No request, no library.
(() => {
  const ROOT_2PI = Math.sqrt(2 * Math.PI);
  const density = (x) => Math.exp(-x * x / 2) / ROOT_2PI;

  function cdf(x) {  // distribution function of the standard normal
    if (x < -3.5) {  // continued fraction of Mills' ratio
      let fraction = -x;
      for (let k = 120; k > 0; k--) fraction = -x + k / fraction;
      return density(x) / fraction;
    }
    if (x > 3.5) return 1 - cdf(-x);
    let term = x, sum = x;
    for (let k = 3; Math.abs(term) > 1e-17 * Math.abs(sum) && k < 400; k += 2) sum += (term *= x * x / k);
    return 0.5 + density(x) * sum;
  }

  function score(p) {  // its inverse, by halving
    let low = -9, high = 9;
    for (let k = 0; k < 70; k++) {
      const middle = (low + high) / 2;
      if (cdf(middle) < p) low = middle; else high = middle;
    }
    return (low + high) / 2;
  }

  function pair(a, b, r, steps = 400) {  // P(U <= a, V <= b): integral over the correlation, from independence to r
    const end = Math.asin(r), h = end / steps;
    const value = (t) => Math.exp(-(a * a - 2 * a * b * Math.sin(t) + b * b) / (2 * Math.cos(t) ** 2));
    let sum = value(0) + value(end);
    for (let k = 1; k < steps; k++) sum += (k % 2 ? 4 : 2) * value(k * h);
    return cdf(a) * cdf(b) + sum * h / 3 / (2 * Math.PI);
  }

  function cells(left, right, r) {  // [left][right], 0 no and 1 yes
    const both = pair(score(left), score(right), r);
    return [[1 - left - right + both, right - both], [left - both, both]];
  }

  // What a label leaves of a hidden error u, normal with this mean and SD: it is 1 if u + q > 0.
  function truncated(mean, sd, q, label) {
    const sign = label ? 1 : -1, limit = sign * (mean + q) / sd, known = cdf(limit), hazard = density(limit) / known;
    return {
      known, mean: mean + sign * sd * hazard, sd: sd * Math.sqrt(1 - hazard * (limit + hazard)),
      density: (u) => (sign * (u + q) > 0 ? density((u - mean) / sd) / sd / known : 0),
    };
  }

  // What is known of the right eye once the left one is measured. Responses: length left, right (means 0, SD 1), diagnosis left, right.
  function update(correlation, chances, length, label) {
    const g = correlation, c3 = -score(chances[0]), c4 = -score(chances[1]);
    const mean = (k) => g[k][0] * length, cov = (j, k) => g[j][k] - g[j][0] * g[k][0];
    const s3 = Math.sqrt(cov(2, 2)), s4 = Math.sqrt(cov(3, 3)), above = (mean(3) - c4) / s4;
    if (label === null) {
      const s = Math.sqrt(cov(1, 1));
      return { mean: mean(1), sd: s, probability: cdf(above), density: (x) => density((x - mean(1)) / s) / s };
    }
    const sign = label ? 1 : -1, left = truncated(mean(2), s3, -c3, label), { known } = left;
    const slope = cov(1, 2) / cov(2, 2), residual = cov(1, 1) - slope * cov(1, 2), spread = Math.sqrt(cov(1, 1));
    return {
      mean: mean(1) + slope * (left.mean - mean(2)),
      sd: Math.sqrt(residual + (slope * left.sd) ** 2),
      probability: pair(sign * (mean(2) - c3) / s3, above, sign * cov(2, 3) / (s3 * s4)) / known,
      density: (x) => {  // normal times the chance of the label there
        const z = (x - mean(1)) / cov(1, 1), s = Math.sqrt(cov(2, 2) - cov(1, 2) ** 2 / cov(1, 1));
        return density((x - mean(1)) / spread) / spread * cdf(sign * (mean(2) + cov(1, 2) * z - c3) / s) / known;
      },
    };
  }

  const weaken = (g, s) => g.map((row, i) => row.map((value, j) => (i === j ? 1 : s * value)));

  // Variance of a fit on one eye over that of the joint fit, from one eye's information and the pair's [[a, b], [b, a]]; features correlated r.
  const ratio = (own, a, b, r) => (a * a - (r * b) ** 2) / (a * own);

  const gainOfLengths = (rho, r) => ratio(1, 1 / (1 - rho * rho), -rho / (1 - rho * rho), r);

  function gainOfLabels(rho, r, sd) {  // a bivariate probit, its scores normal over patients
    const root = Math.sqrt(1 - rho * rho), h = 0.25, sum = { own: 0, a: 0, b: 0, weight: 0 };
    const [along, across] = [1 + r, 1 - r].map((k) => sd * Math.sqrt(k / 2));
    for (let u = 0; u < 6; u += h) for (let v = 0; v * v < 30 - u * u; v += h) {  // the other three quarters are mirror images
      const s = along * u + across * v, t = along * u - across * v, both = pair(s, t, rho, 40), p = cdf(s), q = cdf(t);
      const weight = density(u) * density(v) * (u ? 2 : 1) * (v ? 2 : 1);
      for (const x of [s, t]) sum.own += weight / 2 * density(x) ** 2 / (cdf(x) * cdf(-x));
      for (const [i, j, cell] of [[1, 1, both], [1, -1, p - both], [-1, 1, q - both], [-1, -1, 1 - p - q + both]]) {
        const ds = i * density(s) * cdf(j * (t - rho * s) / root), dt = j * density(t) * cdf(i * (s - rho * t) / root);
        sum.a += weight * (ds * ds + dt * dt) / 2 / Math.max(cell, 1e-13);
        sum.b += weight * ds * dt / Math.max(cell, 1e-13);
      }
      sum.weight += weight;
    }
    return ratio(sum.own / sum.weight, sum.a / sum.weight, sum.b / sum.weight, r);
  }

  // --- drawing: text of an SVG from the values of the controls
  const percent = (p) => `${(100 * p).toFixed(0)}\u00a0%`;
  const text = (x, y, said, more = "") => `<text x="${x}" y="${y}" text-anchor="middle" ${more}>${said}</text>`;
  const line = (x1, y1, x2, y2, colour, dash = "") =>
    `<line x1="${x1}" y1="${y1}" x2="${x2}" y2="${y2}" stroke="${colour}" stroke-width="2" stroke-dasharray="${dash}"/>`;
  const BLUE = "#0072B2", ORANGE = "#D55E00", GREY = "#6f6f6f";
  const at = (z) => 180 + 50 * z;
  const axis = (y, said) => line(5, y, 355, y, GREY) + text(180, y + 40, said) +
    [-3, -2, -1, 0, 1, 2, 3].map((z) => text(at(z), y + 18, z)).join("");
  const grid = Array.from({ length: 281 }, (_, k) => -3.5 + k / 40);
  const curve = (f, y, scale, look) => {
    const points = grid.map((z) => `${at(z).toFixed(1)},${(y - scale * f(z)).toFixed(1)}`);
    return `<polyline points="5,${y} ${points.join(" ")} 355,${y}" stroke-width="2.5" ${look}/>`;
  };
  const drawn = (colour, dash = "") => `fill="none" stroke="${colour}" stroke-dasharray="${dash}"`;

  const figures = {
    "four-cells": ({ left, right, rho }) => {
      const c = [-score(left), -score(right)], p = cells(left, right, rho);
      const e = Math.sqrt(1 + rho), f = Math.sqrt(1 - rho);  // axes of an ellipse, at 45 degrees
      const ellipses = [0.706, 1.177, 1.665, 2.146, 2.716].map((k) =>
        `<ellipse cx="180" cy="180" rx="${50 * k * e}" ry="${50 * k * f}" transform="rotate(-45 180 180)" fill="${GREY}" fill-opacity="0.13" stroke="${GREY}" stroke-opacity="0.5"/>`);
      const names = [["neither", "right only"], ["left only", "both"]];
      const labels = [0, 1].flatMap((l) => [0, 1].map((r) => {
        const x = l ? 295 : 65, y = r ? 55 : 300;
        return text(x, y, names[l][r]) + text(x, y + 18, percent(p[l][r]), 'font-weight="bold"');
      }));
      const drawing = ellipses.join("") + line(at(c[0]), 10, at(c[0]), 350, BLUE) +
        line(10, 360 - at(c[1]), 350, 360 - at(c[1]), ORANGE, "7 4") + labels.join("") +
        text(180, 374, "latent score, left eye (OS)") + text(-180, -6, "latent score, right eye (OD)", 'transform="rotate(-90)"');
      return { drawing, told: `Both eyes: ${percent(p[1][1])}; two separate patients: ${percent(left * right)}. The chance of each eye alone stays ${percent(left)} and ${percent(right)}.` };
    },
    "update": ({ length, label, strength }, { correlation, chances }) => {
      const g = weaken(correlation, strength), known = label === "unknown" ? null : label === "yes";
      const now = update(g, chances, length, known);
      const bar = (y, p, colour, said) => `<rect x="120" y="${y}" width="${200 * p}" height="20" fill="${colour}"/>` +
        `<text x="112" y="${y + 15}" text-anchor="end">${said}</text>` + text(348, y + 15, percent(p));
      const drawing = axis(200, "length of the right eye, in SDs from its prediction") +
        curve(density, 200, 230, drawn(GREY, "6 4")) + curve(now.density, 200, 230, drawn(ORANGE)) +
        bar(265, chances[1], GREY, "before") + bar(295, now.probability, ORANGE, "after") +
        text(180, 345, "chance of high myopia, right eye");
      return { drawing, told: `Right eye, given the left one: length ${now.mean.toFixed(2)} SD from its prediction, give or take ${now.sd.toFixed(2)} (before: 0, 1); high myopia ${percent(now.probability)} (before: ${percent(chances[1])}).` };
    },
    "e-step": ({ length, score, label }, { rho, colour, ink }) => {
      const mean = rho * length, sd = Math.sqrt(1 - rho * rho), before = (u) => density((u - mean) / sd) / sd;
      const left = truncated(mean, sd, score, label === "yes"), x = at(left.mean);
      const scale = 250 / Math.max(...grid.map(left.density));
      const drawing = axis(300, "hidden error behind the left eye's label, given its length") +
        curve(left.density, 300, scale, `fill="${colour}" fill-opacity="0.3" stroke="none"`) +
        curve(before, 300, scale, drawn(GREY, "6 4")) + line(x, 30, x, 300, colour) +
        line(at(left.mean - left.sd), 285, at(left.mean + left.sd), 285, ink);
      return { drawing, told: `fMCEM keeps the mean, ${left.mean.toFixed(2)} (line), and discards the spread (bar): a variance of ${(left.sd ** 2).toFixed(2)}, of ${(sd * sd).toFixed(2)} before the label was known (dashed).` };
    },
    "gain": ({ rho, r, v }, { sd }) => {
      const taken = [(x) => 1 - 1 / gainOfLengths(x, r), (x) => 1 - 1 / gainOfLabels(x, r, sd)];  // of the variance
      const x = (value) => 40 + 320 * value, y = (share) => 310 - 280 * share, ink = ["", "7 4"], names = ["lengths", "labels"];
      const ticks = [0, 0.2, 0.4, 0.6, 0.8, 1].map((k) => text(x(k), 328, k) + text(18, y(k) + 5, 100 * k)).join("");
      const curves = taken.map((f, k) => {
        const points = Array.from({ length: 20 }, (_, i) => `${x(i / 20).toFixed(1)},${y(v * f(i / 20)).toFixed(1)}`);
        return `<polyline points="${points.join(" ")}" stroke-width="2.5" ${drawn("currentColor", ink[k])}/>` +
          line(60, 40 + 22 * k, 95, 40 + 22 * k, "currentColor", ink[k]) + `<text x="102" y="${45 + 22 * k}">${names[k]}</text>`;
      });
      const found = taken.map((f) => f(rho)), dots = found.map((f) => `<circle cx="${x(rho)}" cy="${y(v * f)}" r="6" fill="currentColor"/>`);
      const drawing = line(40, 310, 360, 310, GREY) + line(40, 310, 40, 30, GREY) + ticks + line(x(rho), 310, x(rho), 30, GREY, "2 4") +
        curves.join("") + dots.join("") + text(200, 352, "correlation of the two eyes' errors") +
        text(-170, -4, "error above the floor that is taken away, %", 'transform="rotate(-90)"');
      const said = found.map((f, k) => `${names[k]} ${percent(v * f)}`).join(", ");
      return { drawing, told: `The dependence takes away, of the error above the floor: ${said}; of its variance: ${found.map(percent).join(" and ")}.` };
    },
  };

  function start(box) {
    const options = JSON.parse(box.dataset.options), controls = box.querySelector(".controls");
    const svg = box.querySelector("svg"), told = box.querySelector(".told");
    const draw = () => {
      const values = {};
      for (const input of controls.querySelectorAll("input, select")) {
        values[input.name] = input.type === "range" ? Number(input.value) : input.value;
        const shown = input.parentElement.querySelector("output");
        if (shown) shown.textContent = Number(input.value).toFixed(2);
      }
      const made = figures[box.dataset.figure](values, options);
      svg.innerHTML = made.drawing;
      told.textContent = made.told;
    };
    controls.addEventListener("input", draw);
    controls.addEventListener("submit", (event) => event.preventDefault());
    controls.addEventListener("reset", () => setTimeout(draw));  // once the values are back
    box.classList.add("moves");
    draw();
  }

  globalThis.cevitMoving = { cdf, score, pair, cells, truncated, update, weaken, gainOfLengths, gainOfLabels, start };
})();
