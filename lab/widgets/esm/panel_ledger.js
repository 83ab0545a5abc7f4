// Views Blocks and Reuse tree: who holds which block when the step has got its own, and what the tree keeps after it.

function blocksPanel(cx) {
  const lead = h("p", { class: "ss-lead" });
  const map = poolMap(cx);
  const host = poolMap(cx);
  const hostBox = h("div", null, cx.label(h("h4"), "blk.host_pool"), host.root);
  const table = makeTable(cx, "cap.owners", ["col.request", "#col.held", "#col.shared", "col.added", "col.ids"]);
  const copies = makeTable(cx, "cap.copies", ["col.copy", "col.from", "col.to", "col.tokens"]);
  const none = cx.note("blk.old");
  const root = h("div", null, lead, map.root, hostBox, table.root, copies.root, none);

  function fill(item, rid, name, ids, shared, added) {
    tagRequest(item.root, rid);
    setText(item.cells[0], name);
    setClass(item.cells[0], "ss-rid", rid !== null);
    [ids.length, shared, added ? `+${added}` : "–", blockList(ids, 12) || "–"].forEach((value, at) => setText(item.cells[at + 1], value));
    setClass(item.cells[3], "ss-chg", added > 0);
  }

  return {
    root,
    paint(frame) {
      const { blocks: total, host: hostTotal } = cx.store.header.limits;
      const ledger = cx.store.ledgerAt(2 * cx.at);
      const { owners, nodes } = ledger;
      const byRequest = new Map();
      for (const [block, ids] of owners) for (const rid of ids) Store.note(byRequest, rid, block);
      const cached = nodes.flatMap((node) => node.blocks).filter((block) => !owners.has(block));
      const onHost = nodes.filter((node) => node.host >= 0).map((node) => node.host);
      const shared = [...owners.values()].filter((ids) => ids.length > 1).length;
      const free = Array.from({ length: total }, (_, at) => at).filter((block) => !owners.has(block) && !cached.includes(block));
      setText(lead, cx.t("blk.say", { held: owners.size, total, shared, cached: cached.length, free: free.length, host: onHost.length }));
      map.paint(frame, total, ledger);
      show(hostBox, hostTotal > 0);
      host.paint(frame, hostTotal || 1, ledger, true);
      const added = new Map(frame.res.add);
      const rids = [...byRequest.keys()].sort((one, other) => (one < 0) - (other < 0) || one - other).slice(0, 40);
      const rest = [["blk.cached", cached], ["blk.free", free], ...(hostTotal ? [["blk.on_host", onHost]] : [])];
      table.rows(rids.length + rest.length, (item, at) => {
        const rid = rids[at];
        if (rid === undefined) return fill(item, null, cx.t(rest[at - rids.length][0]), rest[at - rids.length][1].sort((a, b) => a - b), "–", 0);
        const ids = byRequest.get(rid).sort((a, b) => a - b);
        fill(item, rid < 0 ? null : rid, cx.store.name(rid), ids, ids.filter((block) => owners.get(block).length > 1).length, (added.get(rid) || []).length);
      });
      show(copies.root, frame.res.cp.length > 0);
      copies.rows(Math.min(frame.res.cp.length, 20), (item, at) => {
        const [kind, from, to, tokens] = frame.res.cp[at];
        [cx.t("copy." + kind), from, to, tokens].forEach((value, column) => setText(item.cells[column], value));
      });
      show(none, !cx.store.owners.size);
    },
  };
}

// Nodes as boxes: a chain that nothing branches off, all in one state, is one box, as in a radix tree.
function treeBoxes(nodes) {
  const below = new Map();
  for (const node of nodes) Store.note(below, node.parent, node);
  const like = (node) => [node.users, node.host < 0, node.fresh].join("|");
  const boxes = [];
  let line = 0;
  const visit = (first, depth) => {
    const box = { chain: [first], depth, line };
    boxes.push(box);
    let next = below.get(first.id) || [];
    while (next.length === 1 && like(next[0]) === like(first)) {
      box.chain.push(next[0]);
      next = below.get(next[0].id) || [];
    }
    if (!next.length) line += 1;
    for (const node of next) visit(node, depth + 1);
    box.lines = line - box.line;
  };
  for (const node of below.get(-1) || []) visit(node, 0);
  return boxes;
}

function treePanel(cx) {
  const lead = h("p", { class: "ss-lead" });
  const picture = h("div", { class: "ss-tree", role: "img" });
  const cells = pool(picture, () => {
    const text = h("b");
    const state = h("small");
    return { root: h("span", null, text, state), text, state };
  });
  const scroller = h("div", { class: "ss-tree-box", tabindex: "0", role: "group" }, picture);
  cx.named(scroller, "stage.11");
  const table = makeTable(cx, "cap.tree", ["col.content", "#col.nblocks", "#col.depth", "col.where", "col.ids"], (item) => {
    item.text = h("span", { class: "ss-tok" });
    item.cells[0].append(item.text);
  });
  const empty = cx.note("tree.empty");
  const root = h("div", null, lead, empty, scroller, table.root, cx.note("tree.note"));
  const textOf = ({ id, tokens, label }) => visibleToken([label, tokens.map((token) => cx.tokenText(token)).join("")].filter(Boolean).join(": ")) || "#" + id;
  const stateOf = (node) => (node.users.length ? "held" : node.host >= 0 ? "host" : "cached");

  return {
    root,
    paint(frame, at) {
      const { nodes } = cx.store.ledgerAt(2 * at + 1);
      const removed = at ? [...cx.store.nodes.values()].filter((node) => node.to >> 1 === at).length : 0;
      const boxes = treeBoxes(nodes).slice(0, 40);
      const count = (name) => nodes.filter((node) => stateOf(node) === name).length;
      setText(lead, cx.t("tree.say", { n: nodes.length, held: count("held"), cached: count("cached"), host: count("host"), fresh: nodes.filter((node) => node.fresh).length, removed }));
      for (const node of [scroller, table.root]) show(node, boxes.length > 0);
      show(empty, !boxes.length);
      const words = (box) => {
        const first = box.chain[0];
        const users = first.users.filter((rid) => rid >= 0);
        return [textOf(first) + "…", users, cx.t("tree." + stateOf(first), { who: users.map((rid) => cx.store.name(rid)).join(", ") })];
      };
      const told = boxes.map(words);
      cells(boxes.length, (item, index) => {
        const box = boxes[index];
        const [text, users, state] = told[index];
        tagRequest(item.root, users);
        setText(item.text, (box.chain[0].fresh ? "+ " : "") + text);
        setText(item.state, (box.chain.length > 1 ? `×${box.chain.length} · ` : "") + state);
        setAttr(item.root, "data-s", box.chain[0].fresh ? "new" : stateOf(box.chain[0]));
        setAttr(item.root, "style", `grid-row:${box.line + 1}/span ${box.lines};grid-column:${box.depth + 1}`);
      });
      setAttr(picture, "aria-label", lead.ssText);
      table.rows(boxes.length, (item, index) => {
        const { chain, depth } = boxes[index];
        const [text, users, state] = told[index];
        tagRequest(item.root, users);
        setText(item.text, text);
        const ids = chain.flatMap((node) => (node.host >= 0 ? [cx.t("tree.host_block", { n: node.host })] : node.blocks));
        [chain.length, depth + 1, state, blockList(ids, 8)].forEach((value, column) => setText(item.cells[column + 1], value));
      });
    },
  };
}
