/* Something moves soon after every click: what was pressed looks pressed until the answer is here, and a bar runs along the
   top of the page while the server works. */
(() => {
  const AFTER = 120;
  /* What the page asks for by itself. */
  const UNASKED = ["every", "load", "follow", "intersect", "revealed"];
  const bar = document.createElement("div");
  bar.className = "u-progress";
  bar.hidden = true;
  document.documentElement.append(bar);
  const running = new Set();
  let timer = 0;

  const start = (work) => {
    running.add(work);
    timer ||= setTimeout(() => { bar.hidden = false; }, AFTER);
  };
  const end = (work) => {
    running.delete(work);
    if (running.size) return;
    clearTimeout(timer);
    timer = 0;
    bar.hidden = true;
  };
  const press = (control) => control?.classList.add("is-waiting");
  const release = () => { for (const control of document.querySelectorAll(".is-waiting")) control.classList.remove("is-waiting"); };

  const asked = (ctx) => !UNASKED.includes(ctx.sourceEvent?.type);
  document.addEventListener("htmx:config:request", ({ detail: { ctx } }) => {
    if (asked(ctx)) press(ctx.sourceEvent?.submitter ?? (ctx.sourceElement?.matches?.("a, button") ? ctx.sourceElement : null));
  });
  document.addEventListener("htmx:before:request", ({ detail: { ctx } }) => { if (asked(ctx)) start(ctx); });
  document.addEventListener("htmx:finally:request", (event) => { end(event.detail.ctx); if (!running.size) release(); });

  /* Another page: the browser says so itself, whatever led there. */
  const leaving = {};
  const stay = () => { end(leaving); release(); };
  addEventListener("beforeunload", () => start(leaving));
  addEventListener("pageshow", stay);
  window.navigation?.addEventListener("navigateerror", stay);
  addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey && event.button === 0;
    const here = link?.hash && link.href.split("#")[0] === location.href.split("#")[0];
    const leads = link && !link.download && !link.target && !here;
    if (plain && leads && !event.defaultPrevented) press(link);
  });
  addEventListener("submit", (event) => {
    if (!event.defaultPrevented && event.target.method !== "dialog") press(event.submitter);
  });
})();
