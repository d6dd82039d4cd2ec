// One plan's card: what it shows, and when it can be decided.

const armMs = 1_000;

class Card {
  constructor(plan, queue) {
    this.plan = plan;
    this.queue = queue;
    this.folds = [];
    this.warningFolds = [];
    this.over = false;
    this.armedAt = Infinity;
    this.article = element("article", { class: "card", tabindex: "0", "aria-labelledby": `t-${plan.plan_token}` });
    this.left = element("p", { class: "left" });
    this.facts = element("p", { class: "facts" });
    this.warning = element("div", {});
    this.foot = element("div", { class: "foot" });
    this.build();
    this.update(plan);
    this.buttons();
    this.article.addEventListener("keydown", (event) => this.key(event));
  }

  build() {
    const { plan } = this;
    const title = plan.render.title;
    const sameAsTool = title === plan.tool;
    this.article.append(
      element("header", { class: "head" },
        element("div", {},
          element("h2", { id: `t-${plan.plan_token}` }, marked(title, false, new Map())),
          element("p", { class: "facts" },
            sameAsTool ? null : element("span", {}, "tool ", element("code", {}, plan.tool)),
            element("span", {}, "caller ", element("code", {}, plan.caller)),
            element("span", {}, "proposed ", moment(plan.created_at)),
          )),
        this.left),
      this.warning,
      ...this.words(),
      this.facts,
      this.details(),
      this.identity(),
      this.foot,
    );
  }

  words() {
    const { reason } = this.plan;
    if (reason === null) return [element("p", { class: "quiet" }, "The agent gave no reason.")];
    return [element("div", { class: "words" },
      element("h3", {}, "Reason, in the agent's words"), this.value(reason, false))];
  }

  /** A value whose folded part has to be opened before the plan can be approved. */
  value(text, json) {
    const { box, folded } = value(text, { json, opened: () => this.refreshButtons() });
    if (folded) this.folds.push(folded);
    return box;
  }

  details() {
    const { render } = this.plan;
    const list = element("dl", {});
    if (render.failed) {
      list.append(element("dt", {}, "Details"), element("dd", { class: "bad" },
        "The host could not render this plan. What it does is not shown, so it cannot be approved here; it can be rejected."));
    }
    for (const detail of render.details) {
      list.append(element("dt", {}, marked(detail.label, false, new Map())),
        element("dd", {}, this.value(detail.value, detail.json === true)));
    }
    return list;
  }

  identity() {
    const { plan } = this;
    const box = element("div", { class: "identity" });
    const rows = element("dl", { class: "short" });
    const parts = [["seal", plan.seal], ["fingerprint", plan.fingerprint], ["plan", plan.plan_token]].map(([name, text]) => {
      const shown = element("code", { title: text }, `${text.slice(0, 12)}…`);
      rows.append(element("dt", {}, name), element("dd", {}, shown));
      return [shown, text];
    });
    if (plan.idempotency_key !== null) {
      rows.append(element("dt", {}, "idempotency key"), element("dd", {}, element("code", {}, plan.idempotency_key)));
    }
    let full = false;
    this.toggleIdentity = () => {
      full = !full;
      for (const [shown, text] of parts) shown.textContent = full ? text : `${text.slice(0, 12)}…`;
      toggle.setAttribute("aria-expanded", String(full));
      toggle.textContent = full ? "Shorten" : "In full";
    };
    const toggle = button("In full", { class: "link", "aria-expanded": "false", "aria-label": "Seal, fingerprint and plan token in full" },
      (event) => {
        this.toggleIdentity();
        // What shrinks under the pointer may bring a button there.
        if (event.detail > 0) this.rearm();
      });
    box.append(rows, toggle, this.payload());
    return box;
  }

  payload() {
    const { payload } = this.plan;
    if (payload === undefined) {
      return element("p", { class: "quiet" }, this.queue.rawPayload ? "" : "The stored payload is not shown beyond the details above.");
    }
    const box = element("div", { class: "raw" });
    const open = button(`Exact stored JSON (${number.format(payload.length)} characters)`, { class: "link", "aria-expanded": "false" }, () => {
      const found = new Map();
      open.replaceWith(element("h3", {}, "Exact stored JSON"),
        element("div", { class: "value code", dir: "ltr" }, nodes(payload, true, found)));
      const warning = warningOf(found);
      if (warning) box.append(warning);
    });
    box.append(open);
    return box;
  }

  /** What can change while a plan waits. */
  update(plan) {
    this.plan = { ...this.plan, ...plan };
    const { preview_count: count, approvals, approvals_needed: needed, approved_by: by, others_waiting: others } = this.plan;
    const names = by.length > 0 ? `: ${by.map((given) => given.reviewer).join(", ")}` : "";
    const facts = [
      count === null
        ? element("span", {}, "number affected: not given by the host")
        : element("span", {}, element("b", {}, number.format(count)), " affected, as the host counted"),
      element("span", {}, element("b", {}, `${approvals} of ${needed}`), ` ${needed === 1 ? "approval" : "approvals"}${names}`),
      element("span", {}, others === 0 ? "no other plan" : element("b", {}, others === 1 ? "1 other plan" : `${number.format(others)} other plans`),
        " of this caller and tool waits".replace("waits", others > 1 ? "wait" : "waits")),
    ];
    const text = facts.map((fact) => fact.textContent).join();
    if (text !== this.factsText) {
      this.factsText = text;
      this.facts.replaceChildren(...facts);
    }
    this.warn();
    this.tick();
  }

  warn() {
    const earlier = this.plan.earlier_rejection;
    const known = earlier?.plan_token ?? "";
    if (known === (this.warnedOf ?? "")) return;
    // News about the payload: whoever was about to decide reads it first.
    if (this.warnedOf !== undefined || this.step) this.rearm();
    this.warnedOf = known;
    this.warning.replaceChildren();
    this.folds = this.folds.filter((fold) => !this.warningFolds.includes(fold));
    this.warningFolds = [];
    if (!earlier) return;
    const before = this.folds.length;
    this.warning.append(element("div", { class: "warn", role: "note" },
      element("strong", {}, "This very payload was rejected before"), " by ", element("b", {}, earlier.reviewer), ", ", moment(earlier.at),
      earlier.reason === null ? ", without a reason." : ":",
      ...(earlier.reason === null ? [] : [this.value(earlier.reason, false)])));
    this.warningFolds = this.folds.slice(before);
  }

  /** Each second, and when the queue changes. */
  tick() {
    const ms = Date.parse(this.plan.expires_at) - now();
    if (this.over) {
      this.left.replaceChildren();
      return;
    }
    if (ms < 0) {
      this.end("off", "Expired. Nobody decided in time; it can no longer run.");
      this.queue.soon();
      return;
    }
    this.left.dataset.soon = String(ms < 60_000);
    this.left.replaceChildren(element("b", {}, span(ms)), " left");
    this.left.title = `expires ${this.plan.expires_at}`;
  }

  armed() {
    return performance.now() >= this.armedAt;
  }

  /** Not before a moment has passed since the card was drawn where it is; a tab that nobody sees draws nothing. */
  rearm() {
    if (this.over) return;
    this.armedAt = Infinity;
    this.refreshButtons();
    requestAnimationFrame(() => {
      this.armedAt = performance.now() + armMs;
      setTimeout(() => this.refreshButtons(), armMs + 20);
    });
  }

  unopened() {
    return this.folds.filter((fold) => !fold.done).length;
  }

  /** Why it cannot be approved now; empty when it can. */
  obstacle() {
    if (this.plan.render.failed) return "Its details could not be rendered.";
    if (this.plan.caller.toLowerCase() === me.toLowerCase()) return "You are its caller: another person has to approve it.";
    const left = this.unopened();
    if (left > 0) return left === 1 ? "Open the folded part to approve (O)." : `Open the ${left} folded parts to approve (O).`;
    return "";
  }

  hasMine() {
    return this.plan.approved_by.some((given) => given.reviewer.toLowerCase() === me.toLowerCase());
  }

  buttons() {
    this.step = "choose";
    const mine = this.hasMine();
    this.approve = button("Approve", { class: "approve" }, (event) => this.pick(event, "approve"));
    this.reject = button("Reject…", { class: "reject" }, () => this.armed() && this.askReason());
    this.note = element("p", { class: "quiet", id: `n-${this.plan.plan_token}` });
    this.approve.setAttribute("aria-describedby", this.note.id);
    const approval = mine ? element("p", { class: "outcome good" }, "You approved this. Others still have to.") : this.approve;
    this.foot.replaceChildren(approval, this.reject, this.note);
    this.refreshButtons();
  }

  refreshButtons() {
    if (this.over || this.step !== "choose") return;
    const obstacle = this.obstacle();
    this.approve.disabled = obstacle !== "" || !this.armed();
    this.reject.disabled = !this.armed();
    this.note.textContent = this.hasMine() ? "" : obstacle;
  }

  /** A click of the mouse decides. The keyboard's click (it has no detail) asks once more. */
  pick(event, action) {
    if (!this.armed() || this.obstacle() !== "" || this.over) return;
    if (event.detail > 0) this.decide(action, null);
    else this.confirmApprove();
  }

  confirmApprove() {
    if (this.over || this.step !== "choose" || this.hasMine()) return;
    const obstacle = this.obstacle();
    if (obstacle !== "" || !this.armed()) return say(obstacle === "" ? "One moment: the card has just come." : obstacle);
    this.step = "confirm";
    const yes = button("Approve now", { class: "approve" }, () => this.decide("approve", null));
    this.foot.replaceChildren(element("p", {}, "Approve this plan?"), yes, this.cancel());
    yes.focus();
    return undefined;
  }

  askReason() {
    if (this.over || this.step !== "choose") return;
    this.step = "confirm";
    const reason = element("input", { type: "text", maxlength: "1000", "aria-label": "Reason for the rejection, for the agent to read", placeholder: "Reason (optional)" });
    const send = () => this.decide("reject", reason.value.trim() || null);
    reason.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.repeat && !event.isComposing) {
        event.preventDefault();
        send();
      }
    });
    this.foot.replaceChildren(reason, button("Reject now", { class: "reject strong" }, send), this.cancel());
    reason.focus();
  }

  cancel() {
    return button("Cancel", {}, () => this.back());
  }

  back() {
    if (this.over) return;
    this.buttons();
    this.article.focus();
  }

  key(event) {
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    if (event.repeat || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (event.key === "Escape" && this.step === "confirm") {
      event.preventDefault();
      this.back();
      return;
    }
    // Letters act on the card itself alone, not while something inside it has the focus.
    if (event.target !== this.article) return;
    const act = {
      a: () => this.confirmApprove(),
      r: () => (this.armed() ? this.askReason() : say("One moment: the card has just come.")),
      o: () => this.folds.forEach((fold) => fold.open()),
      s: () => this.toggleIdentity(),
    }[event.key.toLowerCase()];
    if (act) {
      event.preventDefault();
      act();
    }
  }

  /** The decision carries the seal of what this card shows. */
  async decide(action, reason) {
    if (this.over || this.step === "sending") return;
    if (!this.armed()) {
      say("One moment: the card has just come, or moved.");
      return;
    }
    const hadFocus = this.article.contains(document.activeElement);
    this.step = "sending";
    this.foot.replaceChildren(element("p", { class: "outcome" }, "Sending…"));
    if (hadFocus) this.article.focus();
    const body = action === "approve" ? { seal: this.plan.seal } : { seal: this.plan.seal, reason };
    try {
      this.answered(action, await tell(`/api/plans/${this.plan.plan_token}/${action}`, body));
    } catch (error) {
      await this.refused(action, error);
    }
    this.queue.soon();
  }

  answered(action, decision) {
    const again = decision.already ? " It had been decided so before." : "";
    if (action === "reject") return this.end("bad", `You rejected it.${again}`);
    const others = this.plan.approved_by.filter((given) => given.reviewer !== me);
    this.update({ approvals: decision.approvals, approved_by: [...others, { reviewer: me }] });
    if (decision.status !== "awaiting_approval") return this.end("good", `You approved it.${again} It can run now.`);
    const missing = decision.approvals_needed - decision.approvals;
    this.buttons();
    return say(`Your approval is recorded. ${missing} more needed.`);
  }

  async refused(action, error) {
    const did = action === "approve" ? "approved" : "rejected";
    if (!(error instanceof Refused)) {
      return this.failed("No answer from the server. Look again before you repeat it; a decision that is sent twice counts once.");
    }
    const closed = ["PLAN_REJECTED", "PLAN_USED", "PLAN_EXPIRED", "ALREADY_EXECUTING", "UNKNOWN_TOKEN"].includes(error.code);
    if (closed) return this.end("bad", `Not ${did} by you: ${await whatHappened(this.plan.plan_token, error.message)}`);
    return this.failed(`Not ${did}: ${error.message}. ${error.hint}`);
  }

  failed(text) {
    this.step = "failed";
    this.foot.replaceChildren(element("p", { class: "outcome bad", role: "alert" }, marked(text, false, new Map())),
      button("Back", {}, () => this.back()));
  }

  /** The card stays where it is, and says how it ended. */
  end(kind, text) {
    if (this.over) return;
    this.over = true;
    this.step = "over";
    this.article.classList.add("over");
    const hadFocus = this.article.contains(document.activeElement);
    this.foot.replaceChildren(element("p", { class: `outcome ${kind}` }, marked(text, false, new Map())));
    if (hadFocus) this.article.focus();
    this.left.replaceChildren();
    say(`${this.plan.render.title}: ${text}`);
    this.queue.count();
  }

  /** Gone from the queue without a decision on this page. */
  async goneElsewhere() {
    if (this.over || this.step === "sending" || this.looking) return;
    this.looking = true;
    try {
      const { plan } = await ask(`/api/plans/${this.plan.plan_token}`);
      if (plan.state === "awaiting_approval") return this.update(plan);
      this.end("off", `No longer waiting: ${await whatHappened(this.plan.plan_token, `it is ${plan.state.replace("_", " ")}`)}`);
    } catch (error) {
      if (error instanceof Refused && error.status !== 401) this.end("off", `No longer waiting: ${error.message}.`);
    } finally {
      this.looking = false;
    }
  }
}

/** The newest decision about a plan, in words; `otherwise` where its history cannot be had. */
async function whatHappened(token, otherwise) {
  try {
    const { rows } = await ask(`/api/history/${token}`);
    const event = rows.findLast((row) => ["rejected", "approved", "executing", "executed", "failed", "uncertain", "expired"].includes(row.event));
    if (!event) return `${otherwise}.`;
    const at = clock.format(new Date(event.at));
    const what = { rejected: "rejected it", approved: "approved it", executing: "started it", executed: "ran it", failed: "reported that it failed", uncertain: "reported that its outcome is unknown", expired: "found that it had expired" }[event.event];
    const who = event.actor.toLowerCase() === me.toLowerCase() ? "you" : event.actor;
    const because = event.event === "rejected" && event.reason ? `: ${event.reason}` : ".";
    return `${who} ${what} at ${at}${because}`;
  } catch {
    return `${otherwise}.`;
  }
}
