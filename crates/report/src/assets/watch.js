// Takes what the server sends as runs change. The server has escaped every text in it.
"use strict";
(() => {
  const main = document.querySelector("main");
  const live = document.getElementById("live");
  if (!main || !main.dataset.events) return;

  // The token stands behind the # of the address, where no browser sends it; it goes along with links.
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  const carry = (root) => {
    if (!token) return;
    root.querySelectorAll("a[href^='/']").forEach((link) => { link.hash = `token=${token}`; });
    root.querySelectorAll("form").forEach((form) => { form.action = `${form.getAttribute("action").split("#")[0]}#token=${token}`; });
  };
  const parsed = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content;
  };

  // A pointer over a chart still points at it when the chart is drawn anew.
  let pointer = null;
  document.addEventListener("pointermove", (event) => { pointer = event; });
  const takeParts = (change) => {
    for (const [name, html] of Object.entries(change.parts)) {
      const part = main.querySelector(`[data-part='${name}']`);
      if (!part) continue;
      const open = part.querySelector("details[open]") !== null;
      part.replaceChildren(parsed(html));
      if (open) part.querySelectorAll("details").forEach((details) => { details.open = true; });
    }
    document.dispatchEvent(new Event("charts"));
    const under = pointer && document.elementFromPoint(pointer.clientX, pointer.clientY);
    const svg = under && under.closest("figure.plot > svg");
    if (svg) svg.dispatchEvent(new PointerEvent("pointermove", { clientX: pointer.clientX, clientY: pointer.clientY }));
    showStop(change.running);
  };

  const rows = document.getElementById("rows");
  const byName = () => new Map([...rows.children].map((row) => [row.dataset.run, row]));

  // Columns sort by their headings. What has no value stays last; a third click gives the order of the folder back.
  let given = rows ? [...rows.children].map((row) => row.dataset.run) : [];
  let sorting = null;
  const worth = (row) => {
    const cell = row.querySelector(`[data-key='${sorting.key}']`);
    if (!cell) return null;
    if (cell.dataset.value === undefined) return cell.textContent;
    const number = parseFloat(cell.dataset.value);
    return Number.isFinite(number) ? number : null;
  };
  const compare = ([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
    return sorting.direction === "ascending" ? order : -order;
  };
  const arrange = (known) => {
    let order = given.map((name) => known.get(name)).filter((row) => row);
    if (sorting) order = order.map((row) => [worth(row), row]).sort(compare).map(([, row]) => row);
    if (order.length === rows.children.length && order.every((row, i) => rows.children[i] === row)) return;
    // What has the focus keeps it when its row moves.
    const focused = document.activeElement;
    rows.replaceChildren(...order);
    if (rows.contains(focused)) focused.focus({ preventScroll: true });
  };
  const sortBy = (heading) => {
    const first = heading.dataset.first || "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const direction = { none: first, [first]: other, [other]: "none" }[heading.getAttribute("aria-sort")];
    heading.parentElement.querySelectorAll("[aria-sort]").forEach((th) => th.setAttribute("aria-sort", "none"));
    heading.setAttribute("aria-sort", direction);
    sorting = direction === "none" ? null : { key: heading.dataset.sort, direction };
    arrange(byName());
  };
  const makeSortable = (heading) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = heading.textContent;
    button.addEventListener("click", () => sortBy(heading));
    heading.replaceChildren(button);
    heading.setAttribute("aria-sort", "none");
  };

  const takeRows = (change) => {
    const known = byName();
    for (const [name, html] of Object.entries(change.rows)) {
      const row = parsed(`<table><tbody>${html}</tbody></table>`).querySelector("tr");
      const old = known.get(name);
      if (old) {
        row.querySelector("input").checked = old.querySelector("input").checked;
        // A box that is about to be clicked stays the same box.
        row.firstElementChild.replaceWith(old.firstElementChild);
        old.replaceWith(row);
      }
      carry(row);
      known.set(name, row);
    }
    if (change.order) given = change.order;
    arrange(known);
    document.getElementById("empty").hidden = rows.children.length > 0;
    tick(); sift();
  };

  const filter = document.getElementById("filter");
  const sift = () => {
    const words = filter.value.toLowerCase();
    for (const row of rows.children) row.hidden = !row.dataset.run.toLowerCase().includes(words);
  };
  const tick = () => {
    const count = rows.querySelectorAll("input:checked").length;
    document.getElementById("compare").disabled = count < 1;
    document.getElementById("ticked").textContent =
      count === 0 ? "Tick two runs or more to see them side by side." : `${count} ticked`;
  };
  if (rows) {
    filter.hidden = false;
    filter.addEventListener("input", sift);
    // Enter in the filter is no wish to compare.
    filter.addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });
    rows.addEventListener("change", tick);
    document.querySelectorAll(".runs th[data-sort]").forEach(makeSortable);
    tick();
  }

  const button = document.getElementById("stop");
  const said = document.getElementById("said");
  const showStop = (running) => {
    if (button && token) button.hidden = !running;
  };
  if (button) {
    const words = button.textContent;
    let asked = null;
    const calm = () => { clearTimeout(asked); asked = null; button.textContent = words; };
    button.addEventListener("click", async () => {
      if (asked === null) {
        button.textContent = "Really? Click once more";
        asked = setTimeout(calm, 5000);
        return;
      }
      calm();
      try {
        const answer = await fetch(main.dataset.stop, { method: "POST", headers: { "X-Dino-Vmf-Token": token } });
        said.textContent = await answer.text();
      } catch {
        said.textContent = "The server does not answer.";
      }
    });
    showStop(main.dataset.running === "true");
  }

  let source = null;
  const show = (is_on, words) => { live.className = is_on ? "on" : "off"; live.textContent = words; };
  const listen = () => {
    if (source || document.hidden) return;
    source = new EventSource(main.dataset.events);
    source.addEventListener("open", () => show(true, "live"));
    source.addEventListener("parts", (event) => takeParts(JSON.parse(event.data)));
    source.addEventListener("rows", (event) => takeRows(JSON.parse(event.data)));
    source.addEventListener("error", () => {
      show(false, "not connected");
      if (source && source.readyState === EventSource.CLOSED) { source = null; setTimeout(listen, 3000); }
    });
  };
  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) { listen(); return; }
    if (source) source.close();
    source = null;
  });
  carry(document);
  listen();
})();
