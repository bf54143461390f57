/* Draws the figures of a page with Plotly, which is fetched after the first paint. Colours are names of our CSS tokens,
   so a figure is drawn anew when the theme changes. A table on the same page or behind a link says the same. */
(() => {
  const source = document.currentScript.dataset.plotly;
  const CONFIG = { displaylogo: false, displayModeBar: false, plotlyServerURL: "", modeBarButtonsToRemove: ["sendChartToCloud"] };
  const NARROW = 560;
  const DAY_WIDTH = 48;
  let loading = null;

  const plotly = () => {
    loading ??= new Promise((done, failed) => {
      const script = document.createElement("script");
      script.src = source;
      script.onload = () => done(window.Plotly);
      script.onerror = failed;
      document.head.append(script);
    });
    return loading;
  };

  const token = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const resolved = (value) => {
    if (typeof value === "string") return value.startsWith("var(--") ? token(value.slice(4, -1)) : value;
    if (Array.isArray(value)) return value.map(resolved);
    if (value && typeof value === "object") return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, resolved(one)]));
    return value;
  };

  const figureOf = (host) => {
    const figure = JSON.parse(host.querySelector("script").textContent);
    const { rows, columns } = figure.layout.meta;
    const hovertext = (trace) => trace.text.map((line, y) => line.map((text, x) => text && `${rows[y]}<br>${columns[x]}: ${text}`));
    if (rows) figure.data = figure.data.map((trace) => ({ ...trace, hovertext: hovertext(trace) }));
    return figure;
  };

  /* The days below a trend, as many as there is room for. */
  const spaced = ({ xaxis, margin }, width) => {
    if (!xaxis?.tickvals) return xaxis;
    const [first, last] = xaxis.range;
    const pixels = (width - margin.l - margin.r) / (last - first);
    const kept = [];
    xaxis.tickvals.forEach((value, at) => {
      if (!kept.length || (value - xaxis.tickvals[kept.at(-1)]) * pixels >= DAY_WIDTH) kept.push(at);
    });
    return { ...xaxis, tickvals: kept.map((at) => xaxis.tickvals[at]), ticktext: kept.map((at) => xaxis.ticktext[at]) };
  };

  /* A matrix is as wide as its columns need and scrolls in its own box; on a phone labels are short. */
  const fitted = (layout, host) => {
    const narrow = host.clientWidth < NARROW;
    const { column } = layout.meta;
    if (!column) return { ...layout, xaxis: spaced(layout, host.clientWidth), width: host.clientWidth };
    const left = narrow ? 124 : layout.margin.l;
    const labels = narrow ? layout.yaxis.ticktext.map((text) => (text.length > 16 ? `${text.slice(0, 15)}…` : text)) : layout.yaxis.ticktext;
    const columns = Math.round(layout.xaxis.range[1] + 0.5);
    return {
      ...layout,
      margin: { ...layout.margin, l: left },
      yaxis: { ...layout.yaxis, ticktext: labels },
      width: Math.max(host.clientWidth, left + layout.margin.r + columns * column),
    };
  };

  const shortened = (data, host) => (host.clientWidth < NARROW ? data.map((trace) => (trace.meta?.short ? { ...trace, text: trace.meta.short } : trace)) : data);

  const draw = async (host) => {
    const Plotly = await plotly();
    if (!host.isConnected) return;
    const { data, layout } = figureOf(host);
    let area = host.querySelector(".u-chart-area");
    if (!area) {
      area = document.createElement("div");
      area.className = "u-chart-area";
      host.querySelector("svg")?.remove();
      host.append(area);
    }
    const fresh = !area.data;
    const font = { ...layout.font, family: getComputedStyle(document.body).fontFamily };
    await Plotly.react(area, resolved(shortened(data, host)), resolved(fitted({ ...layout, font }, host)), CONFIG);
    host.dataset.drawn = "1";
    if (!fresh) return;
    area.on("plotly_click", ({ event, points }) => follow(points[0].customdata, event));
    area.addEventListener("click", (event) => {
      const head = event.target.closest(".xtick");
      if (head && layout.meta.links) follow(layout.meta.links[[...head.parentNode.children].indexOf(head)], event);
    });
  };

  const follow = (url, event) => {
    if (!url) return;
    if (event?.ctrlKey || event?.metaKey) window.open(url, "_blank", "noopener");
    else location.assign(url);
  };

  const drawAll = (root = document) => {
    for (const host of root.querySelectorAll("[data-chart]")) draw(host);
  };

  /* Keyboard: what can be opened as places in a grid, by row and column. */
  const places = (area) => area.data.flatMap((trace, curveNumber) => {
    if (trace.type === "heatmap") {
      return trace.customdata.flatMap((line, y) => line.map((url, x) => ({ curveNumber, pointNumber: [y, x], x, y, url, text: trace.hovertext[y][x] })));
    }
    return (trace.customdata ?? []).map((url, at) => ({ curveNumber, pointNumber: at, x: trace.x[at], y: 0, url, text: trace.hovertext[at] }));
  }).filter((place) => place.url);

  const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };

  const next = (all, from, [right, down]) => {
    if (!from) return all[0];
    const along = all.filter((one) => (right ? one.y === from.y : one.x === from.x) && (one.x - from.x) * right + (one.y - from.y) * down > 0);
    return along.sort((a, b) => Math.abs(a.x - from.x) + Math.abs(a.y - from.y) - Math.abs(b.x - from.x) - Math.abs(b.y - from.y))[0] ?? from;
  };

  const say = (host, place) => {
    let told = host.querySelector("[role=status]");
    if (!told) {
      told = document.createElement("span");
      told.className = "u-sr";
      told.setAttribute("role", "status");
      host.append(told);
    }
    told.textContent = place.text.replaceAll("<br>", ", ").replace(/<[^>]*>/g, "");
  };

  document.addEventListener("keydown", (event) => {
    const host = event.target instanceof Element && event.target.matches("[data-chart][data-drawn]") ? event.target : null;
    if (!host || event.ctrlKey || event.metaKey || event.altKey) return;
    const area = host.querySelector(".u-chart-area");
    if (event.key === "Enter" && area.place) {
      event.preventDefault();
      event.stopPropagation();
      follow(area.place.url);
      return;
    }
    const step = STEPS[event.key];
    const all = step ? places(area) : [];
    if (!all.length) return;
    event.preventDefault();
    event.stopPropagation();
    area.place = next(all, area.place, step);
    window.Plotly.Fx.hover(area, [{ curveNumber: area.place.curveNumber, pointNumber: area.place.pointNumber }]);
    say(host, area.place);
  }, true);

  let resizing = 0;
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(resizing);
    resizing = setTimeout(() => drawAll(), 120);
  });
  document.addEventListener("upshot:theme", () => drawAll());
  document.addEventListener("htmx:after:swap", () => drawAll());
  const start = () => requestAnimationFrame(() => setTimeout(() => drawAll()));
  if (document.readyState === "complete") start();
  else addEventListener("load", start);
})();
