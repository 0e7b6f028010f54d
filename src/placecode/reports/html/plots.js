// What interactive plots share: colours of the page, unpacking of numbers, and redrawing when the theme changes or the
// page is printed.
const canDraw = typeof Plotly !== "undefined";
const redraws = [];
const [STEPS, FINE] = [127, 30000]; // of the numbers of matrices, and of places, as they are packed
// Colours and shapes of groups, in the order of the figures (figures/own.py). In the dark the figures lighten blue and
// vermillion; the second blue is lightened here too, to stay apart from the first.
const GROUPS = {
  light: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"],
  dark: ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f07f2e", "#b5dcf7", "#f0e442"],
};
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "pentagon"];

const theme = () => {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches && !document.documentElement.matches(".printing");
  const groups = GROUPS[dark ? "dark" : "light"];
  const [, orange, green, purple] = groups;
  return {
    ...{ groups, orange, green, purple },
    paper: of("--paper"),
    ink: of("--ink"),
    soft: of("--soft"),
    rule: of("--rule"),
    blue: of("--figure-blue"),
    vermillion: of("--figure-vermillion"),
    font: getComputedStyle(document.body).fontFamily,
  };
};

// Colour and symbol of the points of a group.
const markOf = (code, colors) => {
  const line = { width: 0.5, color: colors.soft }; // yellow on white needs an edge
  if (code === null) return { color: colors.blue, symbol: "circle", line }; // no groups are known
  if (code < 0) return { color: colors.soft, symbol: "circle-open", line }; // it belongs to none
  return { color: colors.groups[code % colors.groups.length], symbol: SYMBOLS[code % SYMBOLS.length], line };
};

const digits = (value) => {
  if (value === null) return "\u2013";
  return value.toFixed(Math.abs(value) < 10 ? 3 : 1).replace("-", "\u2212");
};

// Integers in base64 to values; `null` for missing values.
const unpacked = (text, scale, steps) => {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const whole = steps > 255 ? new Uint16Array(bytes.buffer) : bytes;
  return Array.from(whole, (number) => (number === 0 ? null : ((number - 1 - steps) / steps) * scale));
};
const rowsOf = (values, width) => {
  const rows = [];
  for (let start = 0; start < values.length; start += width) rows.push(values.slice(start, start + width));
  return rows;
};

const layoutOf = (colors, more) => ({
  paper_bgcolor: "rgba(0,0,0,0)",
  plot_bgcolor: "rgba(0,0,0,0)",
  showlegend: false,
  hovermode: "closest",
  font: { family: colors.font, size: 12, color: colors.ink },
  hoverlabel: { bgcolor: colors.paper, bordercolor: colors.rule, font: { color: colors.ink, family: colors.font } },
  margin: { l: 44, r: 12, t: 8, b: 40 },
  ...more,
});
const axisOf = (colors, more) => ({
  linecolor: colors.ink,
  gridcolor: colors.rule,
  tickcolor: colors.ink,
  zeroline: false,
  showline: true,
  ticks: "outside",
  ticklen: 4,
  automargin: true,
  fixedrange: true,
  ...more,
});
const bareAxis = { visible: false, fixedrange: true };
const settings = { displayModeBar: false, responsive: true, typesetMath: false }; // a name with $ signs is no formula

// plotly interprets a few tags in texts, so names are escaped.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
// Wrap a long name, for the hover box.
const inLines = (text) => (String(text).match(/.{1,40}/gsu) ?? [""]).map(plain).join("<br>");

const redrawAll = () => redraws.forEach((redraw) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// A page on paper is narrower than most screens, and always light.
const onPaper = (printing) => {
  document.documentElement.classList.toggle("printing", printing);
  if (!canDraw) return;
  redrawAll();
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const wide = plot.dataset.panel === "atlas" ? 480 : 300;
    const size = printing ? { width: wide, height: wide - 30 } : { width: null, height: null };
    Plotly.relayout(plot, { ...size, autosize: !printing });
  }
};
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
