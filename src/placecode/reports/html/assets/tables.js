// Sort tables by a click on a heading, filter the rows of long tables, and download tables as CSV or JSON. The tables
// are those in the HTML of the page (macro `table` of parts.html), which can be read without scripts too.
// This file comes first: slider.js and channels.js use `element` and `carried`, the data of the interactive plots, which
// packing.py encodes as JSON in the script element with the id "data".

// Make an HTML element with attributes and children.
const element = (tag, attributes = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), attributes);
  made.append(...children); // strings become text nodes, so no HTML in them is interpreted
  return made;
};
const carried = JSON.parse(document.getElementById("data").textContent);

// Let the browser download a text as a file of a MIME type (`kind`).
const save = (name, text, kind) => {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type: kind })) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
};

// Turn a title into a file name.
const slug = (text) => text.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 40).replace(/^-|-$/g, "") || "table";

// Return the name of a table in downloads: the title of its section, with a number if the section has several tables.
const titleOf = (table) => {
  const section = table.closest("section");
  const [title, tables] = [section.querySelector("h2, h3").textContent, [...section.querySelectorAll("table")]];
  return tables.length > 1 ? `${title} ${tables.indexOf(table) + 1}` : title;
};

// Return the columns and rows of a table for a download. Numbers have all digits. The half-width of an interval is a
// column after its number, and an interval becomes two columns, low and high.
const contentOf = (table) => {
  const groups = [];
  const [first, last] = [table.tHead.rows[0], table.tHead.rows[table.tHead.rows.length - 1]];
  if (first !== last) for (const cell of first.cells) groups.push(...Array(cell.colSpan).fill(cell.textContent));
  const rows = [...table.tBodies[0].rows];
  const columns = [];
  const readers = []; // functions that return the value of each column in a row
  [...last.cells].forEach((heading, column) => {
    const name = (groups[column] ? `${groups[column]}: ` : "") + heading.textContent;
    const number = (key) => (row) => (row.cells[column].dataset[key] === undefined ? null : Number(row.cells[column].dataset[key]));
    const has = (key) => rows.some((row) => row.cells[column].dataset[key] !== undefined);
    if (has("low")) {
      columns.push(`${name}, low`, `${name}, high`);
      readers.push(number("low"), number("high"));
      return;
    }
    columns.push(name);
    readers.push((row) => {
      const cell = row.cells[column];
      const text = cell.textContent.trim();
      return cell.dataset.sortKey !== undefined ? Number(cell.dataset.sortKey) : text === "\u2013" ? null : text;
    });
    if (has("halfWidth")) {
      columns.push(`${name}, half of the 95% interval`);
      readers.push(number("halfWidth"));
    }
  });
  const values = rows.map((row) => readers.map((read) => read(row)));
  return { title: titleOf(table), caption: table.caption.textContent, columns, rows: values };
};

// Return a table as the text of a CSV file.
const asCsv = ({ columns, rows }) => {
  const quoted = (value) => (/[",\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const line = (row) => row.map((value) => (value === null ? "" : quoted(value))).join(",");
  return [columns, ...rows].map((row) => `${line(row)}\n`).join("");
};

// Turn the headings of a table into buttons that sort its rows, in turn ascending and descending.
const makeSortable = (table) => {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, column) => {
    const button = element("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const text = (row) => row.cells[column].textContent.trim();
      const key = (row) => row.cells[column].dataset.sortKey ?? "";
      const rank = (row) => (key(row) !== "" ? 0 : text(row) !== "\u2013" ? 1 : 2); // missing values stay last
      const order = (a, b) =>
        rank(a) === 0 ? key(a) - key(b) : text(a).localeCompare(text(b), undefined, { numeric: true });
      const compare = (a, b) => rank(a) - rank(b) || sign * order(a, b);
      body.append(...[...body.rows].sort(compare));
    });
  });
};

// Return an input that hides rows without the typed words, and an output with the number of rows that are left.
const makeFilter = (table) => {
  const rows = [...table.tBodies[0].rows];
  const count = element("output", { className: "rows" });
  const input = element("input", { type: "search", placeholder: "filter the rows", autocomplete: "off" });
  input.setAttribute("aria-label", `Filter the rows of: ${table.caption.textContent}`);
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    const left = rows.filter((row) => !row.hidden).length;
    count.textContent = left < rows.length ? `${left} of ${rows.length} rows` : `${rows.length} rows`;
  };
  input.addEventListener("input", show);
  show();
  return [input, count];
};

for (const table of document.querySelectorAll("table.sortable")) makeSortable(table);
for (const holder of document.querySelectorAll(".table")) {
  const table = holder.querySelector("table");
  const bar = element("div", { className: "bar" });
  const filtered = table.tBodies[0].rows.length > 15;
  if (filtered) bar.append(...makeFilter(table));
  const label = filtered ? "download CSV (all rows)" : "download CSV"; // also rows that the filter hides
  const button = element("button", { type: "button", className: "download", title: "with all digits" }, label);
  button.addEventListener("click", () => {
    const content = contentOf(table);
    save(`${slug(content.title)}.csv`, asCsv(content), "text/csv");
  });
  bar.append(button);
  holder.append(bar);
}
for (const place of document.querySelectorAll(".take")) {
  const button = element("button", { type: "button", className: "download" }, "download all tables (JSON)");
  button.addEventListener("click", () => {
    const tables = [...document.querySelectorAll(".table table")].map(contentOf);
    const numbersOf = ({ label, sigma, measures }) => ({ label, sigma, measures });
    const sliders = carried.sliders.map((slider) => slider.positions.map(numbersOf));
    const commands = [...document.querySelectorAll("pre code")].map((code) => code.textContent);
    const content = { title: carried.title, commands, tables, sliders };
    save(`${slug(carried.title)}.json`, JSON.stringify(content, null, 1), "application/json");
  });
  place.append(button);
}
// Open collapsed parts for printing, and close them again afterwards.
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details:not([open])")) {
    fold.open = true;
    fold.dataset.folded = "yes";
  }
});
addEventListener("afterprint", () => {
  for (const fold of document.querySelectorAll("details[data-folded]")) {
    fold.open = false;
    delete fold.dataset.folded;
  }
});
