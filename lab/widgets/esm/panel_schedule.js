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

function budgetRow(cx, id) {
  const bar = meter("ss-budget");
  const value = h("span", { class: "ss-num" });
  const root = h("div", { class: "ss-budget-row" }, cx.label(h("span"), id), bar.root, value);
  return {
    root,
    set: (used, limit, textId) => {
      bar.set(limit ? used / limit : 0);
      setClass(root, "ss-full", limit && used >= limit);
      setText(value, cx.t(textId || "budget.of", { used, limit }));
    },
  };
}

function schedulePanel(cx) {
  const budgets = { rows: budgetRow(cx, "budget.rows"), requests: budgetRow(cx, "budget.requests"), blocks: budgetRow(cx, "budget.blocks") };
  const runs = makeTable(cx, "cap.runs", ["col.request", "col.kind", "col.prompt", "col.rows", "col.positions"], (item) => {
    item.badge = kindBadge();
    item.bar = chunkBar();
    item.word = h("span", { class: "ss-soft" });
    item.cells[1].append(item.badge, " ", item.word);
    item.note = h("span", { class: "ss-soft ss-gapl" });
    item.cells[2].append(item.bar.root, item.note);
    setClass(item.cells[3], "ss-num", true);
    setClass(item.cells[4], "ss-num", true);
  });
  const waits = makeTable(cx, "cap.waits", ["col.request", "col.reason", "col.meaning", "col.needed", "col.available"], (item) => {
    item.code = h("code", { class: "ss-reason" });
    item.cells[1].append(item.code);
    setClass(item.cells[3], "ss-num", true);
    setClass(item.cells[4], "ss-num", true);
  });
  const paused = h("p", { class: "ss-note" });
  const empty = cx.label(h("p", { class: "ss-note" }), "sch.nobody_waits");
  const more = moreNote(cx);
  const root = h("div", null, h("div", { class: "ss-budgets" }, Object.values(budgets).map((row) => row.root)), runs.root, more.root, waits.root, empty, paused);

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
      setText(item.note, isContext ? cx.t(logits ? "sch.last_chunk" : "sch.chunk", { done: start + count, whole: request ? request.prompt : "?" }) : cx.t("sch.decodes", { n: cx.store.tokensUpTo(rid, cx.at).length }));
      setText(item.cells[3], count);
      setText(item.cells[4], count === 1 ? start : `${start}–${start + count - 1}`);
    });
    more.paint(spans.length - shown);
  }

  function paintWaits(frame) {
    const deferrals = frame.sch.def;
    show(waits.root, deferrals.length > 0);
    show(empty, deferrals.length === 0);
    waits.rows(Math.min(deferrals.length, 40), (item, at) => {
      const [rid, reason, needed, available] = deferrals[at];
      tagRequest(item.root, rid);
      requestCell(cx, item.cells[0], rid);
      setText(item.code, reason);
      setText(item.cells[2], cx.t("defer." + reason));
      setText(item.cells[3], needed);
      setText(item.cells[4], available);
    });
  }

  return {
    root,
    paint(frame) {
      const [tokens, maxTokens, requests, maxRequests, free] = frame.sch.bud;
      const blocks = cx.store.header.limits.blocks;
      budgets.rows.set(tokens, maxTokens);
      budgets.requests.set(requests, maxRequests);
      show(budgets.blocks.root, free !== null && blocks > 0);
      if (free !== null && blocks) budgets.blocks.set(blocks - free, blocks);
      paintRuns(frame);
      paintWaits(frame);
      show(paused, frame.sch.paused.length > 0);
      setText(paused, cx.t("sch.paused", { who: frame.sch.paused.map((rid) => cx.store.name(rid)).join(", ") }));
    },
  };
}

// The pool as a map: one cell a block, or one cell for several when the pool is large.
function poolMap(cx) {
  const root = h("div", { class: "ss-pool", role: "img" });
  const cells = pool(root, () => ({ root: h("span", { class: "ss-block" }) }));
  const scale = h("p", { class: "ss-note" });
  return {
    root: h("div", null, root, scale),
    paint(frame) {
      const total = cx.store.header.limits.blocks;
      const owner = new Map();
      for (const [rid, blocks] of cx.store.holders(cx.at)) for (const block of blocks) owner.set(block, rid);
      const fresh = new Set(frame.res.add.flatMap((entry) => entry[1]));
      for (const [rid, added] of frame.res.add) for (const block of added) owner.set(block, rid);
      const each = Math.max(1, Math.ceil(total / 160));
      const count = Math.ceil(total / each);
      cells(count, (item, at) => {
        const inside = [];
        for (let block = at * each; block < Math.min(total, (at + 1) * each); block += 1) if (owner.has(block)) inside.push(block);
        const rid = inside.length ? owner.get(inside[0]) : null;
        const isNew = inside.some((block) => fresh.has(block));
        tagRequest(item.root, rid);
        setText(item.root, rid === null ? "" : cx.store.isDummy(rid) ? "P" : inside.some((block) => owner.get(block) !== rid) ? "…" : rid);
        setAttr(item.root, "data-s", isNew ? "new" : rid === null ? "free" : cx.store.isDummy(rid) ? "pad" : "held");
        setAttr(item.root, "title", each === 1 ? `${at}` : `${at * each}–${Math.min(total, (at + 1) * each) - 1}`);
      });
      setAttr(root, "aria-label", cx.t("res.map", { held: owner.size, total }));
      setText(scale, cx.t(each === 1 ? "res.legend" : "res.legend_many", { n: each }));
    },
  };
}

function blockList(ids, cap) {
  if (ids.length <= cap) return ids.join(", ");
  return `${ids.slice(0, cap - 1).join(", ")}, … ${ids[ids.length - 1]}`;
}

function reservePanel(cx) {
  const free = budgetRow(cx, "budget.blocks");
  const table = makeTable(cx, "cap.reserved", ["col.request", "col.slot", "col.cached_credit", "col.held", "col.added", "col.room"], (item) => {
    for (const at of [1, 2, 3, 5]) setClass(item.cells[at], "ss-num", true);
  });
  const none = cx.label(h("p", { class: "ss-note" }), "res.none");
  const map = poolMap(cx);
  const more = moreNote(cx);
  const root = h("div", null, h("div", { class: "ss-budgets" }, free.root), table.root, more.root, none, cx.label(h("h4"), "res.pool"), map.root);
  return {
    root,
    paint(frame) {
      const total = cx.store.header.limits.blocks;
      const size = cx.store.header.limits.tokens_per_block;
      free.set(total - frame.res.free, total);
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
      if (total > 0) map.paint(frame);
    },
  };
}
