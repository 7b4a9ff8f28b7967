// The rows as columns, their values as text, and functions that create elements.
const data = JSON.parse(document.getElementById("data").textContent);

// ---- columns ----
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const empty = (value) => value === null || value === "" || Number.isNaN(value);

function compare(a, b) {
  if (empty(a) || empty(b)) return empty(a) - empty(b);
  return typeof a === "number" && typeof b === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0;
}

// at(i): the value of row i. key(i): a number that sorts like the value; NaN for an empty value.
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
const noisy = column(data.noisy), lengths = column(data.lengths);
const taken = new Float32Array(bytes(data.samples));
const starts = new Uint32Array(data.count + 1);
for (let i = 0; i < data.count; i++) starts[i + 1] = starts[i] + lengths.at(i);
const samples = (i) => Array.from(taken.subarray(starts[i], starts[i + 1]));

// ---- words ----
const digits = (value) => empty(value) ? "" : Number(value).toPrecision(3).replace(/^(-?\d+)\.?0*e\+(\d+)$/, (_, m, e) => String(m * 10 ** e));
function seconds(value) {
  if (empty(value)) return "";
  const [unit, factor] = [["s", 1], ["ms", 1e-3], ["us", 1e-6]].find(([, f]) => value >= f) || ["ns", 1e-9];
  const scaled = value / factor;
  return (scaled >= 100 ? scaled.toFixed(0) : scaled.toPrecision(3)) + " " + unit;
}
const share = (i) => (noisy.at(i) & 2 ? "~" : "") + digits(columns.roofline_pct.at(i));
const time = (i) => (noisy.at(i) & 1 ? "~" : "") + seconds(columns.time_s_median.at(i));
function spread(i) {
  const [middle, from, to] = ["time_s_median", "time_s_ci95_low", "time_s_ci95_high"].map((name) => columns[name].at(i));
  if (empty(middle) || empty(from) || empty(to)) return "";
  const sign = (end) => (end >= middle ? "+" : "") + (100 * (end / middle - 1)).toFixed(1);
  return sign(from) + " " + sign(to) + " %";
}
const speedup = (i) => ratio("speedup", i) || (columns.kernel.at(i) === columns.baseline.at(i) ? "baseline" : "");
function ratio(name, i) {
  const [middle, from, to] = [name, name + "_ci95_low", name + "_ci95_high"].map((each) => columns[each].at(i));
  if (empty(middle)) return "";
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
// A line may break after these characters of an id.
const breakable = (text) => text.split(/(?<=[/@=,])|(?<=[a-z]\.)(?=[a-z])/).flatMap((part) => [part, element("wbr")]);
function shape(name, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  return made;
}
