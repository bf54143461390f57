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
  let deciding = 0;
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

  const panelUrl = (row) => {
    const url = new URL(row.dataset.href, location.href);
    url.searchParams.set("panel", "1");
    return url.pathname + url.search;
  };

  /* The panel of the next row is fetched ahead, so that it opens at once. The server audits this like any reading. */
  const ahead = new Map();
  const FRESH = 30_000;
  const fetchAhead = (row) => {
    if (!row?.dataset.href || fresh(row)) return;
    const headers = { "HX-Request": "true", "HX-Request-Type": "partial", "HX-Preloaded": "true", Accept: "text/html" };
    ahead.clear();
    ahead.set(row.id, { row, at: Date.now(), answer: fetch(panelUrl(row), { headers, mode: "same-origin" }) });
    ahead.get(row.id).answer.catch(() => ahead.delete(row.id));
  };
  /* A row that was replaced meanwhile says something else by now. */
  const fresh = (row) => {
    const known = ahead.get(row.id);
    return known?.row === row && Date.now() - known.at < FRESH ? known.answer : null;
  };

  /* A grey sketch of a panel that takes its time. */
  const sketch = () => {
    const busy = panel();
    if (busy.getAttribute("aria-busy") !== "true") return;
    busy.hidden = false;
    document.getElementById("body")?.classList.add("u-with-panel");
    const draft = document.getElementById("panel-sketch").content.cloneNode(true);
    busy.replaceChildren(draft);
    place();
  };

  /* Fetch the row's page as a panel. One request at a time: moving fast shows the row where it stopped. */
  const SKETCH_AFTER = 300;
  let focusing = false;
  const load = async (row, focus) => {
    mark(row);
    row.scrollIntoView({ block: "nearest" });
    wanted = row;
    focusing = focus;
    if (loading) return;
    loading = true;
    let shown = null;
    while (wanted) {
      panel().setAttribute("aria-busy", "true");
      const slow = setTimeout(sketch, SKETCH_AFTER);
      const now = wanted;
      wanted = null;
      const known = fresh(now);
      const before = panel();
      const read = async (url, request) => {
        const early = await known?.catch(() => null);
        return early?.ok ? early : fetch(url, request);
      };
      ahead.delete(now.id);
      /* The panel is found when the answer is here: an answer to a decision may have replaced it. */
      await htmx.ajax("GET", panelUrl(now), { target: "#panel", swap: "outerHTML target:#panel", fetch: read });
      clearTimeout(slow);
      if (panel() !== before) shown = now.id;
    }
    loading = false;
    reveal(shown);
  };

  /* Show what came, unless it was closed meanwhile or something else came. */
  const reveal = (id) => {
    const shown = panel();
    shown.removeAttribute("aria-busy");
    if (!openRow() && addressed()) mark(addressed());
    if (!openRow()) { shown.hidden = true; settled(); return; }
    if (openRow().id !== id) { close(); settled(); return; }
    shown.hidden = false;
    document.getElementById("body")?.classList.add("u-with-panel");
    place();
    if (focusing) shown.querySelector(".u-panel-body")?.focus({ preventScroll: true });
    openRow().scrollIntoView({ block: "nearest" });
    fetchAhead(below(openRow()));
    settled();
  };
  const below = (row) => rows()[rows().indexOf(row) + 1];

  /* Keys wait while this is so: what they mean depends on what is shown next. */
  const isBusy = () => loading || deciding > 0;
  const settled = () => { if (!isBusy()) document.dispatchEvent(new CustomEvent("list:settled")); };

  const hide = () => {
    wanted = null;
    const row = openRow();
    mark(null);
    document.getElementById("body")?.classList.remove("u-with-panel");
    if (!panel()) return;
    ahead.clear();
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
    const bar = document.querySelector(`[data-list] .u-select [data-key="${CSS.escape(key)}"]:not([data-several])`);
    const box = current()?.querySelector("[data-select]");
    if (!bar || !box || isOpen() || count()) return false;
    tick(box, true);
    count();
    return true;
  };

  /* Decisions show before the server has answered: the row says what it becomes, what waits goes down, the next row
     opens. They are sent one after the other (hx-sync), and one that fails puts back what it changed. */
  const pending = new Map();
  const decided = new WeakMap();

  const shift = (selector, by) => {
    for (const place of document.querySelectorAll(selector)) {
      const words = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
      while (words.nextNode()) {
        const figure = words.currentNode.data.match(/\d[\d,]*(?![\d,+])/);
        if (!figure) continue;
        const number = Math.max(Number(figure[0].replaceAll(",", "")) + by, 0);
        words.currentNode.data = words.currentNode.data.replace(figure[0], number.toLocaleString("en"));
        break;
      }
    }
  };
  /* What waits on the tab, in the side bar and on the page, and how many rows the list has where it shows only those. */
  const WAITS = { feedback: "#count-feedback, #count-side, #feedback-waiting", knowledge: "#count-knowledge, #count-of-proposed" };
  const countWaiting = (rowId, by) => shift(WAITS[rowId.split("-", 1)[0]] ?? "none", by);
  const countList = (by) => {
    const place = document.querySelector("[data-list] .u-filters [role=status]");
    if (!place || !/[?&](status=pending|state=proposed)(&|$)/.test(location.search)) return;
    shift("[data-list] .u-filters [role=status]", by);
    place.textContent = place.textContent.replace(/^([\d,]+) (\w+?)s?$/, (_, number, word) => `${number} ${word}${number === "1" ? "" : "s"}`);
  };

  const dim = (row, word) => {
    row.classList.add("is-decided");
    const badge = document.createElement("span");
    badge.className = "u-badge is-none";
    badge.dataset.becomes = "";
    badge.textContent = word;
    const now = [...row.querySelectorAll(".u-badge")].find((one) => /pending|proposed|draft/.test(one.textContent));
    if (now) { replaced.set(badge, now); now.replaceWith(badge); }
    else (row.querySelector("td.u-main") ?? row).prepend(badge, " ");
  };
  const replaced = new WeakMap();
  const undim = (row) => {
    row?.classList.remove("is-decided");
    const badge = row?.querySelector("[data-becomes]");
    badge?.replaceWith(replaced.get(badge) ?? "");
  };

  const decide = (ctx, form) => {
    const row = openRow() ?? form.closest("[data-row]") ?? form;
    const all = rows();
    const at = all.indexOf(row);
    /* A row that goes with its decision leaves its place to the one below, or to the one above. */
    const step = { row: row.id, beside: (all[at + 1] ?? all[at - 1])?.id, counted: "counted" in form.dataset };
    decided.set(ctx, step);
    step.dims = Boolean(form.dataset.next) && at >= 0;
    if (step.dims) {
      pending.set(ctx, step);
      dim(row, form.dataset.next);
      if (step.counted) { countWaiting(row.id, -1); countList(-1); }
    }
    /* What may be refused with a question, and the last row, stay until the answer is here. */
    step.moved = step.dims && !("gated" in form.dataset) && Boolean(all[at + 1] || !isOpen());
    if (step.moved) moveOn(step);
    else { step.waits = true; deciding += 1; }
  };

  /* From the panel the next row opens; on the list it gets the focus. */
  const moveOn = (step) => {
    const all = rows();
    const at = all.findIndex((row) => row.id === step.row);
    const next = at >= 0 ? all[at + 1] : all.find((row) => row.id === step.beside);
    if (next && isOpen()) open(next);
    else if (!isOpen()) { focusRow(next ?? all[at]); (next ?? all[at])?.scrollIntoView({ block: "nearest" }); }
    else panel()?.querySelector(".u-panel-body")?.focus({ preventScroll: true });
  };

  const bulk = (ctx, form) => {
    const chosen = rows().filter((row) => row.querySelector("[data-select]:checked"));
    decided.set(ctx, { index: rows().indexOf(chosen[0]), waits: true, chosen });
    for (const row of chosen) row.classList.add("is-decided");
    deciding += 1;
  };

  document.addEventListener("htmx:config:request", (event) => {
    const { ctx } = event.detail;
    if (ctx.request.method === "GET") return;
    const form = ctx.sourceElement?.closest?.("form");
    if (form?.matches("[data-next]")) decide(ctx, form);
    else if (form?.matches("[data-bulk]")) bulk(ctx, form);
    else if (form?.matches("[data-undo]")) { decided.set(ctx, { restores: form.dataset.undo, waits: true }); deciding += 1; }
  });

  /* What was asked for in a row or its panel, such as a form, is what the next keys are for. */
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => {
    const asked = ["click", "submit"].includes(ctx.sourceEvent?.type);
    if (!asked || decided.has(ctx) || !ctx.sourceElement.closest("[data-row], #panel, .u-promote, .u-select")) return;
    decided.set(ctx, { waits: true, plain: true });
    deciding += 1;
  });

  document.addEventListener("htmx:finally:request", (event) => {
    const { ctx } = event.detail;
    const step = decided.get(ctx);
    if (!step) return;
    decided.delete(ctx);
    pending.delete(ctx);
    if (step.waits) deciding -= 1;
    if (ctx.response?.status < 400) done(step);
    else undo(step, !(ctx.response?.status < 500));
    settled();
  });

  const done = (step) => {
    const all = rows();
    if (step.plain) return;
    if (step.restores !== undefined) restore(step.restores);
    else if ("index" in step) { if (!isOpen()) focusRow(all[Math.min(step.index, all.length - 1)]); }
    else if (!step.moved) moveOn(step);
    /* The list was drawn anew around the row that had the focus. */
    else if (!isOpen() && document.activeElement === document.body) focusRow(document.getElementById(last));
  };
  /* Where the server said how the row is now, it has put a new one in its place, and new figures. */
  const undo = (step, broken) => {
    for (const row of step.chosen ?? []) row.classList.remove("is-decided");
    if (!step.dims) return;
    const row = document.getElementById(step.row);
    /* By now another row is open, so the message says which one it means. */
    const line = row?.querySelector("[data-open]")?.textContent.trim().slice(0, 60);
    if (broken) upshot.say(line ? `Not saved. Try again with ${line}.` : "Not saved. Try again.");
    const untold = row?.matches(".is-decided");
    undim(row);
    if (!step.counted) return;
    if (untold) countWaiting(step.row, 1);
    countList(1);
  };
  /* Undo leads back to the row that it brought back. */
  const restore = (id) => {
    const row = id ? document.getElementById(id) : null;
    if (!row?.matches("[data-list] [data-row]")) return;
    countList(1);
    if (isOpen()) { if (row !== openRow()) open(row); }
    else { focusRow(row); row.scrollIntoView({ block: "nearest" }); }
  };

  document.addEventListener("htmx:before:swap", (event) => {
    /* While a panel is loading, it is not replaced by the answer to a decision about the row before. */
    const { ctx, tasks } = event.detail;
    if (!loading || ctx.request.method === "GET") return;
    for (const task of [...tasks]) if (task.target?.id === "panel") tasks.splice(tasks.indexOf(task), 1);
  });
  /* The server's figures do not know of decisions that are still on their way. */
  document.addEventListener("htmx:after:swap", (event) => {
    if (!decided.has(event.detail.ctx)) return;
    for (const [ctx, step] of pending) if (ctx !== event.detail.ctx && step.counted) countWaiting(step.row, -1);
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

  window.upshotList = { walk, close, clear, toggle, isOpen, isBusy, isLoading: () => loading, isSending: () => pending.size > 0, choose, current, open: () => open(document.activeElement?.closest?.("[data-row]")), count };
})();
