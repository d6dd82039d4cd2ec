// Text on the page. Everything is written as text nodes; nothing is ever parsed as HTML.

const settings = document.body.dataset;
const hiddenRanges = JSON.parse(settings.hidden);

const byId = (id) => document.getElementById(id);

/** An element with a class, attributes and children; a child that is no node becomes text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function button(text, attributes, act) {
  const made = element("button", { type: "button", ...attributes }, text);
  made.addEventListener("click", act);
  return made;
}

function hiddenKind(code) {
  const found = hiddenRanges.find(([first, last]) => first <= code && code <= last);
  return found ? { name: found[2], explanation: found[3] } : null;
}

const named = { n: 10, r: 13, t: 9, b: 8, f: 12 };

/** The marker at a match of the grammar below: which character it stands for, or null for a plain escape. */
function markedCode(match, json) {
  if (!json) return match[1] !== undefined ? parseInt(match[1], 16) : named[match[2]];
  if (match[1] === undefined) return named[match[0][1]] ?? null;
  const high = parseInt(match[1], 16);
  if (match[2] === undefined) return high;
  return 0x10000 + ((high - 0xd800) << 10) + (parseInt(match[2], 16) - 0xdc00);
}

// The server has replaced every hidden character already. In text it wrote \n, \r, \t or \u{...}, and it wrote a
// backslash that would read as one of these as \u{5C}; in JSON it used JSON's own escapes. So these find exactly the
// markers, and decorate what is safe without them.
const textMarker = /\\(?:u\{([0-9A-F]{1,6})\}|([nrt]))/g;
const jsonMarker = /\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|[^u])/g;

function marker(text, code) {
  const kind = hiddenKind(code);
  const number = "U+" + code.toString(16).toUpperCase().padStart(4, "0");
  const lineOrTab = code === 10 || code === 9;
  const title = kind ? `${number}, ${kind.name}. ${kind.explanation}` : `${number}, written out`;
  return element("span", { class: lineOrTab ? "mark plain" : "mark", title }, text);
}

/** Server text as nodes, with its markers decorated; `found` collects the kinds of what hides. */
function marked(text, json, found) {
  const out = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(json ? jsonMarker : textMarker)) {
    const parts = json ? [match[0], match[1] ?? match[3], match[2]] : match;
    const code = markedCode(parts, json);
    if (code === null || code === undefined) continue;
    out.append(text.slice(at, match.index), marker(match[0], code));
    at = match.index + match[0].length;
    const breaksLine = code === 10 && !json;
    if (breaksLine) out.append(document.createElement("br"));
    const kind = hiddenKind(code);
    if (kind && code !== 10 && code !== 9) {
      const known = found.get(kind.name) ?? { count: 0, explanation: kind.explanation };
      known.count += 1;
      found.set(kind.name, known);
    }
  }
  out.append(text.slice(at));
  return out;
}

const rightToLeft = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]|[\u{10800}-\u{10fff}]|[\u{1e800}-\u{1efff}]/u;

/** JSON with strings in letters that run from right to left: each string by itself, so that it moves no neighbour. */
function isolated(text, found) {
  if (!rightToLeft.test(text)) return marked(text, true, found);
  const out = document.createDocumentFragment();
  let at = 0;
  for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"/g)) {
    out.append(text.slice(at, match.index), element("bdi", {}, marked(match[0], true, found)));
    at = match.index + match[0].length;
  }
  out.append(text.slice(at));
  return out;
}

function nodes(text, json, found) {
  return json ? isolated(text, found) : marked(text, false, found);
}

/** What hides in a text, in words; null where nothing does. */
function warningOf(found) {
  if (found.size === 0) return null;
  const list = element("ul", {});
  for (const [name, { count, explanation }] of found) {
    list.append(element("li", {}, `${count} × ${name}. ${explanation}`));
  }
  return element("div", { class: "hides" }, element("strong", {}, "Hidden characters, written out here:"), list);
}

const foldChars = 600;
const foldLines = 12;
const number = new Intl.NumberFormat("en");

function linesOf(text, json) {
  return text.split(json ? "\n" : "\\n").length;
}

/** Where a long text is folded, or null for a short one. Never inside a marker or a pair of surrogates. */
function foldAt(text, json) {
  const parts = text.split(json ? "\n" : "\\n");
  if (text.length <= foldChars && parts.length <= foldLines) return null;
  const lines = parts.slice(0, foldLines - 4).join(json ? "\n" : "\\n").length;
  let at = Math.min(lines, foldChars - 200, text.length);
  const markerStart = text.lastIndexOf("\\", at);
  if (markerStart >= 0 && at - markerStart < 14) at = markerStart;
  const unit = text.charCodeAt(at);
  return unit >= 0xdc00 && unit <= 0xdfff ? at - 1 : at;
}

/**
 * A value. A long one is folded, says how long it is, and calls `opened` when it has been opened; the answer says
 * whether that is still to be done.
 */
function value(text, { json = false, opened = () => {} } = {}) {
  const lines = linesOf(text, json);
  const kind = json ? "value code" : lines > 1 ? "value lines" : "value";
  const body = element("div", { class: kind, dir: "ltr" });
  const found = new Map();
  const whole = nodes(text, json, found);
  const at = foldAt(text, json);
  const warning = warningOf(found);
  const box = element("div", { class: "box" }, body);
  if (at === null) {
    body.append(whole);
    box.append(...(warning ? [warning] : []));
    return { box, folded: null };
  }
  body.append(nodes(text.slice(0, at), json, new Map()), "…");
  const rest = `${number.format(text.length)} characters, ${number.format(lines)} ${lines === 1 ? "line" : "lines"}`;
  const folded = {
    open() {
      if (folded.done) return;
      folded.done = true;
      body.replaceChildren(whole);
      toggle.replaceWith(element("p", { class: "quiet" }, `All of it: ${rest}.`));
      opened();
    },
    done: false,
  };
  const toggle = button(`Folded. Show all: ${rest}`, { class: "fold", "aria-expanded": "false" }, () => folded.open());
  box.append(toggle, ...(warning ? [warning] : []));
  return { box, folded };
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dayClock = new Intl.DateTimeFormat("en-GB", {
  year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

/** A moment, with its exact form in a title; with the day where it is not today's. */
function moment(iso) {
  const at = new Date(iso);
  const today = at.toDateString() === new Date(now()).toDateString();
  return element("time", { datetime: iso, title: iso }, (today ? clock : dayClock).format(at));
}

function span(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  const [h, m, s] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60, seconds % 60];
  if (h > 0) return `${h} h ${String(m).padStart(2, "0")} min`;
  return m > 0 ? `${m} min ${String(s).padStart(2, "0")} s` : `${s} s`;
}

function say(text) {
  byId("said").textContent = text;
}
