// The plots below the sigma slider: measures by sigma, similarity of the PEs, map of the PEs, and attention. Every
// panel function returns [traces, layout] for plotly, at the sigma where the slider is. `slider` is a SliderView (slider.js),
// whose data come from the function `slider` of packing.py.

// Styles of lines, as in figures/base.py: colour and dash of every split, and of other lines in turn.
const SPLITS = { train: ["ink", "dot"], test: ["blue", "dash"], validation: ["vermillion", "solid"], ood: ["vermillion", "solid"] };
const LINE_STYLES = [
  ["ink", "solid"], ["blue", "dash"], ["vermillion", "dashdot"],
  ["green", "dot"], ["purple", "longdashdot"], ["orange", "2px,3px"],
];

// Return colour and dash of every curve on an axis: by split if all have different splits, otherwise in turn.
const stylesOf = (curves) => {
  if (curves.length === 1) return [["blue", "solid"]];
  const splits = new Set(curves.map(({ split }) => split).filter((split) => split in SPLITS));
  return curves.map(({ split }, i) => (splits.size === curves.length ? SPLITS[split] : LINE_STYLES[i % LINE_STYLES.length]));
};

// Return a colour (#rrggbb) with transparency, for example for the band of an interval.
const withAlpha = (color, alpha) => {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
};

// Return the settings of an axis of sigma, as `sigma_axis` in figures/base.py: at most `TICKS` ticks, counted from the
// largest sigma, and a logarithmic scale if the sigmas are spaced unevenly.
const TICKS = 8;
const sigmaAxis = (sigmas) => {
  const gaps = sigmas.slice(1).map((sigma, i) => sigma - sigmas[i]);
  const log = gaps.length > 1 && sigmas[0] > 0 && Math.max(...gaps) > 2.5 * Math.min(...gaps);
  const step = Math.ceil(sigmas.length / TICKS);
  const shown = sigmas.filter((_, i) => (sigmas.length - 1 - i) % step === 0);
  const [low, high] = [sigmas[0], sigmas[sigmas.length - 1]];
  const room = 0.06 * (high - low) || 1;
  const range = log ? [low / 1.25, high * 1.25].map(Math.log10) : [low - room, high + room];
  return { type: log ? "log" : "linear", range, tickvals: shown, ticktext: shown.map((sigma) => `${+sigma.toPrecision(6)}`) };
};

// Return the traces of a measure by sigma: a band between the bounds of its intervals, and a line through its means,
// which has an entry in the legend if `showlegend`.
const curveTraces = (slider, name, color, dash, showlegend) => {
  const x = slider.positions.map((position) => position.sigma);
  const [means, lows, highs] = [0, 1, 2].map((part) => slider.positions.map((position) => position.measures[name][part]));
  const line = { x, type: "scatter", showlegend: false };
  const bound = { ...line, mode: "lines", line: { width: 0, color }, hoverinfo: "skip" };
  return [
    { ...bound, y: lows },
    { ...bound, y: highs, fill: "tonexty", fillcolor: withAlpha(color, 0.2) },
    {
      ...line,
      y: means,
      mode: "lines+markers",
      customdata: x.map((_, i) => i),
      name: plain(slider.content.curves[name].legend),
      line: { width: 2, color, dash },
      marker: { size: 5, color },
      hovertemplate: `${plain(name)}<br>\u03c3 %{x}: %{y:.3f}<extra></extra>`,
      showlegend,
    },
  ];
};

// Measures that share an axis, by sigma, with a ring on each at the current sigma.
const measurePanel = (slider, colors, axis) => {
  const names = slider.namesOn(axis);
  const several = names.length > 1;
  const styles = stylesOf(names.map((name) => slider.content.curves[name]));
  const traces = names.flatMap((name, i) => curveTraces(slider, name, colors[styles[i][0]], styles[i][1], several));
  traces.push({
    ...slider.marks(axis),
    type: "scatter",
    mode: "markers",
    marker: { size: 11, color: colors.paper, line: { width: 2.5, color: colors.ink } },
    hoverinfo: "skip",
    showlegend: false,
  });
  const ticks = sigmaAxis(slider.positions.map((position) => position.sigma));
  const { sigma } = slider.positions[slider.at];
  const line = { type: "line", x0: sigma, x1: sigma, yref: "paper", y0: 0, y1: 1, layer: "below" };
  const layout = {
    shapes: [{ ...line, line: { color: colors.soft, width: 1 } }],
    xaxis: axisOf(colors, { title: { text: "\u03c3" }, showgrid: false, ...ticks }),
    yaxis: axisOf(colors, { title: { text: plain(axis) } }),
    showlegend: several,
    legend: { orientation: "h", traceorder: "normal", x: 0, y: 1.02, yanchor: "bottom", font: { size: 11 } },
    margin: { l: 52, r: 12, t: 30, b: 42 },
  };
  return [traces, layout];
};

// Return where groups start among the rows of a matrix, the middle of each group, and its name.
const groupEdges = (slider) => {
  const { order, block_size: size, group_names: names } = slider.content;
  const codes = rowsOf(order, size).map((block) => slider.codes[block[0]]);
  const starts = codes.map((_, i) => i).filter((i) => i > 0 && codes[i] !== codes[i - 1]);
  const edges = [0, ...starts, codes.length];
  return {
    starts,
    size: codes.length,
    middles: edges.slice(0, -1).map((start, i) => (start + edges[i + 1] - 1) / 2),
    texts: edges.slice(0, -1).map((start) => (codes[start] >= 0 ? plain(shorter(names[codes[start]] ?? "", LETTERS)) : "none")),
  };
};

// A matrix of all pairs of channels as a heat map, with lines between groups. `kind` is "similarity" or "attention".
const matrixPanel = (slider, colors, kind, colorscale, zmin) => {
  const { names, order, scales, groups } = slider.content;
  const { starts, size, middles, texts } = groupEdges(slider);
  const labels = rowsOf(order, slider.content.block_size).map((block) => {
    const [first, last] = [block[0], block[block.length - 1]].map((i) => inLines(names[i]));
    return block.length > 1 ? `${first} to ${last}` : first;
  });
  const edge = { type: "line", layer: "above", line: { color: colors.ink, width: 0.7 } };
  const [low, high] = [-0.5, size - 0.5];
  const shapes = starts.flatMap((i) => [
    { ...edge, x0: i - 0.5, x1: i - 0.5, y0: low, y1: high },
    { ...edge, y0: i - 0.5, y1: i - 0.5, x0: low, x1: high },
  ]);
  const trace = {
    type: "heatmap",
    z: slider.matrix(kind),
    zmin,
    zmax: scales[kind],
    colorscale,
    customdata: labels.map((row) => labels.map((column) => [row, column])),
    hovertemplate: "%{customdata[0]}<br>%{customdata[1]}: %{z:.2f}<extra></extra>",
    colorbar: { thickness: 9, outlinewidth: 0, len: 0.9, tickfont: { size: 11 } },
  };
  const showGroups = groups !== null && texts.length <= 30;
  const side = { showgrid: false, showline: false, ticks: "", constrain: "domain" };
  const left = showGroups ? { tickvals: middles, ticktext: texts } : { showticklabels: false };
  const layout = {
    shapes: showGroups ? shapes : [],
    xaxis: axisOf(colors, { ...side, showticklabels: false, scaleanchor: "y" }),
    yaxis: axisOf(colors, { ...side, ...left, autorange: "reversed" }),
    margin: { l: 20, r: 10, t: 8, b: 10 },
  };
  return [[trace], layout];
};

const similarityPanel = (slider, colors) => {
  const diverging = [[0, colors.blue], [0.5, colors.paper], [1, colors.vermillion]];
  return matrixPanel(slider, colors, "similarity", diverging, -slider.content.scales.similarity);
};

const attentionPanel = (slider, colors) => {
  const sequential = [[0, colors.paper], [1, colors.blue]];
  return matrixPanel(slider, colors, "attention", sequential, 0);
};

// The map of the PEs: a point per channel, coloured by group.
const placesPanel = (slider, colors) => {
  const { names, group_names: groups, scales } = slider.content;
  const traces = [...new Set(slider.codes)].sort((a, b) => a - b).map((code) => {
    const members = names.map((_, i) => i).filter((i) => slider.codes[i] === code);
    const groupName = code === null || code < 0 ? "" : `<br>${inLines(groups[code] ?? "")}`;
    return {
      type: "scatter",
      mode: "markers",
      meta: names.length <= NAMED ? 10 : null,
      customdata: members,
      ...slider.placesOf(members),
      hovertext: members.map((i) => inLines(names[i])),
      marker: { ...markOf(code, colors), size: names.length > 300 ? 5 : 8 },
      hovertemplate: `%{hovertext}${groupName}<extra></extra>`,
      cliponaxis: false,
    };
  });
  const range = [-1.12 * scales.places, 1.12 * scales.places];
  const layout = {
    xaxis: { ...bareAxis, range, scaleanchor: "y" },
    yaxis: { ...bareAxis, range },
    margin: { l: 8, r: 8, t: 8, b: 8 },
  };
  return [[namesTrace(), ...traces], layout];
};

// The function of each kind of panel.
const PANELS = {
  measure: measurePanel,
  similarity: similarityPanel,
  attention: attentionPanel,
  places: placesPanel,
};
