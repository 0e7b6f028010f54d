// The dial: one slider moves the numbers, the mark on every curve, the similarity of the PEs, the map and the attention.
// Dials of several runs move together where they share a sigma.
const digits = (value) => (value === null ? "\u2013" : (Math.abs(value) < 10 ? value.toFixed(3) : value.toFixed(1)).replace("-", "\u2212"));
const dialsByNumber = new Map();

class DialView {
  constructor(holder, content) {
    this.holder = holder;
    this.content = content;
    this.at = 0;
    this.slider = holder.querySelector("input[type=range]");
    this.codes = content.groups ?? content.names.map(() => null);
    this.stops = content.stops.map((stop) => this.read(stop));
    this.slider.addEventListener("input", () => this.turn(Number(this.slider.value), true));
    if (canDraw) this.makePanels();
    this.show();
    redraws.push(() => canDraw && this.draw());
  }

  read(stop) {
    const { scales } = this.content;
    const width = Math.ceil(this.content.names.length / this.content.each);
    const matrix = (text, scale) => text && rowsOf(unpacked(text, scale, 127), width);
    const places = stop.places && rowsOf(unpacked(stop.places, scales.places, 30000), 2);
    return { ...stop, similarity: matrix(stop.similarity, scales.similarity), attention: matrix(stop.attention, scales.attention), places };
  }

  turn(at, lead) {
    if (lead) for (const other of dialsByNumber.values()) if (other !== this) other.follow(this.stops[at].sigma);
    this.at = at;
    this.slider.value = at;
    this.show();
    if (canDraw) this.move();
  }

  follow(sigma) {
    const at = this.stops.findIndex((stop) => Math.abs(stop.sigma - sigma) <= 1e-9 * Math.abs(sigma));
    if (at >= 0) this.turn(at, false);
    else this.lag(sigma);
  }

  // This run has no such stop, and says so.
  lag(sigma) {
    this.holder.classList.add("behind");
    this.holder.querySelector(".lag").textContent = `no \u03c3 = ${sigma} in this run`;
  }

  // The numbers of this stop as text.
  show() {
    const stop = this.stops[this.at];
    this.holder.dataset.stop = this.at;
    this.holder.dataset.sigma = stop.sigma;
    this.slider.setAttribute("aria-valuetext", `sigma ${stop.label}`);
    this.holder.querySelector("output b").textContent = stop.label;
    this.holder.classList.remove("behind");
    this.holder.querySelector(".lag").textContent = "";
    for (const row of this.holder.querySelectorAll("[data-measure]")) {
      const [mean, low, high] = stop.measures[row.dataset.measure];
      Object.assign(row.dataset, { mean: mean ?? "", low: low ?? "", high: high ?? "" });
      row.querySelector("b").textContent = digits(mean);
      row.querySelector("small").textContent = low === null ? "" : `${digits(low)} to ${digits(high)}`;
    }
  }

  makePanels() {
    const holder = this.holder.querySelector(".panels");
    const has = (name) => this.stops.some((stop) => stop[name]);
    const wanted = [...new Set(Object.values(this.content.measures))].map((axis) => ["measure", axis, `${axis[0].toUpperCase()}${axis.slice(1)} against \u03c3`]);
    if (has("similarity")) wanted.push(["similarity", "", "Similarity of the PEs"]);
    if (has("places")) wanted.push(["places", "", "Map of the PEs"]);
    if (has("attention")) wanted.push(["attention", "", "Attention (row looks at column)"]);
    holder.dataset.count = wanted.length;
    this.panels = wanted.map(([kind, axis, title]) => {
      const plot = element("div", { className: "plot" });
      Object.assign(plot.dataset, { panel: kind, axis });
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", title);
      holder.append(element("figure", { className: "panel" }, element("figcaption", {}, title), plot));
      return { kind, axis, plot };
    });
    this.draw();
  }

  draw() {
    const colors = theme();
    for (const { kind, axis, plot } of this.panels) {
      const [traces, layout] = this[kind](colors, axis);
      Plotly.react(plot, traces, layoutOf(colors, layout), settings);
    }
    if (!this.clickable) this.makeClickable();
  }

  // A click on a point of a curve turns the dial there.
  makeClickable() {
    this.clickable = true;
    for (const { kind, plot } of this.panels) {
      if (kind === "measure") plot.on("plotly_click", ({ points: [point] }) => point.customdata !== undefined && this.turn(point.customdata, true));
    }
  }

  move() {
    const stop = this.stops[this.at];
    for (const { kind, axis, plot } of this.panels) {
      if (kind === "measure") {
        const marks = this.marks(axis);
        Plotly.restyle(plot, { x: [marks.x], y: [marks.y] }, [plot.data.length - 1]);
        Plotly.relayout(plot, { "shapes[0].x0": stop.sigma, "shapes[0].x1": stop.sigma });
      } else if (kind === "places") {
        Plotly.restyle(plot, { x: plot.data.map((trace) => trace.customdata.map((i) => stop.places?.[i][0] ?? null)), y: plot.data.map((trace) => trace.customdata.map((i) => stop.places?.[i][1] ?? null)) });
      } else {
        Plotly.restyle(plot, { z: [stop[kind] ?? []] });
      }
    }
  }

  marks(axis) {
    const stop = this.stops[this.at];
    const names = this.namesOn(axis);
    return { x: names.map(() => stop.sigma), y: names.map((name) => stop.measures[name][0]) };
  }

  namesOn(axis) {
    return Object.keys(this.content.measures).filter((name) => this.content.measures[name] === axis);
  }

  measure(colors, axis) {
    const names = this.namesOn(axis);
    const x = this.stops.map((stop) => stop.sigma);
    const wide = Math.max(...x) / Math.min(...x.filter((sigma) => sigma > 0)) > 30 && Math.min(...x) > 0;
    const inks = [colors.blue, colors.vermillion, ...[2, 3, 4, 6].map((i) => colors.groups[i])];
    const dashes = ["solid", "dash", "dot", "dashdot", "longdash", "solid"];
    const traces = names.flatMap((name, place) => {
      const [means, lows, highs] = [0, 1, 2].map((part) => this.stops.map((stop) => stop.measures[name][part]));
      const color = inks[place % inks.length];
      const bound = { x, type: "scatter", mode: "lines", line: { width: 0, color }, hoverinfo: "skip", showlegend: false };
      const short = name.replace(/^(accuracy|mse|loss), /, "");
      return [
        { ...bound, y: lows },
        { ...bound, y: highs, fill: "tonexty", fillcolor: withAlpha(color, 0.2) },
        { x, y: means, customdata: x.map((_, i) => i), name: short, type: "scatter", mode: "lines+markers", line: { width: 2, color, dash: dashes[place % dashes.length] }, marker: { size: 5, color }, hovertemplate: `${plain(name)}<br>\u03c3 %{x}: %{y:.3f}<extra></extra>`, showlegend: names.length > 1 },
      ];
    });
    traces.push({ ...this.marks(axis), type: "scatter", mode: "markers", marker: { size: 11, color: colors.paper, line: { width: 2.5, color: colors.ink } }, hoverinfo: "skip", showlegend: false });
    const sigma = this.stops[this.at].sigma;
    const line = { type: "line", x0: sigma, x1: sigma, yref: "paper", y0: 0, y1: 1, layer: "below", line: { color: colors.soft, width: 1 } };
    const ticks = wide ? { type: "log", tickvals: spread(x), ticktext: spread(x).map(String) } : {};
    return [traces, { shapes: [line], xaxis: axisOf(colors, { title: { text: "\u03c3" }, showgrid: false, ...ticks }), yaxis: axisOf(colors, { title: { text: plain(axis) } }), showlegend: names.length > 1, legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } }, margin: { l: 52, r: 12, t: 30, b: 42 } }];
  }

  similarity(colors) {
    const scale = this.content.scales.similarity;
    return this.matrix(colors, "similarity", [[0, colors.blue], [0.5, colors.paper], [1, colors.vermillion]], -scale, scale);
  }

  attention(colors) {
    return this.matrix(colors, "attention", [[0, colors.paper], [1, colors.blue]], 0, this.content.scales.attention);
  }

  matrix(colors, kind, colorscale, zmin, zmax) {
    const { names, order, each, group_names: groups } = this.content;
    const labels = rowsOf(order, each).map((own) => plain(names[own[0]]) + (own.length > 1 ? ` to ${plain(names[own[own.length - 1]])}` : ""));
    const codes = rowsOf(order, each).map((own) => this.codes[own[0]]);
    const starts = codes.map((code, i) => i).filter((i) => i > 0 && codes[i] !== codes[i - 1]);
    const edges = [0, ...starts, codes.length];
    const known = this.content.groups !== null;
    const ticks = edges.slice(0, -1).map((start, i) => (start + edges[i + 1] - 1) / 2);
    const texts = edges.slice(0, -1).map((start) => (codes[start] >= 0 ? plain(groups[codes[start]] ?? codes[start] + 1) : "none"));
    const cut = (i) => ({ line: { color: colors.ink, width: 0.7 }, type: "line", layer: "above", ...i });
    const shapes = starts.length > 30 ? [] : starts.flatMap((i) => [cut({ x0: i - 0.5, x1: i - 0.5, y0: -0.5, y1: codes.length - 0.5 }), cut({ y0: i - 0.5, y1: i - 0.5, x0: -0.5, x1: codes.length - 0.5 })]);
    const grid = this.stops[this.at][kind] ?? [];
    const trace = { type: "heatmap", z: grid, zmin, zmax, colorscale, customdata: labels.map((row) => labels.map((column) => [row, column])), hovertemplate: "%{customdata[0]}<br>%{customdata[1]}: %{z:.2f}<extra></extra>", colorbar: { thickness: 9, outlinewidth: 0, len: 0.9, tickfont: { size: 11 } } };
    const side = { showgrid: false, showline: false, ticks: "", constrain: "domain" };
    const left = known && texts.length <= 30 ? { tickvals: ticks, ticktext: texts } : { showticklabels: false };
    return [[trace], { shapes, xaxis: axisOf(colors, { ...side, showticklabels: false, scaleanchor: "y" }), yaxis: axisOf(colors, { ...side, ...left, autorange: "reversed" }), margin: { l: 20, r: 10, t: 8, b: 10 } }];
  }

  places(colors) {
    const stop = this.stops[this.at];
    const { names } = this.content;
    const few = names.length <= 20;
    const reach = this.content.scales.places * 1.12;
    const traces = [...new Set(this.codes)].sort((a, b) => a - b).map((code) => {
      const own = names.map((_, i) => i).filter((i) => this.codes[i] === code);
      const said = code === null || code < 0 ? "" : `<br>${plain(this.content.group_names[code] ?? "")}`;
      return { type: "scatter", mode: few ? "markers+text" : "markers", customdata: own, x: own.map((i) => stop.places?.[i][0] ?? null), y: own.map((i) => stop.places?.[i][1] ?? null), text: own.map((i) => plain(names[i])), textposition: "top center", textfont: { size: 10, color: colors.soft }, marker: { size: names.length > 300 ? 5 : 8, color: colorOf(code, colors), symbol: symbolOf(code), line: { width: 0.5, color: colors.paper } }, hovertemplate: `%{text}${said}<extra></extra>` };
    });
    return [traces, { xaxis: { ...bareAxis, range: [-reach, reach], scaleanchor: "y" }, yaxis: { ...bareAxis, range: [-reach, reach] }, margin: { l: 8, r: 8, t: 8, b: 8 } }];
  }
}

// A colour of the page made thin, for the band of an interval.
const withAlpha = (color, alpha) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};
// Of many sigmas on a logarithmic axis, those that have room for their number.
const spread = (sigmas) => sigmas.filter((sigma, i) => i === 0 || i === sigmas.length - 1 || sigmas.length < 8 || i % 2 === 0);

for (const holder of document.querySelectorAll("[data-dial]")) {
  const number = Number(holder.dataset.dial);
  dialsByNumber.set(number, new DialView(holder, carried.dials[number]));
}
