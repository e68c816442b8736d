// Draws the charts in the colours of the page, switches between light and dark, and opens sections for printing.
"use strict";
(() => {
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const choices = ["system", "light", "dark"];
  const printWidth = 660;
  let choice = "system";
  const drawn = [];

  function colours() {
    // Resolved by the browser: the property itself holds both the light and the dark colour.
    const probe = document.body.appendChild(document.createElement("span"));
    const resolve = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const [text, line, panel] = ["--text", "--line", "--panel"].map(resolve);
    probe.remove();
    const change = {
      "font.color": text, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
      "font.family": getComputedStyle(document.body).fontFamily, "font.size": 12,
      "modebar.bgcolor": "rgba(0,0,0,0)", "modebar.color": line, "modebar.activecolor": text,
      "hoverlabel.bgcolor": panel, "hoverlabel.font.color": text,
    };
    for (const axis of ["xaxis", "yaxis"]) {
      Object.assign(change, { [axis + ".gridcolor"]: line, [axis + ".linecolor"]: line, [axis + ".zerolinecolor"]: line });
    }
    return change;
  }

  function setTheme(theme) {
    root.dataset.theme = theme;
    const change = colours();
    return Promise.all(drawn.map((plot) => Plotly.relayout(plot, change)));
  }

  function theme() {
    return choice === "system" ? (system.matches ? "dark" : "light") : choice;
  }

  async function draw() {
    root.dataset.theme = theme();
    const options = { responsive: true, displayModeBar: "hover", displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"] };
    for (const figure of document.querySelectorAll("figure.chart")) {
      const plot = figure.querySelector(".plot");
      const { data, layout } = JSON.parse(figure.querySelector("script").textContent);
      await Plotly.newPlot(plot, data, layout, options);
      drawn.push(plot);
    }
    await setTheme(theme());
    root.dataset.drawn = String(drawn.length);
  }

  function beforePrint() {
    // Trials and logs stay closed: on paper they would take most of the space.
    for (const details of document.querySelectorAll("section:not(#trials, #logs) details:not([open])")) {
      details.open = true;
      details.dataset.wasClosed = "";
    }
    root.dataset.theme = "light";
    const change = { ...colours(), width: printWidth };
    drawn.forEach((plot) => Plotly.relayout(plot, change));
  }

  function afterPrint() {
    for (const details of document.querySelectorAll("details[data-was-closed]")) {
      details.open = false;
      delete details.dataset.wasClosed;
    }
    drawn.forEach((plot) => Plotly.relayout(plot, { width: null, autosize: true }));
    setTheme(theme());
  }

  if (button) {
    button.addEventListener("click", () => {
      choice = choices[(choices.indexOf(choice) + 1) % choices.length];
      button.textContent = "Theme: " + choice;
      setTheme(theme());
    });
  }
  system.addEventListener("change", () => setTheme(theme()));
  addEventListener("beforeprint", beforePrint);
  addEventListener("afterprint", afterPrint);
  draw();
})();
