/* The filter box of a list: what may follow while one types, and a click on a value that narrows the list to it.
   The server reads what the box says; without this script the box and the Filter form do the same. */
(() => {
  const box = () => document.querySelector("[data-box]");
  const form = () => box()?.form;
  const listbox = () => document.getElementById("list-suggestions");
  const options = () => [...(listbox()?.children ?? [])];
  const active = () => listbox()?.querySelector("[aria-selected=true]");
  const before = () => box().value.slice(0, box().selectionStart ?? undefined);
  const unfinished = (text) => /(^|\s)-?[a-z_-]+:-?("[^"]*|[^\s"]*)$/i.test(text);
  const known = new Map();
  let swapping = false;
  let asking = 0;
  let searching = 0;

  const close = () => {
    clearTimeout(asking);
    listbox()?.remove();
    if (box()?.role === "combobox") box().setAttribute("aria-expanded", "false");
    box()?.removeAttribute("aria-activedescendant");
  };

  const activate = (option) => {
    for (const other of options()) other.ariaSelected = other === option ? "true" : "false";
    if (option) box().setAttribute("aria-activedescendant", option.id);
    else box().removeAttribute("aria-activedescendant");
    option?.scrollIntoView({ block: "nearest" });
  };

  const draw = (found) => {
    close();
    if (!found.length) return;
    const list = document.createElement("ul");
    list.id = "list-suggestions";
    list.role = "listbox";
    list.ariaLabel = "Suggestions";
    list.append(...found.map((one, index) => {
      const option = document.createElement("li");
      option.id = `list-suggestion-${index}`;
      option.role = "option";
      option.ariaSelected = "false";
      option.textContent = one.label;
      if (one.hint) {
        const hint = document.createElement("span");
        hint.textContent = one.hint;
        option.append(" ", hint);
      }
      option.dataset.text = one.text;
      if (one.complete) option.dataset.complete = "";
      return option;
    }));
    form().append(list);
    for (const [name, value] of [["role", "combobox"], ["aria-controls", list.id], ["aria-autocomplete", "list"]]) box().setAttribute(name, value);
    box().setAttribute("aria-expanded", "true");
    if (unfinished(before())) activate(list.firstElementChild);
  };

  /* Ask what may follow. An answer that comes when the text has moved on is kept for later. */
  const ask = async () => {
    const text = before();
    const url = `${box().dataset.box}?text=${encodeURIComponent(text)}`;
    if (!known.has(url)) {
      try {
        const answer = await fetch(url, { headers: { Accept: "application/json" } });
        if (!answer.ok) return;
        known.set(url, await answer.json());
      } catch { return; }
    }
    if (document.activeElement === box() && before() === text) draw(known.get(url));
  };

  const submit = () => { clearTimeout(searching); close(); form().requestSubmit(); };

  const choose = (option) => {
    const rest = box().value.slice(before().length);
    box().value = option.dataset.text + rest;
    const end = option.dataset.text.length;
    box().setSelectionRange(end, end);
    if ("complete" in option.dataset) submit();
    else ask();
  };

  const move = (step) => {
    const all = options();
    if (!all.length) { ask(); return; }
    const at = all.indexOf(active());
    activate(all[at < 0 ? (step > 0 ? 0 : all.length - 1) : (at + step + all.length) % all.length]);
  };

  document.addEventListener("input", (event) => {
    if (event.target !== box()) return;
    activate(null);
    clearTimeout(asking);
    clearTimeout(searching);
    asking = setTimeout(ask, 80);
    /* Words are looked for while one writes, unless a filter is being written. */
    searching = setTimeout(() => {
      if (box() && !options().length && !unfinished(box().value)) box().dispatchEvent(new Event("words"));
    }, 350);
  });

  document.addEventListener("keydown", (event) => {
    if (event.target !== box() || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (active()) choose(active()); else submit();
    } else if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key === "Backspace" && !box().value) {
      const chips = document.querySelectorAll("[data-list] .u-chip [data-remove]");
      if (chips.length) { event.preventDefault(); chips[chips.length - 1].click(); }
    }
  });

  document.addEventListener("focusin", (event) => { if (event.target === box() && !swapping) ask(); });
  document.addEventListener("focusout", (event) => { if (event.target === box() && !swapping) close(); });
  document.addEventListener("htmx:before:swap", () => { swapping = true; });
  document.addEventListener("htmx:after:settle", () => { swapping = false; });

  /* A press would take the focus out of the box before the click arrives. */
  document.addEventListener("pointerdown", (event) => { if (event.target.closest("#list-suggestions")) event.preventDefault(); });

  /* Values in the cells of a list are links to the list with only this value, which their address ends with. A click
     offers the list without it as well. */
  const narrow = (name, value) => {
    const field = form().querySelector(`input[name="${CSS.escape(name)}"]`) ?? document.createElement("input");
    field.type = "hidden";
    field.name = name;
    field.value = value;
    form().append(field);
    submit();
  };

  const menu = () => document.getElementById("value-menu");

  const makeItem = (word, label, link, name, value) => {
    const item = document.createElement("a");
    const url = new URL(link.href);
    url.searchParams.set(name, value);
    item.className = "u-menu-item";
    item.role = "menuitem";
    item.href = url;
    item.textContent = `${word} ${label}`;
    item.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      menu().hidePopover();
      narrow(name, value);
    });
    return item;
  };

  const offer = (link) => {
    const [name, value] = [...new URL(link.href).searchParams].at(-1);
    const label = link.dataset.only || value.replaceAll("_", " ");
    const box = document.createElement("div");
    box.id = "value-menu";
    box.className = "u-menu-box";
    box.role = "menu";
    box.ariaLabel = `Filter by ${label}`;
    box.popover = "auto";
    box.append(makeItem("Only", label, link, name, value), makeItem("Not", label, link, name, `-${value}`));
    box.addEventListener("toggle", (event) => { if (event.newState === "closed") box.remove(); });
    menu()?.remove();
    link.closest("[data-list]").append(box);
    box.showPopover();
    const at = link.getBoundingClientRect();
    const below = at.bottom + 4 + box.offsetHeight < innerHeight;
    box.style.top = `${below ? at.bottom + 4 : at.top - 4 - box.offsetHeight}px`;
    box.style.left = `${Math.max(8, Math.min(at.left - 6, innerWidth - box.offsetWidth - 8))}px`;
    box.firstElementChild.focus();
    box.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { box.hidePopover(); link.focus({ preventScroll: true }); }
      else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        (document.activeElement === box.firstElementChild ? box.lastElementChild : box.firstElementChild).focus();
      } else if (event.key !== "Enter") return;
      event.stopPropagation();
      if (event.key !== "Enter") event.preventDefault();
    });
  };

  document.addEventListener("click", (event) => {
    const option = event.target.closest("#list-suggestions [role=option]");
    if (option) { choose(option); return; }
    if (event.target === box() && !options().length) ask();
    const link = event.target.closest("[data-list] a[data-only]");
    if (!link || !form() || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    offer(link);
  });
  addEventListener("scroll", () => menu()?.hidePopover(), { capture: true, passive: true });
})();
