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

/* The living end of a conversation: asked for again while an answer is written, seldom while all is quiet, and not at
   all from a tab that nobody sees. */
(() => {
  document.documentElement.classList.add("u-scripted");
  const part = () => document.getElementById("run");
  const box = () => document.getElementById("say");
  const pace = () => Number(part()?.dataset.follow ?? 0);
  const MOST = 10000;
  const GIVES_UP = new Set([403, 404]);
  let timer = 0;
  let failures = 0;
  let since = 0;
  let over = false;
  let acted = false;

  const plan = (ms) => { clearTimeout(timer); timer = setTimeout(ask, ms); };
  const ask = () => {
    if (over || !pace()) return;
    plan(MOST);
    if (document.hidden) return;
    since = performance.now();
    htmx.trigger(part(), "follow");
  };
  const lost = (is) => { const line = part()?.querySelector(".u-lost"); if (line) line.hidden = !is; };

  /* A page scrolled to its end stays there. */
  const live = () => document.getElementById("live");
  const atEnd = () => live().getBoundingClientRect().bottom - innerHeight < 80;
  const toEnd = () => live()?.scrollIntoView({ block: "end" });
  let stay = false;

  const ours = (event) => event.target.closest?.("#live") && event.detail?.ctx?.target?.id === "run";
  document.addEventListener("htmx:after:request", (event) => {
    if (!ours(event)) return;
    const status = event.detail.ctx.response.status;
    failures = status < 500 ? 0 : failures + 1;
    over = GIVES_UP.has(status);
    stay = event.target.id !== "run" || atEnd();
    acted = event.target.id !== "run";
    if (event.target.id === "composer" && status < 300) box().value = "";
  });
  document.addEventListener("htmx:error", (event) => {
    if (event.target.id !== "run" || event.detail.error?.name === "AbortError") return;
    failures += 1;
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (!event.target.closest?.("#live") && event.target.isConnected) return;
    lost(failures > 1);
    if (stay) toEnd();
    /* The button that was pressed is gone, and what comes next is said in the box. */
    if (acted) box()?.focus({ preventScroll: true });
    acted = false;
    /* A server that takes its time is asked less often. */
    const took = event.target.id === "run" ? performance.now() - since : 0;
    plan(Math.min(Math.max(pace(), 3 * took) * 2 ** failures, MOST));
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) plan(0); });

  document.addEventListener("keydown", (event) => {
    const at = event.target;
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || !at.matches?.("[data-enter-sends]")) return;
    event.preventDefault();
    if (at.value.trim() && at.form.querySelector("#send-it")) at.form.requestSubmit();
  });

  if (!part()) return;
  plan(pace());
  if (box() && !location.hash && !location.search) {
    toEnd();
    box().focus({ preventScroll: true });
  }
})();
