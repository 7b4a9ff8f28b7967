"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 50;
  const FILTERS = [["op", true], ["problem", false], ["kernel", false], ["device", true], ["mode", true], ["status", true], ["threads", true]];
  const PROVENANCE = ["suite", "provider", "device", "device_name", "mode", "dtype", "numerics", "layout", "threads",
    "threads_used", "affinity", "isa", "samples", "processes", "interval", "stopped_by", "outliers", "disturbed", "repeated",
    "attempt", "call_overhead_s", "setup_s", "speedup_of_minima", "baseline", "max_error", "error_bound", "scratch_bytes",
    "executed_flop", "bound_by", "ceiling_gflop_per_s", "ceiling_gbyte_per_s", "roofline_pct_cycles", "clock_mhz",
    "temperature_c", "power_w", "energy_j", "load", "steal_pct", "tunables", "seed", "count", "versions", "git_commit",
    "started_at"];

  // ---- columns ----
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const empty = (value) => value === null || value === "" || Number.isNaN(value);

  function compare(a, b) {
    if (empty(a) || empty(b)) return empty(a) - empty(b);
    return typeof a === "number" && typeof b === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0;
  }

  // at(i): the value of row i. key(i): a number that sorts as it does, NaN where it is empty.
  function column(found) {
    if ("constant" in found) return { values: [found.constant], code: () => 0, at: () => found.constant, key: () => 0 };
    if ("floats" in found) {
      const floats = new Float32Array(bytes(found.floats));
      return { at: (i) => floats[i], key: (i) => floats[i] };
    }
    const codes = new ({ 1: Uint8Array, 2: Uint16Array, 4: Uint32Array })[found.bytes](bytes(found.codes));
    const rank = new Float64Array(found.values.length);
    found.values.map((_, i) => i).sort((a, b) => compare(found.values[a], found.values[b]))
      .forEach((code, i) => { rank[code] = empty(found.values[code]) ? NaN : i; });
    return { values: found.values, code: (i) => codes[i], at: (i) => found.values[codes[i]], key: (i) => rank[codes[i]] };
  }

  const columns = Object.fromEntries(Object.entries(data.columns).map(([name, found]) => [name, column(found)]));
  const lengths = column(data.lengths), low = column(data.low), high = column(data.high);
  const codes = new Uint16Array(bytes(data.samples));
  const starts = new Uint32Array(data.count + 1);
  for (let i = 0; i < data.count; i++) starts[i + 1] = starts[i] + lengths.at(i);
  const samples = (i) => Array.from(codes.subarray(starts[i], starts[i + 1]), (c) => low.at(i) + c / 65535 * (high.at(i) - low.at(i)));

  // ---- words ----
  const digits = (value) => empty(value) ? "" : Number(value).toPrecision(3).replace(/^(-?\d+)\.?0*e\+(\d+)$/, (_, m, e) => String(m * 10 ** e));
  function seconds(value) {
    if (empty(value)) return "";
    const [unit, factor] = [["s", 1], ["ms", 1e-3], ["us", 1e-6]].find(([, f]) => value >= f) || ["ns", 1e-9];
    const scaled = value / factor;
    return (scaled >= 100 ? scaled.toFixed(0) : scaled.toPrecision(3)) + " " + unit;
  }
  function spread(i) {
    const [middle, from, to] = ["time_s_median", "time_s_ci95_low", "time_s_ci95_high"].map((name) => columns[name].at(i));
    if (empty(middle) || empty(from) || empty(to)) return "";
    const sign = (end) => (end >= middle ? "+" : "") + (100 * (end / middle - 1)).toFixed(1);
    return sign(from) + " " + sign(to) + " %";
  }
  function ratio(i) {
    const [middle, from, to] = ["speedup", "speedup_ci95_low", "speedup_ci95_high"].map((name) => columns[name].at(i));
    if (empty(middle)) return columns.kernel.at(i) === columns.baseline.at(i) ? "baseline" : "";
    return digits(middle) + "x" + (empty(from) || empty(to) ? "" : " [" + digits(from) + ", " + digits(to) + "]");
  }
  function plain(value) {
    if (typeof value !== "number" || Number.isInteger(value)) return String(value);
    return String(Number(value.toPrecision(6)));
  }
  const quoted = (text) => /^[\w@%+=:,./-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\"'\"'") + "'";
  function command(i) {
    if (data.options === null) return "";
    const at = (name) => columns[name].at(i), mode = at("mode");
    const words = ["kernelmark", mode === "verify" ? "verify" : "run", quoted(at("problem")), "--kernels", quoted(at("kernel"))];
    if (!empty(at("speedup"))) words.push("--kernels", quoted(at("baseline")));
    if (mode !== "verify") words.push("--mode", mode);
    if (at("device") === "cpu") words.push("--threads", at("threads"));
    return [...words, "--seed", at("seed"), mode === "verify" ? "" : data.options].filter((word) => word !== "").join(" ");
  }

  // ---- elements; all text from rows goes through textContent ----
  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  // An id may break behind a slash.
  const breakable = (text) => text.split(/(?<=[/.])/).flatMap((part) => [part, element("wbr")]);
  function shape(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  // ---- table ----
  const SHOWN = [
    ["problem", "problem", null, ""],
    ["kernel", "kernel", null, ""],
    ["time", "time_s_median", (i) => seconds(columns.time_s_median.at(i)), "number"],
    ["95 %", null, spread, "number spare"],
    ["GFLOP/s", "gflop_per_s", (i) => digits(columns.gflop_per_s.at(i)), "number spare"],
    ["GB/s", "gbyte_per_s", (i) => digits(columns.gbyte_per_s.at(i)), "number spare"],
    ["roof %", "roofline_pct", (i) => digits(columns.roofline_pct.at(i)), "number spare"],
    ["speedup", "speedup", ratio, "spare"],
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

  // ---- a row, opened ----
  function detail(i) {
    const cell = element("td", { colspan: SHOWN.length });
    if (columns.reason.at(i)) cell.append(element("p", { class: columns.status.at(i) === "ok" ? "" : "bad" }, columns.status.at(i) + ": " + columns.reason.at(i)));
    const rates = [["95 %", spread(i)], ["GFLOP/s", digits(columns.gflop_per_s.at(i))], ["GB/s", digits(columns.gbyte_per_s.at(i))],
      ["of the ceiling", empty(columns.roofline_pct.at(i)) ? "" : digits(columns.roofline_pct.at(i)) + " %"], ["speedup", ratio(i)]];
    const facts = PROVENANCE.map((name) => [name, columns[name].at(i)]).filter(([, value]) => !empty(value)).map(([name, value]) => [name, plain(value)]);
    const list = element("dl");
    for (const [name, value] of [...rates.filter(([, value]) => value), ...facts]) list.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
    if (lengths.at(i)) cell.append(drawing(i));
    if (command(i)) cell.append(element("p", {}, "Again: ", element("code", {}, command(i)), " ", copier(command(i))));
    cell.append(list);
    return element("tr", { class: "detail" }, cell);
  }

  function copier(text) {
    const button = element("button", { type: "button", class: "copy" }, "Copy");
    button.addEventListener("click", () => {
      const done = () => { button.textContent = "Copied"; };
      if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, () => { button.textContent = "Select and copy it by hand"; });
      else button.textContent = "Select and copy it by hand";
    });
    return button;
  }

  // Above, the samples in the order in which they were taken; below, the share of them at or under a time.
  function drawing(i) {
    const found = samples(i), width = 600, left = 46, right = 590, from = Math.min(...found), to = Math.max(...found);
    const x = (value) => left + (to > from ? (value - from) / (to - from) : 0.5) * (right - left);
    const middle = columns.time_s_median.at(i), interval = [columns.time_s_ci95_low.at(i), columns.time_s_ci95_high.at(i)];
    const what = data.levels ? "quantiles of " + columns.samples.at(i) : found.length;
    const svg = shape("svg", { viewBox: "0 0 " + width + " 172", role: "img", "aria-label": what + " samples from " + seconds(from) + " to " + seconds(to) + ", median " + seconds(middle) });
    if (!interval.some(empty)) {
      const ends = interval.map((end) => Math.min(right, Math.max(left, x(end))));
      svg.append(shape("rect", { x: ends[0], y: 6, width: Math.max(1, ends[1] - ends[0]), height: 140, class: "interval" }));
    }
    svg.append(shape("line", { x1: x(middle), x2: x(middle), y1: 6, y2: 146, class: "middle" }));
    const steps = data.levels ? found.map((value, k) => [value, data.levels[k]]) : found.slice().sort((a, b) => a - b).map((value, k) => [value, (k + 1) / found.length]);
    if (!data.levels) found.forEach((value, k) => svg.append(shape("circle", { cx: x(value), cy: 8 + 66 * (k + 0.5) / found.length, r: 2, class: "sample" })));
    const top = data.levels ? 10 : 82;
    const path = steps.map(([value, share], k) => (k ? (data.levels ? "L" : "H" + x(value) + "V") : "M") + (k && !data.levels ? "" : x(value) + " ") + (146 - share * (146 - top)));
    svg.append(shape("path", { d: path.join(""), class: "curve" }));
    svg.append(shape("line", { x1: left, x2: right, y1: 146, y2: 146, class: "axis" }));
    svg.append(shape("text", { x: left, y: 162 }, seconds(from)), shape("text", { x: right, y: 162, "text-anchor": "end" }, seconds(to)));
    if (!data.levels) svg.append(shape("text", { x: 0, y: 20 }, "first"), shape("text", { x: 0, y: 74 }, "last"));
    svg.append(shape("text", { x: 0, y: top + 8 }, "100 %"), shape("text", { x: 0, y: 146 }, "0 %"));
    return svg;
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

  // Each filter is decided once for every distinct value, so that a row costs a look-up.
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

  document.getElementById("previous").addEventListener("click", () => { state.page--; render(); });
  document.getElementById("next").addEventListener("click", () => { state.page++; render(); });
  header();
  filters();
  update();
})();
