// The table of rows, with sorting, filters and pages. This script is the last and starts the others.
const PAGE = 50;
const FILTERS = [["op", true], ["problem", false], ["kernel", false], ["device", true], ["mode", true], ["status", true], ["threads", true]];
const SHOWN = [
  ["problem", "problem", null, ""],
  ["kernel", "kernel", null, ""],
  ["time", "time_s_median", time, "number"],
  ["95 %", null, spread, "number spare"],
  ["GFLOP/s", "gflop_per_s", (i) => digits(columns.gflop_per_s.at(i)), "number spare"],
  ["GB/s", "gbyte_per_s", (i) => digits(columns.gbyte_per_s.at(i)), "number spare"],
  ["roof %", "roofline_pct", share, "number spare"],
  ["speedup", "speedup", speedup, "spare"],
  ["threads", "threads", (i) => String(columns.threads.at(i)), "number spare"],
  ["mode", "mode", (i) => columns.mode.at(i), "spare"],
  ["status", "status", (i) => columns.status.at(i), ""],
];
const state = { page: 0, sort: null, descending: false, rows: Uint32Array.from({ length: data.count }, (_, i) => i), open: new Set() };
const head = document.querySelector("#table thead"), body = document.querySelector("#table tbody");

function header() {
  const row = element("tr");
  for (const [title, name, , style] of SHOWN) {
    const cell = element("th", { scope: "col", class: style });
    if (name) {
      const button = element("button", { type: "button" }, title);
      button.addEventListener("click", () => sortBy(name));
      cell.append(button);
      cell.dataset.name = name;
      cell.setAttribute("aria-sort", "none");
    } else {
      cell.append(title);
    }
    row.append(cell);
  }
  head.append(row);
}

function sortBy(name) {
  [state.descending, state.sort] = [state.sort === name && !state.descending, name];
  for (const cell of head.querySelectorAll("th[data-name]")) {
    cell.setAttribute("aria-sort", cell.dataset.name !== name ? "none" : state.descending ? "descending" : "ascending");
  }
  update();
}

function order(rows) {
  if (!state.sort) return rows;
  const keys = new Float64Array(data.count), { key } = columns[state.sort], sign = state.descending ? -1 : 1;
  for (const i of rows) keys[i] = key(i);
  return rows.sort((a, b) => {
    const x = keys[a], y = keys[b];
    if (x !== x || y !== y) return (x !== x) - (y !== y) || a - b;
    return sign * (x - y) || a - b;
  });
}

function body_row(i) {
  const row = element("tr"), status = columns.status.at(i);
  const button = element("button", { type: "button", class: "open", "aria-expanded": String(state.open.has(i)) }, ...breakable(columns.problem.at(i)));
  button.addEventListener("click", () => toggle(i, button, row));
  row.append(element("td", {}, button), element("td", {}, ...breakable(columns.kernel.at(i))));
  for (const [title, , text, style] of SHOWN.slice(2)) {
    row.append(element("td", { class: style + (title === "status" && status !== "ok" ? " bad" : "") }, text(i)));
  }
  return row;
}

function toggle(i, button, row) {
  const opens = !state.open.has(i);
  button.setAttribute("aria-expanded", String(opens));
  if (opens) {
    state.open.add(i);
    row.after(detail(i));
  } else {
    state.open.delete(i);
    row.nextSibling.remove();
  }
}

function render() {
  const pages = Math.max(1, Math.ceil(state.rows.length / PAGE));
  state.page = Math.min(state.page, pages - 1);
  const shown = Array.from(state.rows.subarray(state.page * PAGE, (state.page + 1) * PAGE));
  body.replaceChildren(...shown.flatMap((i) => state.open.has(i) ? [body_row(i), detail(i)] : [body_row(i)]));
  document.getElementById("count").textContent = state.rows.length + " of " + data.count + " rows";
  document.getElementById("where").textContent = "page " + (state.page + 1) + " of " + pages;
  document.getElementById("previous").disabled = state.page === 0;
  document.getElementById("next").disabled = state.page === pages - 1;
}

// ---- filters ----
const inputs = {};
function filters() {
  const form = document.getElementById("filters");
  for (const [name, chosen] of FILTERS) {
    const input = chosen ? element("select", { id: "filter-" + name }, element("option", { value: "" }, "all")) : element("input", { id: "filter-" + name, type: "search", placeholder: "part of an id", spellcheck: "false" });
    if (chosen) columns[name].values.slice().sort(compare).forEach((value) => input.append(element("option", { value: String(value) }, String(value))));
    input.addEventListener(chosen ? "change" : "input", () => { state.page = 0; update(); });
    form.append(element("label", { for: input.id }, name, input));
    inputs[name] = input;
  }
  const clear = element("button", { type: "button", id: "clear" }, "Clear");
  clear.addEventListener("click", () => { Object.values(inputs).forEach((input) => { input.value = ""; }); state.page = 0; update(); });
  form.append(clear);
  form.addEventListener("submit", (event) => event.preventDefault());
}

// Each filter is evaluated once for each distinct value, so that a row needs only a look-up.
function passing() {
  const tests = FILTERS.filter(([name]) => inputs[name].value.trim()).map(([name, chosen]) => {
    const wanted = inputs[name].value.trim(), { values, code } = columns[name];
    const parts = wanted.toLowerCase().split(/\s+/);
    const right = Uint8Array.from(values, (value) => chosen ? String(value) === wanted : parts.every((part) => String(value).toLowerCase().includes(part)));
    return (i) => right[code(i)];
  });
  const rows = new Uint32Array(data.count);
  let count = 0;
  for (let i = 0; i < data.count; i++) if (tests.every((test) => test(i))) rows[count++] = i;
  return rows.subarray(0, count);
}

function update() {
  state.rows = order(passing());
  render();
}

// A link to a folded section unfolds the section.
for (const link of document.querySelectorAll("a[href^='#']")) {
  link.addEventListener("click", () => {
    const fold = document.querySelector(link.getAttribute("href")).closest("details");
    if (fold) fold.open = true;
  });
}
document.getElementById("previous").addEventListener("click", () => { state.page--; render(); });
document.getElementById("next").addEventListener("click", () => { state.page++; render(); });
header();
filters();
update();
