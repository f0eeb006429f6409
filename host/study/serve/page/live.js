"use strict";

// Pages are whole as the server has made them. This keeps them up to date: it asks again
// for parts of them, and draws curves with chart.js.
const EVERY = 2000; // milliseconds between two looks
const SHOWN = 6; // runs whose curves are drawn where none is chosen
const MOST = 16; // where some are
const PATIENCE = 30000; // milliseconds for an answer: a connection may die without a word

// tell shows a message; "" takes away the one from there.
const trouble = document.getElementById("trouble"), troubles = new Map();
function tell(from, message) {
  if (message) troubles.set(from, message);
  else troubles.delete(from);
  const all = [...new Set(troubles.values())].join("\n");
  trouble.hidden = !all;
  if (trouble.textContent !== all) trouble.textContent = all;
}

async function ask(url) {
  let answer, text;
  try {
    answer = await fetch(url, { signal: AbortSignal.timeout(PATIENCE) });
    text = await answer.text();
  } catch {
    throw new Error("cage serve does not answer; what is shown here is as old as that");
  }
  if (!answer.ok) throw new Error(text.trim());
  return text;
}

// keepUp looks again and again while the page can be seen. look returns whether there is
// more to be had at once.
function keepUp(look) {
  let timer, busy = false, wanted = false;
  const again = async () => {
    clearTimeout(timer);
    if (busy) {
      wanted = true; // what is asked for has changed meanwhile
      return;
    }
    busy = true;
    let more = false;
    try {
      more = await look();
      tell(look, "");
    } catch (error) {
      tell(look, error.message);
    }
    busy = false;
    if (document.hidden) return;
    timer = setTimeout(again, more || wanted ? 20 : EVERY);
    wanted = false;
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden) again(); });
  again();
  return again;
}

// replace puts HTML of the server in the place of what is there. Boxes whose values are chosen
// are checked, texts that were open stay open, and what has the focus keeps it.
const shown = new Map();
function replace(place, html, chosen = new Set()) {
  if (shown.get(place) === html) return;
  shown.set(place, html);
  const refocus = focusOf(place), open = new Map([...place.querySelectorAll("details")].map((d) => [d.dataset.step, d.open]));
  const tables = () => [...place.querySelectorAll(".scroll")], scrolled = tables().map((table) => table.scrollLeft);
  place.innerHTML = html;
  for (const box of place.querySelectorAll("input[type=checkbox]")) box.checked = chosen.has(box.value);
  for (const d of place.querySelectorAll("details")) d.open = open.get(d.dataset.step) ?? d.open;
  refocus();
  tables().forEach((table, i) => { table.scrollLeft = scrolled[i] ?? 0; });
}

// focusOf returns what gives the focus to the element that stands for the one that has it now,
// without moving the page. Of several that look the same it is the one with the same number.
function focusOf(place) {
  const now = document.activeElement;
  if (!place.contains(now)) return () => {};
  const look = (e) => [e.tagName, e.value, e.href, e.closest("details")?.dataset.step].join("\n"), before = look(now);
  const alike = () => [...place.querySelectorAll("a, input, summary, [tabindex]")].filter((e) => look(e) === before);
  const number = alike().indexOf(now);
  return () => alike()[number]?.focus({ preventScroll: true });
}

for (const place of document.querySelectorAll(".part"))
  keepUp(async () => {
    replace(place, await ask(place.dataset.from));
    return false;
  });

const grid = document.getElementById("charts");
if (grid) chartsPage();

// chartsPage draws all that has been recorded of some runs, and takes away what is recorded no more.
function chartsPage() {
  const drawn = new Map(); // by panel
  keepUp(async () => {
    const answer = JSON.parse(await ask(grid.dataset.from));
    for (const { panel, title, chart } of answer.charts) {
      if (!drawn.has(panel)) {
        const figure = document.createElement("figure"), heading = document.createElement("h3");
        figure.append(heading);
        grid.append(figure);
        drawn.set(panel, { figure, heading, draw: drawer(figure, 280) });
      }
      const { heading, draw } = drawn.get(panel);
      if (heading.textContent !== title) heading.textContent = title;
      draw(chart);
    }
    if (answer.wrong) throw new Error(answer.wrong);
    if (answer.partial) return true;
    for (const [panel, { figure }] of drawn) {
      if (answer.charts.some((c) => c.panel === panel)) continue;
      figure.remove();
      drawn.delete(panel);
    }
    return false;
  });
}

// drawer draws a chart in an element, and again when there are other points.
function drawer(element, height) {
  let update;
  return (data) => {
    if (update) return update(data);
    const picture = document.createElement("div");
    element.append(picture);
    update = chart(data, picture, height);
  };
}

const searchForm = document.getElementById("search");
if (searchForm) runsPage();

// runsPage is the table of all runs, with the curves of some.
function runsPage() {
  const place = document.getElementById("list"), panel = document.getElementById("panel"), which = document.getElementById("which");
  const section = document.getElementById("curves"), canvas = document.getElementById("chart");
  const query = () => {
    const q = new URLSearchParams(location.search);
    q.delete("q");
    const words = document.getElementById("words").value.trim();
    if (words) q.set("q", words);
    return q.toString();
  };
  const boxes = () => [...place.querySelectorAll("input[name=run]")];
  const chosen = new Set(); // values of boxes, also those that the filter hides
  let draw = drawer(canvas, 360);
  const curves = keepUp(async () => {
    const checked = boxes().filter((box) => box.checked), runs = (checked.length ? checked.slice(0, MOST) : boxes().slice(0, SHOWN)).map((box) => box.value);
    section.hidden = boxes().length === 0;
    if (runs.length === 0) return false;
    const q = new URLSearchParams(runs.map((run) => ["run", run])), asked = panel.value;
    q.set("panel", asked);
    const answer = JSON.parse(await ask("/curves?" + q)), title = answer.charts[0]?.title;
    if (asked !== panel.value) return true; // another panel was chosen meanwhile
    const of = checked.length ? (checked.length > MOST ? `the first ${MOST} runs that are chosen` : "the runs that are chosen") : "the first runs of the table; choose others there";
    which.textContent = answer.charts.length ? `Of ${of}.` + (answer.partial ? " Reading …" : "") : answer.partial ? "Reading …" : "None of these runs has recorded this.";
    canvas.hidden = answer.charts.length === 0;
    if (answer.charts.length) draw({ ...answer.charts[0].chart, y: title });
    if (answer.wrong) throw new Error(answer.wrong);
    return answer.partial;
  });
  const table = keepUp(async () => {
    const asked = query(), html = await ask("/table?" + asked);
    if (asked !== query()) return true;
    const before = boxes().map((box) => box.value).join("\n");
    replace(place, html, chosen);
    if (before !== boxes().map((box) => box.value).join("\n")) curves();
    return false;
  });
  let typing;
  document.getElementById("words").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      const q = query();
      history.replaceState(null, "", q ? "/?" + q : "/");
      table();
    }, 150);
  });
  searchForm.addEventListener("submit", (event) => event.preventDefault());
  panel.addEventListener("change", () => {
    canvas.replaceChildren(); // another scale may be logarithmic
    draw = drawer(canvas, 360);
    curves();
  });
  place.addEventListener("change", ({ target: box }) => {
    if (box.checked) chosen.add(box.value);
    else chosen.delete(box.value);
    curves();
  });
}
