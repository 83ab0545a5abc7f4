// Stages Pad and Choose graph: the bucket, the dummies that fill it, and the checklist that lets a graph run.

// What fills what: requests a decode bucket, rows a prefill bucket, nothing an eager step.
function seats(frame) {
  const n = frame.prefill ? frame.wide - frame.pad : frame.path.n;
  const bucket = frame.prefill ? frame.meta.padded : frame.path.bucket;
  const size = frame.eager ? n : bucket;
  return { n, bucket, size, dummies: size - n, waste: percent(size - n, size) };
}

const bucketsOf = (cx, frame) => (frame.prefill ? cx.store.header.prefill : cx.store.header.buckets);

function bucketLadder(cx) {
  const root = h("div", { class: "ss-ladder", role: "img" });
  const steps = pool(root, () => ({ root: h("span", { class: "ss-bucket" }) }));
  return {
    root,
    paint(frame) {
      const { n, bucket } = seats(frame);
      const buckets = bucketsOf(cx, frame);
      steps(buckets.length, (item, at) => {
        const size = buckets[at];
        setAttr(item.root, "data-s", size === bucket ? (frame.eager ? "would" : "chosen") : size < n ? "small" : "large");
        setText(item.root, size);
      });
      setAttr(root, "aria-label", cx.t(frame.eager ? "pad.ladder_eager" : frame.prefill ? "pad.ladder_prefill" : "pad.ladder", { n, bucket }));
    },
  };
}

function padPanel(cx) {
  const ladder = bucketLadder(cx);
  const sentence = h("p", { class: "ss-lead" });
  const seatList = h("div", { class: "ss-seats" });
  const seat = pool(seatList, () => ({ root: h("span", { class: "ss-seat" }) }));
  const promoted = h("p", { class: "ss-note" });
  const table = makeTable(cx, "cap.buckets", ["col.bucket", "col.fits", "#col.padding", "#col.waste", "col.graph"]);
  const why = cx.note("pad.why");
  const advice = h("div");
  const findings = pool(advice, () => ({ root: h("p", { class: "ss-note ss-finding" }) }));
  const root = h("div", null, sentence, ladder.root, seatList, promoted, table.root, advice, why);

  function paintTable(frame) {
    const { n, bucket: chosen } = seats(frame);
    const buckets = bucketsOf(cx, frame);
    const warm = new Map(); // a bucket has a graph for each sampler mode, for each length of drafts
    for (const { batch, bytes, drafts } of cx.store.header.warmup) if (drafts === frame.sch.k) warm.set(batch, { n: (warm.get(batch)?.n || 0) + 1, bytes: (warm.get(batch)?.bytes || 0) + bytes });
    table.rows(buckets.length, (item, at) => {
      const bucket = buckets[at];
      const dummies = bucket - n;
      const capture = warm.get(bucket);
      setText(item.cells[0], bucket);
      setText(item.cells[1], cx.t(dummies < 0 ? "pad.too_small" : dummies === 0 ? "pad.exact" : "pad.fits"));
      setText(item.cells[2], dummies < 0 ? "–" : dummies);
      setText(item.cells[3], dummies < 0 ? "–" : `${percent(dummies, bucket)} %`);
      setText(item.cells[4], frame.prefill ? cx.t("pad.segments") : capture ? cx.t(frame.released ? "pad.released" : capture.bytes ? "pad.captured" : "pad.captured_free", { n: capture.n, bytes: formatBytes(capture.bytes) }) : cx.t("pad.no_graph"));
      setClass(item.root, "ss-hit", !frame.eager && bucket === chosen);
    });
  }

  return {
    root,
    paint(frame) {
      const { n, bucket, size, dummies, waste } = seats(frame);
      setText(sentence, cx.t(frame.eager ? "pad.say_eager" : frame.prefill ? "pad.say_prefill" : dummies ? "pad.say_padded" : "pad.say_exact", { n, bucket, dummies, waste }));
      ladder.paint(frame);
      const spans = frame.sch.spans;
      const requests = frame.prefill ? frame.path.n : size; // the tail of a prefill graph has no seats
      const shown = Math.min(requests, 32);
      seat(shown, (item, at) => {
        const span = at < frame.path.n ? spans[at] : null;
        setAttr(item.root, "data-k", span ? KINDS[span[1]] : "P");
        setText(item.root, at === 31 && requests > 32 ? `+${requests - 31}` : span ? cx.store.name(span[0]) : cx.t("pad.dummy"));
        tagRequest(item.root, span ? span[0] : null);
      });
      show(promoted, frame.sch.prom.length > 0);
      setText(promoted, cx.t("pad.promoted", cx.who(frame.sch.prom)));
      paintTable(frame);
      show(why, !frame.prefill);
      const notes = cx.store.header.findings;
      findings(notes.length, (item, at) => setText(item.root, cx.t(notes[at][0], notes[at][1])));
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
      const eager = frame.fell;
      const { reason, args } = frame.path;
      const isMasked = cx.masked(eager ? "reason" : "bucket");
      setAttr(root, "data-s", frame.idle ? "idle" : eager ? "no" : "ok");
      setText(title, cx.t(frame.idle ? "run.idle" : eager ? "path.eager" : "path.graph"));
      setText(code, frame.idle ? "" : eager ? cx.seen("reason", reason || "–") : cx.seen("key", frame.run.key));
      setText(why, frame.idle ? cx.t("say.idle", { step: frame.s }) : isMasked ? "" : eager ? cx.t("why." + reason, args) : cx.t(frame.prefill ? "path.prefill_why" : "path.graph_why", { check: frame.run.check.length, ...seats(frame) }));
      show(fix, eager && !isMasked && cx.has("fix." + reason));
      show(note, eager && !isMasked && cx.has("note." + reason));
      setText(note, cx.t("note." + reason));
      setText(fix, cx.t("path.smallest", { fix: ["fix." + reason, args] }));
    },
  };
}

// The smallest change that would have put the step on a graph: shipped with the trace, or proved by the kernel on request.
function whatIfBox(cx) {
  const ask = cx.label(h("button", { type: "button", onclick: () => cx.act.prove() }), "whatif.ask");
  const busy = cx.note("whatif.busy");
  const list = h("div");
  const lines = pool(list, (at) => ({ root: h("p", { class: at ? "ss-note" : "ss-fix" }) }));
  const root = h("section", { class: "ss-whatif" }, cx.label(h("h4"), "whatif.title"), ask, busy, list);
  return {
    root,
    paint(frame) {
      const said = cx.whatIf(frame);
      const canAsk = !said && cx.model.get("can_prove");
      show(root, frame.fell && !cx.masked("reason") && Boolean(said || canAsk));
      show(ask, canAsk && !cx.busy);
      show(busy, canAsk && cx.busy);
      lines(said ? said.length : 0, (item, at) => setText(item.root, cx.t(said[at][0], said[at][1])));
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
    item.cells[1].append(item.words, " ", item.code);
  });
  const verdict = verdictBox(cx);
  const simulated = cx.label(h("p", { class: "ss-note ss-sim" }), "run.simulated");
  const whatIf = whatIfBox(cx);
  const veiled = cx.label(h("p", { class: "ss-note ss-locked" }), "mask.panel");
  const root = h("div", null, verdict.root, whatIf.root, veiled, table.root, simulated);
  return {
    root,
    paint(frame) {
      verdict.paint(frame);
      whatIf.paint(frame);
      show(veiled, cx.masked("checklist"));
      show(table.root, !cx.masked("checklist") && !frame.idle);
      table.rows(frame.path.cond.length, (item, at) => {
        const [reason, passed, needed, got] = frame.path.cond[at];
        const state = passed === null ? "skipped" : passed ? "yes" : "no";
        setAttr(item.root, "data-s", state);
        setText(item.mark, MARKS[state]);
        setText(item.word, cx.t("cond." + state));
        setText(item.words, cx.t("cond." + reason));
        setText(item.code, reason);
        setText(item.cells[2], passed === null ? "–" : cx.fact(needed)); // nobody asked, so nothing was needed
        setText(item.cells[3], passed === null ? "–" : cx.has("got." + reason) ? cx.t("got." + reason, { got }) : cx.fact(got));
      });
      show(simulated, frame.run.sim && !frame.eager);
    },
  };
}
