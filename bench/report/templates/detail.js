// The details of an opened row: its samples, its origin, and the command that measures it again.
const PROVENANCE = ["suite", "provider", "device", "device_name", "mode", "dtype", "numerics", "layout", "threads",
  "threads_used", "affinity", "isa", "samples", "processes", "interval", "stopped_by", "outliers", "disturbed", "repeated",
  "attempt", "call_overhead_s", "setup_s", "speedup_of_minima", "baseline", "max_error", "error_bound", "scratch_bytes",
  "executed_flop", "judged_by", "llc_bytes", "bound_by", "ceiling_gflop_per_s", "ceiling_gbyte_per_s", "roofline_pct_cycles", "clock_mhz",
  "temperature_c", "power_w", "energy_j", "load", "steal_pct", "tunables", "seed", "count", "versions", "git_commit",
  "started_at"];

function detail(i) {
  const cell = element("td", { colspan: SHOWN.length });
  if (columns.reason.at(i)) cell.append(element("p", { class: columns.status.at(i) === "ok" ? "" : "bad" }, columns.status.at(i) + ": " + columns.reason.at(i)));
  const rates = [["95 %", spread(i)], ["GFLOP/s", digits(columns.gflop_per_s.at(i))], ["GB/s", digits(columns.gbyte_per_s.at(i))],
    ["of the roofline", empty(columns.roofline_pct.at(i)) ? "" : share(i) + " %"], ["speedup", speedup(i)],
    ["over " + columns.against.at(i), ratio("ratio", i)]];
  const facts = PROVENANCE.map((name) => [name, columns[name].at(i)]).filter(([, value]) => !empty(value)).map(([name, value]) => [name, plain(value)]);
  const list = element("dl");
  for (const [name, value] of [...rates.filter(([, value]) => value), ...facts]) list.append(element("div", {}, element("dt", {}, name), element("dd", {}, value)));
  if (lengths.at(i)) cell.append(drawing(i));
  if (command(i)) cell.append(element("p", {}, "Again: ", element("code", {}, ...command(i).split(/(?<= )/).flatMap(word)), " ", copier(command(i))));
  cell.append(list);
  return element("tr", { class: "detail" }, cell);
}

// A line breaks before an option, never after its hyphens.
const word = (text) => text.startsWith("-") ? [element("span", { class: "option" }, text.trimEnd()), " "] : breakable(text);

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
  if (!data.levels) svg.append(shape("text", { x: 0, y: 20, class: "order" }, "first"), shape("text", { x: 0, y: 74, class: "order" }, "last"));
  svg.append(shape("text", { x: 0, y: top + 8 }, "100 %"), shape("text", { x: 0, y: 146 }, "0 %"));
  return svg;
}
