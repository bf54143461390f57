/* Lists and their side panel: one click opens the row, J and K walk, Back and Esc close, the row keeps its place.
   The open row is the address's #fragment, so that Back, reload and a shared link all mean the same. */
(() => {
  const list = () => document.querySelector("[data-list]");
  /* The keyboard skips rows of a folded group. */
  const rows = () => [...document.querySelectorAll("[data-list] [data-row]")].filter((row) => row.checkVisibility());
  const panel = () => document.getElementById("panel");
  const openRow = () => document.querySelector("[data-row].is-open");
  const isOpen = () => Boolean(panel() && !panel().hidden);
  const here = () => location.pathname + location.search;
  let shownAt = here();
  let wanted = null;
  let loading = false;
  let last = null;
  let ticked = null;

  const mark = (row) => {
    for (const other of document.querySelectorAll("[data-row].is-open")) {
      other.classList.remove("is-open");
      other.removeAttribute("aria-current");
    }
    row?.classList.add("is-open");
    row?.setAttribute("aria-current", "true");
  };

  const place = () => {
    const row = openRow();
    const all = rows();
    const where = panel()?.querySelector("[data-position]");
    if (where) where.textContent = row ? `${all.indexOf(row) + 1} of ${all.length}` : "";
  };

  const focusRow = (row) => (row?.querySelector("[data-open], [data-go]") ?? row)?.focus({ preventScroll: true });

  /* Fetch the row's page as a panel. One request at a time: moving fast shows the row where it stopped. */
  const load = async (row, focus) => {
    mark(row);
    row.scrollIntoView({ block: "nearest" });
    wanted = row;
    if (loading) return;
    loading = true;
    panel().setAttribute("aria-busy", "true");
    while (wanted) {
      const url = new URL(wanted.dataset.href, location.href);
      url.searchParams.set("panel", "1");
      wanted = null;
      await htmx.ajax("GET", url.pathname + url.search, { target: "#panel", swap: "outerHTML" });
    }
    loading = false;
    reveal(focus);
  };

  /* Show what came, unless it was closed meanwhile or nothing came. */
  const reveal = (focus) => {
    const shown = panel();
    shown.removeAttribute("aria-busy");
    if (!openRow() && addressed()) mark(addressed());
    if (!openRow()) { shown.hidden = true; return; }
    if (!shown.hasChildNodes()) { close(); return; }
    shown.hidden = false;
    document.getElementById("body")?.classList.add("u-with-panel");
    place();
    if (focus) shown.querySelector(".u-panel-body")?.focus({ preventScroll: true });
    openRow().scrollIntoView({ block: "nearest" });
  };

  const hide = () => {
    wanted = null;
    const row = openRow();
    mark(null);
    document.getElementById("body")?.classList.remove("u-with-panel");
    if (!panel()) return;
    panel().hidden = true;
    panel().replaceChildren();
    if (row) focusRow(row);
  };

  const open = (row, focus = true) => {
    if (!row || row === openRow()) return;
    const first = !isOpen() && !location.hash;
    const state = { htmx: true, upshotPanel: first || Boolean(history.state?.upshotPanel) };
    history[first ? "pushState" : "replaceState"](state, "", `${here()}#${row.id}`);
    load(row, focus);
  };

  /* Back is the way out when a click brought us in; a shared link has nothing behind it to go back to. */
  const close = () => {
    if (history.state?.upshotPanel) { history.back(); return; }
    history.replaceState(history.state, "", here());
    hide();
  };

  /* The row that is open, has the focus, or had it before a menu or a button took it. */
  const current = () => {
    const row = openRow() ?? document.activeElement?.closest?.("[data-row]");
    return row ?? (last ? document.getElementById(last) : null);
  };
  document.addEventListener("focusin", (event) => { last = event.target.closest("[data-row]")?.id ?? last; });

  const walk = (step) => {
    const all = rows();
    if (!all.length) return;
    const now = current();
    const next = all[Math.min(Math.max(all.indexOf(now) + step, 0), all.length - 1)];
    if (isOpen()) open(next, panel().contains(document.activeElement));
    else { focusRow(next); next.scrollIntoView({ block: "nearest" }); }
  };

  const addressed = () => {
    const row = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
    return row?.matches("[data-row][data-href]") ? row : null;
  };

  /* Bring the panel in line with the address. */
  const follow = () => {
    const row = addressed();
    if (!row) { if (isOpen() || openRow()) hide(); return; }
    if (!isOpen() || row !== openRow()) load(row, false);
    else place();
  };

  /* Selection --------------------------------------------------------------------------------------------------------- */
  const boxes = () => [...document.querySelectorAll("[data-list] [data-select]:not([data-select-group])")];
  /* The box of a group stands for those of its rows, which say what is selected. */
  const groupOf = (box) => box.closest(".u-group");
  const members = (group) => [...group.querySelectorAll("[data-select]:not([data-select-group])")];
  const tick = (box, checked) => {
    const all = box.matches("[data-select-group]") ? [box, ...members(groupOf(box))] : [box];
    for (const one of all) one.checked = checked;
  };
  const idsOf = (box) => box.value.split(",");
  /* A large group has more rows than the page shows; those go along only when its own box was ticked. */
  const showGroups = () => {
    for (const box of document.querySelectorAll("[data-list] [data-select-group]")) {
      const shown = members(groupOf(box));
      const chosen = shown.filter((one) => one.checked);
      const whole = idsOf(box).every((id) => shown.some((one) => one.value === id));
      box.checked = chosen.length === shown.length && (whole || box.checked);
      box.indeterminate = !box.checked && chosen.length > 0;
    }
  };
  const count = () => {
    showGroups();
    const all = boxes();
    const chosen = all.filter((box) => box.checked);
    const ids = new Set([...document.querySelectorAll("[data-list] [data-select]:checked")].flatMap(idsOf));
    for (const text of document.querySelectorAll("[data-selected-count]")) text.textContent = ids.size;
    const head = document.querySelector("[data-list] [data-select-all]");
    if (head) {
      head.checked = all.length > 0 && chosen.length === all.length;
      head.indeterminate = chosen.length > 0 && chosen.length < all.length;
    }
    return ids.size;
  };
  const clear = () => { for (const box of document.querySelectorAll("[data-list] [data-select]")) box.checked = false; count(); };
  /* X ticks the row; with Shift, all rows from the one that was ticked last. */
  const toggle = (range) => {
    const all = rows();
    const row = document.activeElement?.closest?.("[data-row]") ?? current();
    const box = row?.querySelector("[data-select]");
    if (!box) return;
    const from = all.findIndex((one) => one.id === ticked);
    const to = all.indexOf(row);
    if (range && from >= 0) {
      for (const one of all.slice(Math.min(from, to), Math.max(from, to) + 1)) tick(one.querySelector("[data-select]"), true);
    } else tick(box, !box.checked);
    ticked = row.id;
    count();
  };

  /* A key of the bar, pressed while nothing is ticked, means the row one is at. */
  const choose = (key) => {
    const bar = document.querySelector(`[data-list] .u-select [data-key="${CSS.escape(key)}"]`);
    const box = current()?.querySelector("[data-select]");
    if (!bar || !box || isOpen() || count()) return false;
    tick(box, true);
    count();
    return true;
  };

  /* After a decision: from the panel the next row opens, from the bar the focus is where the rows were. */
  const decided = new WeakMap();
  const beside = new WeakMap();
  document.addEventListener("htmx:before:request", (event) => {
    const { ctx } = event.detail;
    const form = ctx.sourceElement?.closest?.("form");
    if (form?.matches("[data-next]")) {
      const row = openRow() ?? form.closest("[data-row]") ?? form;
      const all = rows();
      const at = all.indexOf(row);
      decided.set(ctx, row.id);
      /* A row that goes with its decision leaves its place to the one below, or to the one above. */
      beside.set(ctx, (all[at + 1] ?? all[at - 1])?.id);
    }
    if (form?.matches("[data-bulk]")) decided.set(ctx, rows().findIndex((row) => row.querySelector("[data-select]:checked")));
  });
  document.addEventListener("htmx:finally:request", (event) => {
    const { ctx } = event.detail;
    const place = decided.get(ctx);
    if (place === undefined || !(ctx.response?.status < 400)) return;
    const all = rows();
    if (typeof place === "number") { if (!isOpen()) focusRow(all[Math.min(place, all.length - 1)]); return; }
    const at = all.findIndex((row) => row.id === place);
    const next = at >= 0 ? all[at + 1] : all.find((row) => row.id === beside.get(ctx));
    if (next && isOpen()) open(next);
    else if (!isOpen()) { focusRow(next ?? all[at]); (next ?? all[at])?.scrollIntoView({ block: "nearest" }); }
    else panel()?.querySelector(".u-panel-body")?.focus({ preventScroll: true });
  });

  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-select-all]")) for (const box of boxes()) box.checked = event.target.checked;
    if (event.target.matches("[data-select-group]")) tick(event.target, event.target.checked);
    if (event.target.matches("[data-select], [data-select-all]")) count();
  });

  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    if (at("[data-close-panel]")) { close(); return; }
    if (at("[data-walk]")) { walk(Number(at("[data-walk]").dataset.walk)); return; }
    if (at("[data-select-none]")) { clear(); return; }
    const choosing = at("[data-close-choose]")?.closest("[data-row] form, #panel form");
    if (choosing) { event.preventDefault(); choosing.remove(); return; }
    if (at("[data-close-menu]")) upshot.closeMenus();
    const row = at("[data-list] [data-row]");
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey && event.button === 0;
    if (!row || !plain || !panel() || event.defaultPrevented) return;
    const control = at("a, button, input, label, select, summary, form");
    if (control && !control.matches("[data-open]")) return;
    if (!control && String(getSelection())) return;
    /* A row that leads to a page of its own has no panel. */
    if (!row.dataset.href) { row.querySelector("[data-go]")?.click(); return; }
    event.preventDefault();
    open(row);
  });

  addEventListener("popstate", () => { if (here() === shownAt) follow(); });
  document.addEventListener("htmx:before:history:restore", (event) => {
    if (event.detail.path === shownAt) event.preventDefault();
  });
  document.addEventListener("htmx:after:history:update", () => { shownAt = here(); });

  /* An empty field is no filter: it stays out of the address. */
  let asked = "";
  document.addEventListener("htmx:config:request", (event) => {
    const { method, body } = event.detail.ctx.request;
    if (method !== "GET" || !body) return;
    for (const [name, value] of [...body]) if (value === "") body.delete(name);
    asked = body.get("q") ?? "";
  });

  /* What was typed while the answer was under way is not lost. The new field has its own value only after the swap, so
     what was typed is compared with what was asked for: the same words are not asked twice. */
  let typed = null;
  document.addEventListener("htmx:before:swap", () => {
    const box = document.activeElement;
    typed = box?.matches?.("[data-search]") ? box.value : null;
  });
  document.addEventListener("htmx:after:swap", () => {
    shownAt = here();
    const box = document.activeElement;
    const own = typed === asked ? box?.defaultValue : typed;
    if (typed !== null && box?.matches?.("[data-search]") && box.value !== own) {
      box.value = own;
      if (typed !== asked) box.dispatchEvent(new Event("input", { bubbles: true }));
    }
    typed = null;
    /* An answer that puts a new row in place of the open one while its panel is loading: the panel is asked for again. */
    if (loading && !openRow() && addressed()) mark(wanted = addressed());
    else if (!loading && list()) follow();
    count();
  });

  count();
  addEventListener("DOMContentLoaded", follow);
  if (document.readyState === "complete") follow();

  window.upshotList = { walk, close, clear, toggle, isOpen, choose, current, open: () => open(document.activeElement?.closest?.("[data-row]")), count };
})();
