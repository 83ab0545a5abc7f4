// render: builds the DOM once, then paints at most once an animation frame.
function panelShell(cx) {
  const title = h("h3");
  const what = h("p", { class: "ss-what" });
  const code = h("code");
  const article = h("span", { lang: "zh" });
  const word = h("span");
  // No dl here: JupyterLab floats every dt.
  const link = (id, node) => h("span", null, cx.label(h("span", { class: "ss-soft" }), id), " ", node);
  const links = h("p", { class: "ss-links" }, link("link.code", code), link("link.article", article), link("link.word", word));
  const panels = [schedulePanel, reservePanel, padPanel, graphPanel, rowsPanel, buffersPanel, metadataPanel, runPanel, samplePanel, commitPanel, blocksPanel, treePanel, overlapPanel].map((make) => make(cx, true));
  const locked = cx.label(h("p", { class: "ss-lead ss-locked" }), "predict.locked");
  const missing = cx.label(h("p", { class: "ss-lead" }), "outline.panel");
  const veiled = cx.label(h("p", { class: "ss-lead ss-locked" }), "mask.panel");
  const body = h("div", { class: "ss-body" }, panels.map((panel) => panel.root), locked, veiled, missing);
  const root = h("div", { class: "ss-panel", role: "tabpanel", id: cx.id + "-panel", tabindex: "0" }, h("div", { class: "ss-head" }, title, what), links, body);
  return {
    root,
    paint(frame, at) {
      const stage = cx.stage;
      // The run goes by its path; what comes before it, by whether anything was packed.
      const way = stage === 7 ? (frame.eager ? "e" : frame.prefill ? "p" : "") : frame.steady ? "s" : "";
      const facts = (!cx.masked("path") && cx.store.header.other_ways[stage + way]) || cx.stages[stage];
      const isLocked = cx.hidden(at) && (stage > 0 || cx.topic === "batch");
      const isVeiled = !isLocked && cx.masked("stage." + stage);
      setText(title, cx.t("stage." + stage));
      setText(what, cx.t("stage." + stage + ".what"));
      setText(code, `${facts.file}:${facts.line} ${facts.name}`);
      setText(article, facts.article);
      setAttr(article, "title", cx.t("help.article"));
      setText(word, `${facts.word_en} · ${facts.word_zh}`);
      setAttr(root, "aria-labelledby", cx.id + "-tab" + stage);
      setAttr(root, "data-stage", String(stage));
      const isMissing = frame.bare && !isLocked && !isVeiled && stage !== 0 && stage !== 3; // another engine's log has no more
      show(locked, isLocked);
      show(veiled, isVeiled);
      show(missing, isMissing);
      const isOpen = !isLocked && !isVeiled && !isMissing;
      panels.forEach((panel, index) => show(panel.root, index === stage && isOpen));
      if (isOpen) panels[stage].paint(frame, at);
    },
  };
}

function build(cx) {
  const parts = { alert: alertPart(cx), bar: barPart(cx), time: timelinePart(cx), say: sentencePart(cx), notes: notesPart(cx), mask: maskPart(cx), predict: predictPart(cx), rail: railPart(cx), panel: panelShell(cx), side: sidePart(cx), table: tablePart(cx), out: outputsPart(cx), warmup: warmupPart(cx), help: helpPart(cx) };
  const grid = h("div", { class: "ss-grid" }, parts.rail.root, parts.panel.root, parts.side.root);
  const empty = cx.label(h("p", { class: "ss-empty" }), "root.empty");
  const body = h("div", null, parts.time.root, parts.warmup.root, parts.say.root, parts.notes.root, parts.mask.root, parts.predict.root, grid, parts.table.root, parts.out.root);
  const root = h("div", { class: "stepscope", tabindex: "0", role: "group", "data-lm-suppress-shortcuts": "true" }, parts.bar.root, parts.alert.root, empty, body, parts.help.root);
  cx.named(root, "root.name");
  return { root, grid, parts, empty, body };
}

function paintAll(cx, view) {
  const { root, parts } = view;
  if (view.language !== cx.language) {
    view.language = cx.language;
    setAttr(root, "lang", cx.language === "zh" ? "zh-CN" : "en");
    cx.store.dummy = cx.t("pad.dummy");
    cx.relabel();
  }
  parts.alert.paint();
  const at = cx.at;
  const frame = cx.store.frames[at];
  parts.bar.paint(frame);
  show(parts.help.root, cx.open.help);
  show(view.empty, !frame);
  show(view.body, Boolean(frame));
  if (frame) paintStep(cx, view, frame, at);
  // Who was in a part that is gone keeps the keyboard.
  const focused = root.getRootNode().activeElement;
  if (focused !== root && root.contains(focused) && !focused.checkVisibility()) cx.focus(false);
  setAttr(root, "data-ready", "1");
}

function paintStep(cx, view, frame, at) {
  const { root, grid, parts } = view;
  setClass(root, "ss-large", cx.model.get("large"));
  for (const name of ["time", "say", "notes", "mask", "rail", "side", "out"]) parts[name].paint(frame, at);
  show(grid, !cx.open.table);
  show(parts.table.root, cx.open.table);
  (cx.open.table ? parts.table : parts.panel).paint(frame, at);
  show(parts.warmup.root, cx.open.warmup);
  if (cx.open.warmup) parts.warmup.paint();
  show(parts.predict.root, cx.predicting);
  if (cx.predicting) parts.predict.paint(frame, at);
  for (const node of root.querySelectorAll("[data-r]")) setClass(node, "ss-sel", cx.selected >= 0 && node.dataset.r.split(" ").includes(String(cx.selected)));
  setAttr(root, "data-step", String(frame.s));
  setAttr(root, "data-path", cx.hidden(at) || cx.masked("path") ? "hidden" : frame.run.path);
}

function onKey(cx, view, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  // A field keeps its keys; Escape leaves it.
  const isField = event.target.matches("select, input[type=number]");
  if (isField && event.key !== "Escape") return event.stopPropagation();
  const { act } = cx;
  const onTab = event.target.getAttribute("role") === "tab";
  const turn = (by) => {
    act.stage(cx.stage + by);
    if (onTab) view.parts.rail.tabs[cx.stage].root.focus();
  };
  const table = {
    ArrowLeft: () => act.go(cx.at - (event.shiftKey ? 10 : 1)),
    ArrowRight: () => act.go(cx.at + (event.shiftKey ? 10 : 1)),
    Home: () => act.go(0),
    End: () => act.go(cx.store.length - 1),
    PageUp: () => turn(-1),
    PageDown: () => turn(1),
    f: act.fallOff,
    t: () => act.toggle("table"),
    p: () => act.toggle("predict"),
    m: act.revealAll,
    l: act.large,
    r: act.live,
    "?": () => act.toggle("help"),
    Escape: () => escape(cx, event),
  };
  if (onTab) Object.assign(table, { ArrowUp: () => turn(-1), ArrowDown: () => turn(1) });
  const action = table[event.key] || table[event.key.toLowerCase()];
  if (!action) return;
  event.preventDefault();
  event.stopPropagation();
  action();
}

// What opened last is left first: a sheet, a field, the prediction, the followed request, the viewer.
function escape(cx, event) {
  const open = Object.keys(cx.open).filter((name) => cx.open[name]);
  for (const name of open) cx.setOpen(name, false);
  if (event.target.matches("select, input[type=number]")) cx.focus(false);
  else if (!open.length && cx.predicting) cx.act.toggle("predict");
  else if (!open.length && cx.selected >= 0) cx.act.select(-1);
  else if (!open.length) event.target.blur(); // gives the keyboard back to the notebook
  cx.repaint();
}

function onClick(cx, event) {
  if (!(event.target instanceof Element)) return;
  const tagged = event.target.closest("[data-r]");
  if (!tagged) return;
  const ids = tagged.dataset.r.split(" ").map(Number);
  cx.act.select(ids[(ids.indexOf(cx.selected) + 1) % ids.length]); // of several, one after the other
}

async function render({ model, el }) {
  const cx = new Context(model, new Store(await inflate(model.get("trace"))));
  const view = build(cx);
  let pending = 0;
  let closed = false;
  const guarded = (run) => {
    try {
      run();
    } catch (error) {
      cx.localAlert = String((error && error.message) || error);
      view.parts.alert.paint();
      throw error; // also for the console, and for a test that listens
    }
  };
  cx.repaint = () => {
    if (!pending && !closed) {
      pending = requestAnimationFrame(() => {
        pending = 0;
        guarded(() => paintAll(cx, view));
      });
    }
  };
  cx.focus = (onHelp) => {
    if (onHelp) show(view.parts.help.root, true);
    (onHelp ? view.parts.help.root : view.root).focus({ preventScroll: true });
  };
  view.root.addEventListener("keydown", (event) => guarded(() => onKey(cx, view, event)));
  view.root.addEventListener("click", (event) => guarded(() => onClick(cx, event)));
  const onChange = () => {
    cx.stayAhead();
    cx.repaint();
  };
  const traits = ["step", "stage", "selected", "lang", "predict_from", "answers", "ask", "cell", "mask", "revealed", "notes", "large", "finished", "alert", "whatifs"];
  for (const trait of traits) model.on("change:" + trait, onChange);
  const onMessage = (message, buffers) => cx.receive(message, buffers);
  model.on("msg:custom", onMessage);
  el.append(view.root);
  const measure = () => {
    view.parts.time.resize(view.parts.time.box.parentNode.clientWidth || 900);
    cx.repaint();
  };
  const observer = new ResizeObserver(measure);
  observer.observe(view.root);
  measure();
  // A page that was reloaded knows the recorded steps only: ask for those that were run since.
  if (cx.isLive) model.send({ type: "sync", view: cx.id, seq: 0, have: cx.lastStep() });
  return () => {
    closed = true;
    cancelAnimationFrame(pending);
    clearTimeout(cx.saveTimer);
    clearTimeout(cx.waiting);
    view.parts.say.stop();
    observer.disconnect();
    for (const trait of traits) model.off("change:" + trait, onChange);
    model.off("msg:custom", onMessage);
  };
}

export default { render };
