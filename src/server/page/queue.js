// The queue: cards that never move by themselves; what is new waits until it is asked for.

class Queue {
  constructor() {
    this.cards = new Map();
    this.fresh = new Map();
    this.total = 0;
    this.listed = 0;
    this.rawPayload = false;
    this.heights = new ResizeObserver((entries) => this.resized(entries));
    byId("fresh").addEventListener("click", () => this.showFresh());
    byId("clear").addEventListener("click", () => this.clearDecided());
    document.addEventListener("keydown", (event) => this.walk(event));
    setInterval(() => this.tick(), 1_000);
  }

  /** Asks for the queue, one request at a time; a change meanwhile asks once more. */
  async soon() {
    if (this.asking) {
      this.again = true;
      return;
    }
    this.asking = true;
    try {
      do {
        this.again = false;
        this.take(await ask("/api/plans"));
      } while (this.again);
    } catch {
      // A 401 asks for the token; for all else the stream says that the connection is lost, and asks again.
      this.again = false;
    } finally {
      this.asking = false;
    }
  }

  take(answer) {
    me = answer.reviewer;
    byId("reviewer").textContent = me;
    this.rawPayload = answer.raw_payload;
    this.total = answer.total;
    this.listed = answer.plans.length;
    const waiting = new Set(answer.plans.map((plan) => plan.plan_token));
    this.fresh.clear();
    for (const plan of answer.plans) {
      const card = this.cards.get(plan.plan_token);
      if (card && !card.over) {
        const hadMine = card.hasMine();
        card.update(plan);
        if (hadMine !== card.hasMine() && card.step === "choose") card.buttons();
      } else {
        // A card that was over and waits again (its approvals were dropped) comes anew.
        this.fresh.set(plan.plan_token, plan);
      }
    }
    for (const [token, card] of this.cards) {
      if (!waiting.has(token)) card.goneElsewhere();
    }
    if (this.cards.size === 0) this.showFresh();
    this.count();
  }

  showFresh() {
    const more = [...this.fresh.values()];
    this.fresh.clear();
    this.drop((card) => card.over);
    for (const plan of more) {
      this.cards.get(plan.plan_token)?.article.remove();
      const card = new Card(plan, this);
      this.cards.set(plan.plan_token, card);
      this.heights.observe(card.article);
    }
    const sorted = [...this.cards.values()].sort((a, b) => Date.parse(a.plan.expires_at) - Date.parse(b.plan.expires_at));
    byId("cards").replaceChildren(...sorted.map((card) => card.article));
    this.rearm();
    this.count();
    if (more.length > 0 && document.activeElement === document.body) sorted[0]?.article.focus({ preventScroll: true });
  }

  clearDecided() {
    this.drop((card) => card.over);
    if (this.cards.size === 0 && this.fresh.size > 0) this.showFresh();
    this.rearm();
    this.count();
    this.soon();
  }

  drop(which) {
    for (const [token, card] of [...this.cards]) {
      if (!which(card)) continue;
      this.heights.unobserve(card.article);
      card.article.remove();
      this.cards.delete(token);
    }
  }

  rearm() {
    for (const card of this.cards.values()) card.rearm();
  }

  /** A card that grows or shrinks moves those below it: they are armed anew. */
  resized(entries) {
    const grown = new Set(entries.map((entry) => entry.target));
    let below = false;
    for (const article of byId("cards").children) {
      const card = this.cardOf(article);
      if (below && card) card.rearm();
      below ||= grown.has(article);
    }
  }

  cardOf(article) {
    return [...this.cards.values()].find((card) => card.article === article);
  }

  count() {
    const cards = [...this.cards.values()];
    const over = cards.filter((card) => card.over).length;
    const open = cards.length - over;
    document.title = this.total > 0 ? `(${number.format(this.total)}) ${settings.title}` : settings.title;
    byId("count").textContent = this.total > 0 ? number.format(this.total) : "";
    const fresh = byId("fresh");
    const hadNews = fresh.hidden ? 0 : Number(fresh.dataset.count);
    fresh.hidden = this.fresh.size === 0;
    fresh.dataset.count = String(this.fresh.size);
    fresh.textContent = `${number.format(this.fresh.size)} new`;
    if (this.fresh.size > hadNews) say(`${this.fresh.size} new`);
    const clear = byId("clear");
    clear.hidden = over === 0;
    clear.textContent = `Clear ${over} done`;
    byId("empty").hidden = cards.length > 0;
    byId("summary").textContent = open === 0 ? "" : `${number.format(open)} shown, soonest-expiring first`;
    const more = byId("more");
    more.hidden = this.listed >= this.total;
    more.textContent = `${number.format(this.total)} plans wait; the ${number.format(this.listed)} that expire soonest are listed. The others follow as these are decided.`;
  }

  tick() {
    for (const card of this.cards.values()) card.tick();
  }

  walk(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey || byId("queue").hidden) return;
    if (event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement) return;
    const articles = [...byId("cards").children];
    const at = articles.findIndex((article) => article.contains(document.activeElement));
    const next = articles[at < 0 ? 0 : Math.min(Math.max(at + step, 0), articles.length - 1)];
    next?.focus();
    next?.scrollIntoView({ block: "nearest" });
  }
}
