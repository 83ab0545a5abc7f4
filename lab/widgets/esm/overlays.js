// What opens over or instead of the panels: table view, warm-up, help, errors.
const STEPS_A_PAGE = 100;
const KEYS = [["←  →", "key.step"], ["⇧←  ⇧→", "key.ten"], ["Home  End", "key.ends"], ["PgUp  PgDn", "key.stage"], ["f", "key.falloff"], ["t", "key.table"], ["p", "key.predict"], ["m", "key.mask"], ["l", "key.large"], ["r", "key.live"], ["?", "key.help"], ["Esc", "key.escape"]];

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
  const root = h("div", { class: "ss-tables" }, h("div", { class: "ss-scroll", tabindex: "0", role: "group" }, pager, steps.root), h("div", { class: "ss-scroll", tabindex: "0", role: "group" }, rows.root));
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
        const seen = (part, value) => (hidden ? "?" : cx.seen(part, value, item.at));
        setText(item.button, one.s);
        setAttr(item.root, "aria-current", item.at === at ? "step" : null);
        if (item.at === at) here = item.root;
        setAttr(item.root, "data-p", seen("path", "") ? "hidden" : one.run.path);
        const cells = [seen("key", seen("reason", one.run.key || one.path.reason || "–")), seen("", one.path.n), seen("", cx.shownRows(item.at)), seen("padding", one.pad), seen("", one.out.tok.length), seen("", formatUs(one.total))];
        setText(item.word, seen("path", cx.t("run." + one.run.path)));
        cells.forEach((value, column) => setText(item.cells[column + 2], value));
      });
      if (here) keepInView(root.children[0], here); // by hand: scrollIntoView would move the notebook too
      const isHidden = cx.hidden(at) || cx.masked("stage.4");
      show(root.children[1], !isHidden);
      if (!isHidden) rows.paint(frame, at);
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
