/* Upshot feedback for any web chat: thumbs, reasons and edits beside an answer.
 *
 *   UpshotFeedback.attach(element, { endpoint, token, messageId, chatId, traceId, answer })
 *
 * What is pressed shows at once; if the server does not take it, it is shown as it was before and the reason is said.
 * No dependency, no inline style, no cookie: the token says who it is.
 */
(() => {
  const home = document.currentScript?.src || document.baseURI;
  const LONGEST = 4096;
  const OPPOSITE = { helpful: "not_helpful", not_helpful: "helpful" };
  const WORSE = ["inaccurate", "unsafe"];
  const LABELS = {
    group: "Feedback on this answer",
    helpful: "Helpful",
    not_helpful: "Not helpful",
    edit: "Edit answer",
    regenerate: "Ask again",
    why: "What was wrong?",
    inaccurate: "Inaccurate",
    unsafe: "Unsafe",
    incomplete: "Incomplete",
    off_topic: "Off topic",
    missing: "What was missing?",
    send: "Send",
    wanted: "The answer you wanted",
    save: "Save",
    cancel: "Cancel",
    thanks: "Thank you. Your feedback was saved.",
    gone: "Your feedback was removed.",
    failed: "Your feedback was not saved. Try again.",
    expired: "Your feedback was not saved. Reload the page and try again.",
  };
  const ICONS = {
    helpful: "M7 11v9H4v-9h3Zm0 0 4-7a2 2 0 0 1 2 2v4h5.5a2 2 0 0 1 2 2.3l-1 6a2 2 0 0 1-2 1.7H7",
    not_helpful: "M7 13V4H4v9h3Zm0 0 4 7a2 2 0 0 0 2-2v-4h5.5a2 2 0 0 0 2-2.3l-1-6A2 2 0 0 0 17.500 4H7",
    edit: "M4 20h4L19 9l-4-4L4 16v4Zm9-13 4 4",
    regenerate: "M20 11a8 8 0 1 0-2.300 6.300M20 5v6h-6",
  };

  let count = 0;

  const make = (tag, properties = {}, ...inside) => {
    const element = Object.assign(document.createElement(tag), properties);
    element.append(...inside);
    return element;
  };

  const icon = (name) => {
    const space = "http://www.w3.org/2000/svg";
    const svg = document.createElementNS(space, "svg");
    const path = document.createElementNS(space, "path");
    svg.setAttribute("viewBox", "0 0 24 24");
    svg.setAttribute("aria-hidden", "true");
    svg.setAttribute("class", "uf-icon");
    path.setAttribute("d", ICONS[name]);
    svg.append(path);
    return svg;
  };

  /* The stylesheet lies beside this script and is loaded once. */
  const loadStyle = () => {
    const address = new URL("feedback.css", home).href;
    if ([...document.querySelectorAll("link[rel=stylesheet]")].some((link) => link.href === address)) return;
    document.head.append(make("link", { rel: "stylesheet", href: address }));
  };

  class Refused extends Error {
    constructor(status, detail) {
      super(detail);
      this.status = status;
    }
  }

  /* Talks to the server as the person of the token. A token that is a function is asked again when it ran out. */
  class Channel {
    constructor(options) {
      this.endpoint = new URL(options.endpoint || "/api/v1/feedback", home).href;
      this.source = options.token;
      this.token = null;
    }

    async send(method, query, body, again = true) {
      this.token ??= typeof this.source === "function" ? await this.source() : this.source;
      const address = new URL(this.endpoint);
      for (const [name, value] of Object.entries(query || {})) address.searchParams.set(name, value);
      const headers = { Authorization: `Bearer ${this.token}` };
      if (body) headers["Content-Type"] = "application/json";
      const response = await fetch(address, {
        method, headers, body: body && JSON.stringify(body), mode: "cors", credentials: "omit", keepalive: true,
      });
      if (response.status === 401 && again && typeof this.source === "function") {
        this.token = null;
        return this.send(method, query, body, false);
      }
      const told = response.status === 204 ? null : await response.json().catch(() => null);
      if (!response.ok) throw new Refused(response.status, told?.detail || "");
      return told;
    }
  }

  class Widget {
    constructor(element, options) {
      this.options = options;
      this.labels = { ...LABELS, ...options.labels };
      this.channel = new Channel(options);
      this.messageId = options.messageId;
      this.kept = new Map(); /* signal → reason, as the server has it */
      this.shown = new Map(); /* the same, as the page shows it */
      this.work = Promise.resolve();
      this.round = 0;
      this.number = (count += 1);
      this.build();
      element.append(this.root);
      if (options.load !== false) this.enqueue(() => this.load(), true);
    }

    /* Parts ------------------------------------------------------------------------------------------------------ */
    build() {
      this.root = make("div", { className: "uf" });
      this.root.setAttribute("role", "group");
      this.root.setAttribute("aria-label", this.labels.group);
      this.thumbs = ["helpful", "not_helpful"].map((signal) => this.button(signal, () => this.toggle(signal)));
      this.pencil = this.button("edit", () => this.openEdit(this.box.hidden));
      const row = make("div", { className: "uf-row" }, ...this.thumbs, this.pencil);
      if (this.options.onRegenerate) row.append(this.button("regenerate", () => this.regenerate()));
      this.status = make("p", { className: "uf-status" });
      this.status.setAttribute("role", "status");
      this.root.append(row, this.buildReasons(), this.buildEdit(), this.status);
      this.render();
    }

    button(name, act) {
      const button = make("button", { type: "button", className: "uf-button", title: this.labels[name] }, icon(name));
      button.dataset.name = name;
      button.setAttribute("aria-label", this.labels[name]);
      button.addEventListener("click", act);
      return button;
    }

    buildReasons() {
      this.chips = ["inaccurate", "unsafe", "incomplete", "off_topic"].map((name) => {
        const chip = make("button", { type: "button", className: "uf-chip", textContent: this.labels[name] });
        chip.dataset.name = name;
        chip.addEventListener("click", () => this.choose(name));
        return chip;
      });
      this.missing = make("input", { type: "text", className: "uf-text", maxLength: LONGEST, id: `uf-missing-${this.number}` });
      const label = make("label", { className: "uf-label", htmlFor: this.missing.id, textContent: this.labels.missing });
      const send = make("button", { className: "uf-chip", textContent: this.labels.send });
      const form = make("form", { className: "uf-row" }, label, this.missing, send);
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.set("not_helpful", this.missing.value.trim() || null);
      });
      const title = make("legend", { className: "uf-label", textContent: this.labels.why });
      const chips = make("div", { className: "uf-row" }, ...this.chips);
      this.reasons = make("fieldset", { className: "uf-reasons", hidden: true }, title, chips, form);
      return this.reasons;
    }

    buildEdit() {
      this.text = make("textarea", { className: "uf-text", maxLength: LONGEST, rows: 6, id: `uf-edit-${this.number}` });
      const label = make("label", { className: "uf-label", htmlFor: this.text.id, textContent: this.labels.wanted });
      const save = make("button", { className: "uf-chip", textContent: this.labels.save });
      const cancel = make("button", { type: "button", className: "uf-chip", textContent: this.labels.cancel });
      cancel.addEventListener("click", () => this.openEdit(false));
      this.box = make("form", { className: "uf-edit", hidden: true }, label, this.text, make("div", { className: "uf-row" }, save, cancel));
      this.box.addEventListener("keydown", (event) => { if (event.key === "Escape") this.openEdit(false); });
      this.box.addEventListener("submit", (event) => {
        event.preventDefault();
        if (!this.text.value.trim()) return;
        this.set("edit", this.text.value);
        this.openEdit(false);
      });
      return this.box;
    }

    /* What people do --------------------------------------------------------------------------------------------- */
    toggle(signal) {
      if (this.shown.has(signal)) this.clear(signal);
      else this.set(signal, null);
      if (signal === "helpful" || !this.shown.has("not_helpful")) WORSE.forEach((one) => this.shown.has(one) && this.clear(one));
    }

    choose(name) {
      if (WORSE.includes(name)) {
        if (this.shown.has(name)) this.clear(name);
        else this.set(name, null);
        return;
      }
      const words = this.labels[name];
      this.set("not_helpful", this.shown.get("not_helpful") === words ? null : words);
    }

    openEdit(open) {
      this.box.hidden = !open;
      this.pencil.setAttribute("aria-expanded", String(open));
      if (open) {
        this.text.value = this.shown.get("edit") || this.options.answer || "";
        this.text.focus();
      } else {
        this.pencil.focus();
      }
    }

    regenerate() {
      this.set("regenerate", null);
      this.options.onRegenerate();
    }

    /* What the server is told ------------------------------------------------------------------------------------ */
    set(signal, reason) {
      const { chatId, traceId } = this.options;
      const body = { signal, reason, message_id: this.messageId, chat_id: chatId, trace_id: traceId };
      const change = (state) => {
        state.set(signal, reason);
        state.delete(OPPOSITE[signal]);
      };
      this.act(change, this.labels.thanks, async () => {
        const told = await this.channel.send("POST", null, body);
        this.messageId = told.message_id;
      });
    }

    clear(signal) {
      this.act((state) => state.delete(signal), this.labels.gone, () =>
        this.channel.send("DELETE", { message_id: this.messageId || this.options.traceId, signal }));
    }

    async load() {
      const about = this.messageId ? { message_id: this.messageId } : { trace_id: this.options.traceId };
      const told = await this.channel.send("GET", about);
      this.kept = new Map(told.items.map((item) => [item.signal, item.reason]));
      if (told.items.length) this.messageId = told.items[0].message_id;
    }

    /* Show it first, then do it. One after the other, so that what was pressed last is what stays. */
    act(change, words, send) {
      change(this.shown);
      this.render();
      this.enqueue(async () => {
        await send();
        change(this.kept);
        this.say(words);
      });
    }

    enqueue(task, quiet = false) {
      const round = this.round;
      this.work = this.work.then(async () => {
        if (round !== this.round) return;
        try {
          await task();
          if (quiet && !this.shown.size) this.shown = new Map(this.kept);
        } catch (error) {
          if (quiet) return;
          this.round += 1; /* What was pressed after it built on it. */
          this.shown = new Map(this.kept);
          this.say(error instanceof Refused && error.status === 401 ? this.labels.expired : this.labels.failed);
        } finally {
          this.render();
        }
      });
    }

    render() {
      for (const thumb of this.thumbs) thumb.setAttribute("aria-pressed", String(this.shown.has(thumb.dataset.name)));
      this.pencil.classList.toggle("uf-on", this.shown.has("edit"));
      this.pencil.setAttribute("aria-expanded", String(!this.box.hidden));
      const reason = this.shown.get("not_helpful");
      for (const chip of this.chips) {
        const { name } = chip.dataset;
        const on = WORSE.includes(name) ? this.shown.has(name) : reason === this.labels[name];
        chip.setAttribute("aria-pressed", String(on));
      }
      this.reasons.hidden = !this.shown.has("not_helpful") && !WORSE.some((name) => this.shown.has(name));
      this.options.onChange?.(Object.fromEntries(this.shown));
    }

    say(words) {
      this.status.textContent = words;
    }
  }

  window.UpshotFeedback = {
    attach(element, options) {
      if (!options?.token) throw new Error("UpshotFeedback.attach needs a token.");
      if (!options.messageId && !options.traceId) throw new Error("UpshotFeedback.attach needs messageId or traceId.");
      loadStyle();
      const widget = new Widget(element, options);
      return { remove: () => widget.root.remove(), settled: () => widget.work };
    },
  };
})();
