// Channels: a map in which every channel can be found by its name, with those that lie nearest and how sure that is.
const MATCHES = 8;

class AtlasView {
  constructor(holder, content) {
    this.holder = holder;
    this.content = content;
    this.chosen = null;
    this.flat = rowsOf(unpacked(content.places, content.scales.places, 30000), 2);
    this.deep = content.places3 && this.centred(rowsOf(unpacked(content.places3, content.scales.places3, 30000), 3));
    this.codes = content.modules ?? content.names.map(() => null);
    this.plot = holder.querySelector("[data-panel=atlas]");
    this.input = holder.querySelector("#find-channel");
    this.list = holder.querySelector("#matches");
    this.input.addEventListener("input", () => this.suggest());
    this.input.addEventListener("keydown", (event) => {
      const [first] = this.matching();
      if (event.key === "Enter" && first !== undefined) this.choose(first);
    });
    if (this.deep) this.makeTurns();
    if (canDraw) this.draw();
    redraws.push(() => canDraw && this.draw());
  }

  // About the middle of all places, so that a turn keeps them in sight.
  centred(places) {
    const middle = [0, 1, 2].map((axis) => this.ends(places, axis)).map(([low, high]) => (low + high) / 2);
    return places.map((place) => place.map((value, axis) => value - middle[axis]));
  }

  ends(places, axis) {
    const values = places.map((place) => place[axis]).filter((value) => value !== null);
    return values.length ? [Math.min(...values), Math.max(...values)] : [-1, 1];
  }

  // The window of the picture: all places with some room, or all that a turn may bring.
  window() {
    if (this.space?.checked) {
      const far = Math.max(...this.deep.map((place) => Math.hypot(...place))) * 1.08 || 1;
      return [[-far, far], [-far, far]];
    }
    const both = [this.ends(this.flat, 0), this.ends(this.flat, 1)];
    const room = Math.max(...both.map(([low, high]) => high - low)) * 0.07 || 1;
    return both.map(([low, high]) => [low - room, high + room]);
  }

  // The channels whose name holds what was typed: the exact one first, then those that begin with it.
  matching() {
    const typed = this.input.value.trim().toLowerCase();
    if (!typed) return [];
    const rank = (name) => (name === typed ? 0 : name.startsWith(typed) ? 1 : 2);
    const found = this.content.names.map((name, i) => [name.toLowerCase(), i]).filter(([name]) => name.includes(typed));
    return found.sort((a, b) => rank(a[0]) - rank(b[0]) || a[1] - b[1]).map(([, i]) => i);
  }

  suggest() {
    const found = this.matching();
    this.list.replaceChildren(...found.slice(0, MATCHES).map((i) => element("li", {}, this.button(i))));
    if (found.length > MATCHES) this.list.append(element("li", { className: "hint" }, `and ${found.length - MATCHES} more`));
    if (!found.length && this.input.value.trim()) this.list.append(element("li", { className: "hint" }, "no channel has that name"));
  }

  button(channel) {
    const made = element("button", { type: "button", className: "go" }, this.content.names[channel]);
    made.dataset.channel = channel;
    made.addEventListener("click", () => this.choose(channel));
    return made;
  }

  choose(channel) {
    this.chosen = channel;
    this.input.value = this.content.names[channel];
    this.list.replaceChildren();
    this.tell();
    if (canDraw) this.draw();
  }

  moduleOf(code) {
    return code === null || code < 0 ? "none" : this.content.module_names[code] ?? `module ${code + 1}`;
  }

  tell() {
    const { names, modules, columns, neighbors } = this.content;
    const facts = element("dl", { className: "facts-of" });
    const fact = (name, text) => facts.append(element("div", {}, element("dt", {}, name), element("dd", {}, text)));
    if (modules) fact(this.content.grouping, this.moduleOf(modules[this.chosen]));
    for (const [name, values] of Object.entries(columns)) {
      const value = values[this.chosen];
      fact(name, value === null || value === "" ? "\u2013" : typeof value === "number" && !Number.isInteger(value) ? digits(value) : String(value));
    }
    const near = element("ol", { className: "near" });
    for (const [other, sure] of neighbors[this.chosen] ?? []) {
      const row = element("li", {}, this.button(other));
      row.dataset.neighbor = other;
      row.dataset.confidence = sure ?? "";
      if (sure !== null) {
        const bar = element("span", { className: "sure" });
        bar.style.setProperty("--share", `${Math.round(100 * sure)}%`);
        row.append(bar, element("span", { className: "percent" }, `${Math.round(100 * sure)}%`));
      }
      near.append(row);
    }
    const found = this.holder.querySelector(".found");
    found.dataset.channel = this.chosen;
    found.replaceChildren(element("h3", {}, names[this.chosen]), facts);
    if (near.children.length) found.append(element("p", { className: "hint" }, "Nearest channels, and how sure that is"), near);
  }

  makeTurns() {
    this.space = this.holder.querySelector("#in-space");
    this.turns = ["turn", "tilt"].map((name) => this.holder.querySelector(`#${name}`));
    const again = () => {
      for (const label of this.holder.querySelectorAll(".turn")) label.hidden = !this.space.checked;
      if (canDraw) this.draw();
    };
    for (const input of [this.space, ...this.turns]) input.addEventListener("input", again);
    this.plot.addEventListener("pointermove", (event) => {
      if (!this.space.checked || event.buttons !== 1) return;
      const wrapped = Number(this.turns[0].value) + event.movementX / 2;
      this.turns[0].value = ((wrapped + 540) % 360) - 180;
      this.turns[1].value = Number(this.turns[1].value) + event.movementY / 2;
      again();
    });
  }

  // Places on the screen and how near to the eye they are, from 0 to 1. Three dimensions are turned and seen from afar,
  // as points of a flat picture: that needs no graphics card.
  seen() {
    if (!this.space?.checked) return this.flat.map(([x, y]) => [x, y, 0.5]);
    const [turn, tilt] = this.turns.map((input) => (Number(input.value) * Math.PI) / 180);
    const reach = Math.max(...this.deep.map((place) => Math.hypot(...place))) || 1;
    return this.deep.map(([x, y, z]) => {
      const [across, away] = [x * Math.cos(turn) - y * Math.sin(turn), x * Math.sin(turn) + y * Math.cos(turn)];
      return [across, z * Math.cos(tilt) - away * Math.sin(tilt), 0.5 - (away * Math.cos(tilt) + z * Math.sin(tilt)) / (2 * reach)];
    });
  }

  draw() {
    const colors = theme();
    const { names, edges, neighbors } = this.content;
    const at = this.seen();
    const join = (pairs) => ["x", "y"].map((_, axis) => pairs.flatMap(([i, j]) => [at[i][axis], at[j][axis], null]));
    const lines = (pairs, width, color) => ({ type: "scatter", mode: "lines", x: join(pairs)[0], y: join(pairs)[1], line: { width, color }, hoverinfo: "skip", showlegend: false });
    const traces = edges ? [lines(edges, 0.7, withAlpha(colors.soft, 0.35))] : [];
    const small = names.length > 300 ? 6 : 9;
    const codes = [...new Set(this.codes)].sort((a, b) => a - b);
    for (const code of codes) {
      const own = names.map((_, i) => i).filter((i) => this.codes[i] === code);
      traces.push({ type: "scatter", mode: names.length <= 40 ? "markers+text" : "markers", customdata: own, x: own.map((i) => at[i][0]), y: own.map((i) => at[i][1]), text: own.map((i) => plain(names[i])), textposition: "top center", textfont: { size: 10, color: colors.soft }, name: plain(this.moduleOf(code)), marker: { opacity: 1, size: own.map((i) => small * (0.7 + 0.6 * at[i][2])), color: colorOf(code, colors), symbol: symbolOf(code), line: { width: 0.5, color: colors.paper } }, hovertemplate: "%{text}<extra></extra>" });
    }
    if (this.chosen !== null) {
      const near = (neighbors[this.chosen] ?? []).map(([other]) => other);
      traces.push(lines(near.map((other) => [this.chosen, other]), 1.5, colors.ink));
      const ringed = [this.chosen, ...near];
      traces.push({ type: "scatter", mode: "markers+text", x: ringed.map((i) => at[i][0]), y: ringed.map((i) => at[i][1]), customdata: ringed, text: ringed.map((i, place) => (place ? "" : `<b>${plain(names[i])}</b>`)), hovertext: ringed.map((i) => plain(names[i])), textposition: "bottom center", textfont: { size: 14, color: colors.ink }, marker: { size: ringed.map((_, i) => (i ? 13 : 18)), color: colors.ink, symbol: "circle-open", line: { width: 2 } }, hovertemplate: "%{hovertext}<extra></extra>", showlegend: false });
    }
    const [across, up] = this.window();
    const held = this.space?.checked || matchMedia("(pointer: coarse)").matches; // a finger scrolls the page
    const axis = { visible: false, fixedrange: held };
    const layout = { xaxis: { ...axis, range: across, scaleanchor: "y" }, yaxis: { ...axis, range: up }, dragmode: held ? false : "zoom", uirevision: String(this.space?.checked), margin: { l: 8, r: 8, t: 8, b: 8 }, showlegend: this.content.modules !== null && codes.length <= 16, legend: { orientation: "h", x: 0, y: 0, yanchor: "top", font: { size: 11 } } };
    Plotly.react(this.plot, traces, layoutOf(colors, layout), settings);
    if (!this.listening) {
      this.listening = true;
      this.plot.on("plotly_click", ({ points: [point] }) => point.customdata !== undefined && this.choose(point.customdata));
    }
  }
}

for (const holder of document.querySelectorAll(".atlas")) new AtlasView(holder, carried.atlas);
