// Draws the trend: one point per run, its range, the level between change points. The table below has the same values.
"use strict";

(() => {
  const figure = document.querySelector("figure.chart");
  if (!figure || !window.Plotly) return;
  const plot = figure.querySelector(".plot");
  const trend = JSON.parse(figure.querySelector("script").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const tone = { regression: colour("--bad"), improvement: colour("--good"), inconclusive: colour("--quiet") };
    const traces = trend.levels.map((level) => ({
      x: [level.from, level.to], y: [level.value, level.value], mode: "lines", hoverinfo: "skip",
      line: { color: colour("--chart-level"), width: 1.5, dash: "dash" },
    }));
    traces.push({
      x: trend.points.map((point) => point.at), y: trend.points.map((point) => point.value), mode: "lines+markers",
      customdata: trend.points.map((point) => [point.path, point.text]),
      hovertemplate: "%{customdata[1]}<extra></extra>",
      line: { color: colour("--chart-main"), width: 1.5 },
      marker: { size: 8, color: colour("--chart-main"), symbol: trend.points.map((point) => (point.is_lower_bound ? "triangle-up-open" : "circle")) },
      error_y: {
        type: "data", symmetric: false, color: colour("--chart-range"), thickness: 1, width: 3,
        array: trend.points.map((point) => point.highest - point.value),
        arrayminus: trend.points.map((point) => point.value - point.lowest),
      },
    });
    const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line"), automargin: true };
    const layout = {
      paper_bgcolor: colour("--page"), plot_bgcolor: colour("--page"), hovermode: "closest", showlegend: false,
      font: { family: "system-ui, sans-serif", size: 13, color: colour("--text") },
      margin: { l: 10, r: 20, t: 34, b: 10 },
      xaxis: { ...axis, type: "date", title: { text: "start of the run, UTC" } },
      yaxis: { ...axis, title: { text: trend.unit }, exponentformat: "SI" },
      shapes: trend.steps.map((step) => ({
        type: "line", xref: "x", yref: "paper", x0: step.at, x1: step.at, y0: 0, y1: 1, line: { color: tone[step.verdict], width: 2 },
      })),
      annotations: trend.steps.map((step) => ({
        x: step.at, y: 1, xref: "x", yref: "paper", yanchor: "bottom", showarrow: false, text: step.text, font: { color: tone[step.verdict] },
      })),
      hoverlabel: { align: "left", bgcolor: colour("--raised"), bordercolor: colour("--line"), font: { color: colour("--text") } },
    };
    return window.Plotly.react(plot, traces, layout, { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] });
  }

  draw().then(() => {
    plot.dataset.drawn = "true";
    plot.on("plotly_click", (event) => {
      const path = event.points[0].customdata?.[0];
      if (path) window.location.assign(path);
    });
  });
  dark.addEventListener("change", draw);
})();
