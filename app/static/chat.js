/* Thumbs answer at once. What the server says replaces what was shown; when it cannot be reached or refuses, the thumbs
   go back to what they were. */
(() => {
  const thumbs = (within) => [...within.querySelectorAll("form[data-thumb]")];
  const button = (form) => form.querySelector("button");
  const wish = (form) => form.elements.namedItem("do");
  const pressed = (form) => button(form).getAttribute("aria-pressed") === "true";

  const show = (form, on) => {
    button(form).setAttribute("aria-pressed", String(on));
    wish(form).value = on ? "retract" : "give";
  };

  /* The form's fields are read before this, so that the next press already means the opposite. */
  document.addEventListener("htmx:config:request", (event) => {
    const form = event.target;
    if (!form.matches?.("form[data-thumb]")) return;
    const all = thumbs(form.parentElement);
    for (const one of all) one.dataset.was ??= String(pressed(one));
    const on = !pressed(form);
    for (const one of all) show(one, one === form && on);
  });

  const rollBack = (event) => {
    const form = event.target;
    if (!form.matches?.("form[data-thumb]")) return;
    for (const one of thumbs(form.parentElement)) {
      if (one.dataset.was !== undefined) show(one, one.dataset.was === "true");
      delete one.dataset.was;
    }
  };
  document.addEventListener("htmx:response:error", rollBack);
  document.addEventListener("htmx:error", rollBack);
})();
