// View Overlap: what the host did in which order, and between which of it each step was on the device.
const HOST_PARTS = [["layout", 0, 6], ["launch", 7, 7], ["read", 8, 8], ["commit", 9, 9]]; // stages of the engine

function overlapPanel(cx) {
  const lead = h("p", { class: "ss-lead" });
  const note = h("p", { class: "ss-note" });
  const lanes = h("div", { class: "ss-lanes", role: "img", tabindex: "0" });
  const names = ["ovl.host", "ovl.device"].map((id, at) => cx.label(h("span", { class: "ss-lane", style: `grid-row:${at + 1}${at ? "/span 2" : ""};grid-column:1` }), id));
  lanes.append(...names);
  const boxes = pool(lanes, () => ({ root: h("span", { class: "ss-event-box" }) }));
  const scale = h("div", { class: "ss-lanes ss-to-scale", role: "img" });
  const runs = pool(scale, () => ({ root: h("span", { class: "ss-event-box" }) }));
  const table = makeTable(cx, "cap.events", ["#col.order", "col.lane", "#col.step", "col.what", "#col.host"]);
  const late = makeTable(cx, "cap.late", ["col.row", "col.request", "col.token", "col.sampled_by"]);
  const root = h("div", null, lead, lanes, scale, note, table.root, late.root);

  // This step and its neighbours, event by event; a lane's place is its turn, not its time.
  function eventsAround(at) {
    const events = [];
    for (const frame of cx.store.frames.slice(Math.max(0, at - 1), at + 2)) {
      const order = frame.run.fl[0];
      if (!order.length) continue;
      for (const [name, from, to] of HOST_PARTS) events.push({ at: order[from], name, frame, us: frame.us.slice(from, to + 1).reduce((sum, us) => sum + (us || 0), 0) });
    }
    return events.sort((one, other) => one.at - other.at);
  }

  function paintLanes(events, here) {
    const turn = (frame, name) => events.findIndex((event) => event.frame === frame && event.name === name);
    const steps = [...new Set(events.map((event) => event.frame))];
    const shown = [...events.map(({ frame, name }, at) => ({ frame, text: cx.t("ovl." + name, { step: frame.s }), row: 1, from: at, to: at })), ...steps.map((frame) => ({ frame, text: cx.t("ovl.open", { step: frame.s }), row: 2 + (frame.s % 2), from: turn(frame, "launch"), to: turn(frame, "read") }))];
    boxes(shown.length, (item, at) => {
      const { frame, text, row, from, to } = shown[at];
      setText(item.root, text);
      setAttr(item.root, "data-s", frame === here ? "here" : null);
      setAttr(item.root, "data-lane", row > 1 ? "device" : "host");
      setAttr(item.root, "style", `grid-row:${row};grid-column:${from + 2}/${to + 3}`);
    });
    setAttr(lanes, "aria-label", shown.slice(0, events.length).map((one) => one.text).join(", "));
    return steps;
  }

  // To scale only where device events measured it.
  function paintScale(steps) {
    const timed = steps.filter((frame) => frame.run.fl[3]);
    const begin = timed.length ? timed[0].run.fl[3][0] : 0;
    const length = timed.length ? Math.max(1, timed[timed.length - 1].run.fl[3][1] - begin) : 1;
    show(scale, timed.length > 0);
    const labels = timed.map((frame) => `${frame.s}: ${formatUs(frame.run.fl[3][1] - frame.run.fl[3][0])}`);
    runs(timed.length, (item, at) => {
      const [from, to] = timed[at].run.fl[3];
      setText(item.root, labels[at]);
      setAttr(item.root, "title", labels[at]);
      setAttr(item.root, "style", `left:${(100 * (from - begin)) / length}%;width:${(100 * (to - from)) / length}%`);
    });
    const gaps = timed.slice(1).map((frame, at) => formatUs(frame.run.fl[3][0] - timed[at].run.fl[3][1]));
    setAttr(scale, "aria-label", labels.join(", "));
    return gaps;
  }

  return {
    root,
    paint(frame, at) {
      const events = eventsAround(at);
      const unread = frame.run.fl[1];
      setText(lead, cx.t(!events.length ? "ovl.unknown" : unread.length ? "ovl.say_open" : "ovl.say_closed", { step: frame.s, before: unread[unread.length - 1] }));
      show(lanes, events.length > 0);
      const gaps = paintScale(paintLanes(events, frame));
      setText(note, [cx.t(gaps.length ? "ovl.timed" : "ovl.order", { gaps: gaps.join(", ") }), cx.store.header.device.startsWith("cpu") ? cx.t("ovl.cpu") : ""].join(" "));
      show(table.root, events.length > 0);
      table.rows(events.length, (item, index) => {
        const { frame: one, name, us } = events[index];
        setAttr(item.root, "aria-current", one === frame ? "step" : null);
        [index + 1, cx.t(name === "launch" ? "ovl.both" : "ovl.host"), one.s, cx.t("does." + name, { step: one.s }), formatUs(us)].forEach((value, column) => setText(item.cells[column], value));
      });
      const rows = [...frame.late].slice(0, 40);
      show(late.root, rows.length > 0);
      const lines = visibleRows(frame);
      late.rows(rows.length, (item, index) => {
        const [row, step] = rows[index];
        const line = lines.find((one) => one.row === row && one.more === undefined);
        const rid = line ? line.group[0] : null;
        tagRequest(item.root, rid);
        [row, rid === null ? "–" : cx.store.name(rid), line ? cx.tokenText(tokenInGroup(line.group, line.offset)) : "…", step].forEach((value, column) => setText(item.cells[column], value));
      });
    },
  };
}
