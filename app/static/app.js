/* What every page has: times in the viewer's zone, toasts, menus, copying, focus on the first error. */
(() => {
  const each = (root, selector, act) => {
    if (root.matches?.(selector)) act(root);
    root.querySelectorAll?.(selector).forEach(act);
  };

  /* Times ---------------------------------------------------------------------------------------------------------- */
  const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const localise = (time) => {
    const at = new Date(time.dateTime);
    if (Number.isNaN(at.getTime())) return;
    time.title = exact.format(at);
    if (time.dataset.local === "clock") time.textContent = clock.format(at);
  };

  /* Toasts: one at a time, and an error until it was there for its time. 8 seconds, and the clock stands still while one
     is hovered or has the focus. --------------------------------------------------------------------------------------- */
  const LASTS = 8000;
  const isError = (toast) => Boolean(toast.querySelector(".u-state.is-fail"));
  const startToast = (toast) => {
    if (toast.dataset.started) return;
    toast.dataset.started = "1";
    for (const other of document.querySelectorAll("[data-toast][data-started]")) {
      if (other !== toast && (isError(toast) || !isError(other))) other.remove();
    }
    let left = LASTS;
    let since = 0;
    let timer = 0;
    const run = () => { since = Date.now(); timer = setTimeout(() => toast.remove(), left); };
    const rest = () => { clearTimeout(timer); left -= Date.now() - since; };
    const held = () => toast.matches(":hover") || toast.contains(document.activeElement);
    toast.addEventListener("pointerenter", rest);
    toast.addEventListener("focusin", rest);
    toast.addEventListener("pointerleave", () => { if (!held()) run(); });
    toast.addEventListener("focusout", () => { setTimeout(() => { if (!held()) run(); }); });
    run();
  };

  const say = (text, kind = "error") => {
    const toast = document.createElement("div");
    toast.className = "u-toast";
    toast.dataset.toast = "";
    const glyph = document.createElement("span");
    glyph.className = `u-state ${kind === "error" ? "is-fail" : "is-pass"}`;
    glyph.ariaHidden = "true";
    glyph.textContent = kind === "error" ? "✗" : "✓";
    const words = document.createElement("span");
    words.textContent = text;
    toast.append(glyph, words);
    document.getElementById("toasts")?.append(toast);
    startToast(toast);
  };

  /* Menus: one open at a time; a click elsewhere or Esc closes it. --------------------------------------------------- */
  const closeMenus = (except) => {
    let closed = false;
    for (const menu of document.querySelectorAll("[data-menu][open]")) {
      if (menu === except) continue;
      closed = true;
      if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
      menu.open = false;
    }
    return closed;
  };

  const copy = async (button) => {
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      say("Copied.", "success");
    } catch {
      say("Can’t copy. Select the text and copy it yourself.");
    }
  };

  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    closeMenus(at("[data-menu]"));
    if (at("[data-copy]")) copy(at("[data-copy]"));
    at("[data-close-toast]")?.closest("[data-toast]").remove();
  });
  document.addEventListener("toggle", (event) => {
    if (event.target.open && event.target.matches("details")) event.target.querySelector("[data-first]")?.focus();
  }, true);
  /* A short name follows the name until someone writes one. */
  document.addEventListener("input", ({ target }) => {
    if (target.matches("[data-from]")) target.dataset.own = target.value;
    const follows = target.id && document.querySelector(`[data-from="${CSS.escape(target.id)}"]`);
    if (!follows || follows.dataset.own || (follows.value && follows.dataset.made !== follows.value)) return;
    const plain = target.value.normalize("NFKD").replace(/[\u0300-\u036f]/g, "").toLowerCase();
    follows.value = follows.dataset.made = plain.replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "");
  });
  /* What should have happened is said in fields that its tick opens. */
  document.addEventListener("change", ({ target }) => {
    if (!target.checked || !target.matches(".u-should [name=should]")) return;
    const fields = target.form.querySelector(`.u-should [data-part="${CSS.escape(target.value)}"]`);
    fields?.querySelector("input:not([type=checkbox], [type=hidden]), textarea, select")?.focus();
  });
  document.addEventListener("submit", (event) => {
    if (event.target.matches("[data-undo]")) queueMicrotask(() => event.target.closest("[data-toast]").hidden = true);
  });

  /* A box that someone made larger carries a style; htmx would write it onto what takes its place, which the CSP refuses. */
  htmx.config.morphIgnore.push("style");

  /* The chosen tab is in sight on a narrow screen, and what htmx brought in is made ready like the rest. ------------- */
  const ready = (root) => {
    each(root, "time[datetime]", localise);
    each(root, "[data-toast]", startToast);
    each(root, ".u-tabs [aria-current], .u-seg [aria-current]", (tab) => {
      tab.parentElement.scrollLeft = tab.offsetLeft - tab.parentElement.offsetLeft - 60;
    });
  };

  const focusError = (root) => root.querySelector?.("[aria-invalid=true]")?.focus();

  ready(document.body);
  focusError(document.body);
  document.addEventListener("htmx:after:settle", (event) => {
    for (const node of event.detail.newContent ?? []) {
      if (node.nodeType !== Node.ELEMENT_NODE || !node.isConnected) continue;
      ready(node);
      focusError(node);
    }
  });
  document.addEventListener("htmx:error", (event) => {
    /* What looks for news by itself says itself that it cannot. */
    if (event.detail.error?.name === "AbortError" || event.target.matches?.("[data-follow]")) return;
    say("Can’t reach the server. Check your connection and try again.");
  });

  window.upshot = { say, closeMenus };
})();
