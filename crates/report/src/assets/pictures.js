// Images under the pointer on the map of features. The page is complete without it.
(() => {
  "use strict";
  const REACH = 24, SHOWN = 144;
  const prepare = (figure) => {
    const svg = figure.querySelector("svg"), atlas = figure.querySelector("img.atlas");
    const points = [...svg.querySelectorAll("circle")].map((circle) => {
      // The browser's own tip would lie over this one.
      const title = circle.querySelector("title"), label = title ? title.textContent : "";
      if (title) title.remove();
      return { circle, label, x: circle.cx.baseVal.value, y: circle.cy.baseVal.value };
    });
    const tip = document.createElement("div"), canvas = document.createElement("canvas");
    const label = document.createElement("span");
    tip.className = "tip"; tip.hidden = true;
    canvas.width = canvas.height = SHOWN;
    tip.append(canvas, label);
    figure.append(tip);
    const side = Number(atlas.dataset.side), columns = Number(atlas.dataset.columns);
    let last = null;
    const leave = () => {
      if (last) last.circle.classList.remove("at");
      last = null; tip.hidden = true;
    };
    const show = (event) => {
      const to = svg.getScreenCTM();
      if (!to) return;
      let best = -1, least = REACH * REACH;
      points.forEach((p, i) => {
        const dx = p.x * to.a + to.e - event.clientX, dy = p.y * to.d + to.f - event.clientY;
        const apart = dx * dx + dy * dy;
        if (apart < least) { least = apart; best = i; }
      });
      if (best < 0) { leave(); return; }
      const point = points[best];
      if (point !== last) {
        leave();
        last = point;
        point.circle.classList.add("at");
        svg.append(point.circle);
        label.textContent = point.label;
        if (side > 0 && atlas.complete) {
          const x = best % columns * side, y = Math.floor(best / columns) * side;
          canvas.getContext("2d").drawImage(atlas, x, y, side, side, 0, 0, SHOWN, SHOWN);
        }
        tip.hidden = false;
      }
      const host = figure.getBoundingClientRect();
      const room = host.width - tip.offsetWidth - 4;
      const right = event.clientX - host.left + 16;
      const x = right > room ? event.clientX - host.left - tip.offsetWidth - 16 : right;
      tip.style.left = `${Math.max(0, Math.min(room, x))}px`;
      tip.style.top = `${Math.max(0, Math.min(host.height - tip.offsetHeight, event.clientY - host.top - 40))}px`;
    };
    svg.addEventListener("pointermove", show);
    svg.addEventListener("pointerdown", show);
    svg.addEventListener("pointerleave", leave);
    const only = (group) => {
      svg.classList.toggle("dim", group !== null);
      svg.querySelectorAll("circle.on").forEach((circle) => circle.classList.remove("on"));
      if (group !== null) svg.querySelectorAll(`circle.${group}`).forEach((circle) => circle.classList.add("on"));
    };
    figure.querySelectorAll("li").forEach((entry) => {
      const group = entry.classList[0];
      ["pointerenter", "focus"].forEach((name) => entry.addEventListener(name, () => only(group)));
      ["pointerleave", "blur"].forEach((name) => entry.addEventListener(name, () => only(null)));
    });
  };
  document.querySelectorAll("figure.map").forEach(prepare);
})();
