"use strict";

// Curves, drawn by uPlot. Each has three columns beside x: the ends of its band, of which
// the legend says nothing, and its values. A curve that is smoothed has what was recorded in the place of the lower end.
const DASHES = [[], [9, 4], [3, 3], [10, 3, 3, 3], [16, 6], [4, 6], [10, 3, 3, 3, 3, 3], [18, 5, 5, 5]]; // lines on top of each other can be seen
const MARKS = ["solid", "dashed", "dotted", "dashed", "dashed", "dotted", "dashed", "dashed"];
const HEIGHT = 420, FONT = "12px system-ui, sans-serif";

const color = (s, i) => "--s" + (((s.color || i + 1) - 1) % 7 + 1);
const dash = (s, i) => ((s.dash || i + 1) - 1) % DASHES.length;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const raw = (s) => s.raw?.length > 0;
const alpha = (list) => Math.round(Math.min(46, 138 / Math.max(1, list.filter((s) => s.low.length).length))).toString(16).padStart(2, "0");
const faint = (list) => Math.round(89 / Math.sqrt(Math.max(1, list.filter(raw).length))).toString(16).padStart(2, "0"); // they lie on top of each other
const curveOf = (column) => (column % 3 === 0 ? column / 3 - 1 : -1); // -1: of a band, or x

function format(v, digits = 6) {
  if (v === 0) return "0";
  const a = Math.abs(v);
  const s = a >= 1e7 || a < 1e-4 ? v.toExponential(Math.max(3, digits > 6 ? digits - 1 : 0)) : String(Number(v.toPrecision(digits)));
  return s.replace(/-/g, "\u2212");
}

// place is a value of the horizontal axis: all digits of a step.
const place = (x) => (Number.isInteger(x) && Math.abs(x) < 1e15 ? String(x).replace("-", "\u2212") : format(x));

// marks are the numbers at an axis, with as many digits as tell them apart.
function marks(splits) {
  const [low, next] = splits, largest = Math.max(...splits.map(Math.abs));
  return splits.map((v) => format(v, Math.min(15, Math.max(6, Math.ceil(Math.log10(largest / (next - low))) + 2 || 6))));
}

// logTicks are for scales that begin and end anywhere; those of uPlot are for whole decades.
function logTicks(low, high) {
  const decades = Math.log10(high / low), out = [];
  if (decades < 0.5) {
    const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9));
    const first = Math.ceil(low / step - 1e-9);
    for (let i = 0; i < 10 && (first + i) * step <= high + step * 1e-9; i++) out.push(Number(((first + i) * step).toPrecision(12)));
    return out;
  }
  const multiples = decades < 1.3 ? [1, 2, 3, 4, 5] : decades < 2.5 ? [1, 2, 5] : [1], every = Math.ceil(decades / 8);
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
    for (const m of multiples) {
      const v = Number(m + "e" + e);
      if (e % every === 0 && v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) out.push(v);
    }
  return out;
}

// columns brings the curves to common places in x. Where a scale is logarithmic, what is
// not positive is left out.
function columns(data, logy) {
  const none = (s) => s.x.map(() => null);
  const all = uPlot.join(data.series.map((s) => [s.x, raw(s) ? s.raw : s.low.length ? s.low : none(s), s.high.length ? s.high : none(s), s.y]));
  const from = data.logx ? all[0].filter((x) => x <= 0).length : 0;
  return all.map((c, i) => c.slice(from).map((v) => (logy && v <= 0 && (curveOf(i) >= 0 || i % 3 === 1 && raw(data.series[(i - 1) / 3])) ? null : v)));
}

// fitted is the font in which a label is no longer than so many pixels, if that can still be read.
const ruler = document.createElement("canvas").getContext("2d");
function fitted(label, room) {
  ruler.font = FONT;
  return Math.max(8, Math.min(12, Math.floor((120 * room) / ruler.measureText(label).width) / 10)) + FONT.slice(2);
}

function options(data, logy, width, height) {
  const axis = (label, log, room) => ({
    label, size: 64, font: FONT, labelFont: fitted(label, room), stroke: () => css("--ink"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { show: false },
    border: { show: true, stroke: () => css("--faint"), width: 1 }, values: (u, splits) => (log ? splits.map((v) => format(v)) : marks(splits)),
    ...(log ? { splits: (u, i, low, high) => logTicks(low, high), filter: (u, splits) => splits } : {}),
  });
  // value is what the legend says of a curve: at the place of the pointer, or at the
  // nearest where it has a value.
  const value = (u, v, column, at) => {
    if (v == null) return "";
    const high = u.data[column - 1][at], above = high == null ? 0 : high - v, x = u.data[0][at];
    return format(v) + (above > 0 ? " \u00b1 " + format(above, 3) : "") + (at === u.cursor.idx ? "" : " (at " + place(x) + ")");
  };
  const padded = (u, low, high) => {
    const f = high - low <= 1e-9 * high ? 2 : (high / low) ** 0.05;
    return low === null ? [1, 2] : [low / f, high * f];
  };
  const whole = (u, low, high) => (low < high ? [low, high] : data.logx ? [low / 2, low * 2] : [low - 1, low + 1]);
  const flat = (u, low, high) => (low === null ? [null, null] : low === 0 && high === 0 ? [0, 1] : uPlot.rangeNum(low, high, 0.1, true)); // of zeros alone uPlot would go up to 100
  const shared = data.ymax !== undefined && logy === data.logy;
  return {
    width, height,
    scales: { x: { time: false, distr: data.logx ? 3 : 1, range: whole }, y: { ...(logy ? { distr: 3, range: padded } : { range: flat }), ...(shared ? { range: [data.ymin ?? 0, data.ymax] } : {}) } },
    axes: [{ ...axis(data.x, data.logx, width - 64), size: 32 }, axis(data.y, logy, height - 64)],
    series: [{ label: data.x, value: (u, v) => (v == null ? "" : place(v)) }].concat(
      data.series.flatMap((s, i) => [{ class: "end", auto: raw(s) || !logy, ...(raw(s) ? { stroke: () => css(color(s, i)) + faint(data.series), width: 1, points: { show: false } } : {}) }, { class: "end" }, {
        label: s.name || data.y, stroke: () => css(color(s, i)), width: 1.8, dash: DASHES[dash(s, i)],
        points: { show: (u, column) => u.data[column].filter((v) => v != null).length <= 40, size: 5 }, value,
      }])),
    bands: data.series.flatMap((s, i) => (raw(s) ? [] : [{ series: [3 * i + 2, 3 * i + 1], fill: () => css(color(s, i)) + alpha(data.series) }])),
    legend: { markers: { width: 3, stroke: (u, column) => (curveOf(column) < 0 ? "transparent" : `var(${color(data.series[curveOf(column)], curveOf(column))})`), dash: (u, column) => MARKS[curveOf(column) < 0 ? 0 : dash(data.series[curveOf(column)], curveOf(column))] } },
    cursor: { y: false, drag: { dist: 8 }, hover: { skip: [null, undefined] } },
    hooks: { ready: [ready], setSeries: [together] },
  };
}

// ready makes the legend's buttons, and the reading of values, known to the keyboard.
function ready(u) {
  u.root.querySelectorAll(".u-series th").forEach((label, column) => {
    if (curveOf(column) < 0) return;
    for (const [k, v] of Object.entries({ role: "button", tabindex: 0, "aria-pressed": true })) label.setAttribute(k, v);
    label.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      label.click();
    });
  });
  const [x, y] = u.axes.map((a) => a.label);
  for (const [k, v] of Object.entries({ role: "application", tabindex: 0, "aria-label": y + " over " + x + ". Left and right arrows read values." })) u.over.setAttribute(k, v);
  u.root.querySelector(".u-legend").setAttribute("role", "status");
  u.over.addEventListener("keydown", (event) => {
    if (event.key === "Escape") u.setData(u.data); // with all of x
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    move(u, by);
  });
}

// move puts the pointer as many recorded places further.
function move(u, by) {
  const { min, max } = u.scales.x, shown = u.data.filter((c, i) => i > 0 && curveOf(i) >= 0 && u.series[i].show);
  const places = [...u.data[0].keys()].filter((i) => u.data[0][i] >= min && u.data[0][i] <= max && shown.some((c) => c[i] != null));
  if (!places.length) return;
  const at = places.findIndex((i) => i >= (u.cursor.idx ?? Infinity)), to = Math.min(Math.max(at + by, 0), places.length - 1);
  u.setCursor({ left: u.valToPos(u.data[0][places[to]], "x"), top: 1 });
}

// together shows or hides a curve with its band.
function together(u, column, { show }) {
  if (show === undefined || column === null || curveOf(column) < 0) return;
  for (const end of [column - 2, column - 1]) u.setSeries(end, { show }, false);
  u.root.querySelectorAll(".u-series th")[column].setAttribute("aria-pressed", show);
}

// chart puts curves that can be read in the place of their picture, which is printed. It
// returns what shows the same curves with other points, without moving what was zoomed in.
function chart(data, picture, height = HEIGHT) {
  const root = document.createElement("div"), log = document.createElement("button"), hint = document.createElement("p");
  root.className = "plot";
  log.className = "log";
  log.type = "button";
  log.textContent = "logarithmic";
  hint.className = "hint";
  picture.classList.add("printed");
  picture.after(root);
  root.append(log, hint);
  let logy = data.logy, plot;
  const draw = () => {
    log.setAttribute("aria-pressed", logy);
    hint.textContent = (data.series.some(raw) ? "Smoothed, the mean of 2 % of the records around each; faint: as recorded. " : "") + "Point at the curves or use the arrow keys to read values; drag to zoom in, Escape or a double click to zoom out.";
    plot?.destroy();
    plot = new uPlot(options(data, logy, root.clientWidth, height), columns(data, logy), (u, start) => { log.after(u.root); start(); });
  };
  log.addEventListener("click", () => { logy = !logy; draw(); });
  draw();
  new ResizeObserver(() => { if (root.clientWidth) plot.setSize({ width: root.clientWidth, height }); }).observe(root);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plot.redraw());
  return (next) => {
    const names = (d) => JSON.stringify([d.x, d.y, d.logx, d.logy, d.series.map((s) => [s.name, raw(s)])]), same = names(next) === names(data);
    const old = plot.data[0], { min, max } = plot.scales.x, zoomed = old.length > 0 && (min > old[0] || max < old[old.length - 1]);
    if (data.logy !== next.logy) logy = next.logy;
    data = next;
    if (!same) return draw();
    plot.setData(columns(data, logy), !zoomed);
    if (zoomed) plot.redraw();
  };
}

for (const script of document.querySelectorAll("script.chart")) {
  const picture = script.parentElement.querySelector(".picture");
  if (picture) chart(JSON.parse(script.textContent), picture);
}
