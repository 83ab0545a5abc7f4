// What a browser test asks of the page itself: contrast, names and roles, text that fits, the time of a key press.
const contrast = (root) => {
  const parse = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const low = [];
  let seen = 0;
  for (const node of root.querySelectorAll("*")) {
    const own = [...node.childNodes].some((kid) => kid.nodeType === 3 && kid.textContent.trim());
    if (!own || !node.checkVisibility() || node instanceof SVGElement) continue;
    if (node.closest(".ss-vh, .ss-tip, .ss-swatch")) continue;
    const a = light(parse(getComputedStyle(node).color).slice(0, 3));
    const b = light(ground(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen += 1;
    if (!(ratio >= 4.5)) low.push([node.className, node.textContent.slice(0, 30), ratio.toFixed(2)]);
  }
  return { low, seen };
};

const roles = (root) => {
  const wrong = [];
  const name = (node) =>
    node.getAttribute("aria-label") || node.textContent.trim() || (node.labels && node.labels[0] && node.labels[0].textContent.trim());
  for (const node of root.querySelectorAll("button, input, [role=img], [role=dialog], [role=group], [role=region], [role=tablist], [role=tabpanel], iframe")) {
    if (!node.checkVisibility()) continue;
    const labelled = node.getAttribute("aria-labelledby");
    if (!(labelled ? name(document.getElementById(labelled)) : name(node))) wrong.push(["no name", node.outerHTML.slice(0, 90)]);
  }
  const ids = [...root.querySelectorAll("[id]")].map((node) => node.id);
  if (new Set(ids).size !== ids.length) wrong.push(["ids", ids.join()]);
  for (const table of root.querySelectorAll("table")) {
    if (!table.caption || !table.caption.textContent) wrong.push(["caption", table.outerHTML.slice(0, 90)]);
    for (const head of table.querySelectorAll("th")) if (!head.scope) wrong.push(["scope", head.outerHTML]);
  }
  for (const tab of root.querySelectorAll("[role=tab]")) if (!document.getElementById(tab.getAttribute("aria-controls"))) wrong.push(["controls", tab.id]);
  return wrong;
};

// Text that is wider than its box, where nothing says that it may be cut.
const overflowing = (root) => [...root.querySelectorAll("h3, h4, button, td, th, caption, .ss-main, .ss-seat, .ss-bucket, .ss-chip")]
  .filter((node) => node.checkVisibility() && !node.closest(".ss-requests, .ss-text") && node.scrollWidth > node.clientWidth + 1 && getComputedStyle(node).display !== "inline")
  .map((node) => [node.tagName, node.className, node.textContent.slice(0, 40)]);

// Labels of boxes to scale, by whether they are to be seen: [whole, absent, cut]. Where it is drawn tells.
const labels = (root) => {
  const found = [[], [], []];
  for (const node of root.querySelectorAll(".ss-budget i, .ss-seg, .ss-to-scale > span")) {
    if (!node.checkVisibility() || !node.textContent) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    const [text, box] = [range.getBoundingClientRect(), node.getBoundingClientRect()];
    const isIn = text.left >= box.left && text.right <= box.right && text.top >= box.top && text.bottom <= box.bottom;
    found[isIn ? 0 : text.top >= box.bottom - 2 ? 1 : 2].push(node.textContent);
  }
  return found;
};

// From the key press to the end of the frame that shows it.
const latencies = async (key, times) => {
  const root = document.querySelector(".stepscope");
  const took = [];
  for (let i = 0; i < times; i += 1) {
    const before = root.dataset.step;
    const began = performance.now();
    root.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
    took.push(performance.now() - began);
    if (root.dataset.step === before) return [];
  }
  return took;
};

window.checks = { contrast, roles, overflowing, labels, latencies };
