// Names next to the points of a map, only where they fit. The others are shown on hover and by the search.
const NAMED = 60; // channels up to which a map has names, as in the figures
const LETTERS = 22;
const LETTERS_OF_CHOSEN = 34;
const SIDES = ["top center", "bottom center", "middle right", "middle left"]; // the best first, if all are free

// Shorten a name of more than `most` letters by removing its middle.
const shorter = (name, most) => {
  const letters = [...name];
  const half = Math.floor(most / 2);
  if (letters.length <= most) return name;
  return `${letters.slice(0, half - 1).join("")}\u2026${letters.slice(1 - half).join("")}`;
};

// Boxes are [left, top, right, bottom], in pixels.
const boxBeside = ({ x, y, radius }, [wide, high], side) => {
  const [up, across] = side.split(" ");
  const gap = radius + 2;
  const left = across === "right" ? x + gap : across === "left" ? x - gap - wide : x - wide / 2;
  const top = up === "bottom" ? y + gap : up === "top" ? y - gap - high : y - high / 2;
  return [left, top, left + wide, top + high];
};
const heart = ({ x, y, radius }) => [x - radius / 2, y - radius / 2, x + radius / 2, y + radius / 2]; // of a point
const touch = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

// The first trace of a map: the names, written after the others are drawn, when it is known which fit.
const namesTrace = () => {
  const nothing = { x: [], y: [], text: [], textfont: { size: [], color: [] } };
  return { ...nothing, type: "scatter", mode: "text", hoverinfo: "skip", showlegend: false, cliponaxis: false };
};

// Every point of a map that is a channel: its position on the screen, and the font size of its name, which is in
// `meta` of the trace.
const marksOf = (plot) => {
  const { xaxis, yaxis } = plot._fullLayout;
  const each = (of, i) => (Array.isArray(of) ? of[i] : of);
  const marks = plot.data.flatMap((trace) =>
    (trace.customdata ?? []).map((channel, i) => ({
      channel,
      size: each(trace.meta, i) ?? 0,
      x: trace.x[i] === null ? NaN : xaxis.d2p(trace.x[i]),
      y: trace.y[i] === null ? NaN : yaxis.d2p(trace.y[i]),
      radius: each(trace.marker.size, i) / 2,
    })),
  );
  return marks.filter(({ x, y }) => Number.isFinite(x) && Number.isFinite(y));
};

const pen = document.createElement("canvas").getContext("2d");
const extent = (text, size, bold) => {
  pen.font = `${bold ? "bold " : ""}${size}px ${getComputedStyle(document.body).fontFamily}`;
  return [pen.measureText(text).width + 4, size * 1.3];
};

// Write names one after the other, those of the channels in `first` before all others, each on the first side where it
// hides neither a name nor a point. The first one is the chosen channel, whose name is always written.
const writeNames = (plot, names, first = []) => {
  const marks = marksOf(plot);
  const { _size: margin, xaxis, yaxis } = plot._fullLayout;
  const inside = ([left, top, right, bottom]) =>
    left >= -margin.l && right <= xaxis._length + margin.r && top >= -margin.t && bottom <= yaxis._length;
  const rank = ({ channel }) => (first.includes(channel) ? first.indexOf(channel) : first.length);
  const wanted = marks.filter(({ size }) => size).sort((a, b) => rank(a) - rank(b) || b.size - a.size);
  const [told, taken, done] = [[], [], new Set()];
  for (const mark of wanted) {
    if (done.has(mark.channel)) continue; // a ring has named it
    done.add(mark.channel);
    const chosen = mark.channel === first[0];
    const text = shorter(names[mark.channel], chosen ? LETTERS_OF_CHOSEN : LETTERS);
    const boxes = SIDES.map((side) => boxBeside(mark, extent(text, mark.size, chosen), side));
    const others = [...taken, ...marks.filter(({ channel }) => channel !== mark.channel).map(heart)];
    const free = boxes.find((box) => inside(box) && !others.some((other) => touch(box, other)));
    const found = free ?? (chosen && (boxes.find(inside) ?? boxes[0]));
    if (!found) continue;
    taken.push(found);
    told.push({ text: chosen ? `<b>${plain(text)}</b>` : plain(text), size: mark.size, chosen });
  }
  const { ink, soft } = theme();
  const written = {
    x: taken.map(([left, , right]) => xaxis.p2d((left + right) / 2)),
    y: taken.map(([, top, , bottom]) => yaxis.p2d((top + bottom) / 2)),
    text: told.map(({ text }) => text),
    "textfont.size": told.map(({ size }) => size),
    "textfont.color": told.map(({ chosen }) => (chosen ? ink : soft)),
  };
  Plotly.restyle(plot, Object.fromEntries(Object.entries(written).map(([name, values]) => [name, [values]])), [0]);
};
