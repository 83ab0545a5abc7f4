// DOM helpers: nodes are made once; later only text and attributes change.
// Writes are skipped when nothing changed, because a layout that is not dirtied is a layout that is not computed.
const SVG_NS = "http://www.w3.org/2000/svg";

function applyProps(node, props) {
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
}

function h(tag, props, ...kids) {
  const node = document.createElement(tag);
  applyProps(node, props);
  node.append(...kids.flat().filter((kid) => kid !== null && kid !== undefined));
  return node;
}

function svg(tag, props, ...kids) {
  const node = document.createElementNS(SVG_NS, tag);
  applyProps(node, props);
  node.append(...kids.flat());
  return node;
}

function setText(node, text) {
  const value = String(text);
  if (node.ssText !== value) {
    node.ssText = value; // kept beside the node: reading textContent back walks the tree
    node.textContent = value;
  }
}

function setAttr(node, name, value) {
  const cache = node.ssAttrs || (node.ssAttrs = {});
  if (cache[name] === value) return;
  cache[name] = value;
  if (value === null || value === undefined) node.removeAttribute(name);
  else node.setAttribute(name, value);
}

function setClass(node, name, on) {
  node.classList.toggle(name, Boolean(on));
}

// By attribute, not by property: SVG elements have no hidden property.
function show(node, on) {
  if (node.hasAttribute("hidden") === Boolean(on)) node.toggleAttribute("hidden", !on);
}

// A pool grows to the largest count ever asked for and hides what is not needed now.
function pool(parent, make) {
  const items = [];
  return (count, update) => {
    while (items.length < count) {
      const item = make(items.length);
      items.push(item);
      parent.append(item.root);
    }
    for (let at = 0; at < items.length; at += 1) {
      show(items[at].root, at < count);
      if (at < count) update(items[at], at);
    }
  };
}

// A real table with caption and scopes. columns: string ids, with # before those of numbers; cells come in a pool of rows.
function makeTable(cx, captionId, columns, build) {
  const caption = cx.label(h("caption"), captionId);
  const head = h("tr", null, columns.map((id) => cx.label(h("th", { scope: "col" }), id.replace("#", ""))));
  const body = h("tbody");
  const root = h("table", { class: "ss-table" }, caption, h("thead", null, head), body);
  const rows = pool(body, () => {
    const cells = columns.map((id, at) => h(at ? "td" : "th", { scope: at ? null : "row", class: id[0] === "#" ? "ss-num" : null }));
    const item = { root: h("tr", null, cells), cells };
    if (build) build(item);
    return item;
  });
  return { root, body, caption, rows };
}

// Marks a row or cell as belonging to a request, or to several; clicking it follows one (one listener on the root).
function tagRequest(node, rid) {
  const ids = [rid].flat().filter((one) => one !== null && one !== undefined);
  setAttr(node, "data-r", ids.length ? ids.join(" ") : null);
}

const KIND_NAMES = { C: "context", E: "extend", G: "generation", P: "padding" };

function kindBadge() {
  return h("span", { class: "ss-k" });
}

function setKind(node, kind, cx) {
  setAttr(node, "data-k", kind);
  setText(node, kind);
  setAttr(node, "title", cx.t("kind." + KIND_NAMES[kind]));
}

function meter(className) {
  const fill = h("i");
  const root = h("span", { class: "ss-meter " + (className || "") }, fill);
  return { root, set: (share) => setAttr(fill, "style", share > 0 ? `width:${Math.min(100, 100 * share).toFixed(1)}%` : "display:none") };
}
