// Stages Run, Sample and Commit: how the forward ran, which tokens came out, and who goes on.
const isAddress = ([name]) => name[0] === "fact.address";

function runPanel(cx) {
  const event = h("div", { class: "ss-event" });
  const kind = h("strong", { class: "ss-path" });
  const key = h("code");
  const took = h("span", { class: "ss-soft" });
  event.append(kind, " ", key, " ", took);
  const sentence = h("p", { class: "ss-lead" });
  const simulated = cx.label(h("p", { class: "ss-note ss-sim" }), "run.simulated");
  const verdict = (item) => {
    setClass(item.cells[0], "ss-result", true);
    item.mark = h("span", { class: "ss-mark", "aria-hidden": "true" });
    item.word = h("span");
    item.cells[0].append(item.mark, item.word);
    setClass(item.cells[2], "ss-code", true);
    setClass(item.cells[3], "ss-code", true);
  };
  const checks = makeTable(cx, "cap.replay_check", ["col.result", "col.item", "col.expected", "col.got"], verdict);
  const addresses = makeTable(cx, "cap.addresses", ["col.result", "col.tensor", "col.was", "col.now"], verdict);
  for (const table of [checks, addresses]) setClass(table.root, "ss-dense", true);
  const paintLines = (table, lines) =>
    table.rows(Math.min(lines.length, 40), (item, index) => {
      const [name, expected, got, passed] = lines[index];
      setAttr(item.root, "data-s", passed ? "yes" : "no");
      setText(item.mark, passed ? MARKS.yes : MARKS.no);
      setText(item.word, cx.t(passed ? "check.same" : "check.differs"));
      [name, expected, got].forEach((said, part) => setText(item.cells[part + 1], cx.fact(said)));
    });

  // What a graph has baked in beside what was seen there in this step; other tensors beside their first address here.
  // Seen, not compared: with the engine's checks off, a tensor that moved must show all the same.
  function addressLines(frame) {
    const buffers = frame.buf.map((entry) => cx.store.buffers[entry[0]]);
    const seen = new Map(buffers.map(({ layer, name, address }) => [(layer === LAYERS[1] ? "statics." : layer + ".") + name, formatAddress(address)]));
    const captured = frame.run.check.filter(isAddress).map(([[, { name }], expected, got]) => {
      const now = seen.get(name) || got;
      return [cx.t("run.captured", { name }), expected, now, expected === now];
    });
    const others = buffers.filter(({ layer }) => layer === LAYERS[0] || !captured.length);
    return [...captured, ...others.map((buffer) => {
      const first = cx.store.firstSeen.get(Store.place(buffer, frame));
      return [`${cx.t("layer." + buffer.layer)}: ${buffer.name}`, formatAddress(first), formatAddress(buffer.address), first === buffer.address];
    })].sort((one, other) => one[3] - other[3]); // what differs comes first
  }

  const noCheck = cx.note("run.no_check");
  const poolLine = h("p", { class: "ss-note" });
  const addressNote = cx.note("run.addresses");
  const root = h("div", null, event, sentence, simulated, poolLine, checks.root, noCheck, addresses.root, addressNote);
  return {
    root,
    paint(frame, at) {
      const run = frame.run;
      const before = at > 0 ? cx.store.frames[at - 1].run.pool : run.pool;
      setAttr(event, "data-p", run.path);
      setText(kind, cx.t("run." + run.path));
      setText(key, run.key === null ? "" : run.key);
      setText(took, cx.t("run.host", { us: formatUs(frame.us[7]) }));
      setText(sentence, cx.t("run.say." + run.path, { n: frame.n, key: run.key || "" }));
      show(simulated, run.sim && !frame.eager);
      const facts = run.check.filter((line) => !isAddress(line));
      show(checks.root, facts.length > 0);
      show(noCheck, facts.length === 0);
      paintLines(checks, facts);
      const lines = addressLines(frame);
      const isBaked = run.check.some(isAddress);
      paintLines(addresses, lines);
      show(addresses.root, lines.length > 0);
      show(addressNote, isBaked);
      setText(addresses.caption, cx.t(isBaked ? "cap.addresses" : "cap.first_addresses"));
      const own = cx.store.header.warmup.find((capture) => capture.key === run.key);
      const words = { bytes: formatBytes(run.pool), grew: formatBytes(run.pool - before), own: own ? formatBytes(own.bytes) : "" };
      setText(poolLine, cx.t(!run.pool ? (frame.released ? "run.pool_released" : "run.pool_none") : before !== run.pool ? "run.pool_grew" : own ? (own.bytes ? "run.pool_own" : "run.pool_shared") : "run.pool", words));
    },
  };
}

function samplePanel(cx) {
  const sentence = h("p", { class: "ss-lead" });
  const table = makeTable(cx, "cap.sampled", ["col.request", "#col.slot", "col.token", "#col.id", "#col.position", "#col.nth"], (item) => {
    item.token = h("span", { class: "ss-tok ss-newest" });
    item.note = h("span", { class: "ss-soft ss-gapl" });
    item.cells[2].append(item.token, item.note);
  });
  const root = h("div", null, sentence, table.root, cx.note("smp.note"));
  return {
    root,
    paint(frame) {
      const tokens = frame.out.tok;
      const silent = frame.sch.spans.filter((span) => span[4] === 0).length;
      setText(sentence, cx.t("smp.say", { n: tokens.length, silent }));
      show(table.root, tokens.length > 0);
      table.rows(Math.min(tokens.length, 40), (item, at) => {
        const [rid, token] = tokens[at];
        const meta = frame.meta.rid.indexOf(rid);
        const span = cx.store.spanOf(frame, rid);
        tagRequest(item.root, rid);
        requestCell(cx, item.cells[0], rid);
        const isWrong = Boolean(span) && frame.wrong.has(cx.firstRow(frame, rid) + span[3] - 1);
        setClass(item.root, "ss-wrong", isWrong);
        if (isWrong) setText(item.cells[0], "✗ " + cx.store.name(rid));
        setText(item.cells[1], meta >= 0 && frame.meta.slots[meta] >= 0 ? frame.meta.slots[meta] : "–");
        setText(item.token, cx.tokenText(token));
        setText(item.cells[3], token);
        // A verify row gives several tokens, one behind another: the accepted drafts, and the token behind them.
        const nth = tokens.slice(0, at).filter((one) => one[0] === rid).length;
        const many = tokens.filter((one) => one[0] === rid).length;
        const accepted = frame.acc.get(rid);
        setText(item.cells[4], span ? (accepted === undefined ? span[2] + span[3] : span[2] + 1 + nth) : "–");
        setText(item.cells[5], cx.store.numTokens(rid, cx.at) - many + nth + 1);
        setText(item.note, accepted === undefined ? "" : nth < accepted ? cx.t("smp.draft") : cx.t("smp.accepted", { n: accepted, k: frame.sch.k }));
      });
    },
  };
}

function commitPanel(cx) {
  const sentence = h("p", { class: "ss-lead" });
  const table = makeTable(cx, "cap.committed", ["col.request", "col.fate", "#col.generated", "col.next"], (item) => {
    item.word = h("span");
    item.cells[1].append(item.word);
  });
  const freed = h("p", { class: "ss-note" });
  const rewound = h("p", { class: "ss-note" });
  const root = h("div", null, sentence, table.root, freed, rewound, cx.note("com.note"));
  return {
    root,
    paint(frame) {
      const finished = new Map(frame.out.fin);
      const order = [...finished.keys(), ...frame.out.cont.filter((rid) => !finished.has(rid)), ...frame.sch.paused];
      setText(sentence, cx.t("com.say", { fin: finished.size, cont: frame.out.cont.length }));
      table.rows(Math.min(order.length, 40), (item, at) => {
        const rid = order[at];
        const request = cx.store.requests.get(rid) || {};
        const generated = cx.store.numTokens(rid, cx.at);
        const state = finished.has(rid) ? "finished" : frame.sch.paused.includes(rid) ? "paused" : "continues";
        tagRequest(item.root, rid);
        requestCell(cx, item.cells[0], rid);
        setAttr(item.root, "data-fate", state);
        setText(item.word, state === "finished" ? cx.t("fate.finished", { reason: ["finish." + finished.get(rid)] }) : cx.t("fate." + state));
        setText(item.cells[2], request.max ? `${generated} / ${request.max}` : generated);
        const cached = cx.store.cachedAt(rid, cx.at);
        setText(item.cells[3], cx.masked("next") ? "?" : state === "finished" ? cx.t("com.gone") : generated ? cx.t("com.next_decode", { at: cached }) : cx.t("com.next_chunk", { at: cached, whole: request.prompt }));
      });
      const gone = frame.out.freed.map((rid) => [rid, cx.store.tableAt(rid, cx.at).length]);
      show(freed, gone.length > 0);
      const back = [...frame.acc].filter(([, accepted]) => accepted < frame.sch.k);
      show(rewound, back.length > 0);
      setText(rewound, cx.t("com.rewound", { who: back.map(([rid, accepted]) => `${cx.store.name(rid)} −${frame.sch.k - accepted}`).join(", ") }));
      setText(freed, cx.t("com.freed", { who: gone.map(([rid, blocks]) => cx.t("com.freed_one", { who: cx.store.name(rid), n: blocks })).join("; ") }));
    },
  };
}
