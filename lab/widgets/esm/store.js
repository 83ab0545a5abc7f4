// The recorded steps, as the browser keeps them. Frames are plain arrays (see frames.py for the order of fields);
// what can be derived is derived here, so that a step costs a few hundred bytes on the wire.
const KINDS = ["C", "E", "G", "P"];
const SOURCES = ["prompt", "previous_sample", "zero_fill", "host", "draft"];
const WRITERS = ["never", "host_copy", "device_gather", "in_place_add", "zero_fill", "device_copy"];
const LAYERS = ["persistent", "static", "metadata"];
const MAX_FRAMES = 10000;
const NOBODY = [];

async function inflate(view) {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

class Store {
  constructor(trace) {
    this.header = trace.header;
    this.requests = new Map();
    this.order = [];
    this.texts = new Map();
    this.buffers = [];
    this.firstSeen = new Map(); // place -> the address at its first step here
    this.tables = new Map(); // request -> [[frame index, block ids], ...], newest last
    this.outputs = new Map(); // request -> [[frame index, token id], ...]
    this.written = new Map(); // request -> [[frame index, text that became showable], ...]
    this.cached = new Map(); // request -> [[frame index, tokens in its cache after the frame], ...]
    this.freedAt = new Map();
    this.owners = new Map(); // block -> [[moment, request, ...], ...]; frame at has the moments 2 at (reserved), 2 at + 1
    this.places = new Map(); // node of the reuse tree -> [[moment, host block, device block, ...], ...]
    this.nodes = new Map(); // node -> what it holds, and from which moment to which
    this.frames = [];
    this.atStep = new Map(); // step number -> frame index
    this.maxRows = 1;
    this.hasIdle = false;
    this.dummy = "dummy"; // its name in the language that is read
    this.take(trace);
  }

  // Adds frames that are not here yet. Order on the wire is absolute, so a repeated or late answer is harmless.
  take(part) {
    for (const request of part.requests || []) {
      if (!this.requests.has(request.id)) this.order.push(request.id);
      this.requests.set(request.id, request);
    }
    for (const [id, text] of part.texts || []) this.texts.set(id, text);
    for (const [at, name, layer, address, capacity, dtype] of part.buffers || []) {
      this.buffers[at] = { name, layer, address, capacity, dtype };
    }
    for (const frame of part.frames || []) {
      if (this.frames.length >= MAX_FRAMES) break;
      if (this.frames.length && frame.s <= this.frames[this.frames.length - 1].s) continue;
      this.index(frame, this.frames.length);
      this.atStep.set(frame.s, this.frames.length);
      this.frames.push(frame);
    }
  }

  index(frame, at) {
    for (const [rid, keep, added] of frame.bt) {
      const history = this.tables.get(rid) || [];
      const before = history.length ? history[history.length - 1][1] : [];
      Store.note(this.tables, rid, [at, before.slice(0, keep).concat(added)]);
    }
    for (const [rid, token] of frame.out.tok) Store.note(this.outputs, rid, [at, token]);
    for (const [rid, text] of frame.out.txt) Store.note(this.written, rid, [at, text]);
    // A number instead of lines: the frame that spells them out.
    if (frame.path.cond.map === undefined) frame.path.cond = this.frames[frame.path.cond].path.cond;
    if (frame.run.check.map === undefined) frame.run.check = this.frames[frame.run.check].run.check;
    const [order] = frame.run.fl; // one number stands for ten that follow each other
    if (order.length === 1) for (let stage = 1; stage < 10; stage += 1) order.push(order[0] + stage);
    frame.acc = new Map(frame.out.acc);
    frame.late = new Map(frame.run.fl[2].flatMap(([from, to, step]) => Array.from({ length: to - from }, (_, i) => [from + i, step])));
    // Of a verify row only the accepted drafts stay: the rest is rewound.
    for (const [rid, , start, rows] of frame.sch.spans) Store.note(this.cached, rid, [at, start + (frame.acc.has(rid) ? 1 + frame.acc.get(rid) : rows)]);
    this.takeLedger(frame.res.led, 2 * at);
    this.takeLedger(frame.out.led, 2 * at + 1);
    for (const rid of frame.out.freed) this.freedAt.set(rid, at);
    for (const group of frame.rows) {
      if (group[0] >= 0 && !this.requests.has(group[0]) && group[1] !== 3) {
        this.order.push(group[0]);
        this.requests.set(group[0], { id: group[0], prompt: 0, max: 0, text: "" });
      }
    }
    for (const [at_] of frame.buf) {
      const place = Store.place(this.buffers[at_], frame);
      if (!this.firstSeen.has(place)) this.firstSeen.set(place, this.buffers[at_].address);
    }
    frame.n = frame.rows.reduce((sum, group) => sum + group[5], 0);
    frame.total = frame.us.reduce((sum, us) => sum + (us || 0), 0) || null; // null: nobody measured it
    frame.ctx = frame.sch.spans.reduce((sum, span) => sum + (span[1] === 0 ? span[3] : 0), 0);
    frame.steady = frame.run.steady === "";
    frame.idle = frame.run.path === "idle"; // nothing ran, so nothing fell off a graph
    frame.fell = frame.run.path === "eager";
    frame.eager = frame.fell || frame.idle;
    this.hasIdle = this.hasIdle || frame.idle;
    frame.prefill = frame.run.path === "prefill_replay";
    frame.wide = (frame.prefill && frame.meta.padded) || frame.n; // with the tail of a prefill bucket, which no request has
    frame.pad = frame.rows.reduce((sum, group) => sum + (group[1] === 3 ? group[5] : 0), frame.wide - frame.n);
    frame.released = !frame.run.pool && this.header.warmup.some((one) => one.bytes); // captured once, and gone
    frame.wrong = new Map(frame.marks); // row -> what is wrong with it
    frame.meta.kv = frame.meta.cached.map((cached, i) => cached + frame.meta.q[i]);
    this.maxRows = Math.max(this.maxRows, frame.wide);
  }

  takeLedger(change, moment) {
    if (!change) return;
    const [owners, added, places, removed, blocks, host] = change;
    Object.assign(this.header.limits, { blocks, host });
    for (const [block, ...ids] of owners) Store.note(this.owners, block, [moment, ids]);
    for (const id of removed) if (this.nodes.has(id)) this.nodes.get(id).to = moment;
    for (const [id, parent, tokens, label] of added) this.nodes.set(id, { id, parent, tokens, label, from: moment, to: Infinity });
    for (const [id, host, ...blocks] of places) Store.note(this.places, id, [moment, { host, blocks }]);
  }

  // Who held which block at a moment, and what the reuse tree kept. A trace from before the ledger has tables only.
  // A tree may have thousands of nodes, so they are not copied: what stood at a moment holds until the next question.
  ledgerAt(moment) {
    const owners = new Map();
    for (const [block, history] of this.owners) {
      const ids = Store.valueAt(history, moment);
      if (ids.length) owners.set(block, ids);
    }
    if (!this.owners.size) for (const [rid, blocks] of this.holders(moment >> 1)) for (const block of blocks) owners.set(block, [rid]);
    const nodes = [];
    for (const node of this.nodes.values()) {
      if (node.from > moment || node.to <= moment) continue;
      const { host, blocks = NOBODY } = Store.valueAt(this.places.get(node.id), moment);
      const holders = blocks.map((block) => owners.get(block)).filter(Boolean);
      const users = holders.length > 1 ? [...new Set(holders.flat())] : holders[0] || NOBODY;
      nodes.push(Object.assign(node, { host, blocks, users, fresh: node.from >> 1 === moment >> 1 }));
    }
    return { owners, nodes };
  }

  // Each metadata object has tensors of its own.
  static place({ layer, name }, frame) {
    return layer + name + (layer === LAYERS[2] ? frame.meta.obj : "");
  }

  get length() {
    return this.frames.length;
  }

  clamp(at) {
    return Math.max(0, Math.min(this.frames.length - 1, at | 0));
  }

  static note(histories, rid, entry) {
    if (!histories.has(rid)) histories.set(rid, []);
    histories.get(rid).push(entry);
  }

  static latest(history, at) {
    let low = 0;
    let high = (history || []).length; // binary search: histories grow with the run
    while (low < high) {
      const middle = (low + high) >> 1;
      if (history[middle][0] <= at) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  static valueAt(history, at) {
    const count = Store.latest(history, at);
    return count ? history[count - 1][1] : [];
  }

  tableAt(rid, at) {
    return Store.valueAt(this.tables.get(rid), at);
  }

  cachedAt(rid, at) {
    return Number(Store.valueAt(this.cached.get(rid), at));
  }

  holders(at) {
    const held = [];
    for (const [rid] of this.tables) {
      const freed = this.freedAt.get(rid);
      const blocks = this.tableAt(rid, at);
      if (blocks.length && (freed === undefined || freed >= at)) held.push([rid, blocks]);
    }
    return held;
  }

  numTokens(rid, at) {
    return Store.latest(this.outputs.get(rid), at);
  }

  // The text so far, one piece for each step that added some; text from before the first frame comes first.
  piecesUpTo(rid, at) {
    const history = this.written.get(rid) || [];
    const pieces = history.slice(0, Store.latest(history, at)).map((entry) => entry[1]);
    return [this.requests.get(rid).before || "", ...pieces];
  }

  wroteAt(rid, at) {
    const history = this.written.get(rid);
    const count = Store.latest(history, at);
    return count > 0 && history[count - 1][0] === at;
  }

  text(token) {
    return this.texts.get(token);
  }

  frameOf(step) {
    return this.frames[this.atStep.get(step)];
  }

  isDummy(rid) {
    return rid < 0;
  }

  name(rid) {
    return this.isDummy(rid) ? this.dummy : "r" + rid;
  }

  spanOf(frame, rid) {
    return frame.sch.spans.find((span) => span[0] === rid) || null;
  }

  // What a request is doing in a frame: one word, plus where its prompt stands.
  stateOf(rid, at) {
    const frame = this.frames[at];
    const request = this.requests.get(rid);
    const span = this.spanOf(frame, rid);
    const finished = frame.out.fin.find((end) => end[0] === rid);
    const generated = this.numTokens(rid, at);
    const freed = this.freedAt.get(rid);
    const arrived = request.arrival === null || request.arrival === undefined || request.arrival <= frame.s;
    let word = "waiting";
    if (finished) word = "finishing";
    else if (freed !== undefined && freed < at) word = "finished";
    else if (span) word = span[1] === 0 ? "prefill" : "decode";
    else if (frame.sch.def.some((one) => one[0] === rid)) word = generated ? "paused" : "waiting";
    else if (!arrived) word = "later";
    else if (generated) word = "paused";
    let done = 0;
    if (span) done = Math.min(request.prompt || span[2] + span[3], span[2] + span[3]);
    else if (generated) done = request.prompt;
    else done = this.cachedAt(rid, at);
    return { word, span, generated, done, request, reason: finished ? finished[1] : null };
  }

  nextFallOff(from) {
    for (let step = 1; step <= this.length; step += 1) {
      const at = (from + step) % this.length;
      if (this.frames[at].fell) return at;
    }
    return from;
  }
}
