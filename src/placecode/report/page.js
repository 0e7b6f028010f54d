// Tables sort by a click on a heading; without scripts they stay as they were written.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const key = (row) => row.cells[column].dataset.order ?? "";
      const text = (row) => row.cells[column].textContent.trim();
      const compare = (a, b) => {
        if ((key(a) === "") !== (key(b) === "")) return key(a) === "" ? 1 : -1; // what has no number stays last
        return sign * (key(a) === "" ? text(a).localeCompare(text(b)) : key(a) - key(b));
      };
      body.append(...[...body.rows].sort(compare));
    });
  });
}
