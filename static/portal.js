// Behaviour of the pages. Everything here is a comfort: without it forms still post and links still lead.
// Texts come from <template> elements of the page, so that they are translated with it.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const language = document.documentElement.lang || "en";

for (const element of $$("[data-needs-script]")) element.hidden = false;

// Theme: a cookie, so that the server sets it before the first paint.
function markTheme() {
  const chosen = document.documentElement.dataset.bsTheme || "";
  for (const button of $$("[data-theme]")) button.setAttribute("aria-pressed", String(button.dataset.theme === chosen));
}
function setTheme(theme) {
  if (theme) document.documentElement.dataset.bsTheme = theme;
  else delete document.documentElement.dataset.bsTheme;
  const secure = location.protocol === "https:" ? "; Secure" : "";
  document.cookie = `theme=${theme}; path=/; max-age=${theme ? 31536000 : 0}; SameSite=Lax${secure}`;
  markTheme();
}
markTheme();

// Relative times keep counting. The server writes them first, in the same words.
const relative = new Intl.RelativeTimeFormat(language, { numeric: "always" });
function countTimes() {
  for (const element of $$("time[data-ago]")) {
    const seconds = Math.max(0, Math.floor((Date.now() - Date.parse(element.dateTime)) / 1000));
    const [amount, unit] =
      seconds < 60 ? [seconds, "second"]
        : seconds < 3600 ? [Math.floor(seconds / 60), "minute"]
          : seconds < 172800 ? [Math.floor(seconds / 3600), "hour"]
            : [Math.floor(seconds / 86400), "day"];
    const text = relative.format(-amount, unit);
    if (element.textContent !== text) element.textContent = text;
  }
}
setInterval(countTimes, 1000);

// Notices that the page itself has to give.
function toast(id, requestId) {
  const box = $("#toasts");
  if ($(`[data-toast="${id}"]`, box)) return;
  const notice = $(`#toast-${id}`).content.firstElementChild.cloneNode(true);
  notice.dataset.toast = id;
  const place = $("[data-request-id]", notice);
  if (place && requestId) place.textContent = requestId;
  box.append(notice);
}
const dropToast = (id) => $(`[data-toast="${id}"]`)?.remove();

async function copy(button) {
  const text = button.dataset.copyText ?? $(button.dataset.copy).textContent;
  await navigator.clipboard.writeText(text.replace(/\n$/, ""));
  const before = [...button.childNodes].map((node) => node.cloneNode(true));
  button.replaceChildren($("#text-copied").content.cloneNode(true));
  setTimeout(() => button.replaceChildren(...before), 1600);
}

function download(button) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([$(button.dataset.source).textContent], { type: "application/yaml" }));
  link.download = button.dataset.download;
  link.click();
  URL.revokeObjectURL(link.href);
}

function mend(button) {
  const field = document.getElementsByName(button.dataset.mendField)[0];
  if (!field) return;
  field.value = button.dataset.mendValue;
  field.closest("details")?.setAttribute("open", "");
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

document.addEventListener("click", (event) => {
  const on = (selector) => event.target.closest(selector);
  for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  let target;
  if ((target = on("[data-theme]"))) setTheme(target.dataset.theme);
  else if ((target = on("[data-copy], [data-copy-text]"))) copy(target);
  else if ((target = on("[data-download]"))) download(target);
  else if ((target = on("[data-mend-field]"))) mend(target);
  else if (on("[data-reload]")) location.reload();
  else if (on("[data-close-dialog]")) { event.preventDefault(); $("#dialog").close(); }
  else if (event.target === $("#dialog")) $("#dialog").close();
  else if (on("[data-forget]")) sessionStorage.clear();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    const menu = $("details.menu[open]");
    if (menu) { menu.open = false; $("summary", menu).focus(); }
  }
  const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = $("[data-search]");
    if (search) { event.preventDefault(); search.focus(); search.select(); }
  }
});

// A copy of what is typed, for this tab and person only: a session that ran out, a reload, a new token lose nothing.
function keepKey(form) { return `keep:${form.dataset.keep}`; }
function keepForm(form) {
  const values = {};
  for (const field of form.elements) {
    if (!field.name || field.type === "hidden" || field.type === "password" || field.type === "submit") continue;
    if (field.type === "checkbox") values[field.name] = field.checked;
    else if (field.type !== "radio" || field.checked) values[field.name] = field.value;
  }
  sessionStorage.setItem(keepKey(form), JSON.stringify(values));
}
// What the address asks for wins over the copy, and fields of one template are never put under another. The address
// follows the person's choices, so that a reload asks for what was chosen last.
function restoreForm(form) {
  const stored = history.state?.[keepKey(form)] ?? sessionStorage.getItem(keepKey(form));
  if (!stored || form.dataset.filled === "true") return;
  const asked = new URLSearchParams(location.search);
  let values = JSON.parse(stored);
  if (asked.has("template") && asked.get("template") !== values.template) values = { display_name: values.display_name ?? "", package: values.package };
  for (const field of form.elements) {
    if (!(field.name in values) || asked.has(field.name) || field.type === "hidden") continue;
    if (field.type === "checkbox") field.checked = values[field.name];
    else if (field.type === "radio") field.checked = field.value === values[field.name];
    else field.value = values[field.name];
  }
  document.addEventListener("htmx:load", () => form.dispatchEvent(new Event("restored", { bubbles: true })), { once: true });
}
function followChoice({ name, value }) {
  const address = new URL(location.href);
  if (!address.searchParams.has(name)) return;
  address.searchParams.set(name, value);
  history.replaceState(history.state, "", address);
}
for (const form of $$("form[data-keep]")) restoreForm(form);
// Back and reload send the same operation key, also where the browser has fetched the page anew (case C-17).
const operationKey = $("input[name=operation_key]");
if (operationKey) {
  const name = `key:${operationKey.form.dataset.keep}`;
  operationKey.value = history.state?.[name] ?? operationKey.value;
  history.replaceState({ ...history.state, [name]: operationKey.value }, "");
}
document.addEventListener("submit", ({ target: form }) => {
  if (!form.dataset.keep) return;
  keepForm(form);
  history.replaceState({ ...history.state, [keepKey(form)]: sessionStorage.getItem(keepKey(form)) }, "");
});
for (const element of $$("[data-kept-done]")) sessionStorage.removeItem(`keep:${element.dataset.keptDone}`);

// A template fills the fields that nobody has typed into; only then is the form kept.
document.addEventListener("input", (event) => { if (event.isTrusted) event.target.dataset.typed = "true"; });
document.addEventListener("change", (event) => {
  const fill = event.target.dataset.fill;
  if (!fill) return;
  for (const [name, value] of Object.entries(JSON.parse(fill))) {
    const field = document.getElementsByName(name)[0];
    if (!field || field.dataset.typed) continue;
    if (field.type === "checkbox") field.checked = value;
    else field.value = value;
  }
});
for (const kind of ["input", "change"]) {
  document.addEventListener(kind, ({ target }) => {
    if (!target.form?.dataset.keep) return;
    if (target.type === "radio" && kind === "change") followChoice(target);
    keepForm(target.form);
  });
}

// A fold says in its summary what its fields hold: "{name}" stands for a field.
function sayFolds() {
  for (const place of $$("[data-says]")) {
    const form = place.closest("form");
    const value = (name) => form.elements[name].value.trim();
    const { says, saysIf, saysElse = "" } = place.dataset;
    const text = saysIf && !form.elements[saysIf].checked ? saysElse : says.replace(/\{(\w+)\}/g, (_all, name) => value(name));
    const short = text.replace(/(@.{19}).*/, "$1…");
    place.textContent = short.length > 48 ? `${short.slice(0, 47)}…` : short;
  }
  for (const place of $$("[data-names-of]")) {
    const lines = place.closest("form").elements[place.dataset.namesOf].value.split("\n");
    const names = lines.filter((line) => line.trim() && !line.trim().startsWith("#")).map((line) => line.split("=")[0].trim());
    place.textContent = names.length > 3 ? `${names.slice(0, 3).join(", ")} …` : names.join(", ");
  }
}
for (const kind of ["input", "change"]) document.addEventListener(kind, ({ target }) => { if (target.form?.dataset.keep) sayFolds(); });

// What the preview refuses stands at its field, once; beside the price stays what a button mends or nobody typed.
function markFields() {
  for (const error of $$("[data-marked]")) error.remove();
  for (const field of $$("[data-refused]")) { field.removeAttribute("aria-invalid"); delete field.dataset.refused; }
  for (const item of $$("#preview [data-error-of]")) {
    const field = document.getElementsByName(item.dataset.errorOf)[0];
    const place = field?.closest(".field");
    if (!place || !field.value || $("button", item)) continue;
    if (!$(".error", place)) {
      const error = document.createElement("span");
      error.className = "error";
      error.dataset.marked = "";
      error.textContent = $("[data-error]", item).textContent;
      place.append(error);
      field.setAttribute("aria-invalid", "true");
      field.dataset.refused = "";
      field.closest("details")?.setAttribute("open", "");
    }
    item.hidden = true;
  }
}

function showSettings() {
  const chosen = $("[name=template]:checked")?.value;
  for (const part of $$("[data-of-template]")) part.hidden = part.dataset.ofTemplate !== chosen;
  for (const box of $$("[data-shows]")) $(box.dataset.shows).hidden = !box.checked;
}
document.addEventListener("change", showSettings);
document.addEventListener("restored", showSettings);

// A form or button with data-confirm asks first; without script it acts at once, which can be undone.
// What it sends is taken down when it asks: the page goes on and may replace the form meanwhile.
document.addEventListener("submit", (event) => {
  const submitter = event.submitter;
  const asks = submitter?.dataset.confirm ?? event.target.dataset.confirm;
  if (!asks) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const content = $("#confirm").content.cloneNode(true);
  $("[data-confirm-text]", content).textContent = asks;
  const action = submitter?.getAttribute("formaction") ?? event.target.getAttribute("action") ?? "";
  const copy = Object.assign(document.createElement("form"), { method: "post", action, hidden: true });
  for (const [name, value] of new FormData(event.target, submitter)) {
    copy.append(Object.assign(document.createElement("input"), { type: "hidden", name, value }));
  }
  const yes = $("[data-confirm-yes]", content);
  yes.textContent = submitter.firstChild.textContent;
  yes.addEventListener("click", () => { document.body.append(copy); copy.submit(); });
  $("#dialog-body").replaceChildren(content);
  $("#dialog").showModal();
}, true);

// Cosmetic only: what makes one order of two clicks is the operation key (case C-17).
document.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (!event.target.matches("[data-once]") || !button) return;
  if (button.classList.contains("busy")) { event.preventDefault(); return; }
  button.classList.add("busy");
  button.setAttribute("aria-busy", "true");
});
window.addEventListener("pageshow", () => {
  for (const button of $$(".btn.busy")) { button.classList.remove("busy"); button.removeAttribute("aria-busy"); }
});

// Live parts: the page says which versions it shows, the server sends what has changed. The elements that ask stay
// in the page: an answer to one that was replaced meanwhile would find no place. A settled page asks less often.
let asked = 0;
const basis = new Map();
document.addEventListener("htmx:configRequest", (event) => {
  if (!event.target.matches("[data-live]")) return;
  if (document.hidden) { event.preventDefault(); return; }
  if (event.target.matches("[data-paced]")) {
    if (Date.now() - asked < Number($("#pace").dataset.pace) * 1000 - 200) { event.preventDefault(); return; }
    asked = Date.now();
  }
  event.detail.headers["X-Seen"] = $$("[data-version]").map((part) => `${part.id}:${part.dataset.version}`).join(" ");
  if (basis.has(event.target)) event.detail.headers["X-Basis"] = basis.get(event.target);
});
// What the last answer rests on: sent back, the server sees at a glance whether anything has changed.
document.addEventListener("htmx:afterRequest", ({ detail }) => {
  if (!detail.elt.matches("[data-live]")) return;
  const told = detail.successful && detail.xhr.getResponseHeader("X-Basis");
  if (told) basis.set(detail.elt, told);
  else basis.delete(detail.elt);
});
// A tab that nobody sees asks for nothing; one that is seen again asks at once.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) for (const element of $$("[data-live]")) element.dispatchEvent(new Event("wake"));
});
const open = new Map();
const scroll = new Map();
let focused = "";
document.addEventListener("htmx:oobBeforeSwap", (event) => remember(event.detail.target));
document.addEventListener("htmx:beforeSwap", (event) => remember(event.detail.target));
function remember(root) {
  if (root.contains(document.activeElement)) focused = root.id;
  for (const fold of $$("details[id]", root)) open.set(fold.id, fold.open);
  for (const box of $$("[data-keep-scroll][id]", root)) scroll.set(box.id, box.scrollTop);
}
function restore() {
  for (const [id, state] of open) { const fold = document.getElementById(id); if (fold) fold.open = state; }
  for (const [id, top] of scroll) { const box = document.getElementById(id); if (box) box.scrollTop = top; }
  open.clear();
  scroll.clear();
  if ($("#pace")?.dataset.pace === "") for (const element of $$("[data-live]")) element.remove();
  countTimes();
  followLog();
  announce();
}
// Where the focused element is gone with its state, such as the button Stop of a stopped slice, the keyboard goes on
// from its part of the page. htmx itself focuses the element of the same id first, where there is one.
function keepFocus() {
  const part = focused && document.activeElement === document.body ? document.getElementById(focused) : null;
  focused = "";
  if (!part) return;
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
}
document.addEventListener("htmx:afterSettle", keepFocus);
let said = null;
function announce() {
  const text = $$("[data-announce]").map((part) => part.textContent.trim()).join(" ");
  if (said !== null && text !== said) $("#announce").textContent = text;
  said = text;
}
document.addEventListener("htmx:oobAfterSwap", restore);
document.addEventListener("htmx:afterSwap", (event) => {
  restore();
  markFields();
  if (event.detail.target.id === "dialog-body") {
    const dialog = $("#dialog");
    showSettings();
    dialog.showModal();
    $("[autofocus], input:not([type=hidden]), button", dialog)?.focus();
  }
});
document.addEventListener("htmx:sendError", () => toast("offline"));
document.addEventListener("htmx:afterRequest", (event) => { if (event.detail.successful) dropToast("offline"); });
document.addEventListener("htmx:responseError", (event) => {
  const request = event.detail.xhr;
  if (request.status === 403) return;
  if (request.status === 429) toast("slow");
  else if (request.status === 404) location.reload();
  else toast("failed", request.getResponseHeader("X-Request-Id"));
});

// The log: follows its end while nobody has scrolled up; the search marks and counts.
function followLog() {
  const log = $("#log-text");
  if (!log) return;
  if ($("#log-follow")?.checked) log.scrollTop = log.scrollHeight;
  markLog(log);
}
function markLog(log) {
  const word = $("#log-search")?.value.trim() ?? "";
  const ranges = [];
  if (word && log.firstChild && "highlights" in CSS) {
    const text = log.textContent.toLowerCase();
    for (let at = text.indexOf(word.toLowerCase()); at >= 0; at = text.indexOf(word.toLowerCase(), at + word.length)) {
      const range = new Range();
      range.setStart(log.firstChild, at);
      range.setEnd(log.firstChild, at + word.length);
      ranges.push(range);
    }
  }
  if ("highlights" in CSS) CSS.highlights.set("log-search", new Highlight(...ranges));
  const count = $("#log-count");
  if (count) count.textContent = word ? String(ranges.length) : "";
  return ranges;
}
document.addEventListener("input", (event) => {
  if (event.target.id !== "log-search") return;
  const log = $("#log-text");
  const [first] = log ? markLog(log) : [];
  if (first) {
    const follow = $("#log-follow");
    if (follow) follow.checked = false;
    log.scrollTop += first.getBoundingClientRect().top - log.getBoundingClientRect().top - 24;
  }
});
document.addEventListener("scroll", (event) => {
  const log = event.target;
  const follow = $("#log-follow");
  if (log.id !== "log-text" || !follow) return;
  follow.checked = log.scrollHeight - log.scrollTop - log.clientHeight < 24;
}, true);
document.addEventListener("change", (event) => { if (event.target.id === "log-follow") followLog(); });

$(".error-summary")?.focus();
$(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
showSettings();
sayFolds();
markFields();
announce();
countTimes();
followLog();
