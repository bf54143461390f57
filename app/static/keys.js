/* What each key does, the same on every page. `on` are the words with which a button begins that the key may press. The
   server reads this table too, for the list that `?` opens: it stays JSON. */
const UPSHOT_KEYS = [
  {"title": "In a list", "keys": [
    {"keys": ["J"], "does": "Next row", "on": ["Next"]},
    {"keys": ["K"], "does": "Previous row", "on": ["Previous"]},
    {"keys": ["↵"], "does": "Open row"},
    {"keys": ["X"], "does": "Select row"},
    {"keys": ["Shift", "X"], "does": "Select rows up to here"},
    {"keys": ["/"], "does": "Search and filter"}
  ]},
  {"title": "Decide", "keys": [
    {"keys": ["R"], "does": "Mark reviewed", "on": ["Mark"]},
    {"keys": ["D"], "does": "Dismiss, reject or deactivate", "on": ["Dismiss", "Reject", "Deactivate"]},
    {"keys": ["A"], "does": "Apply, approve or activate", "on": ["Apply", "Approve", "Activate", "Retire"]},
    {"keys": ["E"], "does": "Edit", "on": ["Edit"]},
    {"keys": ["M"], "does": "Merge", "on": ["Merge"]},
    {"keys": ["F"], "does": "Flag", "on": ["Flag"]},
    {"keys": ["Z"], "does": "Undo", "on": ["Undo"]}
  ]},
  {"title": "Test", "keys": [
    {"keys": ["G"], "does": "Promote as golden", "on": ["Promote"]},
    {"keys": ["P"], "does": "Prove or replay", "on": ["Prove", "Replay", "Try"]},
    {"keys": ["1"], "does": "Pass", "on": ["Pass"]},
    {"keys": ["2"], "does": "Fail", "on": ["Fail"]}
  ]},
  {"title": "Feedback", "keys": [
    {"keys": ["T"], "does": "Assign to me, or unassign", "on": ["Assign", "Unassign"]},
    {"keys": ["Q"], "does": "Assess answer", "on": ["Assess", "Change"]},
    {"keys": ["C"], "does": "Comment", "on": ["Comment"]},
    {"keys": ["S"], "does": "Show pattern", "on": ["Show"]}
  ]},
  {"title": "In the panel", "keys": [
    {"keys": ["O"], "does": "Open full page"},
    {"keys": ["↵"], "does": "Send note"},
    {"keys": ["Esc"], "does": "Close"}
  ]},
  {"title": "Anywhere", "keys": [
    {"keys": ["Ctrl", "K"], "does": "Search anything"},
    {"keys": ["?"], "does": "Show this list"},
    {"keys": ["Esc"], "does": "Close, or clear the selection"}
  ]}
];

/* Keys are off while a person types. */
(() => {
  const dialog = () => document.getElementById("keys");
  const typing = (at) => at.matches("input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]");
  const pressing = new Set(UPSHOT_KEYS.flatMap((group) => group.keys).filter((one) => one.on).map((one) => one.keys[0].toLowerCase()));
  const visible = (element) => element.getClientRects().length > 0 && !element.disabled;

  const help = () => {
    const keys = dialog();
    if (keys) keys.showModal(); else location.href = "/keys";
  };

  /* The newest message answers first, then the bar of the selected rows, then the panel, then the row one is at, then the
     page: a key never decides about a row that one is not at. */
  const press = (key) => {
    if (!pressing.has(key)) return false;
    const all = [...document.querySelectorAll(`[data-key="${CSS.escape(key)}"]`)].filter(visible);
    const within = (place) => all.findLast((one) => one.closest(place));
    const mine = upshotList.current();
    const found = within("[data-toast]") ?? within(".u-select") ?? within("#panel")
      ?? all.find((one) => mine?.contains(one)) ?? all.find((one) => !one.closest("[data-row]"));
    if (!found) return false;
    if (typing(found)) { found.focus(); return true; }
    found.click();
    const box = found.matches("summary") && found.parentElement;
    if (box?.open) box.querySelector("[data-first]")?.focus();
    return true;
  };

  const escape = () => {
    if (upshot.closeMenus()) return true;
    if (upshotList.isOpen()) { upshotList.close(); return true; }
    if (upshotList.count()) { upshotList.clear(); return true; }
    const cancel = [...document.querySelectorAll(".is-editing [data-cancel], [data-close-choose]")].find(visible);
    cancel?.click();
    return Boolean(cancel);
  };

  const acts = {
    j: () => upshotList.walk(1) ?? true,
    k: () => upshotList.walk(-1) ?? true,
    x: (event) => upshotList.toggle(event.shiftKey) ?? true,
    o: () => { const link = document.querySelector("#panel header a[href]"); link?.click(); return Boolean(link); },
    "?": () => help() ?? true,
    "/": () => { const box = document.querySelector("[data-search]"); box?.select(); return Boolean(box); },
  };

  /* What a key does where one is now. Says whether it did something. */
  const act = (key, at, shiftKey = false) => {
    if (key === "Enter") {
      if (!at.matches("[data-open]")) return false;
      upshotList.open();
      return true;
    }
    const letter = key.length === 1 ? key.toLowerCase() : "";
    const done = letter && (press(letter) || (upshotList.choose(letter) && press(letter)) || acts[letter]?.({ shiftKey }));
    if (done || !pressing.has(letter) || !at.matches("[data-open]") || upshotList.isOpen()) return Boolean(done);
    /* What the list has no button for may be in the panel of the row that has the focus. */
    upshotList.open();
    queue.push([key, shiftKey]);
    return true;
  };

  /* Keys that are pressed while a panel loads, or while a list waits for the answer to a decision, wait: each means what
     it would have meant on a fast server. What follows the key of a note is written into the note. */
  const queue = [];
  const PRESSED = "a:not([data-open]), button, summary";
  const waits = (key) => queue.length > 0 || (upshotList.isBusy() && !(upshotList.isLoading() && "jk".includes(key)))
    || (key === "z" && upshotList.isSending());
  const submit = (box) => { box.form?.requestSubmit(); box.blur(); };
  /* Enter sends the note. What is pressed after it is for the next row, no longer for the note. */
  const send = (box) => {
    /* In a field that adds to the form, Enter on nothing means the form. */
    if (box.matches("input") && !box.value.trim()) { submit(box); return; }
    box.parentElement.querySelector("button").click();
    if (box.form?.matches("[data-next], [data-bulk]") && box.form.checkValidity()) box.blur();
  };
  const write = (key, box) => {
    if (key === "Enter" && box.matches("[data-enter]")) { send(box); return; }
    if (key === "Enter" && box.matches("input")) { submit(box); return; }
    if (key === "Backspace") { if (box.selectionStart) box.setRangeText("", box.selectionStart - 1, box.selectionEnd, "end"); }
    else if (key.length === 1) box.setRangeText(key, box.selectionStart, box.selectionEnd, "end");
    box.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const replay = () => {
    while (queue.length) {
      const at = document.activeElement ?? document.body;
      const [key, shiftKey] = queue[0];
      if (upshotList.isBusy() || (!typing(at) && key.toLowerCase() === "z" && upshotList.isSending())) return;
      queue.shift();
      if (typing(at) && at.setRangeText) write(key, at);
      else if ((key === " " && at.matches("input")) || ([" ", "Enter"].includes(key) && at.matches(PRESSED))) at.click();
      else act(key, at, shiftKey);
    }
  };
  document.addEventListener("list:settled", replay);

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const at = event.target instanceof Element ? event.target : document.body;
    if (dialog()?.open) return;
    if (event.key === "Escape") {
      queue.length = 0;
      if (typing(at) && !at.closest("[data-menu]")) at.blur();
      else if (escape()) event.preventDefault();
      return;
    }
    if (event.key === "Enter" && !event.shiftKey && at.matches("[data-enter]") && !upshotList.isBusy()) {
      event.preventDefault();
      send(at);
      return;
    }
    /* The field that one writes in is about to be replaced by an answer: what follows Enter is for what comes. */
    if (typing(at) && !queue.length && !(event.key === "Enter" && at.matches("input[data-enter]"))) return;
    const known = event.key.length === 1 || ["Enter", "Backspace"].includes(event.key);
    /* A button or a link that has the focus is pressed by the browser itself. */
    if (["Enter", " "].includes(event.key) && at.matches(`${PRESSED}, input:not([data-enter])`)) return;
    if (known && waits(event.key.toLowerCase())) {
      event.preventDefault();
      queue.push([event.key, event.shiftKey]);
    } else if (act(event.key, at, event.shiftKey)) event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-keys]") && dialog()) {
      event.preventDefault();
      document.getElementById("side")?.hidePopover?.();
      help();
    } else if (event.target === dialog()) dialog().close();
  });
})();
