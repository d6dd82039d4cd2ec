// What happened: read only.

class History {
  constructor() {
    this.rows = [];
    byId("search").addEventListener("submit", (event) => {
      event.preventDefault();
      this.find();
    });
    byId("search-state").addEventListener("change", () => this.find());
    byId("older").addEventListener("click", () => this.find(this.rows.at(-1)?.seq));
  }

  open() {
    return Promise.all([this.find(), this.stuck()]);
  }

  /** Something changed while the view is open: the claimed plans are current, a search stays as it was asked. */
  changed() {
    this.stuck();
  }

  async find(before) {
    const query = new URLSearchParams({ q: byId("search-q").value.trim(), state: byId("search-state").value });
    if (before !== undefined) query.set("before", String(before));
    try {
      const found = await ask(`/api/history?${query}`);
      this.rows = before === undefined ? found.rows : [...this.rows, ...found.rows];
      byId("timeline").hidden = true;
      byId("rows").hidden = false;
      byId("rows").replaceChildren(this.table(this.rows));
      byId("older").hidden = found.matches <= found.rows.length;
      const scope = found.searched < found.total
        ? `the newest ${number.format(found.searched)} of ${number.format(found.total)} rows were searched`
        : `all ${number.format(found.total)} rows were searched`;
      byId("searched").textContent = `${number.format(this.rows.length)} shown; ${scope}.`;
    } catch (error) {
      byId("searched").textContent = `The history cannot be read: ${error.message}.`;
    }
  }

  table(rows) {
    if (rows.length === 0) return element("p", { class: "empty" }, "No row matches.");
    const heads = ["Time", "Event", "Tool", "Caller", "By", "Plan", "Note"];
    const cell = (name, ...content) => element("td", { "data-name": name }, element("span", {}, ...content));
    const body = rows.map((row) => element("tr", { "data-event": row.event },
      cell("Time", moment(row.at)),
      cell("Event", element("b", {}, row.event.replaceAll("_", " ")), row.code ? ` ${row.code}` : ""),
      cell("Tool", row.tool ?? "–"),
      cell("Caller", row.caller ?? "–"),
      cell("By", row.actor, element("span", { class: "quiet" }, ` ${row.channel}`)),
      cell("Plan", row.plan_token ? this.link(row.plan_token) : "–"),
      cell("Note", row.reason === null ? "" : marked(row.reason, false, new Map()))));
    return element("table", {},
      element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
      element("tbody", {}, ...body));
  }

  link(token) {
    return button(`${token.slice(0, 8)}…`, { class: "link code", title: token, "aria-label": `Timeline of plan ${token}` }, () => this.timeline(token));
  }

  async timeline(token) {
    const box = byId("timeline");
    try {
      const { rows, total } = await ask(`/api/history/${token}`);
      const first = rows[0] ?? {};
      const list = element("ol", { class: "timeline" }, ...rows.map((row) => this.step(row)));
      const heading = element("h3", { tabindex: "-1" }, "Plan ", element("code", {}, token));
      box.replaceChildren(
        button("Back to the rows", { class: "link" }, () => {
          box.hidden = true;
          byId("rows").hidden = false;
          byId("searched").hidden = false;
        }),
        heading,
        element("p", { class: "facts" },
          element("span", {}, "tool ", element("code", {}, first.tool ?? "–")), element("span", {}, "caller ", element("code", {}, first.caller ?? "–"))),
        list,
        rows.length < total ? element("p", { class: "note" }, `The first ${number.format(rows.length)} of ${number.format(total)} rows.`) : "");
      box.hidden = false;
      byId("rows").hidden = true;
      byId("older").hidden = true;
      byId("searched").hidden = true;
      heading.focus();
    } catch (error) {
      box.hidden = false;
      box.replaceChildren(element("p", { class: "outcome bad" }, `The timeline cannot be read: ${error.message}.`));
    }
  }

  step(row) {
    const moved = row.to_state && row.to_state !== row.from_state
      ? `${row.from_state ? `${row.from_state.replace("_", " ")} → ` : ""}${row.to_state.replace("_", " ")}` : "state unchanged";
    const facts = [
      element("span", {}, "by ", element("b", {}, row.actor), ` through ${row.channel}`),
      element("span", {}, moved),
      row.attempt ? element("span", {}, `attempt ${row.attempt}`) : null,
      row.preview_count !== null ? element("span", {}, `${number.format(row.preview_count)} affected, as the host counted`) : null,
      row.duration_us !== null ? element("span", {}, `took ${number.format(Math.round(row.duration_us / 1000))} ms`) : null,
    ];
    const notes = [];
    if (row.reason !== null) notes.push(value(row.reason).box);
    if (row.detail !== undefined) {
      const sealed = ["previewed", "awaiting_approval", "approved", "approval_recorded"].includes(row.event);
      notes.push(sealed
        ? element("p", { class: "quiet" }, "seal ", element("code", {}, row.detail))
        : element("div", {}, element("p", { class: "quiet" }, "detail"), value(row.detail).box));
    }
    if (row.detail_hidden) notes.push(element("p", { class: "quiet" }, "It has a detail, which is not shown here."));
    return element("li", { "data-event": row.event },
      element("p", {}, element("b", {}, row.event.replaceAll("_", " ")), row.code ? ` ${row.code} ` : " ", moment(row.at), element("span", { class: "quiet" }, ` row ${row.seq}`)),
      element("p", { class: "facts" }, ...facts.filter(Boolean)), ...notes);
  }

  async stuck() {
    try {
      const { plans, total } = await ask("/api/stuck");
      const box = byId("stuck");
      if (plans.length === 0) return box.replaceChildren(element("p", { class: "empty" }, "None: no plan is executing or uncertain."));
      const heads = ["State", "Claimed for", "Owner", "Tool", "Caller", "Plan"];
      const cell = (name, ...content) => element("td", { "data-name": name }, element("span", {}, ...content));
      const body = plans.map((plan) => element("tr", { "data-event": plan.state },
        cell("State", element("b", {}, plan.state), ` attempt ${plan.attempt}`),
        cell("Claimed for", plan.executing_since ? span(now() - Date.parse(plan.executing_since)) : "–"),
        cell("Owner", element("b", { class: `owner ${plan.owner}` }, { alive: "alive", dead: "dead", unknown: "cannot be told" }[plan.owner]),
          plan.pid === null ? "" : ` ${plan.host_name}, process ${plan.pid}`),
        cell("Tool", plan.tool), cell("Caller", plan.caller), cell("Plan", this.link(plan.plan_token))));
      return box.replaceChildren(
        element("table", {},
          element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
          element("tbody", {}, ...body)),
        plans.length < total ? element("p", { class: "note" }, `The ${plans.length} oldest of ${total}.`) : "");
    } catch (error) {
      return byId("stuck").replaceChildren(element("p", { class: "outcome bad" }, `It cannot be read: ${error.message}.`));
    }
  }
}
