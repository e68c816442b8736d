// A changed choice submits the form; without scripts the button does.
"use strict";

for (const form of document.querySelectorAll("form[data-send-on-change]")) {
  form.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement) form.requestSubmit();
  });
}
