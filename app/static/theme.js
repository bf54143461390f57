/* Runs before the first paint: "auto" follows the system, which only the browser knows. */
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");

  const show = () => {
    const chosen = root.dataset.theme || "auto";
    const theme = chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen;
    if (root.dataset.bsTheme === theme) return;
    root.dataset.bsTheme = theme;
    document.dispatchEvent(new CustomEvent("upshot:theme", { detail: { theme } }));
  };

  root.classList.add("has-js");
  show();
  dark.addEventListener("change", show);

  /* The form works alone; here it changes at once and is only kept on the server. */
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-theme-form]");
    if (!form) return;
    event.preventDefault();
    const flip = event.submitter?.hasAttribute("data-theme-toggle");
    const chosen = flip ? (root.dataset.bsTheme === "dark" ? "light" : "dark") : event.submitter?.value || "auto";
    root.dataset.theme = chosen;
    show();
    for (const button of document.querySelectorAll("[data-theme-form] [aria-pressed]")) {
      button.setAttribute("aria-pressed", String(button.value === chosen));
    }
    const body = new URLSearchParams(new FormData(form));
    body.set("theme", chosen);
    fetch(form.action, { method: "POST", body, headers: { "HX-Request": "true" } });
  });
})();
