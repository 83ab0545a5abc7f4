// What opens over or instead of the panels: table view, warm-up, help, prediction, errors.
const STEPS_A_PAGE = 100;
const KEYS = [["←  →", "key.step"], ["⇧←  ⇧→", "key.ten"], ["Home  End", "key.ends"], ["PgUp  PgDn", "key.stage"], ["f", "key.falloff"], ["t", "key.table"], ["p", "key.predict"], ["r", "key.live"], ["?", "key.help"], ["Esc", "key.escape"]];

function tablePart(cx) {
  const steps = makeTable(cx, "cap.steps", ["col.step", "col.path", "col.key", "#col.requests", "#col.rows", "#col.padding", "#col.sampled", "#col.host"], (item) => {
    item.button = h("button", { type: "button", class: "ss-link", onclick: () => cx.act.go(item.at) });
    item.cells[0].append(item.button);
    item.word = h("span");
    for (const at of [1, 7]) setClass(item.cells[at], "ss-nowrap", true);
    item.cells[1].append(h("span", { class: "ss-swatch", "aria-hidden": "true" }), item.word);
  });
  const page = h("span", { class: "ss-soft" });
  let offset = null; // null follows the current step
  const turn = (by) => () => {
    offset = Math.max(0, Math.min(Math.floor((cx.store.length - 1) / STEPS_A_PAGE), current() + by));
    cx.repaint();
  };
  const current = () => (offset === null ? Math.floor(cx.at / STEPS_A_PAGE) : offset);
  const pager = h("p", { class: "ss-pager" }, cx.label(h("button", { type: "button", onclick: turn(-1) }), "tbl.earlier"), " ", page, " ", cx.label(h("button", { type: "button", onclick: turn(1) }), "tbl.later"));
  const rows = rowsPanel(cx);
  const root = h("div", { class: "ss-tables" }, h("div", { class: "ss-scroll", tabindex: "0", role: "region" }, pager, steps.root), h("div", { class: "ss-scroll", tabindex: "0", role: "region" }, rows.root));
  cx.named(root.children[0], "cap.steps");
  cx.named(root.children[1], "cap.rows");
  let lastAt = -1;
  return {
    root,
    paint(frame, at) {
      if (at !== lastAt) offset = null;
      lastAt = at;
      const first = current() * STEPS_A_PAGE;
      const count = Math.min(STEPS_A_PAGE, cx.store.length - first);
      show(pager, cx.store.length > STEPS_A_PAGE);
      setText(page, cx.t("tbl.page", { first: cx.store.frames[first].s, last: cx.store.frames[first + count - 1].s, n: cx.store.length }));
      let here = null;
      steps.rows(count, (item, index) => {
        item.at = first + index;
        const one = cx.store.frames[item.at];
        const hidden = cx.hidden(item.at);
        setText(item.button, one.s);
        setAttr(item.root, "aria-current", item.at === at ? "step" : null);
        if (item.at === at) here = item.root;
        setAttr(item.root, "data-p", hidden ? "hidden" : one.run.path);
        setText(item.word, hidden ? "?" : cx.t("run." + one.run.path));
        setText(item.cells[2], hidden ? "?" : one.run.key || one.path.reason || "–");
        setText(item.cells[3], hidden ? "?" : one.path.n);
        setText(item.cells[4], hidden ? "?" : one.n);
        setText(item.cells[5], hidden ? "?" : one.pad);
        setText(item.cells[6], hidden ? "?" : one.out.tok.length);
        setText(item.cells[7], hidden ? "?" : formatUs(one.total));
      });
      if (here) keepInView(root.children[0], here); // by hand: scrollIntoView would move the notebook too
      show(root.children[1], !cx.hidden(at));
      if (!cx.hidden(at)) rows.paint(frame, at);
    },
  };
}

function keepInView(box, row) {
  const top = row.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (top < 60 || top > box.clientHeight - 60) box.scrollTop += top - box.clientHeight / 2;
}

function warmupPart(cx) {
  const table = makeTable(cx, "cap.warmup", ["#col.order", "col.graph", "#col.bytes", "#col.seconds"], (item) => {
    setClass(item.cells[1], "ss-code", true);
  });
  const words = h("p", { class: "ss-note" });
  const none = cx.note("warm.none");
  const root = h("section", { class: "ss-sheet" }, sheetHead(cx, "warm.title", "warmup"), words, table.root, none);
  return {
    root,
    paint() {
      const captures = cx.store.header.warmup;
      const bytes = captures.reduce((sum, one) => sum + one.bytes, 0);
      setText(words, cx.t(cx.store.header.simulated ? "warm.say_simulated" : "warm.say", { n: captures.length, bytes: formatBytes(bytes), seconds: cx.store.header.warmup_seconds.toFixed(2) }));
      show(table.root, captures.length > 0);
      show(none, captures.length === 0);
      table.rows(captures.length, (item, at) => {
        setText(item.cells[0], at + 1);
        setText(item.cells[1], captures[at].key);
        setText(item.cells[2], formatBytes(captures[at].bytes));
        setText(item.cells[3], captures[at].seconds.toFixed(3));
      });
    },
  };
}

function sheetHead(cx, title, name) {
  const close = cx.named(h("button", { type: "button", class: "ss-icon", text: "×", onclick: () => cx.act.toggle(name) }), "sheet.close");
  return h("div", { class: "ss-sheet-head" }, cx.label(h("h3"), title), close);
}

function helpPart(cx) {
  const keys = h("ul", { class: "ss-keys" }, KEYS.map(([keyNames, id]) => h("li", null, h("span", null, keyNames.split("  ").map((key) => h("kbd", { text: key }))), cx.label(h("span"), id))));
  const marks = h("ul", { class: "ss-helplist" }, ["help.colours", "help.stale", "help.wrong", "help.changed", "help.follow", "help.article", "help.time", "help.simulated"].map((id) => cx.label(h("li"), id)));
  const root = h("section", { class: "ss-sheet", role: "dialog", tabindex: "-1" }, sheetHead(cx, "help.title", "help"), h("div", { class: "ss-help" }, keys, marks));
  cx.named(root, "help.title");
  return { root };
}

// Predict: the coming step is hidden until a choice was made; answers live in a trait, so they survive, and the kernel
// writes them down. What may be asked: its way is path and bucket in one.
const ASKS = ["way", "batch", "bucket", "path", "cell"];

function predictPart(cx) {
  const kinds = cx.named(h("div", { class: "ss-options", role: "group" }, ASKS.map((ask) => cx.label(h("button", { type: "button", onclick: () => cx.set({ ask }) }), "predict.what." + ask))), "predict.what");
  const question = h("p", { class: "ss-lead" });
  const options = h("div", { class: "ss-options", role: "group" });
  cx.named(options, "predict.options");
  const buttons = pool(options, () => {
    const item = { choice: "", root: h("button", { type: "button" }) };
    item.root.addEventListener("click", () => cx.act.answer(item.choice));
    return item;
  });
  const verdict = h("p", { class: "ss-lead ss-answer" });
  const score = h("p", { class: "ss-note" });
  const root = h("section", { class: "ss-predict" }, kinds, question, options, verdict, score);
  const named = (choice) => (cx.topic === "path" ? ["run." + choice] : cx.topic !== "way" ? [choice] : choice === "eager" ? ["run.eager"] : choice === "prefill" ? ["run.prefill_replay"] : ["predict.bucket", { bucket: choice }]);
  return {
    root,
    paint(frame, at) {
      const { buckets: all, prefill } = cx.store.header;
      const buckets = all.slice(0, 16);
      const segments = (name) => (prefill.length ? [name] : []);
      const cell = frame.rows[0]?.[4] || 0;
      const choices = {
        way: ["eager", ...segments("prefill"), ...buckets],
        batch: Array.from({ length: Math.min(16, frame.sch.bud[3]) }, (_, i) => i + 1),
        bucket: [0, ...buckets, ...prefill],
        path: ["eager", "replay", ...segments("prefill_replay")],
        cell: [...new Set([0, cell && cell - 1, cell, cell + 1])],
      }[cx.topic].map(String);
      ASKS.forEach((ask, index) => setAttr(kinds.children[index], "aria-pressed", ask === cx.topic));
      const answer = cx.answers[frame.s + cx.topic];
      const hidden = cx.hidden(at);
      setText(question, cx.t(hidden ? "predict.ask." + cx.topic : answer === undefined ? (cx.isEnd ? "predict.end" : "predict.start") : "predict.asked", { step: frame.s, n: frame.path.n, contexts: frame.sch.spans.filter((span) => span[1] === 0).length, rows: frame.sch.bud[0] }));
      show(options, hidden);
      buttons(choices.length, (item, index) => {
        item.choice = choices[index];
        setText(item.root, cx.t(...named(item.choice)));
      });
      show(verdict, !hidden && answer !== undefined);
      if (!hidden && answer !== undefined) {
        const truth = cx.truth(frame, cx.topic);
        const args = { truth: named(truth), mine: named(answer), why: cx.topic !== "way" ? "" : frame.eager ? ["why." + frame.path.reason, frame.path.args] : ["predict.fits", seats(frame)] };
        setAttr(verdict, "data-s", answer === truth ? "ok" : "no");
        setText(verdict, (answer === truth ? "✓ " : "✗ ") + cx.t(answer === truth ? "predict.right" : "predict.wrong", args));
      }
      const asked = Object.keys(cx.answers);
      const right = asked.filter((key) => {
        const [, step, ask] = /(\d+)(.*)/.exec(key);
        const one = cx.store.frameOf(+step);
        return one && cx.answers[key] === cx.truth(one, ask);
      }).length;
      setText(score, asked.length ? cx.t("predict.score", { right, n: asked.length }) : "");
    },
  };
}

function alertPart(cx) {
  const text = h("span");
  const root = h("div", { class: "ss-alert", role: "alert" }, h("strong", { "aria-hidden": "true", text: "! " }), text);
  return {
    root,
    paint() {
      const message = cx.alert;
      show(root, message !== "");
      setText(text, message);
    },
  };
}
