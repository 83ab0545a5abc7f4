// The context that every part shares: words, state (kept in traits, so that a moved cell or a second view keeps it),
// and the actions that change it.
const STAGE_COUNT = 13; // ten stages, and the views behind them
const PATIENCE = 60000; // milliseconds: a step of a large model takes its time, a restarted kernel never answers

class Context {
  constructor(model, store) {
    this.model = model;
    this.store = store;
    this.id = "ss" + Math.random().toString(36).slice(2, 8);
    this.stages = store.header.stages;
    this.open = { table: false, help: false, warmup: false };
    this.labels = [];
    this.names = [];
    this.busy = false;
    this.seq = 0;
    this.localAlert = "";
    this.notice = "";
    this.saveTimer = 0;
    this.unsaved = {};
    this.repaint = () => {}; // main.js puts the real ones in
    this.focus = () => {};
    this.t = makeTranslator(() => this.model.get("words")[this.language] || {});
    this.act = this.actions();
  }

  get language() {
    return this.model.get("lang");
  }
  get at() {
    return this.store.clamp(this.model.get("step"));
  }
  get stage() {
    return Math.max(0, Math.min(STAGE_COUNT - 1, this.model.get("stage")));
  }
  get selected() {
    return this.model.get("selected");
  }
  get predicting() {
    return this.model.get("predict_from") >= 0;
  }
  // What is asked of a hidden step: one of the names in ASKS, or the name of a cell.
  get topic() {
    const ask = this.model.get("ask");
    return ask === "cell" ? this.cell : ask;
  }
  get cell() {
    return this.model.get("cell");
  }
  get answers() {
    return this.model.get("answers");
  }
  get isLive() {
    return this.model.get("is_live");
  }
  get finished() {
    return this.model.get("finished") || this.store.length >= MAX_FRAMES;
  }
  get alert() {
    return this.localAlert || this.model.get("alert") || "";
  }

  // Static words: set now and again when the language changes.
  label(node, id) {
    this.labels.push([node, id]);
    return node;
  }
  note(id) {
    return this.label(h("p", { class: "ss-note" }), id);
  }
  named(node, id) {
    this.names.push([node, id]);
    return node;
  }
  relabel() {
    for (const [node, id] of this.labels) setText(node, this.t(id));
    for (const [node, id] of this.names) {
      setAttr(node, "aria-label", this.t(id));
      if (node.tagName === "BUTTON") setAttr(node, "title", this.t(id));
    }
  }

  get isEnd() {
    return this.at === this.store.length - 1 && (this.finished || !this.isLive);
  }
  notices() {
    const ids = [this.notice, this.isLive && this.isEnd && "live.gone"];
    return ids.filter(Boolean).map((id) => [id]);
  }

  hidden(at) {
    const from = this.model.get("predict_from");
    if (at > this.at && this.masked("next")) return true;
    const frame = this.store.frames[at];
    return from >= 0 && at > from && this.answers[frame.s + this.topic] === undefined && this.truth(frame, this.topic) !== "undefined";
  }
  // All that decides what is hidden, as one text.
  hiddenFrom() {
    const asked = this.predicting ? this.model.get("predict_from") + "/" + Object.keys(this.answers).length + this.topic : "";
    return [asked, ...this.model.get("revealed"), this.masked("next") && this.at].join();
  }

  // A teacher's mask: each named part with all that it hides; what was asked for in a step is shown there.
  get maskNames() {
    return Object.keys(this.model.get("mask"));
  }
  isShown(name, at) {
    const revealed = this.model.get("revealed");
    return revealed.includes("*") || revealed.includes(this.store.frames[at].s + name);
  }
  get isAllShown() {
    return this.maskNames.every((name) => this.isShown(name, this.at));
  }
  masked(part, at = this.at) {
    const mask = this.model.get("mask");
    return this.maskNames.some((name) => mask[name].includes(part) && !this.isShown(name, at));
  }
  seen(part, value, at) {
    return this.masked(part, at) ? "?" : value;
  }
  shownRows(at) {
    const frame = this.store.frames[at];
    return frame.wide - (this.masked("padding", at) ? frame.pad : 0);
  }
  // Sentences without those that tell a hidden part.
  tellable(said, at = this.at) {
    const { tells } = this.store.header;
    return said.filter(([id]) => !(tells[id] || tells[id.split(".")[0]] || []).some((part) => this.masked(part, at)));
  }
  sayings(frame) {
    const [[id, args]] = frame.say;
    const said = this.tellable(frame.say);
    return said.length && said[0][0] === id ? said : [["mask.say", { step: frame.s, what: args.what || ["mask.some"] }], ...said];
  }
  get notes() {
    const notes = this.model.get("notes");
    const frame = this.store.frames[this.at];
    return frame ? ["", "/" + this.stage, String(frame.s), frame.s + "/" + this.stage].map((key) => notes[key]).filter(Boolean) : [];
  }
  // What would have put an eager step on a graph, once it was proved: sentences, or nothing yet.
  whatIf(frame) {
    return this.model.get("whatifs")[frame.s];
  }
  truth(frame, ask) {
    const { path, run, eager } = frame;
    if (ask.includes("[")) return String(frame.bare ? undefined : cellValue(this, frame, ask));
    return String({ way: eager ? run.path : frame.prefill ? "prefill" : path.bucket, batch: path.n, bucket: eager ? 0 : path.bucket, path: run.path }[ask]);
  }

  // Names for a sentence, and how many there are: the verb goes by it.
  who(ids) {
    return { who: ids.map((rid) => this.store.name(rid)).join(", "), n: ids.length };
  }
  // What a condition or a check says: (id, arguments), or a text that has no words here.
  fact(said) {
    return this.t(...[said].flat());
  }
  has(id) {
    return (this.model.get("words")[this.language] || {})[id] !== undefined;
  }

  tokenText(token) {
    if (token === undefined || token === null) return "";
    if (token < 0) return this.t("token.on_device");
    const text = this.store.text(token);
    return text === undefined ? "#" + token : visibleToken(text);
  }

  touches(frame, stage) {
    if (this.selected < 0 || this.hidden(this.at)) return false;
    const rid = this.selected;
    const span = this.store.spanOf(frame, rid);
    if (stage === 0) return Boolean(span) || frame.sch.def.some((one) => one[0] === rid);
    if (stage === 1) return frame.res.add.some((one) => one[0] === rid) || frame.res.slots.some((one) => one[0] === rid);
    if (stage === 8) return frame.out.tok.some((one) => one[0] === rid);
    return Boolean(span);
  }

  // One line a stage about one request: its way through the step.
  journey(frame, rid) {
    const span = this.store.spanOf(frame, rid);
    const deferral = frame.sch.def.find((one) => one[0] === rid);
    if (!span) return [deferral ? this.t("j.deferred", { reason: deferral[1], needed: deferral[2], available: deferral[3] }) : this.t("j.absent")];
    const [, kind, start, count, logits] = span;
    const added = frame.res.add.find((one) => one[0] === rid);
    const row = this.firstRow(frame, rid);
    const meta = frame.meta.rid.indexOf(rid);
    const sampled = frame.out.tok.filter((one) => one[0] === rid).map((one) => this.tokenText(one[1]));
    const accepted = frame.acc.get(rid);
    const finished = frame.out.fin.find((one) => one[0] === rid);
    const rows = count === 1 ? String(row) : `${row}–${row + count - 1}`;
    const group = frame.rows.find((one) => one[0] === rid);
    return [
      this.t(kind === 0 ? "j.sch_context" : count > 1 ? "j.sch_verify" : "j.sch_generation", { n: count, start, k: count - 1 }),
      added ? this.t("j.res_added", { n: added[1].length, blocks: blockList(added[1], 4) }) : this.t("j.res_none", { n: this.store.tableAt(rid, this.at).length }),
      this.seen("bucket", frame.sch.prom.includes(rid) ? this.t("j.promoted") : frame.path.key !== null ? this.t("j.pad", { bucket: frame.path.bucket }) : this.t("j.pad_eager")),
      this.seen("path", frame.eager ? this.t("j.eager", { reason: this.seen("reason", frame.path.reason) }) : this.t("j.graph")),
      this.t("j.rows", { rows, source: group ? ["src." + SOURCES[group[2]], { slot: group[3] }] : "" }),
      this.t(count === 1 ? "j.position" : "j.positions", { from: start, to: start + count - 1 }),
      meta < 0 ? "–" : this.t("j.meta", { q: frame.meta.q[meta], cached: frame.meta.cached[meta], kv: frame.meta.kv[meta] }),
      this.seen("path", this.t("j.run", { path: ["run." + frame.run.path] })),
      sampled.length ? this.t("j.sampled", { token: sampled.join("") }) + (accepted === undefined ? "" : " · " + this.t("smp.accepted", { n: accepted, k: count - 1 })) : this.t(!logits ? "j.no_sample" : "j.wasted"),
      finished ? this.t("fate.finished", { reason: ["finish." + finished[1]] }) : this.t("fate.continues"),
    ];
  }

  firstRow(frame, rid) {
    let row = 0;
    for (const group of frame.rows) {
      if (group[0] === rid) return row;
      row += group[5];
    }
    return -1;
  }

  set(changes) {
    Object.assign(this.unsaved, changes);
    for (const [name, value] of Object.entries(changes)) this.model.set(name, value);
    // The browser is ahead of the kernel: it is told where we are, at most ten times a second.
    if (!this.saveTimer) {
      this.saveTimer = setTimeout(() => {
        this.saveTimer = 0;
        this.unsaved = {};
        this.model.save_changes();
      }, 100);
    }
    this.repaint();
  }

  // The kernel echoes what it was told last. What was set since then stands, or a held key would step back now and then.
  stayAhead() {
    for (const [name, value] of Object.entries(this.unsaved)) if (this.model.get(name) !== value) this.model.set(name, value);
  }

  setOpen(name, isOpen) {
    this.open[name] = isOpen;
    if (name === "help") this.focus(isOpen);
    else if (!isOpen) this.focus(false);
    this.repaint();
  }

  actions() {
    const go = (at) => {
      this.notice = "";
      this.set({ step: this.store.clamp(at) });
    };
    return {
      go,
      next: () => go(this.at + 1),
      stage: (stage) => this.set({ stage: (stage + STAGE_COUNT) % STAGE_COUNT }),
      select: (rid) => this.set({ selected: rid === this.selected ? -1 : rid }),
      fallOff: () => {
        const to = this.store.nextFallOff(this.at);
        const again = to <= this.at;
        go(to);
        if (again) this.notice = this.store.frames[to].fell ? "nav.again" : "nav.none";
      },
      language: () => this.set({ lang: this.language === "en" ? "zh" : "en" }),
      answer: (choice) => {
        this.focus(false); // the chosen button is about to go, and the keys with it
        this.set({ answers: { ...this.answers, [this.store.frames[this.at].s + this.topic]: choice } });
      },
      reveal: (name) => this.reveal([name === "*" ? name : this.store.frames[this.at].s + name]),
      revealAll: () => this.reveal(this.maskNames.filter((name) => this.isAllShown || !this.isShown(name, this.at)).map((name) => this.store.frames[this.at].s + name)),
      large: () => this.set({ large: !this.model.get("large") }),
      live: () => this.askForStep(),
      prove: () => this.askForProof(),
      toggle: (name) => {
        if (name === "predict") this.set(this.predicting ? { predict_from: -1, answers: {} } : { predict_from: this.at, answers: {} });
        else this.setOpen(name, !this.open[name]);
      },
    };
  }

  // Shows what was hidden, and hides again what was shown.
  reveal(names) {
    const before = this.model.get("revealed");
    this.set({ revealed: [...before.filter((name) => !names.includes(name)), ...names.filter((name) => !before.includes(name))] });
  }

  // Absolute step numbers, so that a repeated or late message is harmless; seq tells our answer from another's.
  ask(type, facts) {
    this.busy = true;
    this.seq += 1;
    this.localAlert = "";
    this.waiting = setTimeout(() => {
      this.busy = false;
      this.localAlert = this.t("live.silent", { seconds: PATIENCE / 1000 });
      this.repaint();
    }, PATIENCE);
    try {
      this.model.send({ type, view: this.id, seq: this.seq, ...facts });
    } catch {
      this.settle(); // the line to a kernel that was restarted is closed
      this.localAlert = this.t("live.lost");
    }
    this.repaint();
  }
  askForStep() {
    if (this.isLive && !this.busy && !this.finished) this.ask("run", { have: this.lastStep() });
  }
  askForProof() {
    if (!this.busy) this.ask("prove", { step: this.store.frames[this.at].s });
  }

  lastStep() {
    return this.store.length ? this.store.frames[this.store.length - 1].s : -1;
  }

  settle() {
    this.busy = false;
    clearTimeout(this.waiting);
  }

  async receive(message, buffers) {
    const isMine = message.view === this.id && message.seq === this.seq;
    if (message.type === "frames" && buffers && buffers.length) {
      const before = this.store.length;
      this.store.take(await inflate(buffers[0]));
      if (isMine && this.store.length > before && message.jump) this.set({ step: this.store.length - 1 });
    }
    if (message.type === "error" && isMine) this.localAlert = message.text;
    if (isMine) this.settle();
    this.repaint();
  }
}
