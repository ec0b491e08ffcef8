"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows].pop().cells;
  [...heads].forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") === "descending" ? 1 : -1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up === 1 ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.value ?? row.cells[column].innerText;
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b), byNumber = Number(x) - Number(y);
        return up * (Number.isFinite(byNumber) ? byNumber : x.localeCompare(y, undefined, {numeric: true}));
      });
      body.append(...rows);
    });
  });
}
const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = (root.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
});
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = false; }));

const reveal = () => document.querySelector(location.hash.length > 1 ? `[id="${CSS.escape(decodeURIComponent(location.hash.slice(1)))}"]` : null)?.closest("details")?.setAttribute("open", "");
addEventListener("hashchange", reveal);
reveal();
