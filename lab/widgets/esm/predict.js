// Predict: the coming step is hidden until a choice was made; answers live in a trait, so they survive, and the kernel
// writes them down. What may be asked: its way is path and bucket in one; a cell is a place in a list of the step.
const ASKS = ["way", "batch", "bucket", "path", "cell"];
const CELL_LISTS = ["input_ids", "position_ids", "seq_lens", "kv_lens", "seq_slots", "gather_ids", "block_table"];

// What a cell held: "none" where the step has no such cell, undefined where the trace does not tell.
function cellValue(cx, frame, cell) {
  const [, name, place, column] = /(\w+)\[(\d+)\](?:\[(\d+)\])?/.exec(cell);
  const held = (list) => (+place < list.length ? list[+place] : "none");
  if (name === "block_table") {
    const table = +place < frame.meta.rid.length ? cx.store.tableAt(frame.meta.rid[+place], cx.store.atStep.get(frame.s)) : [];
    return +column < table.length ? table[+column] : "none";
  }
  if (name === "gather_ids") return held(frame.gid);
  const lists = { seq_lens: frame.meta.q, kv_lens: frame.meta.kv, seq_slots: frame.meta.slots };
  if (lists[name]) return held(lists[name]);
  const facts = rowFacts(frame, +place);
  if (!facts) return "none";
  return name === "position_ids" ? facts.position : facts.token >= 0 ? facts.token : undefined;
}

// A cell is chosen by list and place, and answered by a number, or by saying that the step has no such cell.
function cellPart(cx) {
  const list = h("select", null, CELL_LISTS.map((name) => h("option", { value: name, text: name })));
  const number = (min) => h("input", { type: "number", min, step: "1", value: "0" });
  const place = number("0");
  const column = number("0");
  const value = number(null);
  const choose = () => cx.set({ cell: `${list.value}[${Math.max(0, place.value | 0)}]${list.value === "block_table" ? `[${Math.max(0, column.value | 0)}]` : ""}` });
  for (const node of [list, place, column]) node.addEventListener("input", choose);
  const give = () => value.value !== "" && cx.act.answer(String(+value.value));
  value.addEventListener("keydown", (event) => event.key === "Enter" && give());
  const field = (id, node) => h("label", null, cx.label(h("span", { class: "ss-soft" }), id), " ", node);
  const second = field("predict.column", column);
  const which = h("div", { class: "ss-options", role: "group" }, field("predict.list", list), field("predict.place", place), second);
  cx.named(which, "predict.which");
  const button = (id, onclick) => cx.label(h("button", { type: "button", onclick }), id);
  const answer = h("div", { class: "ss-options" }, field("predict.value", value), button("predict.give", give), button("predict.cell_none", () => cx.act.answer("none")));
  const root = h("div", null, which, answer);
  let asked = "";
  return {
    root,
    paint(frame, hidden) {
      const [, name, first, last] = /(\w+)\[(\d+)\](?:\[(\d+)\])?/.exec(cx.cell);
      if (!list.matches(":focus")) list.value = name;
      if (!place.matches(":focus")) place.value = first;
      if (!column.matches(":focus")) column.value = last || "0";
      if (asked !== frame.s + cx.cell) value.value = "";
      asked = frame.s + cx.cell;
      show(second, name === "block_table");
      show(answer, hidden);
    },
  };
}

function predictPart(cx) {
  const kinds = cx.named(h("div", { class: "ss-options", role: "group" }, ASKS.map((ask) => cx.label(h("button", { type: "button", onclick: () => cx.set({ ask }) }), "predict.what." + ask))), "predict.what");
  const question = h("p", { class: "ss-lead" });
  const options = h("div", { class: "ss-options", role: "group" });
  cx.named(options, "predict.options");
  const buttons = pool(options, () => {
    const item = { choice: "", root: h("button", { type: "button" }) };
    item.root.addEventListener("click", () => cx.act.answer(item.choice));
    return item;
  });
  const cells = cellPart(cx);
  const verdict = h("p", { class: "ss-lead ss-answer" });
  const score = h("p", { class: "ss-note" });
  const root = h("section", { class: "ss-predict" }, kinds, question, cells.root, options, verdict, score);
  const ways = { eager: ["run.eager"], idle: ["run.idle"], prefill: ["run.prefill_replay"], none: ["predict.none"] };
  const named = (choice) => (cx.model.get("ask") === "path" ? ["run." + choice] : ways[choice] || (cx.topic === "way" ? ["predict.bucket", { bucket: choice }] : [choice]));

  function choicesOf(frame) {
    const { buckets: all, prefill } = cx.store.header;
    const buckets = all.slice(0, 16);
    const segments = (name) => (prefill.length ? [name] : []);
    const idle = cx.store.hasIdle ? ["idle"] : [];
    return {
      way: ["eager", ...idle, ...segments("prefill"), ...buckets],
      batch: Array.from({ length: Math.min(16, frame.sch.bud[3]) }, (_, i) => i + 1),
      bucket: [0, ...buckets, ...prefill],
      path: ["eager", ...idle, "replay", ...segments("prefill_replay")],
    }[cx.topic] || [];
  }

  return {
    root,
    paint(frame, at) {
      const choices = choicesOf(frame).map(String);
      const ask = cx.model.get("ask");
      ASKS.forEach((one, index) => setAttr(kinds.children[index], "aria-pressed", one === ask));
      const answer = cx.answers[frame.s + cx.topic];
      const hidden = cx.hidden(at);
      const isUntold = ask === "cell" && cx.truth(frame, cx.topic) === "undefined";
      const id = hidden ? "predict.ask." + ask : isUntold ? "predict.untold" : answer !== undefined ? "predict.asked" : cx.isEnd ? "predict.end" : "predict.start";
      setText(question, cx.t(id, { step: frame.s, n: frame.path.n, contexts: frame.sch.spans.filter((span) => span[1] === 0).length, rows: frame.sch.bud[0], cell: cx.cell }));
      show(cells.root, ask === "cell");
      if (ask === "cell") cells.paint(frame, hidden);
      show(options, hidden && choices.length > 0);
      buttons(choices.length, (item, index) => {
        item.choice = choices[index];
        setText(item.root, cx.t(...named(item.choice)));
      });
      show(verdict, !hidden && answer !== undefined);
      if (!hidden && answer !== undefined) {
        const truth = cx.truth(frame, cx.topic);
        const why = ask !== "way" || frame.idle ? "" : frame.eager ? ["why." + frame.path.reason, frame.path.args] : ["predict.fits", seats(frame)];
        setAttr(verdict, "data-s", answer === truth ? "ok" : "no");
        setText(verdict, (answer === truth ? "✓ " : "✗ ") + cx.t(answer === truth ? "predict.right" : "predict.wrong", { truth: named(truth), mine: named(answer), why }));
      }
      const asked = Object.keys(cx.answers);
      const right = asked.filter((key) => {
        const [, step, topic] = /(\d+)(.*)/.exec(key);
        const one = cx.store.frameOf(+step);
        return one && cx.answers[key] === cx.truth(one, topic);
      }).length;
      setText(score, asked.length ? cx.t("predict.score", { right, n: asked.length }) : "");
    },
  };
}
