"use strict";
// The charts: each spec names its tables, which stand in the page once, a list for every column.
(async () => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const tables = read("data"), specs = read("specs"), config = read("config");
  const records = (columns) => {
    const keys = Object.keys(columns);
    return keys.length ? columns[keys[0]].map((_, i) => Object.fromEntries(keys.map((key) => [key, columns[key][i]]))) : [];
  };
  const named = (part, found) => {
    if (part && typeof part === "object") {
      if (!Array.isArray(part) && part.data && part.data.name) found.add(part.data.name);
      Object.values(part).forEach((value) => named(value, found));
    }
    return found;
  };
  let drawn = 0;
  for (const [key, spec] of Object.entries(specs)) {
    const place = document.getElementById("chart-" + key);
    // Lets the browser paint what is there: text and table come first.
    await new Promise((resolve) => setTimeout(resolve));
    spec.datasets = spec.datasets || {};
    // Fresh records for every chart, since Vega writes into them.
    for (const name of named(spec, new Set())) if (name in tables) spec.datasets[name] = records(tables[name]);
    try {
      await vegaEmbed(place, spec, { config, renderer: "svg", actions: false, logLevel: 1, tooltip: { theme: "custom" } });
      const svg = place.querySelector("svg");
      svg.setAttribute("role", "img");
      svg.setAttribute("aria-label", place.dataset.label);
      drawn += 1;
    } catch (error) {
      place.textContent = "This chart could not be drawn: " + error.message;
      console.error(key, error);
    }
  }
  document.documentElement.dataset.drawn = drawn;
})();
// The table: a click on a column's head sorts by it, a second one the other way round; empty cells stay last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const compare = (a, b) => {
      const x = value(a), y = value(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y, undefined, { numeric: true }) : x - y;
      return down ? -order : order;
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
  }));
}
