// Stage Copy: the persistent tensors with the writer and the age of every row.
// A row above the live range keeps what an earlier step left there; it is drawn dashed with its age, never blank.
const CELLS = 32;
const PER_ROW = ["input_ids", "position_ids"];
const NONE = new Map();
const WRITER_MARKS = ["", "↓", "⇄", "+1", "0", "⇒"]; // host copy, device gather, in-place add, zero fill, device copy

function ribbon(cx) {
  const name = h("strong", { class: "ss-code" });
  const facts = h("span", { class: "ss-soft ss-small" });
  const cellsNode = h("div", { class: "ss-cells", role: "img" });
  const wrote = h("span", { class: "ss-wrote" });
  const rest = h("span", { class: "ss-soft ss-small" });
  const root = h("div", { class: "ss-ribbon" }, h("div", { class: "ss-ribbon-head" }, name, wrote, facts), cellsNode, rest);
  const cells = pool(cellsNode, () => {
    const value = h("b");
    const note = h("small");
    return { root: h("span", { class: "ss-cell" }, value, note), value, note };
  });

  function originAt(origins, row, from) {
    for (let at = from; at < origins.length; at += 1) if (row < origins[at][1]) return row >= origins[at][0] ? at : -1;
    return -1;
  }

  function paintCell(cell, row, context) {
    const { frame, live, origin, value, rid, kind } = context;
    const isLive = row < live;
    const age = origin ? frame.s - origin[2] : null;
    const unread = age === 0 ? "spare" : "stale";
    const state = !origin ? (isLive ? "unwritten" : "empty") : !isLive ? unread : age === 0 ? "live" : "kept";
    setAttr(cell.root, "data-s", state);
    setAttr(cell.root, "data-k", isLive && kind !== null ? KINDS[kind] : null);
    tagRequest(cell.root, rid);
    setText(cell.value, value === null || value === undefined ? (state === "empty" ? "" : "·") : value);
    setText(cell.note, state === "live" || state === "spare" ? WRITER_MARKS[origin[3]] : age === null ? "" : origin[2] < 0 ? cx.t("buf.warm") : `−${age}`);
    setAttr(cell.root, "title", cx.t("buf.cell." + state + (origin && origin[2] < 0 ? ".before" : ""), { row, writer: origin ? ["writer." + WRITERS[origin[3]]] : "", step: origin ? origin[2] : "", age: age || 0 }));
    setClass(cell.root, "ss-edge", row === live);
    setClass(cell.root, "ss-wrong", context.wrong.has(row));
  }

  return {
    root,
    paint(frame, entry, lookup) {
      const [index, live, origins, values] = entry;
      const buffer = cx.store.buffers[index];
      const known = origins.length ? origins[origins.length - 1][1] : 0;
      const shown = Math.min(buffer.capacity, CELLS, Math.max(16, Math.ceil((live + 1) / 16) * 16));
      setText(name, buffer.name);
      setText(facts, cx.t("buf.facts", { dtype: buffer.dtype, capacity: buffer.capacity, address: formatAddress(buffer.address), live: live ? `0–${live - 1}` : "∅" }));
      const wrong = PER_ROW.includes(buffer.name) ? frame.wrong : NONE;
      let at = 0;
      cells(shown, (cell, row) => {
        const found = originAt(origins, row, at);
        if (found >= 0) at = found;
        const origin = found >= 0 ? origins[found] : null;
        const known_ = lookup(buffer.name, row, live, origin);
        const value = values && row < values.length ? values[row] : known_.value;
        paintCell(cell, row, { frame, live, origin, value, rid: known_.rid, kind: known_.kind, wrong });
      });
      const counts = new Map();
      for (const [start, end, step, writer] of origins) if (step === frame.s) counts.set(writer, (counts.get(writer) || 0) + end - start);
      const by = [...counts].map(([writer, n]) => cx.t("buf.wrote", { n, writer: ["writer." + WRITERS[writer]], mark: WRITER_MARKS[writer] }));
      const hidden = Math.max(0, known - shown);
      setText(wrote, by.length ? by.join(" · ") : cx.t("buf.untouched"));
      setText(rest, hidden ? cx.t("buf.hidden", { n: hidden, runs: origins.filter((o) => o[1] > shown).length }) : "");
      setAttr(cellsNode, "aria-label", cx.t("buf.aria", { name: buffer.name, live, known }));
    },
  };
}

// What the host packed is known without reading the device, in this step and in the one that left a stale row.
function rowFacts(frame, wanted) {
  let row = 0;
  for (const group of frame.rows) {
    if (wanted < row + group[5]) return { rid: group[1] === 3 ? null : group[0], kind: group[1], token: tokenInGroup(group, wanted - row), position: group[4] + wanted - row };
    row += group[5];
  }
  return null;
}

function bufferLookup(cx, frame) {
  return (name, row, live, origin) => {
    const isTokens = name === "input_ids";
    const isPositions = name === "position_ids";
    if (row >= live) {
      const old = origin && (isTokens || isPositions) ? cx.store.frameOf(origin[2]) : null;
      const left = old ? rowFacts(old, row) : null;
      return { value: left ? (isTokens ? left.token : left.position) : null, rid: null, kind: null };
    }
    const facts = isTokens || isPositions || name === "row_to_sequence" ? rowFacts(frame, row) : null;
    if (!facts) return { value: valueOf(frame, name, row), rid: null, kind: null };
    const value = isPositions ? facts.position : isTokens && facts.token >= 0 ? facts.token : null;
    return { value, rid: facts.rid, kind: facts.kind };
  };
}

function valueOf(frame, name, row) {
  const columns = { kv_lens: frame.meta.kv, seq_lens: frame.meta.q, seq_slots: frame.meta.slots, gather_ids: frame.gid };
  const column = columns[name];
  return column && row < column.length ? column[row] : null;
}

function buffersPanel(cx) {
  const legend = h("p", { class: "ss-legend" });
  for (const state of ["live", "kept", "stale", "spare", "empty"]) {
    const boxes = (state === "live" ? ["C", "G", "P", null] : [null]).map((kind) => h("span", { class: "ss-cell ss-sample", "data-s": state, "data-k": kind, "aria-hidden": "true", text: state === "stale" ? "−3" : "" }));
    legend.append(h("span", null, boxes, cx.label(h("span"), "buf.legend." + state)));
  }
  const marks = cx.note("buf.marks");
  const layers = LAYERS.map((layer) => {
    const list = h("div");
    const none = cx.note("layer.none");
    const root = h("section", { class: "ss-layer" }, cx.label(h("h4"), "layer." + layer), cx.note("layer." + layer + ".what"), none, list);
    return { root, none, ribbons: pool(list, () => ribbon(cx)) };
  });
  const root = h("div", null, legend, marks, layers.map((layer) => layer.root));

  return {
    root,
    paint(frame) {
      const lookup = bufferLookup(cx, frame);
      layers.forEach((layer, code) => {
        const entries = frame.buf.filter((entry) => LAYERS.indexOf(cx.store.buffers[entry[0]].layer) === code);
        show(layer.none, entries.length === 0);
        layer.ribbons(entries.length, (item, at) => item.paint(frame, entries[at], lookup));
      });
    },
  };
}
