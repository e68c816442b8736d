// Switches between light and dark, and opens sections for printing.
"use strict";
(() => {
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const choices = ["system", "light", "dark"];
  let choice = "system";

  function setTheme(theme) {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
  }

  addEventListener("beforeprint", () => {
    // Trials and logs stay closed: on paper they would take most of the space.
    for (const details of document.querySelectorAll("section:not(#trials, #logs) details:not([open])")) {
      details.open = true;
      details.dataset.wasClosed = "";
    }
    setTheme("light");
  });

  addEventListener("afterprint", () => {
    for (const details of document.querySelectorAll("details[data-was-closed]")) {
      details.open = false;
      delete details.dataset.wasClosed;
    }
    setTheme(choice);
  });

  button.addEventListener("click", () => {
    choice = choices[(choices.indexOf(choice) + 1) % choices.length];
    button.textContent = "Theme: " + choice;
    setTheme(choice);
  });
})();
