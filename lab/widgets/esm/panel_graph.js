// Stages Pad and Choose graph: the bucket, the dummies that fill it, and the checklist that lets a graph run.

function bucketLadder(cx) {
  const root = h("div", { class: "ss-ladder", role: "img" });
  const steps = pool(root, () => ({ root: h("span", { class: "ss-bucket" }) }));
  return {
    root,
    paint(frame) {
      const buckets = cx.store.header.buckets;
      const chosen = frame.path.key === null ? null : frame.path.bucket;
      steps(buckets.length, (item, at) => {
        const bucket = buckets[at];
        const state = bucket === chosen ? "chosen" : bucket < frame.path.n ? "small" : bucket === frame.path.bucket ? "would" : "large";
        setAttr(item.root, "data-s", state);
        setText(item.root, bucket);
      });
      setAttr(root, "aria-label", chosen === null ? cx.t("pad.ladder_eager", { n: frame.path.n }) : cx.t("pad.ladder", { n: frame.path.n, bucket: chosen }));
    },
  };
}

function padPanel(cx) {
  const ladder = bucketLadder(cx);
  const sentence = h("p", { class: "ss-lead" });
  const seats = h("div", { class: "ss-seats" });
  const seat = pool(seats, () => ({ root: h("span", { class: "ss-seat" }) }));
  const promoted = h("p", { class: "ss-note" });
  const table = makeTable(cx, "cap.buckets", ["col.bucket", "col.fits", "col.dummies", "col.waste", "col.graph"], (item) => {
    for (const at of [2, 3]) setClass(item.cells[at], "ss-num", true);
  });
  const root = h("div", null, sentence, ladder.root, seats, promoted, table.root, cx.label(h("p", { class: "ss-note" }), "pad.why"));

  function paintTable(frame) {
    const buckets = cx.store.header.buckets;
    const warm = new Map(); // a bucket has a graph for each sampler mode
    for (const { batch, bytes } of cx.store.header.warmup) warm.set(batch, { n: (warm.get(batch)?.n || 0) + 1, bytes: (warm.get(batch)?.bytes || 0) + bytes });
    table.rows(buckets.length, (item, at) => {
      const bucket = buckets[at];
      const dummies = bucket - frame.path.n;
      const capture = warm.get(bucket);
      setText(item.cells[0], bucket);
      setText(item.cells[1], cx.t(dummies < 0 ? "pad.too_small" : dummies === 0 ? "pad.exact" : "pad.fits"));
      setText(item.cells[2], dummies < 0 ? "–" : dummies);
      setText(item.cells[3], dummies < 0 ? "–" : `${percent(dummies, bucket)} %`);
      setText(item.cells[4], capture ? cx.t(capture.bytes ? "pad.captured" : "pad.captured_free", { n: capture.n, bytes: formatBytes(capture.bytes) }) : cx.t("pad.no_graph"));
      setClass(item.root, "ss-hit", frame.path.key !== null && bucket === frame.path.bucket);
    });
  }

  return {
    root,
    paint(frame) {
      const isGraph = frame.path.key !== null;
      const size = isGraph ? frame.path.bucket : frame.path.n;
      const dummies = size - frame.path.n;
      const args = { n: frame.path.n, bucket: frame.path.bucket, dummies, waste: percent(dummies, size) };
      setText(sentence, cx.t(!isGraph ? "pad.say_eager" : dummies ? "pad.say_padded" : "pad.say_exact", args));
      ladder.paint(frame);
      const spans = frame.sch.spans;
      const shown = Math.min(size, 32);
      seat(shown, (item, at) => {
        const span = at < frame.path.n ? spans[at] : null;
        setAttr(item.root, "data-k", span ? KINDS[span[1]] : "P");
        setText(item.root, at === 31 && size > 32 ? `+${size - 31}` : span ? cx.store.name(span[0]) : cx.t("pad.dummy"));
        tagRequest(item.root, span ? span[0] : null);
      });
      show(promoted, frame.sch.prom.length > 0);
      setText(promoted, cx.t("pad.promoted", { who: frame.sch.prom.map((rid) => cx.store.name(rid)).join(", ") }));
      paintTable(frame);
    },
  };
}

const MARKS = { yes: "✓", no: "✗", skipped: "·" };

function verdictBox(cx) {
  const title = h("strong");
  const code = h("code", { class: "ss-reason" });
  const why = h("p");
  const fix = h("p");
  const note = h("p", { class: "ss-note" });
  const root = h("div", { class: "ss-verdict" }, h("div", null, title, " ", code), why, fix, note);
  return {
    root,
    paint(frame) {
      const isGraph = frame.path.key !== null;
      setAttr(root, "data-s", isGraph ? "ok" : "no");
      setText(title, cx.t(isGraph ? "path.graph" : "path.eager"));
      setText(code, isGraph ? frame.path.key : frame.path.reason || "–");
      const words = cx.reasonArgs(frame);
      setText(why, isGraph ? cx.t("path.graph_why", { check: frame.run.check ? frame.run.check.length : 0 }) : cx.t("why." + frame.path.reason, words));
      show(fix, !isGraph && cx.has("fix." + frame.path.reason));
      show(note, !isGraph && cx.has("note." + frame.path.reason));
      setText(note, cx.t("note." + frame.path.reason));
      setText(fix, cx.t("path.smallest", { fix: ["fix." + frame.path.reason, words] }));
    },
  };
}

function graphPanel(cx) {
  const table = makeTable(cx, "cap.conditions", ["col.result", "col.condition", "col.needed", "col.got"], (item) => {
    setClass(item.cells[0], "ss-result", true);
    item.mark = h("span", { class: "ss-mark", "aria-hidden": "true" });
    item.word = h("span");
    item.cells[0].append(item.mark, item.word);
    item.words = h("span");
    item.code = h("code", { class: "ss-soft ss-small" });
    item.cells[1].append(item.words, h("br"), item.code);
  });
  const verdict = verdictBox(cx);
  const simulated = cx.label(h("p", { class: "ss-note ss-sim" }), "run.simulated");
  const root = h("div", null, verdict.root, table.root, simulated);
  return {
    root,
    paint(frame) {
      verdict.paint(frame);
      table.rows(frame.path.cond.length, (item, at) => {
        const [reason, passed, needed, got] = frame.path.cond[at];
        const state = passed === null ? "skipped" : passed ? "yes" : "no";
        setAttr(item.root, "data-s", state);
        setText(item.mark, MARKS[state]);
        setText(item.word, cx.t("cond." + state));
        setText(item.words, cx.t("cond." + reason));
        setText(item.code, reason);
        setText(item.cells[2], needed);
        setText(item.cells[3], passed === null ? "–" : cx.has("got." + reason) ? cx.t("got." + reason, { got }) : got);
      });
      show(simulated, frame.run.sim);
    },
  };
}
