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
