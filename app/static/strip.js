/* The volume strip: what a day brought under the pointer, and a click or a drag that sets the days of the list. */
(() => {
  const strip = () => document.querySelector("[data-strip]");
  const days = () => [...strip().querySelectorAll("[data-day]")];
  let from = null;

  const dayAt = (event) => {
    const box = strip().querySelector("svg").getBoundingClientRect();
    const part = (event.clientX - box.left) / box.width;
    const count = days().length;
    return Math.min(Math.max(Math.floor(part * count), 0), count - 1);
  };

  const mark = (first, last) => {
    const range = strip().querySelector("[data-range]");
    const step = strip().querySelector("svg").viewBox.baseVal.width / days().length;
    range.setAttribute("x", Math.min(first, last) * step);
    range.setAttribute("width", (Math.abs(last - first) + 1) * step);
    range.setAttribute("visibility", "visible");
  };

  const say = (index) => {
    const [day, negative, positive, neutral] = [...days()[index].children].map((cell) => cell.textContent);
    strip().querySelector("[data-strip-text]").textContent = `${day}: ${negative} negative, ${positive} positive, ${neutral} neutral`;
  };

  const rest = () => {
    const text = strip()?.querySelector("[data-strip-text]");
    if (text) text.textContent = text.dataset.span;
  };

  const set = (first, last) => {
    const rows = days();
    const form = strip().querySelector("form");
    form.elements.from.value = rows[Math.min(first, last)].dataset.day;
    form.elements.to.value = rows[Math.max(first, last)].dataset.day;
    form.requestSubmit();
  };

  const over = (event) => event.target instanceof Element && event.target.closest("[data-strip] svg");

  document.addEventListener("pointerdown", (event) => {
    if (!over(event) || event.button !== 0) return;
    event.preventDefault();
    event.target.closest("svg").setPointerCapture(event.pointerId);
    from = dayAt(event);
    mark(from, from);
  });
  document.addEventListener("pointermove", (event) => {
    if (!strip()) return;
    if (from !== null) mark(from, dayAt(event));
    if (from !== null || over(event)) { strip().classList.add("is-live"); say(dayAt(event)); } else rest();
  });
  document.addEventListener("pointerup", (event) => {
    if (from === null || !strip()) return;
    const first = from;
    from = null;
    set(first, dayAt(event));
  });
  document.addEventListener("pointercancel", () => { from = null; });
})();
