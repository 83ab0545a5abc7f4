// Words: sentences arrive as [id, arguments]; templates come from the one string table that Python ships.
// {name} inserts an argument; {n|one|many} chooses by number; an argument that is itself [id, args] is translated.
function makeTranslator(getTable) {
  const fill = (template, args) =>
    template.replace(/\{(\w+)(?:\|([^|}]*)\|([^}]*))?\}/g, (_, name, one, many) => {
      const value = args ? args[name] : undefined;
      if (one !== undefined) return Number(value) === 1 ? one : many;
      if (Array.isArray(value)) return translate(value[0], value[1]);
      return value === undefined || value === null ? "" : String(value);
    });
  const translate = (id, args) => {
    const template = getTable()[id];
    return template === undefined ? id : fill(template, args); // an unknown id is shown, not hidden
  };
  return translate;
}

function formatUs(us) {
  if (us === null || us === undefined || !Number.isFinite(us)) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${(us / 1000).toFixed(us < 1e4 ? 1 : 0)} ms`;
  return `${(us / 1e6).toFixed(1)} s`;
}

function formatBytes(bytes) {
  if (!bytes) return "0 B";
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1048576) return `${(bytes / 1024).toFixed(bytes < 10240 ? 1 : 0)} KiB`;
  return `${(bytes / 1048576).toFixed(bytes < 10485760 ? 1 : 0)} MiB`;
}

function formatAddress(address) {
  return address ? "0x" + address.toString(16) : "–";
}

function percent(part, whole) {
  return whole ? Math.round((100 * part) / whole) : 0;
}

// Whitespace is part of a token; drawn so that a newline cannot break a row.
function visibleToken(text) {
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥");
}
