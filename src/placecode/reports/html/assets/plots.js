// Helpers of all interactive plots: colours of the page, decoding of numbers that packing.py has encoded, and redrawing
// when the theme changes or the page is printed. Without plotly, `canDraw` is false and nothing is drawn.
const canDraw = typeof Plotly !== "undefined";
const redraws = []; // functions that draw each plot again
const [STEPS, FINE] = [127, 30000]; // as in packing.py: steps of the numbers of matrices, and of positions
// Colours and symbols of groups, in the order of the figures (figures/fit.py). On a dark page, blue and vermillion are
// lighter, as in the figures. The second blue is lighter too, so that it differs from the first.
const GROUPS = {
  light: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#f0e442"],
  dark: ["#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#f07f2e", "#b5dcf7", "#f0e442"],
};
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "pentagon"];

// Return the current colours and font of the page.
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

// Return the plotly marker for the points of a group (`code`): null if no groups are known, below 0 for no group.
const markOf = (code, colors) => {
  const line = { width: 0.5, color: colors.soft }; // yellow on white needs an edge
  if (code === null) return { color: colors.blue, symbol: "circle", line }; // no groups are known
  if (code < 0) return { color: colors.soft, symbol: "circle-open", line }; // the point is in no group
  return { color: colors.groups[code % colors.groups.length], symbol: SYMBOLS[code % SYMBOLS.length], line };
};

// Format a number with three decimals, or one from 10 on; a dash for null.
const digits = (value) => {
  if (value === null) return "\u2013";
  return value.toFixed(Math.abs(value) < 10 ? 3 : 1).replace("-", "\u2212");
};

// Decode integers in base64 to numbers from -scale to scale; missing values become null. See `packed` in packing.py.
const unpacked = (text, scale, steps) => {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const integers = steps > 255 ? new Uint16Array(bytes.buffer) : bytes;
  return Array.from(integers, (number) => (number === 0 ? null : ((number - 1 - steps) / steps) * scale));
};
// Split a list of values into rows of `width` values.
const rowsOf = (values, width) => {
  const rows = [];
  for (let start = 0; start < values.length; start += width) rows.push(values.slice(start, start + width));
  return rows;
};

// Return the layout of a plot in the colours of the page, with further settings in `more`; likewise for an axis.
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
const settings = { displayModeBar: false, responsive: true, typesetMath: false }; // names with $ signs are not formulas

// plotly interprets a few tags in texts, so names are escaped.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
// Wrap a long name, for the hover box.
const inLines = (text) => (String(text).match(/.{1,40}/gsu) ?? [""]).map(plain).join("<br>");

const redrawAll = () => redraws.forEach((redraw) => redraw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);

// Before printing, redraw all plots smaller and in light colours. After printing, restore them.
const onPaper = (printing) => {
  document.documentElement.classList.toggle("printing", printing);
  if (!canDraw) return;
  redrawAll();
  for (const plot of document.querySelectorAll(".js-plotly-plot")) {
    const wide = plot.dataset.panel === "channel-map" ? 480 : 300;
    const size = printing ? { width: wide, height: wide - 30 } : { width: null, height: null };
    Plotly.relayout(plot, { ...size, autosize: !printing });
  }
};
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
