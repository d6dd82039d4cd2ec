// The token, the requests and the stream.

const base = settings.base;
const tokenKey = "countersign.token";
let me = "";
let clockOffset = 0;

/** The server's time. */
function now() {
  return Date.now() + clockOffset;
}

function takeTokenFromAddress() {
  const given = new URLSearchParams(location.search).get("token");
  if (given !== null) {
    sessionStorage.setItem(tokenKey, given);
    history.replaceState(null, "", location.pathname);
  }
}

class Refused extends Error {
  constructor(status, body) {
    super(body.message ?? "the server gave no reason");
    this.status = status;
    this.code = body.code ?? "";
    this.hint = body.hint ?? "";
    this.reason = body.reason ?? "";
  }
}

function authorised(more = {}) {
  return { Authorization: `Bearer ${sessionStorage.getItem(tokenKey) ?? ""}`, ...more };
}

/** The JSON of an answer. Throws Refused for a "no", and TypeError where there is no answer. */
async function call(path, options = {}) {
  const response = await fetch(base + path, { cache: "no-store", referrerPolicy: "no-referrer", ...options });
  if (response.status === 401) askForToken();
  if (!response.ok) throw new Refused(response.status, await response.json().catch(() => ({})));
  const body = await response.json();
  if (body.now) clockOffset = Date.parse(body.now) - Date.now();
  return body;
}

function ask(path) {
  return call(path, { headers: authorised() });
}

function tell(path, body) {
  return call(path, {
    method: "POST",
    headers: authorised({ "Content-Type": "application/json" }),
    body: JSON.stringify(body),
  });
}

function signedIn(yes) {
  for (const part of [byId("main"), byId("views"), byId("news")]) part.hidden = !yes;
  byId("ask").hidden = yes;
}

function askForToken() {
  if (sessionStorage.getItem(tokenKey)) {
    byId("ask-why").textContent =
      "This link is no longer valid: the server was started again, or the link was replaced. Paste the new one.";
  }
  sessionStorage.removeItem(tokenKey);
  signedIn(false);
  live("off", "Not signed in");
}

function tokenFrom(pasted) {
  const text = pasted.trim();
  const at = text.lastIndexOf("token=");
  return at < 0 ? text : text.slice(at + 6).split(/[&#]/)[0];
}

function live(state, text) {
  const shown = byId("live");
  if (shown.dataset.state === state && shown.textContent === text) return;
  shown.dataset.state = state;
  document.body.dataset.live = state;
  shown.textContent = text;
}

const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const silentMs = 25_000;

let following = false;

/** Follows the stream as long as there is a token; `changed` is called whenever something has changed. */
async function follow(changed) {
  if (following) return;
  following = true;
  await reconnect(changed);
  following = false;
}

async function reconnect(changed) {
  for (let failures = 0; sessionStorage.getItem(tokenKey); failures += 1) {
    const stop = new AbortController();
    try {
      const response = await fetch(`${base}/api/events`, {
        headers: authorised(), cache: "no-store", referrerPolicy: "no-referrer", signal: stop.signal,
      });
      if (response.status === 401) return askForToken();
      if (!response.ok) throw new Refused(response.status, {});
      failures = 0;
      live("on", "Live");
      await readEvents(response.body, stop, changed);
    } catch {
      // Said below; the next round tries again.
    }
    stop.abort();
    live("lost", "Connection lost, trying again");
    await wait(Math.min(500 * 2 ** Math.min(failures, 4), 5_000));
  }
}

async function readEvents(body, stop, changed) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const silence = setTimeout(() => stop.abort(), silentMs);
    const { value: text, done } = await reader.read().finally(() => clearTimeout(silence));
    if (done) return;
    const events = (rest + text).split("\n\n");
    rest = events.pop();
    if (events.some((event) => event.includes("data:"))) changed();
  }
}
