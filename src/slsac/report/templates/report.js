"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const shown = new Set(data.algorithms.map((algorithm) => algorithm.name));
const offSettings = new Set();
// The task with the most algorithms, and of equals the one with the most curves, says the most.
const algorithmsOf = (one) => new Set(one.groups.map((group) => group.algo)).size;
const weight = (one) => algorithmsOf(one) + one.groups.length / 1e3;
let panel = data.panels.reduce((best, one) => (weight(one) > weight(best) ? one : best));
let logarithmic = false;
let atCommonStep = true;

const look = new Map(data.algorithms.map((algorithm, index) => [algorithm.name, {
  colour: `color-mix(in srgb, ${algorithm.colour}, var(--mix))`,
  shape: ["circle", "square", "diamond", "triangle", "cross", "ring"][index % 6],
}]));
const byId = (id) => document.getElementById(id);
const worst = (groups) => [...new Set(groups.map((group) => group.tail_fraction))].map((share) => `${number(100 * share, 0)} %`).join(" / ");
const visible = () => panel.groups.filter((group) => shown.has(group.algo) && !offSettings.has(group.settings));
const settingsOf = (one) => [...new Map(one.groups.map((group) => [group.settings, group.mark])).entries()];

// The last step that every finished run shown has reached.
const commonStep = () => Math.min(...visible().filter((group) => group.runs.length).map((group) => group.steps));
const lengthsDiffer = () => new Set(visible().filter((group) => group.runs.length).map((group) => group.steps)).size > 1;

// Finished groups with the figures that are compared: those of the last evaluation up to the common
// step, or those of each run's end.
function compared() {
  const groups = visible().filter((group) => group.runs.length);
  if (!atCommonStep || !lengthsDiffer()) return groups;
  const step = commonStep();
  const mean = (runs, name) => runs.reduce((sum, run) => sum + run[name], 0) / runs.length;
  return groups.map((group) => {
    const runs = group.runs.map((run) => run.evaluations.findLast((one) => one.step <= step)).filter((one) => one);
    return { ...group, runs, return: mean(runs, "return"), cost: mean(runs, "cost"), cvar: mean(runs, "cvar") };
  }).filter((group) => group.runs.length);
}

// A name in pieces between which it may break; a piece breaks only where it is wider than its place.
function words(name) {
  return name.split(/(?<=[a-z0-9])(?=[A-Z])|(?<=[:_/ ])/).map((word) => element("span", { class: "word" }, word));
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function svg(tag, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    // Colours are expressions, which only a style understands.
    if (name === "fill" || name === "stroke") made.style[name] = value;
    else made.setAttribute(name, value);
  }
  if (text !== undefined) made.textContent = text;
  return made;
}

function number(value, digits = 1) {
  if (value === null || value === undefined) return "none";
  if (value !== 0 && Math.abs(value) < 10 ** (1 - digits)) return `${+value.toPrecision(2)}`;
  return value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function brief(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
  return `${+value.toPrecision(3)}`;
}

// A tick's text has the digits that its step needs, so that neighbours differ.
function tickText(value, step, largest) {
  const [scale, suffix] = largest >= 1e6 ? [1e6, "M"] : largest >= 1e4 ? [1e3, "k"] : [1, ""];
  let digits = 0;
  while (digits < 9 && Math.abs((step / scale) * 10 ** digits - Math.round((step / scale) * 10 ** digits)) > 1e-6) digits += 1;
  return value === 0 ? "0" : (value / scale).toFixed(digits) + suffix;
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(1, count) || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  }
  return found;
}

function logTicks(high) {
  const found = [0];
  for (let value = 1; value <= high; value *= 10) found.push(value);
  if (found.length < 4) found.push(...[3, 30].filter((value) => value <= high));
  return found.sort((a, b) => a - b);
}

function shape(kind, x, y, size, colour) {
  const style = { fill: colour, stroke: "var(--card)", "stroke-width": 1 };
  const polygon = (points) => svg("polygon", { ...style, points: points.map(([a, b]) => `${x + a * size},${y + b * size}`).join(" ") });
  if (kind === "square") return polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
  if (kind === "diamond") return polygon([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
  if (kind === "triangle") return polygon([[0, -1.2], [1.2, 1], [-1.2, 1]]);
  if (kind === "cross") return polygon([[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4], [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]]);
  if (kind === "ring") return svg("circle", { cx: x, cy: y, r: size * 0.85, fill: "var(--card)", stroke: colour, "stroke-width": 2.2 });
  return svg("circle", { ...style, cx: x, cy: y, r: size });
}

// A frame with axes; gives the drawing and its two scales.
function frame(card, { title, aside = "", x, y, height, label, margin = 8, head = 12 }) {
  card.replaceChildren(element("h3", {}, element("span", {}, title), element("small", {}, aside)));
  const width = Math.max(240, card.clientWidth - 30);
  const box = { left: 46, right: width - margin, top: head, bottom: height - 34 };
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  const warp = y.log ? (value) => Math.log10(1 + Math.max(0, value)) : (value) => value;
  const [low, high] = [warp(y.low), warp(y.high)];
  const toX = (value) => box.left + ((value - x.low) / (x.high - x.low || 1)) * (box.right - box.left);
  const toY = (value) => box.bottom - ((warp(value) - low) / (high - low || 1)) * (box.bottom - box.top);
  const texts = (values) => values.map((value) => tickText(value, values[1] - values[0] || Math.abs(value) || 1, Math.max(...values.map(Math.abs))));
  const ups = y.log ? logTicks(y.high) : ticks(y.low, y.high, height / 58);
  const upTexts = y.log ? ups.map(brief) : texts(ups);
  ups.forEach((value, index) => {
    drawing.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: toY(value), y2: toY(value) }));
    drawing.append(svg("text", { class: "y-tick", x: box.left - 7, y: toY(value) + 4, "text-anchor": "end" }, upTexts[index] + (y.unit || "")));
  });
  const acrosses = ticks(x.low, x.high, width / 95);
  const acrossTexts = texts(acrosses);
  acrosses.forEach((value, index) => {
    drawing.append(svg("text", { class: "x-tick", x: toX(value), y: box.bottom + 16, "text-anchor": "middle" }, acrossTexts[index]));
  });
  drawing.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  drawing.append(svg("text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, x.name));
  card.append(drawing);
  return { drawing, box, toX, toY, width };
}

function empty(card, title, sentence) {
  card.replaceChildren(element("h3", {}, title), element("p", { class: "note" }, sentence));
}

function paths(series, toX, toY) {
  let line = "";
  const upper = [];
  const lower = [];
  let broken = true;
  series.steps.forEach((step, index) => {
    const mean = series.mean[index];
    if (mean === null) { broken = true; return; }
    line += `${broken ? "M" : "L"}${toX(step).toFixed(1)} ${toY(mean).toFixed(1)}`;
    broken = false;
    const deviation = series.deviation[index];
    if (deviation !== null) {
      upper.push(`${toX(step).toFixed(1)} ${toY(mean + deviation).toFixed(1)}`);
      lower.push(`${toX(step).toFixed(1)} ${toY(mean - deviation).toFixed(1)}`);
    }
  });
  const band = upper.length > 1 ? `M${upper.join("L")}L${lower.reverse().join("L")}Z` : "";
  return { line, band };
}

function extent(all, floor, margin = 0.06) {
  const values = all.filter((value) => value !== null && Number.isFinite(value));
  if (!values.length) return [0, 1];
  let low = floor === undefined ? Math.min(...values) : floor;
  let high = Math.max(...values);
  // One value stands in the middle of a range of its own size.
  if (high === low) [low, high] = floor === undefined ? [low - (Math.abs(low) * 0.25 || 1), low + (Math.abs(low) * 0.25 || 1)] : [low, low + 1];
  const room = (high - low) * margin;
  return [floor === undefined ? low - room : floor, high + room];
}

// Where the axis ends: below a spike that all other values would be flat beside.
function ceiling(groups, pick) {
  const values = groups.map((group) => pick(group).mean.filter((value) => value !== null).sort((a, b) => a - b));
  const usual = Math.max(...values.map((sorted) => sorted[Math.floor(0.9 * (sorted.length - 1))]));
  const most = Math.max(...values.map((sorted) => sorted.at(-1)));
  return usual > 0 && most > 2.5 * usual ? 1.3 * usual : Infinity;
}

function lineChart(id, { title, pick, points, limit, floor, log = false, digits = 1, missing, spikes = false, starts }) {
  const card = byId(id);
  const groups = visible().filter((group) => pick(group) && pick(group).mean.some((value) => value !== null));
  if (!groups.length) return empty(card, title, missing || "Nothing to draw: no selected algorithm has it.");
  const means = groups.flatMap((group) => pick(group).mean.concat(points ? points(group).mean : []));
  if (means.some((value) => value < 0)) [floor, log] = [undefined, false]; // signed costs
  const most = spikes && !log ? ceiling(groups, pick) : Infinity;
  const all = groups.flatMap((group) => {
    const series = pick(group);
    const spread = series.mean.flatMap((mean, index) => mean === null ? [] : [mean - (series.deviation[index] || 0), mean + (series.deviation[index] || 0)]);
    return spread.concat(points ? points(group).mean : []);
  }).map((value) => (value === null ? null : Math.min(value, most)));
  const [low, high] = extent(limit === undefined ? all : all.concat(limit * 1.15), floor);
  const last = Math.max(...groups.map((group) => Math.max(group.steps, pick(group).steps.at(-1))));
  const { drawing, box, toX, toY, width } = frame(card, {
    title, height: 290, x: { low: 0, high: last, name: "environment steps" }, y: { low, high, log },
    label: `${title} over environment steps for ${groups.map((group) => group.label).join(", ")}`,
    margin: limit === undefined ? 12 : 40, head: starts ? 20 : 12, aside: most < Infinity ? "cut above the dotted line" : "",
  });
  const clip = svg("g", { "clip-path": `url(#${id}-box)` });
  const window = svg("clipPath", { id: `${id}-box` });
  window.append(svg("rect", { x: box.left, y: box.top - 5, width: box.right - box.left + 6, height: box.bottom - box.top + 6 }));
  drawing.append(window);
  if (atCommonStep && lengthsDiffer() && commonStep() < last) {
    drawing.append(svg("line", { class: "common", x1: toX(commonStep()), x2: toX(commonStep()), y1: box.top, y2: box.bottom }));
  }
  for (const group of groups) {
    const { line, band } = paths(pick(group), toX, (value) => Math.min(box.bottom, toY(value)));
    const { colour, shape: kind } = look.get(group.algo);
    if (band) clip.append(svg("path", { class: "band", d: band, fill: colour }));
    const known = pick(group).mean.flatMap((mean, index) => (mean === null ? [] : [index]));
    // One value makes no line.
    if (known.length === 1) clip.append(shape(kind, toX(pick(group).steps[known[0]]), toY(pick(group).mean[known[0]]), 4, colour));
    clip.append(svg("path", { class: "line", d: line, stroke: colour, "data-algo": group.algo, "stroke-dasharray": group.dash }));
    if (points) {
      const marks = points(group);
      marks.steps.forEach((step, index) => {
        if (marks.mean[index] !== null) clip.append(shape(kind, toX(step), toY(marks.mean[index]), 4, colour));
      });
    }
  }
  drawing.append(clip);
  if (limit !== undefined) limitLine(drawing, box, toY(limit), limit);
  if (most < Infinity) peaks(drawing, box, toX, groups, pick, high);
  if (starts) beginnings(drawing, box, toX, groups, starts, last);
  hover(card, drawing, { box, toX, width, groups, pick, points, digits });
}

// The limit's text stands beside the drawing, where no curve can be.
function limitLine(drawing, box, y, limit) {
  drawing.append(svg("line", { class: "limit", x1: box.left, x2: box.right, y1: y, y2: y }));
  const below = Math.min(y + 11, box.bottom);
  drawing.append(svg("text", { class: "limit-text", x: box.right + 5, y: below - 12 }, "limit"));
  drawing.append(svg("text", { class: "limit-text", x: box.right + 5, y: below }, brief(limit)));
}

// A mark with its value for every curve that leaves the drawing at the top.
function peaks(drawing, box, toX, groups, pick, high) {
  drawing.append(svg("line", { class: "cut", x1: box.left, x2: box.right, y1: box.top, y2: box.top }));
  let row = 0;
  for (const group of groups) {
    const series = pick(group);
    const top = series.mean.reduce((best, value, index) => (value !== null && value > (series.mean[best] ?? -Infinity) ? index : best), 0);
    if (!(series.mean[top] > high)) continue;
    const { colour } = look.get(group.algo);
    const x = toX(series.steps[top]);
    const left = x > (box.left + box.right) / 2;
    drawing.append(shape("triangle", x, box.top + 5, 5, colour));
    const text = svg("text", { class: "limit-text peak", x: x + (left ? -9 : 9), y: box.top + 9 + 13 * row, "text-anchor": left ? "end" : "start" }, `${group.label} ${brief(series.mean[top])}`);
    text.style.fill = colour;
    drawing.append(text);
    row += 1;
  }
}

// A vertical line with its step where the curves of some algorithms begin to mean something.
function beginnings(drawing, box, toX, groups, starts, last) {
  const steps = [...new Set(groups.map(starts))].filter((step) => step !== null && step > 0 && step < last).sort((a, b) => a - b);
  let free = -Infinity;
  for (const step of steps) {
    const x = toX(step);
    drawing.append(svg("line", { class: "start", "data-step": step, x1: x, x2: x, y1: box.top, y2: box.bottom }));
    const text = free === -Infinity ? `acts from ${brief(step)}` : brief(step);
    const right = x + 6.2 * text.length < box.right;
    const from = right ? x : x - 6.2 * text.length;
    if (from < free) continue; // its line is there
    drawing.append(svg("text", { class: "start-text", x, y: box.top - 8, "text-anchor": right ? "start" : "end" }, text));
    free = from + 6.2 * text.length + 8;
  }
}

function hover(card, drawing, { box, toX, width, groups, pick, points, digits }) {
  const cursor = svg("line", { class: "cursor off", y1: box.top, y2: box.bottom });
  const tip = element("div", { class: "tip", role: "status" });
  drawing.append(cursor);
  card.append(tip);
  drawing.setAttribute("tabindex", "0");
  const steps = [...new Set(groups.flatMap((group) => pick(group).steps))].sort((a, b) => a - b);
  let at = steps.length - 1;

  function nearest(list, step) {
    let best = 0;
    list.forEach((value, index) => { if (Math.abs(value - step) < Math.abs(list[best] - step)) best = index; });
    return best;
  }
  function show(index) {
    at = Math.max(0, Math.min(steps.length - 1, index));
    const step = steps[at];
    const x = toX(step);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    cursor.classList.remove("off");
    const rows = groups.map((group) => {
      const series = pick(group);
      const index = nearest(series.steps, step);
      return { algo: group.algo, label: group.label, mean: series.mean[index], deviation: series.deviation[index] };
    }).filter((row) => row.mean !== null).sort((a, b) => b.mean - a.mean);
    tip.replaceChildren(element("b", {}, `step ${step.toLocaleString("en")}`), ...rows.map((row) => {
      const dot = element("i");
      dot.style.background = look.get(row.algo).colour;
      const spread = row.deviation === null ? "" : ` ± ${number(row.deviation, digits)}`;
      return element("div", {}, element("span", {}, dot, row.label), element("span", {}, number(row.mean, digits) + spread));
    }));
    tip.style.display = "block";
    const scale = drawing.clientWidth / width;
    const left = x * scale + 26;
    const flips = left + tip.offsetWidth > card.clientWidth - 6;
    tip.style.left = `${Math.max(4, flips ? x * scale - tip.offsetWidth + 4 : left)}px`;
    tip.style.top = "2.6rem";
  }
  function hide() {
    cursor.classList.add("off");
    tip.style.display = "none";
  }
  drawing.addEventListener("pointermove", (event) => {
    const bounds = drawing.getBoundingClientRect();
    const x = ((event.clientX - bounds.left) / bounds.width) * width;
    const share = (x - box.left) / (box.right - box.left);
    show(nearest(steps, share * steps.at(-1)));
  });
  drawing.addEventListener("pointerleave", hide);
  drawing.addEventListener("blur", hide);
  drawing.addEventListener("focus", () => { if (drawing.matches(":focus-visible")) show(at); });
  drawing.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by) { event.preventDefault(); show(at + by); }
    if (event.key === "Escape") hide();
  });
}

// Return against a measure of cost, one mark for each seed and a large one for their mean.
function scatter(id, { title, aside, cost, name }) {
  const card = byId(id);
  const groups = compared();
  if (!groups.length) return empty(card, title, "No selected run has reached its final evaluation.");
  const runs = groups.flatMap((group) => group.runs);
  const least = Math.min(0, ...runs.map(cost));
  const [, high] = extent(runs.map(cost).concat(panel.limit * 1.3), least);
  const [bottom, top] = extent(runs.map((run) => run.return), undefined, 0.12);
  const { drawing, box, toX, toY } = frame(card, {
    title, aside, height: 290, x: { low: least - (high - least) * 0.03, high, name }, y: { low: bottom, high: top }, head: 20,
    label: `${title}: ${groups.map((group) => `${group.label} return ${number(group.return)} ${name} ${number(cost(group), panel.cost_digits)}`).join("; ")}`,
  });
  const limit = toX(panel.limit);
  drawing.append(svg("rect", { class: "unsafe-zone", x: limit, y: box.top, width: Math.max(0, box.right - limit), height: box.bottom - box.top }));
  drawing.append(svg("line", { class: "limit", x1: limit, x2: limit, y1: box.top, y2: box.bottom }));
  drawing.append(svg("text", { class: "limit-text", x: Math.min(limit, box.right - 26), y: box.top - 6, "text-anchor": "middle" }, `limit ${brief(panel.limit)}`));
  const labels = [];
  for (const group of groups) {
    const { colour, shape: kind } = look.get(group.algo);
    if (group.runs.length > 1) {
      for (const run of group.runs) drawing.append(shape(kind, toX(cost(run)), toY(run.return), 3, colour));
    }
    const x = toX(cost(group));
    const y = toY(group.return);
    drawing.append(shape(kind, x, y, 6.5, colour));
    const wide = 6.6 * group.label.length;
    const right = x + 11 + wide < box.right;
    const [from, to] = right ? [x + 11, x + 11 + wide] : [x - 11 - wide, x - 11];
    let place = Math.max(box.top + 9, Math.min(y + 4, box.bottom - 5));
    const by = y > (box.top + box.bottom) / 2 ? -13 : 13;
    while (labels.some((other) => Math.abs(other.place - place) < 13 && other.from < to && from < other.to)) place += by;
    labels.push({ place, from, to });
    if (Math.abs(place - 4 - y) > 13) {
      drawing.append(svg("line", { class: "leader", x1: x, y1: y, x2: right ? from - 2 : to + 2, y2: place - 4 }));
    }
    const text = svg("text", { class: "limit-text", x: right ? x + 11 : x - 11, y: place, "text-anchor": right ? "start" : "end" }, group.label);
    text.style.fill = colour;
    drawing.append(text);
  }
}

function histograms() {
  const groups = visible().filter((group) => group.costs.length);
  byId("histogram-note").textContent = groups.length
    ? `Share of deterministic episodes by cost, all seeds together. Dashed: the limit. Solid: CVaR, the mean cost of each run's worst ${worst(groups)} of episodes.`
    : "No selected run has reached its final evaluation.";
  byId("histograms").replaceChildren(...groups.map(() => element("div", { class: "card" })));
  const top = Math.max(panel.limit * 1.25, ...groups.map((group) => Math.max(...group.costs) * 1.02), 1e-9);
  const start = Math.min(0, ...groups.map((group) => Math.min(...group.costs)));
  const bins = 25;
  const width = (top - start) / bins;
  groups.forEach((group, index) => {
    const counts = new Array(bins).fill(0);
    for (const cost of group.costs) counts[Math.min(bins - 1, Math.floor((cost - start) / width))] += 1;
    const shares = counts.map((count) => (100 * count) / group.costs.length);
    const card = byId("histograms").children[index];
    card.dataset.algo = group.algo;
    const over = group.costs.filter((cost) => cost > panel.limit).length;
    const { drawing, box, toX, toY } = frame(card, {
      title: group.label, head: 24, aside: `${over} of ${group.costs.length} over the limit`, height: 175,
      x: { low: start, high: top, name: "cost of an episode" }, y: { low: 0, high: Math.max(...shares) * 1.16, unit: " %" },
      label: `Costs of ${group.label}: ${over} of ${group.costs.length} episodes over the limit of ${panel.limit}, CVaR ${number(group.cvar, panel.cost_digits)}`,
    });
    const { colour } = look.get(group.algo);
    shares.forEach((share, bin) => {
      if (!share) return;
      const left = toX(start + bin * width);
      const right = toX(start + (bin + 1) * width);
      drawing.append(svg("rect", { x: left + 0.5, y: toY(share), width: Math.max(1, right - left - 1), height: box.bottom - toY(share), fill: colour, opacity: 0.75, rx: 1.5 }));
    });
    const limit = toX(panel.limit);
    drawing.append(svg("line", { class: "limit", x1: limit, x2: limit, y1: box.top, y2: box.bottom }));
    const cvar = toX(group.cvar);
    drawing.append(svg("line", { x1: cvar, x2: cvar, y1: box.top, y2: box.bottom, stroke: "var(--ink)", "stroke-width": 1.6 }));
    const right = cvar < (box.left + box.right) / 2;
    drawing.append(svg("text", { class: "limit-text", x: cvar + (right ? 5 : -5), y: box.top - 6, "text-anchor": right ? "start" : "end" }, `CVaR ${number(group.cvar, panel.cost_digits)}`));
  });
}

function calibration() {
  const found = visible().flatMap((group) => group.calibration.map((one) => ({ algo: group.algo, ...one })));
  const place = byId("calibration");
  if (!found.length) {
    place.replaceChildren(element("p", { class: "note" }, "None of the runs shown has had its cost critic compared with what episodes cost; `slsac certify RUN` does it where it can."));
    return;
  }
  place.replaceChildren(
    element("p", { class: "note" }, "Share of episodes whose cost fell at or below the critic's quantile, against the quantile's nominal share. On the diagonal the critic is calibrated; below it, it underestimates cost."),
    element("div", { class: "charts small" }, ...found.map(() => element("div", { class: "card" }))),
  );
  found.forEach((one, index) => {
    const card = place.lastChild.children[index];
    const facts = [["W₁", one.wasserstein], ["δ", one.delta]].filter(([, value]) => typeof value === "number");
    const { drawing, toX, toY } = frame(card, {
      title: `${one.algo}, seed ${one.seed}`, aside: facts.map(([name, value]) => `${name} ${number(value, 2)}`).join("  "),
      height: 230, x: { low: 0, high: 1, name: "nominal" }, y: { low: 0, high: 1 },
      label: `Reliability of ${one.algo}, seed ${one.seed}`,
    });
    drawing.append(svg("line", { class: "limit", x1: toX(0), x2: toX(1), y1: toY(0), y2: toY(1) }));
    const { colour } = look.get(one.algo);
    const line = one.nominal.map((x, i) => `${i ? "L" : "M"}${toX(x)} ${toY(one.observed[i])}`).join("");
    drawing.append(svg("path", { class: "line", d: line, stroke: colour }));
    one.nominal.forEach((x, i) => drawing.append(shape("circle", toX(x), toY(one.observed[i]), 3, colour)));
  });
}

function facts() {
  const groups = compared();
  const when = atCommonStep && lengthsDiffer() ? `, after ${commonStep().toLocaleString("en")} steps` : "";
  const safe = groups.filter((group) => group.cost <= panel.limit);
  const best = safe.reduce((a, b) => (a && a.return >= b.return ? a : b), null);
  const over = groups.filter((group) => group.cost > panel.limit);
  const fact = (kind, head, text) => element("li", { class: kind }, element("b", {}, ...(Array.isArray(head) ? head : [head])), element("span", {}, text));
  const [[only], ...others] = settingsOf(panel);
  const several = others.length ? others.length + 1 : 0;
  const runs = groups.reduce((sum, group) => sum + group.runs.length, 0);
  byId("facts").replaceChildren(
    fact("", words(panel.env), `${several ? `${several} settings, listed below the table` : only || "the preset's own settings"}${panel.stale ? " (stale)" : ""}`),
    fact("", `cost limit ${brief(panel.limit)}`, `per episode, undiscounted; tail: worst ${worst(panel.groups)}`),
    best ? fact("good", `${best.label}: ${number(best.return)}`, `highest return within the limit, at cost ${number(best.cost, panel.cost_digits)}${when}`)
         : fact("bad", "none safe", `no finished run keeps the limit${when}`),
    fact(over.length ? "bad" : "good", `${safe.length} of ${groups.length} safe`, over.length ? `over the limit: ${over.map((group) => group.label).join(", ")}` : `${runs} finished run${runs === 1 ? "" : "s"}`),
  );
}

function draw() {
  bar();
  facts();
  const early = compared().filter((group) => group.acts_from >= commonStep()).map((group) => group.label);
  byId("scatter-note").textContent = atCommonStep && lengthsDiffer()
    ? `Evaluations at the step that every run shown has reached, ${commonStep().toLocaleString("en")}, or the last one before it; the vertical line in the curves is there. A good policy is high and left of the limit.${early.length ? ` Not yet held to the limit at that step: ${early.join(", ")}.` : ""}`
    : "Final evaluation of each run, mean over its episodes. A good policy is high and left of the limit.";
  const aside = lengthsDiffer() ? (atCommonStep ? `after ${brief(commonStep())} steps` : "at the end of each run") : "";
  scatter("tradeoff", { title: "Return against mean cost", aside, cost: (one) => one.cost, name: "mean cost of an episode" });
  scatter("tail", { title: "Return against the tail", aside, cost: (one) => one.cvar, name: "CVaR of cost" });
  byId("curves-note").textContent = `Lines: training episodes, mean over the last ${panel.window_steps.map((steps) => steps.toLocaleString("en")).join(" / ")} steps, then over seeds; bands: standard deviation over seeds (one seed has none). Marks: deterministic evaluations.`;
  const unlogged = visible().length ? "Nothing yet: it is logged when an epoch ends, and no run shown has reached that." : undefined;
  lineChart("return", { title: "Return of an episode", pick: (group) => group.curves.return, points: (group) => group.evaluations.return });
  lineChart("cost", { title: "Cost of an episode", pick: (group) => group.curves.cost, points: (group) => group.evaluations.cost, limit: panel.limit, digits: panel.cost_digits, floor: 0, log: logarithmic });
  lineChart("multiplier", { title: "Multiplier λ", pick: (group) => group.multiplier, floor: 0, log: logarithmic, digits: 3, spikes: true, starts: (group) => group.acts_from, missing: unlogged });
  lineChart("cvar", { missing: unlogged, title: "CVaR of recent training episodes", pick: (group) => group.window_cvar, limit: panel.limit, digits: panel.cost_digits, floor: 0, log: logarithmic });
  histograms();
  calibration();
  for (const marked of document.querySelectorAll("table [data-algo]")) marked.classList.toggle("off", !shown.has(marked.dataset.algo));
  tasks();
  edges();
}

// What can be chosen: the algorithms and settings of the task, and the step that is compared.
function bar() {
  for (const chip of document.querySelectorAll(".chip[data-algo]")) {
    chip.setAttribute("aria-pressed", shown.has(chip.dataset.algo));
    chip.classList.toggle("absent", !panel.groups.some((group) => group.algo === chip.dataset.algo));
  }
  const settings = settingsOf(panel);
  byId("settings").replaceChildren(...(settings.length < 2 ? [] : settings.map(([text, mark]) => {
    const chip = element("button", { type: "button", class: "chip", "data-settings": mark, title: text || "the preset's own settings", "aria-pressed": !offSettings.has(text) }, mark || "preset");
    chip.addEventListener("click", () => {
      if (!offSettings.delete(text)) offSettings.add(text);
      draw();
    });
    return chip;
  })));
  byId("common").classList.toggle("off", !lengthsDiffer());
  byId("common").textContent = atCommonStep ? `compared after ${brief(commonStep())} steps` : "compared at their ends";
}

// A table that is wider than its place shows on which side there is more.
function edges() {
  for (const table of document.querySelectorAll(".scroll")) {
    const hidden = table.scrollWidth - table.clientWidth;
    table.classList.toggle("more-right", hidden - table.scrollLeft > 1);
    table.classList.toggle("more-left", hidden > 1 && table.scrollLeft > 1);
  }
}

// Ten tasks make long tables: below the first one, rows are those of the task that is chosen.
function tasks() {
  if (data.panels.length < 2) return;
  byId("figures-note").textContent = `For ${panel.label}, the task chosen above.`;
  const others = new Set(data.panels.flatMap((one) => one.rows).filter((label) => !panel.rows.includes(label)));
  for (const row of document.querySelectorAll("#figures tbody tr")) {
    if ([...row.cells].some((cell) => others.has(cell.textContent))) row.classList.add("off");
  }
}

function controls() {
  const place = byId("controls");
  if (data.panels.length > 1) {
    const select = element("select", { id: "panel", "aria-label": "Task" });
    data.panels.forEach((one, index) => select.append(element("option", { value: index }, one.label)));
    select.value = data.panels.indexOf(panel);
    select.addEventListener("change", () => { panel = data.panels[select.value]; draw(); });
    place.append(select);
  }
  for (const { name } of data.algorithms) {
    const { colour, shape: kind } = look.get(name);
    const swatch = svg("svg", { width: 14, height: 14, "aria-hidden": "true" });
    swatch.append(shape(kind, 7, 7, 4.6, colour));
    const chip = element("button", { type: "button", class: "chip", "data-algo": name, "aria-pressed": "true" }, swatch, name);
    chip.addEventListener("click", () => {
      if (shown.has(name)) shown.delete(name); else shown.add(name);
      draw();
    });
    place.append(chip);
  }
  place.append(element("span", { id: "settings", role: "group", "aria-label": "Settings" }));
  const common = element("button", { type: "button", id: "common" });
  common.addEventListener("click", () => { atCommonStep = !atCommonStep; draw(); });
  place.append(common);
  const log = element("button", { type: "button", class: "chip", id: "log", "aria-pressed": "false" }, "log scale");
  log.style.textDecoration = "none";
  log.addEventListener("click", () => {
    logarithmic = !logarithmic;
    log.setAttribute("aria-pressed", logarithmic);
    draw();
  });
  place.append(log);
}

function theme() {
  const root = document.documentElement;
  const button = byId("theme");
  const set = (name) => { root.dataset.theme = name; button.textContent = name === "dark" ? "light" : "dark"; button.setAttribute("aria-label", `switch to ${button.textContent} colours`); };
  set(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => set(event.matches ? "dark" : "light"));
  button.addEventListener("click", () => set(root.dataset.theme === "dark" ? "light" : "dark"));
}

theme();
controls();
draw();
for (const table of document.querySelectorAll(".scroll")) table.addEventListener("scroll", edges, { passive: true });
let waiting = 0;
let drawnWidth = innerWidth;
addEventListener("resize", () => {
  // A phone's address bar changes the height alone while one scrolls.
  if (innerWidth === drawnWidth) return;
  drawnWidth = innerWidth;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(draw);
});
