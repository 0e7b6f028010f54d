// Write the names of channels next to their points on a map, only where they fit. Other names are shown on hover and by
// the search. Used by the maps of slider.js and channels.js; names come from the data of the slider or of the map.
const NAMED = 60; // maximum number of channels for which a map shows names, as in the figures
const LETTERS = 22; // maximum length of a name
const LETTERS_OF_CHOSEN = 34; // maximum length of the name of the chosen channel
const SIDES = ["top center", "bottom center", "middle right", "middle left"]; // in order of preference

// Shorten a name of more than `most` letters by removing its middle.
const shorter = (name, most) => {
  const letters = [...name];
  const half = Math.floor(most / 2);
  if (letters.length <= most) return name;
  return `${letters.slice(0, half - 1).join("")}\u2026${letters.slice(1 - half).join("")}`;
};

// Return the box [left, top, right, bottom], in pixels, of a text (`wide`, `high`) on one side of a point.
const boxBeside = ({ x, y, radius }, [wide, high], side) => {
  const [up, across] = side.split(" ");
  const gap = radius + 2;
  const left = across === "right" ? x + gap : across === "left" ? x - gap - wide : x - wide / 2;
  const top = up === "bottom" ? y + gap : up === "top" ? y - gap - high : y - high / 2;
  return [left, top, left + wide, top + high];
};
// Return the inner box of a point, which names must not cover.
const heart = ({ x, y, radius }) => [x - radius / 2, y - radius / 2, x + radius / 2, y + radius / 2];
// Whether two boxes overlap.
const touch = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// Return an empty trace for the names, which is the first of a map. `writeNames` fills it after the others are drawn,
// when it is known which names fit.
const namesTrace = () => {
  const nothing = { x: [], y: [], text: [], textfont: { size: [], color: [] } };
  return { ...nothing, type: "scatter", mode: "text", hoverinfo: "skip", showlegend: false, cliponaxis: false };
};

// Return every point of a map that is a channel, with its position on the screen in pixels and the font size of its
// name, which is in `meta` of its trace (0: no name).
const marksOf = (plot) => {
  const { xaxis, yaxis } = plot._fullLayout;
  const ofPoint = (values, i) => (Array.isArray(values) ? values[i] : values); // plotly has one value for all points, too
  const marks = plot.data.flatMap((trace) =>
    (trace.customdata ?? []).map((channel, i) => ({
      channel,
      size: ofPoint(trace.meta, i) ?? 0,
      x: trace.x[i] === null ? NaN : xaxis.d2p(trace.x[i]),
      y: trace.y[i] === null ? NaN : yaxis.d2p(trace.y[i]),
      radius: ofPoint(trace.marker.size, i) / 2,
    })),
  );
  return marks.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
};

const pen = document.createElement("canvas").getContext("2d");
// Return the width and height of a text in pixels.
const extent = (text, size, bold) => {
  pen.font = `${bold ? "bold " : ""}${size}px ${getComputedStyle(document.body).fontFamily}`;
  return [pen.measureText(text).width + 4, size * 1.3];
};

// Write names one after the other, each on the first side where it hides neither a name nor a point. Channels in
// `first` come before all others. The first of them is the chosen channel, whose name is always written.
const writeNames = (plot, names, first = []) => {
  const marks = marksOf(plot);
  const { _size: margin, xaxis, yaxis } = plot._fullLayout;
  const inside = ([left, top, right, bottom]) =>
    left >= -margin.l && right <= xaxis._length + margin.r && top >= -margin.t && bottom <= yaxis._length;
  const rank = ({ channel }) => (first.includes(channel) ? first.indexOf(channel) : first.length);
  const named = marks.filter(({ size }) => size).sort((a, b) => rank(a) - rank(b) || b.size - a.size);
  const [labels, taken, done] = [[], [], new Set()]; // labels that are written, the boxes they take, and their channels
  for (const mark of named) {
    if (done.has(mark.channel)) continue; // its name was written at its ring
    done.add(mark.channel);
    const chosen = mark.channel === first[0];
    const text = shorter(names[mark.channel], chosen ? LETTERS_OF_CHOSEN : LETTERS);
    const boxes = SIDES.map((side) => boxBeside(mark, extent(text, mark.size, chosen), side));
    const obstacles = [...taken, ...marks.filter(({ channel }) => channel !== mark.channel).map(heart)];
    const free = boxes.find((candidate) => inside(candidate) && !obstacles.some((other) => touch(candidate, other)));
    const box = free ?? (chosen && (boxes.find(inside) ?? boxes[0]));
    if (!box) continue;
    taken.push(box);
    labels.push({ text: chosen ? `<b>${plain(text)}</b>` : plain(text), size: mark.size, chosen });
  }
  const { ink, soft } = theme();
  const update = {
    x: taken.map(([left, , right]) => xaxis.p2d((left + right) / 2)),
    y: taken.map(([, top, , bottom]) => yaxis.p2d((top + bottom) / 2)),
    text: labels.map(({ text }) => text),
    "textfont.size": labels.map(({ size }) => size),
    "textfont.color": labels.map(({ chosen }) => (chosen ? ink : soft)),
  };
  Plotly.restyle(plot, Object.fromEntries(Object.entries(update).map(([name, values]) => [name, [values]])), [0]);
};
