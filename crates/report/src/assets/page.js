// Values under the pointer, and smoothing. The page is complete without it.
"use strict";
(() => {
  const digits = (v) => v === null ? "not a number" :
    Math.abs(v) >= 1e4 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(4)));
  const place = (scale, v) => {
    const share = scale.log ? Math.log(Math.max(v, scale.from) / scale.from) / Math.log(scale.to / scale.from)
                            : (v - scale.from) / (scale.to - scale.from);
    return Math.min(1, Math.max(0, share));
  };
  // A moving average that remembers about `length` points and starts without a bias.
  const smoothed = (values, length) => {
    if (length <= 1) return values;
    const keep = 1 - 1 / length;
    let sum = 0, weight = 0;
    return values.map((v) => {
      if (v === null) return null;
      sum = keep * sum + v; weight = keep * weight + 1;
      return sum / weight;
    });
  };
  const charts = [];
  const prepare = (figure) => {
    const source = figure.querySelector("script[type='application/json']");
    const svg = figure.querySelector("svg[role=img]");
    if (!source || !svg) return;
    const data = JSON.parse(source.textContent);
    const [left, top, width, height] = data.plot;
    const at = (x, y) => [left + width * place(data.x, x), top + height * (1 - place(data.y, y))];
    const shown = data.series.map((s) => s.y);
    const draw = (length) => data.series.forEach((s, i) => {
      shown[i] = smoothed(s.y, length);
      const line = svg.querySelector(`[data-line='${i}']`);
      let path = "", down = false;
      shown[i].forEach((y, j) => {
        if (y === null || s.x[j] === null) { down = false; return; }
        const [px, py] = at(s.x[j], y);
        path += `${down ? "L" : "M"}${px.toFixed(1)} ${py.toFixed(1)}`;
        down = true;
      });
      if (line) line.setAttribute("d", path);
    });
    const tip = document.createElement("div");
    tip.className = "tip"; tip.hidden = true;
    figure.append(tip);
    const rule = document.createElementNS("http://www.w3.org/2000/svg", "path");
    rule.setAttribute("class", "rule"); rule.setAttribute("visibility", "hidden");
    svg.append(rule);
    const leave = () => { tip.hidden = true; rule.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const px = (event.clientX - box.left) / box.width * data.size[0];
      const share = Math.min(1, Math.max(0, (px - left) / width));
      const x = data.x.from + share * (data.x.to - data.x.from);
      let nearest = null;
      const rows = data.series.map((s, i) => {
        let best = -1;
        s.x.forEach((v, j) => {
          if (v !== null && (best < 0 || Math.abs(v - x) < Math.abs(s.x[best] - x))) best = j;
        });
        if (best < 0) return null;
        if (nearest === null || Math.abs(s.x[best] - x) < Math.abs(nearest - x)) nearest = s.x[best];
        return `${s.name}: ${digits(shown[i][best])}`;
      }).filter((row) => row !== null);
      if (nearest === null) { leave(); return; }
      tip.textContent = `${data.across} ${digits(nearest)}\n${rows.join("\n")}`;
      tip.hidden = false;
      const host = figure.getBoundingClientRect();
      const room = host.width - tip.offsetWidth - 8;
      tip.style.left = `${Math.max(0, Math.min(room, event.clientX - host.left + 12))}px`;
      tip.style.top = `${event.clientY - host.top + 14}px`;
      const [rx] = at(nearest, data.y.from);
      rule.setAttribute("d", `M${rx.toFixed(1)} ${top}v${height}`);
      rule.setAttribute("visibility", "visible");
    });
    svg.addEventListener("pointerleave", leave);
    charts.push(draw);
  };
  const tools = document.querySelector(".tools");
  const slider = tools && tools.querySelector("input");
  const smooth = () => charts.forEach((draw) => draw(Number(slider.value)));
  // Once more where charts were replaced.
  const begin = () => {
    charts.length = 0;
    document.querySelectorAll("figure.plot").forEach(prepare);
    if (!slider) return;
    tools.hidden = charts.length === 0;
    if (Number(slider.value) > 1) smooth();
  };
  if (slider) slider.addEventListener("input", smooth);
  begin();
  document.addEventListener("charts", begin);
})();
