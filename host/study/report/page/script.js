"use strict";

// Sorting: a button in each heading of the last line; ascending, descending, as it was.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], original = [...body.rows];
  const heads = table.tHead.rows.length ? [...table.tHead.rows[table.tHead.rows.length - 1].cells] : [];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const order = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] || "ascending";
      for (const h of heads) h.removeAttribute("aria-sort");
      if (order !== "none") head.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const key = (row) => {
        const k = row.cells[column].dataset.key;
        return k === undefined ? null : Number(k.replace("Inf", "Infinity"));
      };
      const rows = order === "none" ? original : [...original].sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === null || y === null) return (x === null) - (y === null);
        return sign * (x === y ? 0 : x < y ? -1 : 1);
      });
      body.append(...rows);
    });
  });
}

// The filter of runs: every word has to be in a row.
const filter = document.getElementById("filter"), count = document.getElementById("count");
const runs = [...document.querySelectorAll("#runs tr[data-run]")].map((row) => ({
  row, detail: document.getElementById(row.dataset.run), text: [...row.cells].map((c) => c.textContent).join(" ").toLowerCase(),
}));
function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const run of runs) {
    const hidden = !words.every((w) => run.text.includes(w));
    run.row.hidden = hidden;
    if (run.detail) run.detail.hidden = hidden;
    shown += !hidden;
  }
  count.textContent = shown + " of " + runs.length;
}
if (filter) { // a page of contents has no runs
  filter.addEventListener("input", applyFilter);
  applyFilter();
}

// A link to something folded opens it.
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", openTarget);
openTarget();

// Curves.
const DASHES = ["none", "9 4", "3 3", "10 3 3 3"]; // lines on top of each other can be seen
const NS = "http://www.w3.org/2000/svg";
const W = 900, H = 420, LEFT = 70, RIGHT = 16, TOP = 12, BOTTOM = 48;

function element(parent, name, attributes, text) {
  const e = document.createElementNS(NS, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

function format(v, digits = 6) {
  if (v === 0) return "0";
  const a = Math.abs(v);
  const s = a >= 1e7 || a < 1e-4 ? v.toExponential(3) : String(Number(v.toPrecision(digits)));
  return s.replace(/-/g, "\u2212");
}

function linearTicks(low, high) {
  const raw = (high - low) / 6, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9));
  const out = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) out.push(Number((i * step).toPrecision(12)));
  return out;
}

function logTicks(low, high) {
  const decades = Math.log10(high / low);
  if (decades < 0.5) return linearTicks(low, high);
  const multiples = decades < 1.3 ? [1, 2, 3, 4, 5] : decades < 2.5 ? [1, 2, 5] : [1], every = Math.ceil(decades / 8), out = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.log10(high); e++)
    for (const m of multiples) {
      const v = Number(m + "e" + e);
      if (e % every === 0 && v >= low * (1 - 1e-9) && v <= high * (1 + 1e-9)) out.push(v);
    }
  return out;
}

// scale maps values to pixels.
function scale(low, high, from, to, log) {
  const f = log ? Math.log : (v) => v;
  const a = f(low), b = f(high);
  const at = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  at.ticks = log ? logTicks(low, high) : linearTicks(low, high);
  at.invert = (p) => { const t = a + ((p - from) / (to - from)) * (b - a); return log ? Math.exp(t) : t; };
  return at;
}

class Plot {
  constructor(data, after) {
    this.data = data;
    this.logy = data.logy;
    this.hidden = new Set();
    this.range = null; // of x, while zoomed
    this.at = null; // x under the pointer
    this.root = document.createElement("div");
    this.root.className = "plot";
    this.makeLegend();
    this.svg = element(this.root, "svg", { viewBox: "0 0 " + W + " " + H, tabindex: 0, role: "application", "aria-label": data.y + " over " + data.x + ". Left and right arrows read values." });
    this.box = document.createElement("div");
    this.box.className = "values";
    this.box.setAttribute("role", "status");
    this.box.hidden = true;
    const hint = document.createElement("p");
    hint.className = "hint";
    hint.textContent = "Point at the curves or use the arrow keys to read values; drag to zoom in, Escape or a double click to zoom out.";
    this.root.append(this.box, hint);
    after.replaceWith(this.root);
    this.listen();
    this.draw();
  }

  color(i) { return "var(--s" + ((i % 7) + 1) + ")"; }

  makeLegend() {
    const legend = document.createElement("div");
    legend.className = "legend";
    const button = (label, pressed, toggle) => {
      const b = document.createElement("button");
      b.type = "button";
      b.textContent = label;
      b.setAttribute("aria-pressed", pressed);
      b.addEventListener("click", () => { b.setAttribute("aria-pressed", toggle()); this.draw(); });
      legend.append(b);
      return b;
    };
    this.data.series.forEach((s, i) => {
      const swatch = document.createElement("i");
      swatch.style.borderColor = this.color(i);
      swatch.style.borderTopStyle = ["solid", "dashed", "dotted", "dashed"][i % DASHES.length];
      button(s.name || this.data.y, true, () => { if (!this.hidden.delete(i)) this.hidden.add(i); return !this.hidden.has(i); }).prepend(swatch);
    });
    button("logarithmic", this.logy, () => (this.logy = !this.logy)).classList.add("log");
    this.root.append(legend);
  }

  // visible yields what is to be drawn of each curve.
  *visible() {
    const ok = (v, log) => v !== null && (!log || v > 0);
    for (const [i, s] of this.data.series.entries()) {
      if (this.hidden.has(i)) continue;
      const points = [];
      s.x.forEach((x, j) => {
        if (!ok(x, this.data.logx) || (this.range && (x < this.range[0] || x > this.range[1]))) return;
        const y = s.y[j], banded = s.low.length > 0 && s.low[j] !== null;
        points.push(ok(y, this.logy) ? { x, y, low: banded ? s.low[j] : y, high: banded ? s.high[j] : y, banded } : { x, y: null });
      });
      yield { i, name: s.name, points };
    }
  }

  extent(curves) {
    let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const c of curves) for (const p of c.points) {
      if (p.y === null) continue;
      x0 = Math.min(x0, p.x); x1 = Math.max(x1, p.x);
      y0 = Math.min(y0, this.logy && p.low <= 0 ? p.y : p.low); y1 = Math.max(y1, p.high);
    }
    if (x0 > x1) return null;
    if (x0 === x1) { x0 = this.data.logx ? x0 / 2 : x0 - 1; x1 = this.data.logx ? x1 * 2 : x1 + 1; }
    if (this.logy) { const f = y0 === y1 ? 2 : (y1 / y0) ** 0.05; y0 /= f; y1 *= f; }
    else { const m = y0 === y1 ? Math.abs(y0) * 0.1 || 1e-9 : (y1 - y0) * 0.05; y0 -= m; y1 += m; }
    return [x0, x1, y0, y1];
  }

  draw() {
    this.svg.replaceChildren();
    this.box.hidden = true;
    this.curves = [...this.visible()];
    const extent = this.extent(this.curves);
    if (!extent) { element(this.svg, "text", { x: W / 2, y: H / 2, "text-anchor": "middle" }, "nothing to show"); this.x = null; return; }
    const [x0, x1, y0, y1] = extent;
    this.x = scale(x0, x1, LEFT, W - RIGHT, this.data.logx);
    this.y = scale(y0, y1, H - BOTTOM, TOP, this.logy);
    this.axes();
    for (const c of this.curves) this.curve(c);
    this.cursor = element(this.svg, "g", {});
  }

  axes() {
    for (const t of this.x.ticks) {
      element(this.svg, "line", { class: "grid", x1: this.x(t), x2: this.x(t), y1: TOP, y2: H - BOTTOM });
      element(this.svg, "text", { x: this.x(t), y: H - BOTTOM + 18, "text-anchor": "middle" }, format(t));
    }
    for (const t of this.y.ticks) {
      element(this.svg, "line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: this.y(t), y2: this.y(t) });
      element(this.svg, "text", { x: LEFT - 8, y: this.y(t) + 4, "text-anchor": "end" }, format(t));
    }
    element(this.svg, "path", { class: "frame", d: "M" + LEFT + "," + TOP + "V" + (H - BOTTOM) + "H" + (W - RIGHT) });
    element(this.svg, "text", { x: (LEFT + W - RIGHT) / 2, y: H - 8, "text-anchor": "middle" }, this.data.x);
    element(this.svg, "text", { transform: "translate(16," + (TOP + H - BOTTOM) / 2 + ") rotate(-90)", "text-anchor": "middle" }, this.data.y);
  }

  curve(c) {
    const at = (v) => Math.min(Math.max(this.y(this.logy && v <= 0 ? Number.MIN_VALUE : v), TOP - 1), H - BOTTOM + 1).toFixed(1);
    let line = "", above = [], below = [], band = "", pen = false;
    const close = () => { if (above.length > 1) band += "M" + above.join("L") + "L" + below.reverse().join("L") + "Z"; above = []; below = []; };
    for (const p of c.points) {
      if (p.y === null) { pen = false; close(); continue; }
      const x = this.x(p.x).toFixed(1);
      line += (pen ? "L" : "M") + x + "," + at(p.y);
      pen = true;
      if (p.banded) { above.push(x + "," + at(p.high)); below.push(x + "," + at(p.low)); }
    }
    close();
    if (band) element(this.svg, "path", { class: "band", d: band, style: "fill:" + this.color(c.i) });
    element(this.svg, "path", { class: "curve", d: line, style: "stroke:" + this.color(c.i), "stroke-dasharray": DASHES[c.i % DASHES.length] });
    if (c.points.length <= 40) for (const p of c.points) if (p.y !== null) element(this.svg, "circle", { cx: this.x(p.x), cy: this.y(p.y), r: 2.5, style: "fill:" + this.color(c.i) });
  }

  // show reads all curves at the recorded place nearest to x.
  show(x) {
    this.cursor.replaceChildren();
    let near = null;
    const nearest = (points, to) => points.reduce((best, p) => (p.y !== null && (!best || Math.abs(p.x - to) < Math.abs(best.x - to)) ? p : best), null);
    for (const c of this.curves) { const p = nearest(c.points, x); if (p && (near === null || Math.abs(p.x - x) < Math.abs(near - x))) near = p.x; }
    if (near === null) return;
    this.at = near;
    const px = this.x(near);
    element(this.cursor, "line", { class: "cursor", x1: px, x2: px, y1: TOP, y2: H - BOTTOM });
    this.box.replaceChildren(this.text(this.data.x + " " + format(near)));
    for (const c of this.curves) {
      const p = nearest(c.points, near);
      if (!p) continue;
      element(this.cursor, "circle", { cx: this.x(p.x), cy: this.y(p.y), r: 4, style: "fill:" + this.color(c.i) });
      let s = (c.name ? c.name + ": " : "") + format(p.y);
      if (p.banded && p.high > p.y) s += " \u00b1 " + format(p.high - p.y, 3);
      if (p.x !== near) s += " (at " + format(p.x) + ")";
      this.box.append(this.text(s, c.i));
    }
    this.box.hidden = false;
    const svg = this.svg.getBoundingClientRect(), root = this.root.getBoundingClientRect();
    const share = svg.width / W, left = px * share;
    this.box.style.top = svg.top - root.top + TOP * share + "px";
    this.box.style.left = px < W / 2 ? left + 12 + "px" : "auto";
    this.box.style.right = px < W / 2 ? "auto" : root.width - left + 12 + "px";
  }

  text(s, i) {
    const p = document.createElement("p");
    p.textContent = s;
    if (i !== undefined) { const swatch = document.createElement("b"); swatch.textContent = "\u25a0 "; swatch.style.color = this.color(i); p.prepend(swatch); }
    return p;
  }

  move(by) {
    const xs = [...new Set(this.curves.flatMap((c) => c.points.filter((p) => p.y !== null).map((p) => p.x)))].sort((a, b) => a - b);
    if (!xs.length) return;
    const i = this.at === null ? -1 : xs.findIndex((x) => x >= this.at);
    this.show(xs[by === -Infinity ? 0 : by === Infinity ? xs.length - 1 : Math.min(Math.max(i + by, 0), xs.length - 1)]);
  }

  zoom(range) { this.range = range; this.at = null; this.draw(); }

  listen() {
    const svg = this.svg;
    const place = (event) => { const r = svg.getBoundingClientRect(); return Math.min(Math.max(((event.clientX - r.left) / r.width) * W, LEFT), W - RIGHT); };
    let from = null, shade = null;
    svg.addEventListener("pointermove", (event) => {
      if (!this.x) return;
      const at = place(event);
      this.show(this.x.invert(at));
      if (from !== null) { shade = shade || element(svg, "rect", { class: "zoom", y: TOP, height: H - BOTTOM - TOP }); shade.setAttribute("x", Math.min(from, at)); shade.setAttribute("width", Math.abs(at - from)); }
    });
    svg.addEventListener("pointerdown", (event) => { if (this.x && event.button === 0) from = place(event); });
    window.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const to = place(event), start = from;
      from = null;
      if (shade) shade.remove();
      shade = null;
      if (Math.abs(to - start) > 8) this.zoom([this.x.invert(Math.min(start, to)), this.x.invert(Math.max(start, to))]);
    });
    svg.addEventListener("pointerleave", () => { this.box.hidden = true; if (this.cursor) this.cursor.replaceChildren(); });
    svg.addEventListener("dblclick", () => this.zoom(null));
    svg.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
      if (event.key === "Escape") this.zoom(null);
      if (by === undefined || !this.x) return;
      event.preventDefault();
      this.move(by);
    });
  }
}

for (const script of document.querySelectorAll("script.chart")) {
  const picture = script.parentElement.querySelector(".picture");
  if (picture) new Plot(JSON.parse(script.textContent), picture);
}
