// The frame around the panels: bar, sentence, stage rail, side column, outputs.

function barPart(cx) {
  const step = h("b");
  const total = h("span", { class: "ss-soft" });
  const button = (id, keys, glyph, action) => cx.named(h("button", { type: "button", "aria-keyshortcuts": keys, onclick: action, class: "ss-icon", text: glyph }), id);
  const worded = (id, keys, action, klass) => cx.label(h("button", { type: "button", "aria-keyshortcuts": keys, onclick: action, class: klass || "" }), id);
  const predict = worded("bar.predict", "p", () => cx.act.toggle("predict"));
  const table = worded("bar.table", "t", () => cx.act.toggle("table"));
  const large = cx.named(h("button", { type: "button", "aria-keyshortcuts": "l", class: "ss-icon", text: "A⁺", onclick: () => cx.act.large() }), "bar.large");
  const language = h("button", { type: "button", class: "ss-lang", onclick: () => cx.act.language() });
  const live = worded("bar.live", "r", () => cx.act.live(), "ss-go");
  const model = h("span", { class: "ss-chiptext" });
  const simulated = cx.label(h("span", { class: "ss-chiptext ss-sim" }), "bar.simulated");
  const root = h(
    "div",
    { class: "ss-bar" },
    h("span", { class: "ss-stepno" }, step, " ", total),
    h("span", { class: "ss-group" }, button("bar.first", "Home", "⇤", () => cx.act.go(0)), button("bar.previous", "ArrowLeft", "←", () => cx.act.go(cx.at - 1)), button("bar.next", "ArrowRight", "→", () => cx.act.next()), button("bar.last", "End", "⇥", () => cx.act.go(cx.store.length - 1))),
    worded("bar.falloff", "f", () => cx.act.fallOff()),
    h("span", { class: "ss-space" }),
    model,
    simulated,
    predict,
    table,
    large,
    language,
    cx.named(h("button", { type: "button", "aria-keyshortcuts": "Shift+?", class: "ss-icon", text: "?", onclick: () => cx.act.toggle("help") }), "bar.help"),
    live,
  );
  return {
    root,
    paint(frame) {
      setText(step, frame ? cx.t("bar.step", { step: frame.s }) : "–"); // a live session may have no step yet
      setText(total, frame ? cx.t("bar.of", { first: cx.store.frames[0].s, last: cx.lastStep() }) : "");
      setText(model, `${cx.store.header.model} · ${cx.store.header.device}`);
      show(simulated, cx.store.header.simulated);
      setAttr(predict, "aria-pressed", String(cx.predicting));
      setAttr(table, "aria-pressed", String(cx.open.table));
      setAttr(large, "aria-pressed", String(cx.model.get("large")));
      setText(language, cx.language === "en" ? "中文" : "EN");
      setAttr(language, "lang", cx.language === "en" ? "zh" : "en");
      setAttr(language, "aria-label", cx.language === "en" ? "中文" : "English");
      show(live, cx.isLive);
      setAttr(live, "title", cx.finished ? cx.t("live.gone") : null);
      setAttr(live, "aria-disabled", String(cx.busy || cx.finished)); // not disabled: that would swallow the keys
    },
  };
}

// The sentence is spoken at most once a second while a key is held, and always for the step where it stops.
function sentencePart(cx) {
  const main = h("span", { class: "ss-main" });
  const detail = h("span", { class: "ss-detail" });
  const status = h("p", { class: "ss-vh", role: "status", "aria-live": "polite" });
  const changes = h("ul", { class: "ss-changes" });
  const chips = pool(changes, () => ({ root: h("li") }));
  const root = h("div", { class: "ss-say" }, h("p", null, main, " ", detail), changes, status);
  let spoken = 0;
  let timer = 0;
  return {
    root,
    stop: () => clearTimeout(timer),
    paint(frame) {
      const say = cx.hidden(cx.at) ? [["predict.say", { step: frame.s }]] : cx.sayings(frame);
      const words = [...say, ...cx.notices()].map(([id, args]) => cx.t(id, args));
      const spokenWords = [...words, ...cx.notes].join(" ");
      setText(main, words[0]);
      setText(detail, words.slice(1).join(cx.language === "zh" ? "" : " "));
      const changed = cx.hidden(cx.at) ? [] : cx.tellable(frame.chg);
      chips(changed.length, (item, at) => {
        setText(item.root, cx.t(changed[at][0], changed[at][1]));
        setClass(item.root, "ss-same", changed[at][0] === "chg.none");
      });
      const speak = () => {
        spoken = Date.now();
        setText(status, spokenWords);
      };
      clearTimeout(timer);
      timer = setTimeout(speak, Math.max(0, 1000 - (Date.now() - spoken)));
      if (status.textContent === "") speak();
    },
  };
}

function railPart(cx) {
  const root = h("div", { class: "ss-rail", role: "tablist", "aria-orientation": "vertical" });
  cx.named(root, "rail.name");
  const total = h("p", { class: "ss-note ss-total" });
  const tabs = cx.stages.map((_, at) => {
    const bar = meter();
    const time = h("span", { class: "ss-num ss-soft" });
    const name = cx.label(h("span"), "stage." + at);
    const root_ = h("button", { type: "button", role: "tab", id: cx.id + "-tab" + at, "aria-controls": cx.id + "-panel", onclick: () => cx.act.stage(at) }, h("span", { class: "ss-no" }, at < 10 ? String(at + 1) : "▤├⇉"[at - 10]), name, time, bar.root);
    setClass(root_, "ss-first-view", at === 10);
    root.append(root_);
    return { root: root_, bar, time };
  });
  const box = h("div", { class: "ss-railbox" }, root, total);
  return {
    root: box,
    tabs,
    paint(frame) {
      const most = Math.max(1, ...frame.us.map((us) => us || 0));
      tabs.forEach((tab, at) => {
        const locked = cx.hidden(cx.at) && at > 0;
        setAttr(tab.root, "aria-selected", String(at === cx.stage));
        setAttr(tab.root, "tabindex", at === cx.stage ? "0" : "-1");
        setAttr(tab.root, "data-touches", cx.touches(frame, at) ? "1" : null);
        setText(tab.time, at > 9 ? "" : locked ? "?" : formatUs(frame.us[at]));
        tab.bar.set(locked ? 0 : (frame.us[at] || 0) / most);
      });
      setText(total, cx.hidden(cx.at) ? "" : cx.t("rail.total", { us: formatUs(frame.total) }));
    },
  };
}

function sidePart(cx) {
  const verdict = h("div", { class: "ss-card" });
  const path = h("strong", { class: "ss-path" });
  const key = h("code", { class: "ss-small" });
  const words = h("p");
  const ladder = bucketLadder(cx);
  verdict.append(h("div", null, path, " ", key), ladder.root, words);
  const list = h("div", { class: "ss-requests" });
  const requests = pool(list, () => {
    const name = h("span", { class: "ss-rid" });
    const word = h("span", { class: "ss-soft" });
    const bar = meter("ss-life");
    const root = h("button", { type: "button" }, name, word, bar.root);
    return { root, name, word, bar };
  });
  const more = moreNote(cx);
  const nobody = h("p", { class: "ss-note" });
  const title = h("h4");
  const hint = cx.note("side.hint");
  const journey = h("ol", { class: "ss-journey" });
  const lines = pool(journey, (at) => {
    const words_ = h("span");
    return { root: h("li", null, h("span", { class: "ss-no", text: String(at + 1) }), words_), words: words_ };
  });
  const root = h("div", { class: "ss-side", role: "group", tabindex: "0" }, cx.label(h("h4"), "side.path"), verdict, cx.label(h("h4"), "side.requests"), nobody, list, more.root, title, hint, journey);
  cx.named(root, "side.name");

  function paintPath(frame) {
    const hidden = cx.hidden(cx.at);
    const isUnknown = hidden || cx.masked("path");
    const hasLadder = !hidden && !cx.masked("bucket") && !frame.idle && cx.store.header.buckets.length > 0;
    setAttr(verdict, "data-p", isUnknown ? "hidden" : frame.run.path);
    setText(path, isUnknown ? "?" : cx.t("run." + frame.run.path));
    setText(key, isUnknown ? "" : frame.run.key ? cx.seen("key", frame.run.key) : cx.seen("reason", frame.path.reason || ""));
    show(ladder.root, hasLadder);
    if (hasLadder) ladder.paint(frame);
    const { n, bucket, waste } = seats(frame);
    const id = frame.idle ? "legend.idle" : frame.eager ? "side.eager" : frame.prefill ? "side.prefill" : "side.graph";
    setText(words, hidden ? cx.t("predict.first") : cx.masked("padding") ? "" : cx.t(id, { n, bucket, waste }));
  }

  // A few requests: those of this step and the followed one, in order of arrival.
  function visibleRequests(frame) {
    const all = cx.store.order;
    const most = cx.selected >= 0 ? 6 : 12; // a followed request's way needs the room
    if (all.length <= most) return all;
    const first = new Set([...frame.sch.spans.map((span) => span[0]), ...frame.sch.def.map((one) => one[0])]);
    if (cx.selected >= 0) first.add(cx.selected);
    const shown = all.filter((rid) => first.has(rid)).slice(0, most);
    if (cx.selected >= 0 && !shown.includes(cx.selected)) shown[most - 1] = cx.selected;
    return shown;
  }

  return {
    root,
    paint(frame, at) {
      paintPath(frame);
      const shown = cx.topic === "batch" && cx.hidden(at) ? [] : visibleRequests(frame);
      requests(shown.length, (item, index) => {
        const rid = shown[index];
        const state = cx.store.stateOf(rid, at);
        const request = state.request;
        tagRequest(item.root, rid);
        setText(item.name, cx.store.name(rid));
        const isWaiting = !state.span && ["paused", "waiting"].includes(state.word);
        setText(item.word, isWaiting && cx.masked("deferrals") ? "?" : cx.t("state." + state.word, { done: state.done, whole: request.prompt, n: state.generated, max: request.max || "∞", from: request.arrival }));
        setAttr(item.root, "data-w", state.word);
        setAttr(item.root, "aria-pressed", String(rid === cx.selected));
        item.bar.set(state.word === "later" ? 0 : (state.done + state.generated) / Math.max(1, request.prompt + (request.max || 0)));
      });
      more.paint(cx.store.order.length - shown.length);
      const follows = cx.selected >= 0 && !cx.hidden(at);
      show(nobody, !cx.store.order.length);
      setText(nobody, cx.t(frame.bare ? "outline.nobody" : "side.nobody"));
      show(title, cx.store.order.length > 0);
      show(hint, !follows && cx.store.order.length > 0);
      show(journey, follows);
      setText(title, follows ? cx.t("side.follow", { who: cx.store.name(cx.selected) }) : cx.t("side.follow_none"));
      if (follows) {
        const story = cx.journey(frame, cx.selected);
        lines(story.length, (item, index) => {
          setText(item.words, story[index]);
          setClass(item.root, "ss-here", index === cx.stage);
        });
      }
    },
  };
}

// Output text of each request with the newest token marked.
function outputsPart(cx) {
  const root = h("div", { class: "ss-outputs" });
  cx.named(root, "out.name");
  setAttr(root, "role", "group");
  const lines = pool(root, () => {
    const name = h("span", { class: "ss-rid" });
    const prompt = h("span", { class: "ss-soft" });
    const text = h("span");
    const newest = h("mark");
    const body = h("span", { class: "ss-text", dir: "auto" }, prompt, text, newest);
    return { root: h("div", { class: "ss-out" }, name, body), name, prompt, text, newest };
  });
  const tail = (text, cap) => (text.length > cap ? "…" + text.slice(-cap) : text);
  return {
    root,
    paint(frame, at) {
      const shown = cx.store.order.length <= 8 ? cx.store.order : cx.store.order.filter((rid) => rid === cx.selected || cx.store.spanOf(frame, rid)).slice(0, 8);
      show(root, shown.length > 0);
      lines(shown.length, (item, index) => {
        const rid = shown[index];
        const pieces = cx.store.piecesUpTo(rid, at);
        const wrote = cx.store.wroteAt(rid, at); // a token may add no text yet: half of a character
        const isNew = wrote && !cx.hidden(at);
        const end = wrote ? pieces.length - 1 : pieces.length;
        tagRequest(item.root, rid);
        setText(item.name, cx.store.name(rid));
        setText(item.prompt, visibleToken(tail(cx.store.requests.get(rid).text || "", pieces.length ? 28 : 60)) + " ");
        setText(item.text, tail(visibleToken(pieces.slice(0, end).join("")), 150));
        setText(item.newest, isNew ? visibleToken(pieces[pieces.length - 1] || "·") : "");
        show(item.newest, isNew);
        setAttr(item.root, "data-w", cx.store.stateOf(rid, at).word);
      });
    },
  };
}
