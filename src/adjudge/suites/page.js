"use strict";
const { cases, shared } = JSON.parse(document.getElementById("data").textContent);
const table = document.getElementById("cases");
const body = table.tBodies[0];
const rows = cases.map((one, index) => {
  const row = document.getElementById(`case-${index}`);
  const [, name, , entry] = row.cells;
  return {
    one, row, index, name: name.firstElementChild.textContent, detail: null,
    text: `${name.textContent}\n${entry.textContent}\n${one.headline ?? ""}`.toLowerCase(),
  };
});

// The style gives rows another display than that of a table, so that those out of sight cost nothing.
// Some browsers then take them for no table any more, unless they are told.
for (const [selector, role] of [["table", "table"], ["thead, tbody", "rowgroup"], ["tr", "row"],
  ["td", "cell"], ["thead th", "columnheader"], ["tbody th", "rowheader"]]) {
  for (const node of document.querySelectorAll(selector)) node.setAttribute("role", role);
}

// Every text of the report goes through here, as text.
function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children.filter((child) => child !== null));
  return node;
}

// -- what a case opens to

function grid(head, lines, numbers = []) {
  const cell = (tag, text, column) =>
    make(tag, { ...(tag === "th" && { scope: "col" }), ...(numbers.includes(column) && { class: "number" }) }, String(text));
  return make("div", { class: "scroll" }, make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text, k) => cell("th", text, k)))),
    make("tbody", {}, ...lines.map((line) => make("tr", {}, ...line.map((text, k) => cell("td", text, k)))))));
}

function pairTable(inputs, outputs) {
  return make("div", { class: "scroll" }, make("table", { class: "pairs" },
    make("thead", {}, make("tr", {}, make("td", {}), ...inputs.map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...outputs.map(([name, cells]) => make("tr", {}, make("th", { scope: "row" }, name),
      ...cells.map(([verdict, text]) => make("td", { class: verdict }, text)))))));
}

function pairs(lines) {
  return make("dl", {}, ...lines.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, String(value))]));
}

function repeat(command, tag = "code", what = "command") {
  const button = make("button", { type: "button" }, "Copy");
  const code = make(tag, {}, command);
  const said = make("span", { role: "status", class: "visually-hidden" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command);
    } catch {
      getSelection().selectAllChildren(code);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    said.textContent = `The ${what} is in the clipboard`;
    setTimeout(() => { button.textContent = "Copy"; said.textContent = ""; }, 2000);
  });
  return make("div", { class: "repeat" }, code, button, said);
}

function details({ one, index }) {
  const parts = [];
  const section = (title, ...nodes) => parts.push(make("h2", {}, title), ...nodes);
  if (one.headline) parts.push(make("p", {}, one.headline));
  if (one.text) section("What was raised", make("pre", {}, one.text));
  else if (one.findings) {
    section("Findings", ...one.findings.map(([verdict, status, mode, text]) =>
      make("pre", {}, make("b", { class: verdict }, status), ` in ${mode || "this check"}: `, text)));
    if (one.further) parts.push(make("p", {}, `${one.further} more findings are in the file of the run.`));
  }
  if (one.entries) {
    section("Worst entries", grid(
      ["Entry", "Mode", "Automatic", "Reference", "Difference", "Allowed", "Method"], one.entries, [2, 3, 4, 5]));
    if (one.more) parts.push(make("p", {}, `${one.more} more entries are in the file of the run.`));
  }
  for (const place of one.pairs ?? []) {
    const [title, inputs, outputs] = shared[place];
    section(`Outputs and inputs, ${title}`, pairTable(inputs, outputs));
  }
  const drawn = document.getElementById(`pictures-${index}`);
  if (drawn) parts.push(drawn.content.cloneNode(true));
  if ("matrix" in one) {
    const [head, ...lines] = shared[one.matrix];
    section("Modes and ways", grid(head, lines));
  }
  if (one.points) section("Points", grid(["Point", "Verdict", "Finding"], one.points));
  const about = [["seed", one.seed]];
  if ("file" in one) about.unshift(["made at", `${shared[one.file]}:${one.line}`]);
  if ("target" in one) about.unshift(["declared in", `${shared[one.target]}, ${one.variable}`]);
  if (one.command) section("Repeat it", repeat(one.command), pairs(about));
  else section("Repeat it with the same seed", pairs(about));
  if (one.script) {
    parts.push(make("details", { class: "script" }, make("summary", {}, "A script that repeats it, its arrays bit by bit"),
      repeat(one.script, "pre", "script")));
  }
  if ("settings" in one) {
    const stages = shared[one.stages];
    const power = shared[one.power];
    parts.push(make("details", {}, make("summary", {}, "Counts, stages, versions and settings"),
      make("div", { class: "columns" },
        make("div", {}, make("h2", {}, "Counts"), pairs(shared[one.counts])),
        make("div", {}, make("h2", {}, "Versions and settings"), pairs(shared[one.settings]),
          ...(power.length ? [make("h2", {}, "A single wrong entry would show"), pairs(power)] : [])),
        stages.length ? make("div", {}, make("h2", {}, "Stages"), grid(["Stage", "Reached", "Decided"], stages, [1, 2])) : null)));
  }
  return make("tr", { class: "detail", id: `detail-${index}`, role: "row" },
    make("td", { colspan: "8", role: "cell" }, make("div", {}, ...parts)));
}

function toggle(item, open = !item.row.classList.contains("open")) {
  item.detail ??= details(item);
  item.row.classList.toggle("open", open);
  const button = item.row.querySelector("button");
  button.setAttribute("aria-expanded", String(open));
  if (open) {
    button.setAttribute("aria-controls", item.detail.id);
    item.row.after(item.detail);
    item.detail.hidden = item.row.hidden;
  } else {
    button.removeAttribute("aria-controls");
    item.detail.remove();
  }
}

body.addEventListener("click", (event) => {
  const row = event.target.closest("tr:not(.detail)");
  if (row && row.parentNode === body && event.target.closest("button")) toggle(rows[Number(row.id.slice(5))]);
});

// -- which cases are shown

const search = document.getElementById("search");
const kinds = [...document.querySelectorAll("[data-show]")];
const wanted = new Set();

function show() {
  const word = search.value.trim().toLowerCase();
  let count = 0;
  for (const { row, detail, text } of rows) {
    const hidden = (wanted.size > 0 && !wanted.has(row.dataset.kind)) || !text.includes(word);
    if (row.hidden !== hidden) row.hidden = hidden;
    if (detail) detail.hidden = hidden;
    count += !hidden;
  }
  document.getElementById("shown").textContent =
    count === rows.length ? "" : `${count} of ${rows.length} cases are shown`;
  document.getElementById("none").hidden = count > 0;
}

for (const button of kinds) {
  button.addEventListener("click", () => {
    const kind = button.dataset.show;
    if (!kind) wanted.clear();
    else if (!wanted.delete(kind)) wanted.add(kind);
    for (const one of kinds) {
      one.setAttribute("aria-pressed", String(one.dataset.show ? wanted.has(one.dataset.show) : wanted.size === 0));
    }
    show();
  });
}
search.addEventListener("input", show);

// -- in which order

const words = new Intl.Collator("en", { numeric: true });
// A number beyond all others is a string in JSON, as are names.
const beyond = { inf: Infinity, "-inf": -Infinity, nan: Infinity };
const columns = [
  ({ one }) => one.key[0],
  ({ name }) => name,
  ({ one }) => (one.key[1] === null ? null : shared[one.key[1]]),
  ({ one }) => one.key[2],
  ...[3, 4, 5, 6].map((k) => ({ one }) => beyond[one.key[k]] ?? one.key[k]),
];

function compare(a, b) {
  return typeof a === "string" ? words.compare(a, b) : a < b ? -1 : a > b ? 1 : 0;
}

const heads = [...table.tHead.rows[0].cells];
heads.forEach((head, column) => {
  head.firstElementChild.addEventListener("click", () => {
    const before = head.getAttribute("aria-sort");
    // What is large is looked for first; a name is, by the alphabet.
    const first = column > 3 ? "descending" : "ascending";
    const direction = before === null ? first : before === "ascending" ? "descending" : "ascending";
    for (const one of heads) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = rows.map((item) => [columns[column](item), item]);
    keyed.sort(([a, one], [b, other]) => {
      if (a === null || b === null) return (a === null) - (b === null) || one.index - other.index;
      return sign * compare(a, b) || one.index - other.index;
    });
    const sorted = document.createDocumentFragment();
    for (const [, { row, detail }] of keyed) {
      const open = row.classList.contains("open");
      sorted.append(row);
      if (open) sorted.append(detail);
    }
    body.append(sorted);
  });
});

// On paper every case that did not pass is open, if they are not too many to be read.
addEventListener("beforeprint", () => {
  const wrong = rows.filter(({ row }) => row.dataset.kind !== "PASS" && !row.hidden);
  if (wrong.length <= 50) for (const item of wrong) toggle(item, true);
});
