/* Search anything: Ctrl K or ⌘ K opens the dialog, the arrows move, Enter opens, Esc closes. */
(() => {
  const dialog = () => document.getElementById("palette");
  const field = () => dialog()?.querySelector("input");
  const options = () => [...dialog().querySelectorAll("[role=option]")];
  const chosen = () => dialog().querySelector("[role=option][aria-selected=true]");
  const apple = /Mac|iP(hone|ad|od)/.test(navigator.userAgentData?.platform ?? navigator.platform);

  const choose = (option) => {
    for (const other of options()) other.ariaSelected = other === option ? "true" : "false";
    if (option) field().setAttribute("aria-activedescendant", option.id);
    else field().removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };

  const move = (step) => {
    const all = options();
    if (all.length) choose(all[(all.indexOf(chosen()) + step + all.length) % all.length]);
  };

  const open = () => {
    if (!dialog() || dialog().open) return;
    upshot.closeMenus();
    dialog().showModal();
    field().select();
    if (!options().length) field().dispatchEvent(new Event("palette"));
  };

  const follow = (newTab) => {
    const href = chosen()?.href;
    if (!href) return false;
    if (newTab) window.open(href, "_blank", "noopener");
    else location.href = href;
    dialog().close();
    return true;
  };

  const acts = {
    Escape: () => { dialog().close(); return true; },
    ArrowDown: () => { move(1); return true; },
    ArrowUp: () => { move(-1); return true; },
    Enter: (event) => follow(event.ctrlKey || event.metaKey),
  };

  document.addEventListener("htmx:after:swap", () => {
    if (!dialog()?.open || chosen()) return;
    const all = options();
    choose(all[0] ?? null);
    dialog().querySelector("[data-palette-status]").textContent =
      all.length ? `${all.length} results` : "No matches";
  });

  document.addEventListener("keydown", (event) => {
    const mod = apple ? event.metaKey && !event.ctrlKey : event.ctrlKey && !event.metaKey;
    if (!mod || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k" || !dialog()) return;
    event.preventDefault();
    if (dialog().open) dialog().close(); else open();
  });

  /* Keys of the page rest while the dialog is open. */
  dialog()?.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") return;
    event.stopPropagation();
    if (!event.isComposing && acts[event.key]?.(event)) event.preventDefault();
  });
  /* What was found for the words before is not opened by accident: Enter then asks for the whole page. */
  field()?.addEventListener("input", () => choose(null));
  dialog()?.addEventListener("pointermove", (event) => {
    const option = event.target.closest("[role=option]");
    if (option && option !== chosen()) choose(option);
  });
  dialog()?.addEventListener("click", (event) => {
    if (event.target === dialog()) dialog().close();
  });

  document.addEventListener("click", (event) => {
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
    if (!plain || !event.target.closest("[data-palette]") || !dialog()) return;
    event.preventDefault();
    document.getElementById("side")?.hidePopover?.();
    open();
  });

  if (apple) for (const key of document.querySelectorAll("[data-mod]")) key.textContent = "⌘";
})();
