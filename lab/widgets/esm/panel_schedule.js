// Stages Schedule and Reserve: who runs, who waits and why, and which blocks that takes.

function moreNote(cx) {
  const root = h("p", { class: "ss-note" });
  return {
    root,
    paint(n) {
      show(root, n > 0);
      setText(root, cx.t("more.requests", { n }));
    },
  };
}

function requestCell(cx, cell, rid) {
  setText(cell, cx.store.name(rid));
  setClass(cell, "ss-rid", true);
}

// A prompt as a bar: already cached, computed in this step, still to come.
function chunkBar() {
  const past = h("i", { class: "ss-past" });
  const now = h("i", { class: "ss-now" });
  const root = h("span", { class: "ss-chunk" }, past, now);
  return {
    root,
    set: (start, count, whole) => {
      const size = Math.max(1, whole, start + count);
      setAttr(past, "style", `width:${(100 * start) / size}%`);
      setAttr(now, "style", `width:${Math.max(1.5, (100 * count) / size)}%`);
    },
  };
}

// A budget as a bar: what each request takes of it, and what is left. parts: [request or null, kind, amount].
function budgetRow(cx, id) {
  const bar = h("span", { class: "ss-meter ss-budget", role: "img" });
  const segments = pool(bar, () => ({ root: h("i") }));
  const value = h("span", { class: "ss-num" });
  const root = h("div", { class: "ss-budget-row" }, cx.label(h("span"), id), bar, value);
  return {
    root,
    set: (used, limit, parts) => {
      const shown = (parts || [[null, "G", used]]).slice(0, 64);
      segments(shown.length, (item, at) => {
        const [rid, kind, amount] = shown[at];
        tagRequest(item.root, rid < 0 ? null : rid);
        setAttr(item.root, "data-k", kind);
        setText(item.root, rid === null ? "" : rid < 0 ? "P" : cx.store.name(rid));
        setAttr(item.root, "title", rid === null ? null : `${cx.store.name(rid)}: ${amount}`);
        setAttr(item.root, "style", `width:${(100 * amount) / Math.max(1, limit)}%`);
      });
      setClass(root, "ss-full", limit && used >= limit);
      setText(value, cx.t("budget.of", { used, limit }));
      setAttr(bar, "aria-label", [value.ssText, ...shown.filter(([rid]) => rid !== null).map(([rid, , amount]) => `${cx.store.name(rid)} ${amount}`)].join(", "));
    },
  };
}

// Blocks that each request holds at a moment, those shared once; dummies last.
function heldParts(cx, owners) {
  const held = new Map();
  for (const ids of owners.values()) held.set(ids[ids.length - 1], (held.get(ids[ids.length - 1]) || 0) + 1);
  return [...held].sort(([one], [other]) => (one < 0) - (other < 0) || one - other).map(([rid, n]) => [rid, rid < 0 ? "P" : "G", n]);
}

function schedulePanel(cx) {
  const budgets = { rows: budgetRow(cx, "budget.rows"), requests: budgetRow(cx, "budget.requests"), blocks: budgetRow(cx, "budget.blocks") };
  const runs = makeTable(cx, "cap.runs", ["col.request", "col.kind", "col.prompt", "#col.rows", "#col.positions"], (item) => {
    item.badge = kindBadge();
    item.bar = chunkBar();
    item.word = h("span", { class: "ss-soft" });
    item.cells[1].append(item.badge, " ", item.word);
    item.note = h("span", { class: "ss-soft ss-gapl" });
    item.cells[2].append(item.bar.root, item.note);
  });
  const waits = makeTable(cx, "cap.waits", ["col.request", "col.reason", "col.meaning", "#col.needed", "#col.available"], (item) => {
    item.code = h("code", { class: "ss-reason" });
    item.cells[1].append(item.code);
    setClass(item.cells[1], "ss-nowrap", true);
    item.why = h("span");
    item.fix = h("span", { class: "ss-soft ss-block-line" });
    item.cells[2].append(item.why, item.fix);
  });
  const paused = h("p", { class: "ss-note" });
  const asked = h("p", { class: "ss-note" });
  const empty = cx.note("sch.nobody_waits");
  const veiled = cx.label(h("p", { class: "ss-note ss-locked" }), "mask.panel");
  const more = moreNote(cx);
  const root = h("div", null, h("div", { class: "ss-budgets" }, Object.values(budgets).map((row) => row.root)), runs.root, more.root, asked, veiled, waits.root, empty, paused);

  function paintRuns(frame) {
    const spans = frame.sch.spans;
    const shown = Math.min(spans.length, 40);
    runs.rows(shown, (item, at) => {
      const [rid, kind, start, count, logits] = spans[at];
      const request = cx.store.requests.get(rid);
      const isContext = kind === 0;
      tagRequest(item.root, rid);
      requestCell(cx, item.cells[0], rid);
      setKind(item.badge, KINDS[kind], cx);
      setText(item.word, cx.t(frame.sch.prom.includes(rid) ? "sch.promoted" : "kind." + KIND_NAMES[KINDS[kind]]));
      show(item.bar.root, isContext);
      setClass(item.note, "ss-gapl", isContext);
      if (isContext) item.bar.set(start, count, request ? request.prompt : 0);
      setText(item.note, isContext ? cx.t(logits ? "sch.last_chunk" : "sch.chunk", { done: start + count, whole: request ? request.prompt : "?" }) : cx.t(frame.sch.k ? "sch.verifies" : "sch.decodes", { n: cx.store.numTokens(rid, cx.at), k: frame.sch.k }));
      setText(item.cells[3], count);
      setText(item.cells[4], count === 1 ? start : `${start}–${start + count - 1}`);
    });
    more.paint(spans.length - shown);
  }

  function paintWaits(frame) {
    const deferrals = frame.sch.def;
    const isMasked = cx.masked("deferrals");
    show(veiled, isMasked);
    show(waits.root, deferrals.length > 0 && !isMasked);
    show(empty, !deferrals.length && !frame.bare && !isMasked);
    waits.rows(Math.min(deferrals.length, 40), (item, at) => {
      const [rid, reason, needed, available] = deferrals[at];
      tagRequest(item.root, rid);
      requestCell(cx, item.cells[0], rid);
      setText(item.code, reason);
      setText(item.why, cx.t("held." + reason, { request: cx.store.name(rid), needed, available }));
      setText(item.fix, cx.has("fix." + reason) ? "→ " + cx.t("fix." + reason) : "");
      setText(item.cells[3], needed);
      setText(item.cells[4], available);
    });
  }

  return {
    root,
    paint(frame) {
      const [tokens, maxTokens, requests, maxRequests] = frame.sch.bud;
      const blocks = cx.store.header.limits.blocks;
      const spans = frame.bare ? null : frame.sch.spans.map(([rid, kind, , rows]) => [rid, KINDS[kind], rows]);
      budgets.rows.set(tokens, maxTokens, spans);
      budgets.requests.set(requests, maxRequests, spans && spans.map(([rid, kind]) => [rid, kind, 1]));
      show(budgets.blocks.root, blocks > 0);
      const { owners } = cx.store.ledgerAt(2 * cx.at);
      budgets.blocks.set(owners.size, blocks, heldParts(cx, owners));
      show(asked, frame.sch.asked.length > 0);
      setText(asked, cx.t("sch.asked", { who: frame.sch.asked.map(([rid, start, rows]) => `${cx.store.name(rid)} ${start}–${start + rows - 1}`).join(", ") }));
      show(runs.root, !frame.bare);
      paintRuns(frame);
      paintWaits(frame);
      show(paused, frame.sch.paused.length > 0 && !cx.masked("deferrals"));
      setText(paused, cx.t("sch.paused", cx.who(frame.sch.paused)));
    },
  };
}

// The pool as a map: one cell a block, or one cell for several when the pool is large. Every state has its own sign.
function poolMap(cx) {
  const root = h("div", { class: "ss-pool", role: "img" });
  const cells = pool(root, () => ({ root: h("span", { class: "ss-block" }) }));
  const scale = h("p", { class: "ss-note" });
  return {
    root: h("div", null, root, scale),
    paint(frame, total, { owners, nodes }, onHost) {
      const kept = new Map(nodes.flatMap((node) => (onHost ? (node.host < 0 ? [] : [node.host]) : node.blocks).map((block) => [block, node])));
      const fresh = new Set(onHost ? [] : frame.res.add.flatMap((entry) => entry[1]));
      const each = Math.max(1, Math.ceil(total / 160));
      const state = (block) => {
        const ids = (!onHost && owners.get(block)) || [];
        if (!ids.length) return kept.has(block) ? ["cached", onHost ? "h" : "c", []] : ["free", "", []];
        return cx.store.isDummy(ids[0]) ? ["pad", "P", []] : [fresh.has(block) ? "new" : ids.length > 1 ? "shared" : "held", ids.length > 1 ? "×" + ids.length : String(ids[0]), ids];
      };
      cells(Math.ceil(total / each), (item, at) => {
        const inside = Array.from({ length: Math.min(each, total - at * each) }, (_, i) => state(at * each + i));
        const [name, sign, ids] = inside.find((one) => one[0] === "new") || inside.find((one) => one[0] !== "free") || inside[0];
        const isMixed = inside.some((one) => one[1] !== sign && one[0] !== "free");
        tagRequest(item.root, ids);
        setText(item.root, isMixed ? "…" : sign);
        setAttr(item.root, "data-s", name);
        const who = ids.map((rid) => cx.store.name(rid)).join(", ");
        setAttr(item.root, "title", `${each === 1 ? at : `${at * each}–${at * each + inside.length - 1}`}: ${cx.t("blk." + name)} ${who}`);
      });
      setAttr(root, "aria-label", cx.t(onHost ? "blk.host_map" : "res.map", { held: onHost ? kept.size : owners.size, total }));
      setText(scale, cx.t(each === 1 ? "res.legend" : "res.legend_many", { n: each }));
      show(scale, !onHost);
    },
  };
}

function blockList(ids, cap) {
  if (ids.length <= cap) return ids.join(", ");
  return `${ids.slice(0, cap - 1).join(", ")}, … ${ids[ids.length - 1]}`;
}

function reservePanel(cx) {
  const free = budgetRow(cx, "budget.blocks");
  const table = makeTable(cx, "cap.reserved", ["col.request", "#col.slot", "#col.cached_credit", "#col.held", "col.added", "#col.room"]);
  const none = cx.note("res.none");
  const map = poolMap(cx);
  const more = moreNote(cx);
  const root = h("div", null, h("div", { class: "ss-budgets" }, free.root), table.root, more.root, none, cx.label(h("h4"), "res.pool"), map.root);
  return {
    root,
    paint(frame) {
      const total = cx.store.header.limits.blocks;
      const size = cx.store.header.limits.tokens_per_block;
      const ledger = cx.store.ledgerAt(2 * cx.at);
      free.set(ledger.owners.size, total, heldParts(cx, ledger.owners));
      const added = new Map(frame.res.add);
      const slots = new Map(frame.res.slots);
      const credits = new Map(frame.res.cred);
      const spans = frame.sch.spans.slice(0, 40);
      show(none, frame.res.add.length === 0);
      more.paint(frame.sch.spans.length - spans.length);
      table.rows(spans.length, (item, at) => {
        const rid = spans[at][0];
        const meta = frame.meta.rid.indexOf(rid);
        const held = cx.store.tableAt(rid, cx.at).length;
        const news = added.get(rid) || [];
        tagRequest(item.root, rid);
        requestCell(cx, item.cells[0], rid);
        const slot = slots.has(rid) ? slots.get(rid) : meta >= 0 ? frame.meta.slots[meta] : -1;
        setText(item.cells[1], slot < 0 ? "–" : slot);
        setClass(item.cells[1], "ss-chg", slots.has(rid));
        setText(item.cells[2], credits.get(rid) || 0);
        setText(item.cells[3], held);
        setText(item.cells[4], news.length ? `+${news.length}: ${blockList(news, 8)}` : "–");
        setClass(item.cells[4], "ss-chg", news.length > 0);
        setText(item.cells[5], cx.t("res.room", { used: spans[at][2] + spans[at][3], room: held * size }));
      });
      show(map.root, total > 0);
      if (total > 0) map.paint(frame, total, ledger);
    },
  };
}
