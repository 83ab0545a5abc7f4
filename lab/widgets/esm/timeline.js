// The timeline: one bar a step (or a bin of steps), a mark for its path, click, hover and a native scrubber.
const MAX_BARS = 240;
const CHART = { height: 58, top: 6, marks: 74, total: 80 };
const PATH_MARKS = { eager: "!", capture: "◆", replay: "●", prefill_replay: "◐", idle: "○" };
const PATH_ORDER = ["eager", "capture", "prefill_replay", "replay", "idle"]; // a bin shows the first of these that it holds

function timelinePart(cx) {
  const chart = svg("svg", { class: "ss-chart", role: "img" });
  const frame_ = svg("rect", { class: "ss-cursor", rx: "3" });
  const scale = h("span");
  const bars = svg("g");
  chart.append(bars, frame_);
  const tip = h("div", { class: "ss-tip", hidden: true, "aria-hidden": "true" });
  const range = h("input", { type: "range", min: "0", step: "1", "aria-keyshortcuts": "ArrowLeft ArrowRight Home End" });
  const scrub = h("label", { class: "ss-scrub" }, cx.label(h("span", { class: "ss-vh" }), "nav.scrub"), range);
  const legend = h("div", { class: "ss-legend ss-tl-legend" }, scale, ["eager", "replay", ...(cx.store.header.prefill.length ? ["prefill_replay"] : []), "capture", "idle", "padding", "followed"].map((name) => h("span", { "data-legend": name }, h("i", { class: "ss-swatch", "data-p": name, "aria-hidden": "true" }, PATH_MARKS[name] || ""), cx.label(h("span"), "legend." + name))));
  const idle = legend.querySelector('[data-legend="idle"]');
  const warm = h("button", { type: "button", class: "ss-warm", onclick: () => cx.act.toggle("warmup") });
  const root = h("div", { class: "ss-time" }, h("div", { class: "ss-time-row" }, warm, h("div", { class: "ss-chart-box" }, chart, tip, scrub)), legend);
  let width = 900;
  let size = { count: 0, each: 1, bar: 1 };

  const stepAt = (event) => {
    const box = chart.getBoundingClientRect();
    const at = Math.floor(((event.clientX - box.left) / Math.max(1, box.width)) * size.count) * size.each;
    return cx.store.clamp(at);
  };
  chart.addEventListener("click", (event) => cx.act.go(stepAt(event)));
  chart.addEventListener("pointermove", (event) => {
    if (event.buttons & 1) cx.act.go(stepAt(event));
    hover(stepAt(event), event);
  });
  chart.addEventListener("pointerleave", () => show(tip, false));
  range.addEventListener("input", () => cx.act.go(Number(range.value)));

  function hover(at, event) {
    const frame = cx.store.frames[at];
    if (!frame) return;
    const box = root.getBoundingClientRect();
    show(tip, true);
    const hidden = cx.masked("next") && at > cx.at ? "mask.tip" : cx.hidden(at) && "tip.hidden";
    setText(tip, cx.t(hidden || "tip.step", { step: frame.s, path: cx.seen("path", ["run." + frame.run.path], at), n: frame.path.n, rows: cx.shownRows(at), pad: cx.seen("padding", frame.pad, at), us: formatUs(frame.total) }));
    const left = Math.min(Math.max(4, event.clientX - box.left + 12), box.width - tip.offsetWidth - 4);
    setAttr(tip, "style", `left:${left}px`);
  }

  const column = pool(bars, () => {
    const real = svg("rect");
    const padding = svg("rect", { class: "ss-padbar" });
    const mark = svg("text", { class: "ss-tlmark", y: CHART.marks, "text-anchor": "middle" });
    const follow = svg("rect", { class: "ss-follow", y: CHART.total - 3, height: 3 });
    const root_ = svg("g", null, real, padding, mark, follow);
    return { root: root_, real, padding, mark, follow };
  });

  // A bin shows its tallest step, and is marked eager when any of its steps is: a fall-off must not be averaged away.
  function summarise(from) {
    let tall = cx.store.frames[from];
    let path = "idle";
    let follows = false;
    let wrong = false;
    for (let at = from; at < Math.min(cx.store.length, from + size.each); at += 1) {
      const frame = cx.store.frames[at];
      if (frame.wide > tall.wide) tall = frame;
      if (PATH_ORDER.indexOf(frame.run.path) < PATH_ORDER.indexOf(path)) path = frame.run.path;
      if (frame.wrong.size) wrong = true;
      if (cx.selected >= 0 && cx.store.spanOf(frame, cx.selected)) follows = true;
    }
    return { tall, path, follows, wrong, gap: cx.store.frames[from].gap };
  }

  function paintColumn(item, at) {
    const from = at * size.each;
    const { tall, path, follows, wrong, gap } = summarise(from);
    const hidden = cx.hidden(from);
    const isUnknown = hidden || cx.masked("path", from);
    const pad = cx.masked("padding", from) ? 0 : tall.pad;
    const x = at * size.bar;
    const inset = size.bar > 8 ? 1.5 : size.bar > 3 ? 0.5 : 0;
    const wide = Math.max(0.6, Math.min(size.bar - 2 * inset, 46));
    const left = x + (size.bar - wide) / 2;
    const high = (rows) => (CHART.height - CHART.top) * Math.sqrt(rows / cx.store.maxRows);
    const rows = tall.wide - tall.pad + pad;
    const all = hidden || !rows ? 3 : high(rows);
    const realHigh = hidden || !rows ? 3 : (all * (rows - pad)) / rows;
    const box = (node, y, height) => [["x", left], ["width", wide], ["y", y], ["height", Math.max(0, height)]].forEach(([name, value]) => setAttr(node, name, value.toFixed(2)));
    box(item.real, CHART.height - realHigh, realHigh);
    box(item.padding, CHART.height - all, all - realHigh);
    setAttr(item.root, "data-p", isUnknown ? "hidden" : path);
    setAttr(item.root, "data-gap", gap ? "1" : null);
    setAttr(item.root, "data-wrong", wrong && !hidden ? "1" : null);
    setText(item.mark, isUnknown ? "?" : wrong ? "✗" : size.bar < 7 && path === "replay" ? "" : PATH_MARKS[path]);
    setAttr(item.mark, "x", (x + size.bar / 2).toFixed(2));
    [["x", left], ["width", wide]].forEach(([name, value]) => setAttr(item.follow, name, value.toFixed(2)));
    setAttr(item.follow, "visibility", follows ? "visible" : "hidden");
  }

  let drawn = "";
  function layout() {
    const length = cx.store.length;
    size = { count: Math.ceil(length / Math.max(1, Math.ceil(length / MAX_BARS))), each: Math.max(1, Math.ceil(length / MAX_BARS)), bar: 1 };
    size.bar = width / size.count;
    const signature = [width, length, cx.selected, cx.hiddenFrom()].join();
    if (signature === drawn) return;
    drawn = signature;
    setAttr(chart, "viewBox", `0 0 ${width} ${CHART.total}`);
    column(size.count, paintColumn);
    setAttr(range, "max", String(length - 1));
  }

  return {
    root,
    resize(pixels) {
      width = Math.max(200, Math.round(pixels));
    },
    box: chart,
    paint(frame, at) {
      layout();
      const index = Math.floor(at / size.each);
      [["x", index * size.bar + 0.5], ["y", 1], ["width", Math.max(3, size.bar - 1)], ["height", CHART.total - 2]].forEach(([name, value]) => setAttr(frame_, name, Number(value).toFixed(2)));
      if (Number(range.value) !== at) range.value = String(at);
      setAttr(range, "aria-valuetext", cx.t("nav.value", { step: frame.s, first: cx.store.frames[0].s, last: cx.lastStep(), path: cx.hidden(at) ? "?" : cx.seen("path", ["run." + frame.run.path]), bucket: cx.hidden(at) ? "?" : cx.seen("bucket", frame.path.key === null ? "–" : frame.path.bucket) }));
      setText(scale, cx.t("tl.scale", { max: cx.store.maxRows }));
      setAttr(chart, "aria-label", cx.t("tl.aria", { n: cx.store.length, eager: cx.seen("path", cx.store.frames.reduce((n, one) => n + one.fell, 0)) }));
      show(idle, cx.store.hasIdle);
      show(warm, !frame.bare);
      setText(warm, cx.t("warm.chip", { n: cx.store.header.warmup.length }));
      setAttr(warm, "aria-expanded", String(cx.open.warmup));
    },
  };
}
