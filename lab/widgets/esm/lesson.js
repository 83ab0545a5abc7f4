// What a teacher adds: the bar of hidden parts, each shown when somebody asks, and notes beside a step or a stage.

function maskPart(cx) {
  const list = h("span", { class: "ss-options" });
  const buttons = pool(list, () => {
    const item = { root: h("button", { type: "button", onclick: () => cx.act.reveal(item.name) }) };
    return item;
  });
  const all = h("button", { type: "button", "aria-keyshortcuts": "m", onclick: () => cx.act.revealAll() });
  const ever = cx.label(h("button", { type: "button", onclick: () => cx.act.reveal("*") }), "mask.ever");
  const root = h("div", { class: "ss-mask ss-options", role: "group" }, cx.label(h("span", { class: "ss-soft" }), "mask.name"), list, all, ever);
  cx.named(root, "mask.name");
  return {
    root,
    paint() {
      const names = cx.maskNames;
      show(root, names.length > 0);
      buttons(names.length, (item, at) => {
        item.name = names[at];
        setText(item.root, cx.t(item.name.includes(".") ? item.name : "mask." + item.name));
        setAttr(item.root, "aria-pressed", String(cx.isShown(item.name, cx.at)));
      });
      setText(all, cx.t(cx.isAllShown ? "mask.again" : "mask.all"));
      setAttr(ever, "aria-pressed", String(cx.model.get("revealed").includes("*")));
    },
  };
}

// Plain text, set as text: a note is a teacher's words and never markup.
function notesPart(cx) {
  const root = h("div", { class: "ss-notes", role: "note" });
  cx.named(root, "notes.name");
  const lines = pool(root, () => ({ root: h("p") }));
  return {
    root,
    paint() {
      const notes = cx.notes;
      show(root, notes.length > 0);
      lines(notes.length, (item, at) => setText(item.root, notes[at]));
    },
  };
}
