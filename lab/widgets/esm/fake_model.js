// The twenty lines of a widget model that the stepper needs on a page without Jupyter: get, set, on, off, send.
// Not part of the joined module; static.py puts it beside it.
function fakeModel(state) {
  const listeners = {};
  const all = (name) => listeners[name] || (listeners[name] = []);
  return {
    state,
    sent: [],
    saves: 0,
    get: (name) => state[name],
    set(name, value) {
      if (state[name] === value) return;
      state[name] = value;
      for (const one of all("change:" + name)) one();
    },
    save_changes() {
      this.saves += 1;
    },
    on: (name, one) => all(name).push(one),
    off(name, one) {
      listeners[name] = all(name).filter((other) => other !== one);
    },
    send(message) {
      this.sent.push(message);
    },
    receive(message, buffers) {
      for (const one of all("msg:custom")) one(message, buffers);
    },
    count: () => Object.values(listeners).reduce((sum, list) => sum + list.length, 0),
  };
}
