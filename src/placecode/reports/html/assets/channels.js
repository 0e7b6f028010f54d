// The map of channels with a search by name. A chosen channel is shown with its module, its other values, and its
// nearest channels with the confidence in them. The data are the `ChannelMap` of interactive.py, packed by packing.py.
const MATCHES = 8; // maximum number of suggestions of the search

class ChannelMapView {
  constructor(holder, content) {
    this.holder = holder;
    this.content = content;
    this.chosen = null;
    this.flat = rowsOf(unpacked(content.places, content.scales.places, FINE), 2);
    this.deep = content.places3 && this.centred(rowsOf(unpacked(content.places3, content.scales.places3, FINE), 3));
    this.codes = content.modules ?? content.names.map(() => null);
    this.plot = holder.querySelector("[data-panel=channel-map]");
    this.input = holder.querySelector("#find-channel");
    this.list = holder.querySelector("#matches");
    this.more = holder.querySelector(".more");
    this.active = -1; // index of the suggestion that the arrow keys selected
    this.input.addEventListener("input", () => this.suggest());
    this.input.addEventListener("keydown", (event) => this.press(event));
    if (this.deep) this.makeTurns();
    if (canDraw) {
      this.draw();
      this.listen();
    }
    redraws.push(() => canDraw && this.draw());
  }

  // Centre positions, so that a rotation keeps them in view.
  centred(places) {
    const middle = [0, 1, 2].map((axis) => this.ends(places, axis)).map(([low, high]) => (low + high) / 2);
    return places.map((place) => place.map((value, axis) => value - middle[axis]));
  }

  // Return the smallest and the largest coordinate along an axis.
  ends(places, axis) {
    const values = places.map((place) => place[axis]).filter((value) => value !== null);
    return values.length ? [Math.min(...values), Math.max(...values)] : [-1, 1];
  }

  // Return the ranges of both axes: all positions with a margin or, in three dimensions, all that a rotation may show.
  window() {
    if (this.space?.checked) {
      const far = Math.max(...this.deep.map((place) => Math.hypot(...place))) * 1.08 || 1;
      return [[-far, far], [-far, far]];
    }
    const ranges = [this.ends(this.flat, 0), this.ends(this.flat, 1)];
    const room = Math.max(...ranges.map(([low, high]) => high - low)) * 0.07 || 1;
    return ranges.map(([low, high]) => [low - room, high + room]);
  }

  // Return the channels whose name contains the typed text: an exact match first, then names that start with it.
  matching() {
    const typed = this.input.value.trim().toLowerCase();
    if (!typed) return [];
    const rank = (name) => (name === typed ? 0 : name.startsWith(typed) ? 1 : 2);
    const names = this.content.names.map((name, i) => [name.toLowerCase(), i]).filter(([name]) => name.includes(typed));
    return names.sort((a, b) => rank(a[0]) - rank(b[0]) || a[1] - b[1]).map(([, i]) => i);
  }

  // List the channels that match the typed text.
  suggest() {
    const channels = this.matching();
    this.list.replaceChildren(...channels.slice(0, MATCHES).map((i, at) => this.option(i, at)));
    this.input.setAttribute("aria-expanded", String(channels.length > 0));
    this.point(-1);
    const left = channels.length - MATCHES;
    const noMatch = !channels.length && this.input.value.trim();
    if (noMatch) this.forget();
    this.more.textContent = noMatch ? "no channel has that name" : left > 0 ? `and ${left} more` : "";
  }

  // Make suggestion number `at`.
  option(channel, at) {
    const made = element("li", { className: "go", id: `match-${at}` }, this.content.names[channel]);
    made.setAttribute("role", "option");
    made.addEventListener("click", () => this.choose(channel));
    return made;
  }

  // Select a suggestion, or none (-1); the focus stays in the input.
  point(at) {
    this.active = at;
    [...this.list.children].forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    if (at < 0) this.input.removeAttribute("aria-activedescendant");
    else this.input.setAttribute("aria-activedescendant", `match-${at}`);
  }

  // The arrow keys select a suggestion, and Enter chooses it.
  press(event) {
    const count = this.list.children.length;
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && count) {
      event.preventDefault();
      const from = this.active < 0 && step < 0 ? 0 : this.active; // "up" without a selection selects the last
      this.point((from + step + count) % count);
    }
    const channel = this.matching()[Math.max(this.active, 0)];
    if (event.key === "Enter" && channel !== undefined) this.choose(channel);
  }

  // Make a button that chooses a channel.
  button(channel) {
    const made = element("button", { type: "button", className: "go" }, this.content.names[channel]);
    made.dataset.channel = channel;
    made.addEventListener("click", () => this.choose(channel));
    return made;
  }

  // Show a channel in the text and on the map.
  choose(channel) {
    this.chosen = channel;
    this.input.value = this.content.names[channel];
    this.list.replaceChildren();
    this.more.textContent = "";
    this.input.setAttribute("aria-expanded", "false");
    this.point(-1);
    this.describe();
    if (canDraw) this.draw();
  }

  // Remove the chosen channel when a search has no match, since it would look like the result of the search.
  forget() {
    if (this.chosen === null) return;
    this.chosen = null;
    const card = this.holder.querySelector(".chosen");
    delete card.dataset.channel;
    card.replaceChildren();
    if (canDraw) this.draw();
  }

  // Return the name of a module, its number from 1 if it has no name, or "none".
  moduleOf(code) {
    return code === null || code < 0 ? "none" : this.content.module_names[code] ?? `module ${code + 1}`;
  }

  // Write the values of the chosen channel and its nearest channels.
  describe() {
    const { names, modules, columns } = this.content;
    const neighbors = this.content.neighbors[this.chosen] ?? [];
    const facts = element("dl", { className: "channel-facts" });
    const fact = (name, text) => facts.append(element("div", {}, element("dt", {}, name), element("dd", {}, text)));
    if (modules) fact(this.content.grouping, this.moduleOf(modules[this.chosen]));
    for (const [name, values] of Object.entries(columns)) {
      const value = values[this.chosen];
      const measured = typeof value === "number" && !Number.isInteger(value);
      fact(name, measured ? digits(value) : String(value ?? "") || "\u2013");
    }
    const near = element("ol", { className: "near" });
    for (const [other, confidence] of neighbors) {
      const row = element("li", {}, this.button(other));
      row.dataset.neighbor = other;
      row.dataset.confidence = confidence ?? "";
      const percent = confidence === null ? "\u2013" : `${Math.round(100 * confidence)}%`;
      const bar = element("span", confidence === null ? {} : { className: "sure" });
      if (confidence !== null) bar.style.setProperty("--share", percent);
      row.append(bar, element("span", { className: "percent" }, percent));
      near.append(row);
    }
    const card = this.holder.querySelector(".chosen");
    card.dataset.channel = this.chosen;
    card.replaceChildren(element("h3", {}, names[this.chosen]), facts);
    const sure = neighbors.some(([, confidence]) => confidence !== null);
    const head = sure ? "Nearest channels, and how sure that is" : "Nearest channels";
    if (neighbors.length) card.append(element("p", { className: "hint" }, head), near);
  }

  // Set up the controls that show the map in three dimensions and rotate it.
  makeTurns() {
    this.space = this.holder.querySelector("#in-space");
    this.turns = ["turn", "tilt"].map((name) => this.holder.querySelector(`#${name}`));
    const redraw = () => {
      for (const label of this.holder.querySelectorAll(".turn")) label.hidden = !this.space.checked;
      if (canDraw) this.draw();
    };
    for (const input of [this.space, ...this.turns]) input.addEventListener("input", redraw);
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.space.checked || event.buttons !== 1) return;
      const wrapped = Number(this.turns[0].value) + event.movementX / 2;
      this.turns[0].value = ((wrapped + 540) % 360) - 180;
      this.turns[1].value = Number(this.turns[1].value) + event.movementY / 2;
      redraw();
    });
  }

  // Return [x, y, nearness to the viewer from 0 to 1] of every channel. Positions in three dimensions are rotated and
  // projected onto a flat plot, which needs no graphics card.
  projected() {
    if (!this.space?.checked) return this.flat.map(([x, y]) => [x, y, 0.5]);
    const [turn, tilt] = this.turns.map((input) => (Number(input.value) * Math.PI) / 180);
    const reach = Math.max(...this.deep.map((place) => Math.hypot(...place))) || 1;
    return this.deep.map(([x, y, z]) => {
      const [across, away] = [x * Math.cos(turn) - y * Math.sin(turn), x * Math.sin(turn) + y * Math.cos(turn)];
      const up = z * Math.cos(tilt) - away * Math.sin(tilt);
      return [across, up, 0.5 - (away * Math.cos(tilt) + z * Math.sin(tilt)) / (2 * reach)];
    });
  }

  // Return lines between pairs of channels as one trace with gaps. `at` has the positions of all channels.
  lines(at, pairs, line) {
    const [x, y] = [0, 1].map((axis) => pairs.flatMap(([i, j]) => [at[i][axis], at[j][axis], null]));
    return { type: "scatter", mode: "lines", x, y, line, hoverinfo: "skip", showlegend: false };
  }

  // Return the trace with the channels of one module.
  points(at, code, colors) {
    const { names } = this.content;
    const members = names.map((_, i) => i).filter((i) => this.codes[i] === code);
    const size = names.length > 300 ? 6 : 9;
    // if there are many channels, the others are pale, so that the chosen one stands out
    const opacity = this.chosen !== null && names.length > 60 ? 0.4 : 1;
    return {
      ...this.positions(at, members),
      mode: "markers",
      meta: names.length <= NAMED ? 10 : null,
      name: plain(shorter(this.moduleOf(code), LETTERS_OF_CHOSEN)),
      hovertext: members.map((i) => inLines(names[i])),
      marker: { ...markOf(code, colors), opacity, size: members.map((i) => size * (0.7 + 0.6 * at[i][2])) },
      hovertemplate: "%{hovertext}<extra></extra>",
      cliponaxis: false,
    };
  }

  // Return the positions of some channels, as parts of a trace.
  positions(at, channels) {
    const [x, y] = [0, 1].map((axis) => channels.map((i) => at[i][axis]));
    return { type: "scatter", customdata: channels, x, y };
  }

  // Return the trace with rings around the chosen channel, the first of `channels`, and its nearest ones.
  rings(at, channels, colors) {
    const [size, letters] = [[18, 13], [14, 10]].map(([first, others]) => channels.map((_, i) => (i ? others : first)));
    return {
      ...this.positions(at, channels),
      mode: "markers",
      meta: letters,
      hovertext: channels.map((i) => inLines(this.content.names[i])),
      cliponaxis: false,
      hovertemplate: "%{hovertext}<extra></extra>",
      marker: { size, color: colors.ink, symbol: "circle-open", line: { width: 2 } },
      showlegend: false,
    };
  }

  draw() {
    const colors = theme();
    const { edges, neighbors, modules } = this.content;
    const at = this.projected();
    const codes = [...new Set(this.codes)].sort((a, b) => a - b);
    const traces = [namesTrace()];
    if (edges) traces.push(this.lines(at, edges, { width: 0.7, color: withAlpha(colors.soft, 0.35) }));
    traces.push(...codes.map((code) => this.points(at, code, colors)));
    if (this.chosen !== null) {
      const near = (neighbors[this.chosen] ?? []).map(([other]) => other);
      const pairs = near.map((other) => [this.chosen, other]);
      traces.push(this.lines(at, pairs, { width: 1.5, color: colors.ink }));
      traces.push(this.rings(at, [this.chosen, ...near], colors));
    }
    const fixed = this.space?.checked || matchMedia("(pointer: coarse)").matches; // a finger scrolls the page
    const [across, up] = this.window();
    const axis = { visible: false, fixedrange: fixed };
    const layout = {
      xaxis: { ...axis, range: across, scaleanchor: "y" },
      yaxis: { ...axis, range: up },
      dragmode: fixed ? false : "zoom",
      uirevision: String(this.space?.checked), // choosing a channel keeps the zoom
      margin: { l: 36, r: 36, t: 14, b: 14 }, // room for names at the edge
      showlegend: modules !== null && codes.length <= 16,
      legend: { orientation: "h", x: 0, y: 0, yanchor: "top", font: { size: 11 } },
    };
    Plotly.react(this.plot, traces, layoutOf(colors, layout), settings).then(() => this.name());
  }

  // Write the names that fit, the chosen channel and its nearest ones first.
  name() {
    const near = (this.content.neighbors[this.chosen] ?? []).map(([other]) => other);
    writeNames(this.plot, this.content.names, this.chosen === null ? [] : [this.chosen, ...near]);
  }

  listen() {
    this.plot.on("plotly_relayout", () => this.name()); // after zooming or resizing, other names fit
    this.plot.on("plotly_click", ({ points: [point] }) => {
      if (point.customdata !== undefined) this.choose(point.customdata);
    });
  }
}

for (const holder of document.querySelectorAll(".channel-map")) new ChannelMapView(holder, carried.channel_map);
