// Stages Pack and Metadata: the flat layout of the step, and the lengths and tables that attention reads.
const ROWS_SHOWN = 64;
const HEAD_TOKENS = 24; // a long chunk travels as its first 24 and last 8 tokens (frames.py)
const TAIL_TOKENS = 8;

function tokenInGroup(group, offset) {
  const [, , , , , count, tokens] = group;
  if (count <= HEAD_TOKENS + TAIL_TOKENS) return tokens[offset];
  if (offset < HEAD_TOKENS) return tokens[offset];
  const fromEnd = count - offset;
  return fromEnd <= TAIL_TOKENS ? tokens[HEAD_TOKENS + TAIL_TOKENS - fromEnd] : undefined;
}

// Lays groups out as visible lines: long groups keep their first and last rows and count what lies between.
function visibleRows(frame) {
  const lines = [];
  let row = 0;
  const long = frame.rows.length > 4 ? 6 : 10;
  for (const group of frame.rows) {
    const count = group[5];
    for (let offset = 0; offset < count; offset += 1) {
      if (count > long && offset === long - 3) {
        const hidden = count - (long - 2);
        lines.push({ row: row + offset, group, more: hidden });
        offset += hidden - 1;
        continue;
      }
      lines.push({ row: row + offset, group, offset });
    }
    row += count;
  }
  return lines;
}

// The whole step as one strip: a segment for each group of rows, so that order and proportions show at a glance.
function layoutStrip(cx) {
  const root = h("div", { class: "ss-strip", role: "img" });
  const segments = pool(root, () => ({ root: h("span", { class: "ss-seg" }) }));
  return {
    root,
    paint(frame) {
      const shown = frame.rows.slice(0, 40);
      segments(shown.length, (item, at) => {
        const [rid, kind, , , , count] = shown[at];
        setAttr(item.root, "data-k", KINDS[kind]);
        setAttr(item.root, "style", `flex-grow:${Math.sqrt(count).toFixed(2)}`);
        setText(item.root, (kind === 3 ? "P" : cx.store.name(rid)) + (count > 1 ? ` ×${count}` : ""));
        tagRequest(item.root, kind === 3 ? null : rid);
      });
      setAttr(root, "aria-label", shown.map((group) => `${KINDS[group[1]]} ${cx.store.name(group[0])} ${group[5]}`).join(", "));
    },
  };
}

function rowsPanel(cx, withBuffers) {
  const summary = h("p", { class: "ss-lead" });
  const strip = layoutStrip(cx);
  const table = makeTable(cx, "cap.rows", ["col.row", "col.kind", "col.request", "col.token", "#col.id", "#col.position", "col.source", "col.head"], (item) => {
    item.badge = kindBadge();
    item.cells[1].append(item.badge);
    item.token = h("span", { class: "ss-tok" });
    item.cells[3].append(item.token);
  });
  setClass(table.root, "ss-dense", true);
  const more = h("p", { class: "ss-note" });
  const notes = h("div");
  const noteLines = pool(notes, () => ({ root: h("p", { class: "ss-note" }) }));
  const list = h("div");
  const ribbons = pool(list, () => ribbon(cx));
  const become = h("div", null, cx.label(h("h4"), "rows.become"), list);
  const root = h("div", null, summary, notes, strip.root, table.root, more, withBuffers ? become : null);

  // What is special about this step's rows: wrong ones first.
  function remarks(frame) {
    const found = [...frame.wrong].slice(0, 4).map(([row, text]) => ["rows.wrong", { row, text }]);
    if (frame.sch.prom.length) found.push(["rows.promoted", cx.who(frame.sch.prom)]);
    if (frame.prefill && frame.meta.padded > frame.n) found.push(["rows.tail", { n: frame.meta.padded - frame.n, from: frame.n, to: frame.meta.padded - 1 }]);
    if (frame.sch.k) found.push(["rows.verify", { k: frame.sch.k, n: frame.acc.size }]);
    if (frame.late.size) found.push(["rows.late_say", { n: frame.late.size }]);
    if (frame.run.steady) found.push(["rows.not_steady", { why: ["steady." + frame.run.steady] }]);
    return found;
  }

  function paintLine(item, line, gathered, frame) {
    const [rid, kind, source, slot, start] = line.group;
    const isMore = line.more !== undefined;
    const token = isMore ? undefined : tokenInGroup(line.group, line.offset);
    tagRequest(item.root, kind === 3 ? null : rid);
    setClass(item.root, "ss-more", isMore);
    const isWrong = !isMore && frame.wrong.has(line.row);
    setClass(item.root, "ss-wrong", isWrong);
    setAttr(item.root, "title", isWrong ? cx.fact(frame.wrong.get(line.row)) : null);
    setText(item.cells[0], isMore ? "⋮" : isWrong ? "✗ " + line.row : line.row);
    setKind(item.badge, KINDS[kind], cx);
    setText(item.cells[2], kind === 3 ? cx.store.dummy : cx.store.name(rid));
    setClass(item.cells[2], "ss-rid", kind !== 3);
    setText(item.token, isMore ? cx.t("more.rows", { n: line.more }) : kind === 3 ? "–" : cx.tokenText(token));
    setClass(item.token, "ss-tok", !isMore);
    setText(item.cells[4], isMore || token === undefined || token < 0 ? "" : token);
    setText(item.cells[5], isMore ? "" : start + line.offset);
    const late = isMore ? undefined : frame.late.get(line.row);
    setText(item.cells[6], isMore ? "" : cx.t("src." + SOURCES[source], { slot }) + (late === undefined ? "" : " " + cx.t("rows.late", { step: late })));
    setText(item.cells[7], gathered.has(line.row) && !isMore ? "●" : "");
  }

  return {
    root,
    paint(frame) {
      const lines = visibleRows(frame);
      const shown = Math.min(lines.length, ROWS_SHOWN);
      const gathered = new Set(frame.gid);
      const kinds = [0, 0, 0, 0];
      for (const group of frame.rows) kinds[group[1]] += group[5];
      setText(summary, cx.t(frame.steady ? "rows.steady" : "rows.full", { n: frame.n, c: kinds[0], e: kinds[1], g: kinds[2], p: kinds[3] }));
      strip.paint(frame);
      table.rows(shown, (item, at) => paintLine(item, lines[at], gathered, frame));
      const said = remarks(frame);
      noteLines(said.length, (item, at) => {
        setText(item.root, cx.t(said[at][0], said[at][1]));
        setClass(item.root, "ss-finding", said[at][0] === "rows.wrong");
      });
      show(more, lines.length > shown);
      if (withBuffers) {
        const lookup = bufferLookup(cx, frame);
        const entries = frame.buf.filter((entry) => PER_ROW.includes(cx.store.buffers[entry[0]].name) && cx.store.buffers[entry[0]].layer === LAYERS[0]);
        ribbons(entries.length, (item, at) => item.paint(frame, entries[at], lookup));
      }
      setText(more, cx.t("more.rows", { n: lines.slice(shown).reduce((sum, line) => sum + (line.more || 1), 0) }));
    },
  };
}

function lengthBar() {
  const past = h("i", { class: "ss-past" });
  const now = h("i", { class: "ss-now" });
  const root = h("span", { class: "ss-chunk ss-kv" }, past, now);
  return {
    root,
    set: (cached, fresh, longest) => {
      setAttr(past, "style", `width:${(100 * cached) / longest}%`);
      setAttr(now, "style", `width:${Math.max(1.5, (100 * fresh) / longest)}%`);
    },
  };
}

function metadataPanel(cx) {
  const summary = h("p", { class: "ss-lead" });
  const lengths = makeTable(cx, "cap.lengths", ["#col.sequence", "col.request", "#col.slot", "#col.q", "#col.cached", "#col.kv", "col.bar"], (item) => {
    item.bar = lengthBar();
    item.cells[6].append(item.bar.root);
    item.parts = [3, 4, 5].map((at) => {
      const value = h("span");
      const change = h("small", { class: "ss-diff" });
      item.cells[at].append(value, change);
      return { value, change };
    });
  });
  const tables = makeTable(cx, "cap.block_tables", ["col.request", "col.blocks"], (item) => {
    item.list = h("span", { class: "ss-blocks" });
    item.cells[1].append(item.list);
    item.chips = pool(item.list, () => ({ root: h("span", { class: "ss-chip" }) }));
    item.extra = h("span", { class: "ss-soft" });
    item.cells[1].append(item.extra);
  });
  const more = moreNote(cx);
  const root = h("div", null, summary, lengths.root, tables.root, more.root, cx.note("meta.note"));
  const nameOf = (frame, at) => (at >= frame.path.n && frame.pad ? cx.store.dummy : cx.store.name(frame.meta.rid[at]));

  function paintTable(item, frame, at) {
    const rid = frame.meta.rid[at];
    const blocks = cx.store.tableAt(rid, cx.at);
    const before = cx.at > 0 ? cx.store.tableAt(rid, cx.at - 1) : [];
    const current = cx.store.header.limits.tokens_per_block ? Math.floor((frame.meta.kv[at] - 1) / cx.store.header.limits.tokens_per_block) : -1;
    const first = Math.max(0, blocks.length - 18); // the end of a table is where things happen
    tagRequest(item.root, cx.store.isDummy(rid) ? null : rid);
    setText(item.cells[0], nameOf(frame, at));
    item.chips(blocks.length - first, (chip, index) => {
      const place = first + index;
      const isNew = before[place] !== blocks[place];
      setText(chip.root, blocks[place]);
      setAttr(chip.root, "data-s", isNew ? "new" : place > current ? "ahead" : "old");
      setClass(chip.root, "ss-writes", place === current);
    });
    setText(item.extra, first ? " " + cx.t("more.earlier", { n: first }) : "");
  }

  return {
    root,
    paint(frame, at) {
      const meta = frame.meta;
      const shown = Math.min(meta.rid.length, 40);
      const longest = Math.max(1, ...meta.kv);
      const last = at > 0 ? cx.store.frames[at - 1].meta : null;
      setText(summary, cx.t(frame.path.key === null ? "meta.eager" : "meta.graph", { backend: meta.be, obj: meta.obj.toString(16).slice(-6), contexts: meta.nctx, n: meta.n }));
      lengths.rows(shown, (item, index) => {
        const rid = meta.rid[index];
        const was = last ? last.rid.indexOf(rid) : -1;
        tagRequest(item.root, cx.store.isDummy(rid) ? null : rid);
        setText(item.cells[0], index);
        setText(item.cells[1], nameOf(frame, index));
        setClass(item.cells[1], "ss-rid", !cx.store.isDummy(rid));
        setText(item.cells[2], meta.slots[index] < 0 ? "–" : meta.slots[index]);
        ["q", "cached", "kv"].forEach((field, part) => {
          const now = meta[field][index];
          const grew = was < 0 ? null : now - last[field][was];
          setText(item.parts[part].value, now);
          setText(item.parts[part].change, grew === null ? (part === 0 ? cx.t("meta.new") : "") : grew ? `Δ${grew > 0 ? "+" : "−"}${Math.abs(grew)}` : "");
        });
        item.bar.set(meta.cached[index], meta.q[index], longest);
      });
      tables.rows(shown, (item, index) => paintTable(item, frame, index));
      more.paint(meta.rid.length - shown);
    },
  };
}
