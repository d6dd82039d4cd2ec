// Where it starts.

const queue = new Queue();
const past = new History();

function show(view) {
  for (const name of ["queue", "history"]) {
    byId(name).hidden = name !== view;
    if (name === view) byId(`to-${name}`).setAttribute("aria-current", "page");
    else byId(`to-${name}`).removeAttribute("aria-current");
  }
  byId("news").hidden = view !== "queue";
  // Whoever comes back finds the cards elsewhere under the pointer.
  queue.rearm();
  if (view === "history") past.open();
}

function changed() {
  queue.soon();
  if (!byId("history").hidden) past.changed();
}

async function signIn() {
  signedIn(true);
  show("queue");
  await queue.soon();
  follow(changed);
}

byId("to-queue").addEventListener("click", () => show("queue"));
byId("to-history").addEventListener("click", () => show("history"));
byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(tokenKey, tokenFrom(byId("ask-token").value));
  byId("ask-token").value = "";
  signIn();
});

takeTokenFromAddress();
if (sessionStorage.getItem(tokenKey)) signIn();
else askForToken();
