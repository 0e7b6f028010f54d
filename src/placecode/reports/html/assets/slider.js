// The sigma slider of a report. Each of its positions is one sigma of the run. The numbers, the ring on every curve, the
// similarity of the PEs, their map and the attention below it are those of this sigma. The data come from
// `sigma_slider` in pages/interactive.py, packed by packing.py. On a page that compares several runs, the sliders move
// together where the runs share a sigma.
const allSliders = [];

class SliderView {
  constructor(holder, content) {
    this.holder = holder;
    this.content = content;
    this.positions = content.positions;
    this.at = content.first;
    this.decoded = new Map(); // rows of matrices and positions by sigma and kind
    this.codes = content.groups ?? content.names.map(() => null);
    this.input = holder.querySelector("input[type=range]");
    this.input.addEventListener("input", () => this.moveTo(Number(this.input.value), true));
    if (canDraw) this.makePanels();
    this.show();
    redraws.push(() => canDraw && this.draw());
  }

  // Return the rows of a matrix ("similarity" or "attention") at the current sigma; empty if it was not stored.
  matrix(kind) {
    const width = Math.ceil(this.content.names.length / this.content.block_size);
    return this.unpack(kind, STEPS, width);
  }

  // Return the places of some channels on the map of the current sigma; null if it was not stored.
  placesOf(channels) {
    const places = this.unpack("places", FINE, 2);
    const [x, y] = [0, 1].map((axis) => channels.map((i) => (places.length ? places[i][axis] : null)));
    return { x, y };
  }

  // Decode a matrix or the positions (`kind`) of the current sigma once, and return the rows of `width` numbers.
  unpack(kind, steps, width) {
    const key = `${this.at} ${kind}`;
    if (!this.decoded.has(key)) {
      const text = this.positions[this.at][kind];
      this.decoded.set(key, text ? rowsOf(unpacked(text, this.content.scales[kind], steps), width) : []);
    }
    return this.decoded.get(key);
  }

  // Return the measures that are drawn on an axis.
  namesOn(axis) {
    return Object.keys(this.content.curves).filter((name) => this.content.curves[name].axis === axis);
  }

  // Return the positions of the rings on the curves of an axis, at the current sigma.
  marks(axis) {
    const position = this.positions[this.at];
    const names = this.namesOn(axis);
    return { x: names.map(() => position.sigma), y: names.map((name) => position.measures[name][0]) };
  }

  // Move to position number `at`. With `lead`, the sliders of the other runs follow.
  moveTo(at, lead) {
    const { sigma } = this.positions[at];
    if (lead) for (const other of allSliders) if (other !== this) other.follow(sigma);
    this.at = at;
    this.input.value = at;
    this.show();
    if (canDraw) this.update();
  }

  // Move to this sigma, or say that this run does not have it.
  follow(sigma) {
    const at = this.positions.findIndex((position) => Math.abs(position.sigma - sigma) <= 1e-9 * Math.abs(sigma));
    if (at >= 0) return this.moveTo(at, false);
    this.holder.classList.add("behind");
    this.holder.querySelector(".lag").textContent = `no \u03c3 = ${sigma} in this run`;
  }

  // Write the numbers of the current sigma as text.
  show() {
    const position = this.positions[this.at];
    Object.assign(this.holder.dataset, { position: this.at, sigma: position.sigma });
    this.holder.classList.remove("behind");
    this.holder.querySelector(".lag").textContent = "";
    this.holder.querySelector("output b").textContent = position.label;
    this.input.setAttribute("aria-valuetext", `sigma ${position.label}`);
    for (const row of this.holder.querySelectorAll("[data-measure]")) {
      const [mean, low, high] = position.measures[row.dataset.measure];
      Object.assign(row.dataset, { mean: mean ?? "", low: low ?? "", high: high ?? "" });
      row.querySelector("b").textContent = digits(mean);
      row.querySelector("small").textContent = low === null ? "" : `${digits(low)} to ${digits(high)}`;
    }
  }

  // Make the plots for which the run has data.
  makePanels() {
    const has = (kind) => this.positions.some((position) => position[kind]);
    const axes = new Set(Object.values(this.content.curves).map((curve) => curve.axis));
    const panels = [...axes].map((axis) => ["measure", axis, `${axis[0].toUpperCase()}${axis.slice(1)} against \u03c3`]);
    if (has("similarity")) panels.push(["similarity", "", "Similarity of the PEs"]);
    if (has("places")) panels.push(["places", "", "Map of the PEs"]);
    if (has("attention")) panels.push(["attention", "", "Attention (row looks at column)"]);
    const holder = this.holder.querySelector(".panels");
    holder.dataset.count = panels.length;
    this.panels = panels.map(([kind, axis, title]) => {
      const plot = element("div", { className: "plot" });
      Object.assign(plot.dataset, { panel: kind, axis });
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", title);
      holder.append(element("figure", { className: "panel" }, element("figcaption", {}, title), plot));
      return { kind, axis, plot };
    });
    this.draw();
    for (const { kind, plot } of this.panels) {
      if (kind === "measure") this.listen(plot);
      if (kind === "places") plot.on("plotly_relayout", () => writeNames(plot, this.content.names));
    }
  }

  // A click on a point of a curve moves the slider there.
  listen(plot) {
    plot.on("plotly_click", ({ points: [point] }) => {
      if (point.customdata !== undefined) this.moveTo(point.customdata, true);
    });
  }

  draw() {
    const colors = theme();
    for (const { kind, axis, plot } of this.panels) {
      const [traces, layout] = PANELS[kind](this, colors, axis);
      const drawn = Plotly.react(plot, traces, layoutOf(colors, layout), settings);
      if (kind === "places") drawn.then(() => writeNames(plot, this.content.names));
    }
  }

  // Update only what the slider changes, which is faster than drawing everything again.
  update() {
    const { sigma } = this.positions[this.at];
    for (const { kind, axis, plot } of this.panels) {
      if (kind === "measure") {
        const { x, y } = this.marks(axis);
        Plotly.restyle(plot, { x: [x], y: [y] }, [plot.data.length - 1]);
        Plotly.relayout(plot, { "shapes[0].x0": sigma, "shapes[0].x1": sigma });
      } else if (kind === "places") {
        const groups = plot.data.map((_, i) => i).slice(1); // behind the names
        const places = groups.map((i) => this.placesOf(plot.data[i].customdata));
        const moved = Plotly.restyle(plot, { x: places.map(({ x }) => x), y: places.map(({ y }) => y) }, groups);
        moved.then(() => writeNames(plot, this.content.names));
      } else {
        Plotly.restyle(plot, { z: [this.matrix(kind)] });
      }
    }
  }
}

for (const holder of document.querySelectorAll("[data-slider]")) {
  allSliders.push(new SliderView(holder, carried.sliders[Number(holder.dataset.slider)]));
}
