"use strict";
(() => {
const at = id => document.getElementById(id), config = JSON.parse(at("config").textContent);
const FIELDS = ["tau", "temperature", "top_p", "max_tokens", "seed"];
const START = {problem: config.problem, gold: config.gold, rules: config.rules, tau: -0.1, temperature: 1, top_p: 0.7, max_tokens: config.max_tokens, seed: 0};
let running = null, shown = null, asked = null;
const golds = new Map(); // of the problems that were asked
let typed = false; // a right answer, since the last one that was asked

// What is asked is what the address says: a link asks the same again.
function read() {
  const state = {problem: at("problem").value, gold: at("gold").value.trim(), rules: [...at("rules").children].map(one => one.value.trim())};
  for (const name of FIELDS) state[name] = Number(at(name).value);
  return state;
}
function write(state) {
  at("problem").value = state.problem; at("gold").value = state.gold; typed = false;
  at("rules").replaceChildren(...state.rules.map((rule, i) => {
    const made = document.createElement("input");
    Object.assign(made, {value: rule, spellcheck: false, ariaLabel: `rule ${i + 1}`});
    return made;
  }));
  for (const name of FIELDS) at(name).value = state[name];
  at("slider").value = state.tau;
}
function linked() {
  try {
    const said = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    const state = {...START, ...said};
    state.problem = String(state.problem); state.gold = said.problem === undefined || said.gold !== undefined ? String(state.gold) : ""; state.rules = [...state.rules].slice(0, 8).map(String);
    for (const name of FIELDS) state[name] = Number.isFinite(state[name]) ? state[name] : START[name];
    return state;
  } catch { return null; }
}
function address(state) { return "#" + encodeURIComponent(JSON.stringify(state)); }

// The last box, compared as text: a look, not the grader of `rlvr-dir eval`.
function verdict(gold, text) {
  const boxes = [...text.matchAll(/\\boxed\s*\{([^{}]*)\}/g)];
  return !gold ? null : boxes.length && boxes.at(-1)[1].replace(/\s/g, "") === gold.replace(/\s/g, "") ? "correct" : "wrong";
}

function said(tokens) { return tokens.map(one => one.text).join(""); }

async function post(path, body, signal) {
  const headers = {"Content-Type": "application/json", ...(at("key").value ? {Authorization: `Bearer ${at("key").value}`} : {})};
  const answer = await fetch(path, {method: "POST", headers, body: JSON.stringify(body), signal});
  if (answer.ok) return answer;
  const why = await answer.json().catch(() => ({}));
  throw new Error(why.error?.message ?? why.error ?? `the server answers ${answer.status}`);
}
function drawing({temperature, top_p, max_tokens, seed}) { return {temperature, top_p, max_tokens, seed, return_token_ids: true}; }

// One answer as it streams: tokens in the viewer's colours.
class Live {
  constructor(rule, state) {
    const gated = /^(replace|extrapolate|resample|veto|reject)\b/.test(rule) && !/\btau=|criterion=(always|coupling)/.test(rule);
    this.rule = gated ? `${rule},tau=${state.tau}` : rule;
    this.tokens = []; this.finish = "unknown"; this.decoding = null;
    this.text = document.createElement("div"); this.text.className = "pg-live";
    this.said = document.createElement("p"); this.said.textContent = "waiting";
    const title = document.createElement("h3"); title.textContent = this.rule;
    this.root = document.createElement("section"); this.root.className = "tv-answer"; this.root.ariaLabel = this.rule;
    this.root.append(title, this.said, this.text);
  }
  add(entry, id) {
    const facts = entry.rlvr;
    const tint = nats => { const level = Math.max(-7, Math.min(7, Math.round(7 * Math.sign(nats) * Math.sqrt(Math.abs(nats) / 2)))); return level > 0 ? ` u${level}` : level < 0 ? ` d${-level}` : ""; };
    const made = document.createElement("span");
    made.className = `t${tint(facts.delta_logp_written)}${facts.replaced ? " r" : ""}${facts.changed ? " c" : ""}`;
    made.textContent = entry.token;
    if (facts.changed) {
      const dropped = document.createElement("del");
      dropped.className = `x${tint(facts.delta_logp)}`;
      dropped.textContent = facts.proposed;
      this.text.append(dropped);
    }
    this.text.append(made);
    this.tokens.push({id, text: entry.token, ...facts});
  }
  chunk(data) {
    if (data.error) throw new Error(data.error.message);
    if (data.rlvr) this.decoding = data.rlvr.decoding;
    if (data.prompt_token_ids) this.prompt = data.prompt_token_ids;
    for (const choice of data.choices) {
      (choice.logprobs?.content ?? []).forEach((entry, i) => this.add(entry, choice.token_ids?.[i] ?? -1));
      if (choice.finish_reason) this.finish = choice.finish_reason;
    }
    this.said.textContent = `${this.tokens.length} tokens, ${this.tokens.filter(one => one.replaced).length} flagged, ${this.tokens.filter(one => one.changed).length} changed`;
  }
  async ask(state, signal) {
    const body = {model: `${config.name}:${this.rule}`, messages: [{role: "user", content: state.problem}], stream: true, logprobs: true, top_logprobs: 5, ...drawing(state)};
    const answer = await post("v1/chat/completions", body, signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const {done, value} = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: {")) this.chunk(JSON.parse(line.slice(6)));
    }
  }
  async run(state, signal) {
    try { await this.ask(state, signal); } catch (error) {
      if (signal.aborted) { this.said.textContent = "stopped"; return; }
      this.failed = true;
      this.said.textContent = error.message; this.said.className = "pg-error"; this.said.setAttribute("role", "alert");
    }
  }
}

// The viewer's data: the same as a report's, of what has been streamed.
function column(kind, values) {
  const array = new {u1: Uint8Array, u4: Uint32Array, i2: Int16Array, f4: Float32Array}[kind](values), bytes = new Uint8Array(array.buffer);
  let raw = "";
  for (const byte of bytes) raw += String.fromCharCode(byte);
  return `${kind}:${btoa(raw)}`;
}
const places = new Map(); // of the texts of tokens among what is shown
function piece(data, {id, text}) {
  const key = `${id} ${text}`;
  if (!places.has(key)) { places.set(key, data.pieces.length); data.pieces.push(text); data.ids.push(id); }
  return places.get(key);
}
// Both models' most likely tokens, as the viewer has those of a trace: all positions list as many.
function lists(tokens, place) {
  const found = {top: tokens[0]?.most_likely?.base.length ?? 0};
  for (const model of found.top ? ["base", "rl"] : []) {
    const rows = tokens.flatMap(one => one.most_likely[model]);
    found[`top_${model}`] = column("u4", rows.map(([id, text]) => place({id, text})));
    found[`top_${model}_logp`] = column("i2", rows.map(([, , logp]) => Math.round(1000 * Math.max(-32, logp))));
  }
  return found;
}
function viewed(state, lives) {
  places.clear();
  const data = {pieces: [], ids: [], tokenizer: true}, place = one => piece(data, one);
  const answers = lives.map(({rule, tokens, finish, decoding}) => ({
    label: rule, sample: 0, finish, verdict: verdict(state.gold, said(tokens)), primary: decoding?.primary ?? null,
    gate: decoding && !/^(base|rl)$/.test(decoding.mode) ? {criterion: decoding.criterion, tau: decoding.tau, gamma: decoding.gamma} : null,
    generated: tokens.length, n_replaced: tokens.filter(one => one.replaced).length, n_changed: tokens.filter(one => one.changed).length, words: false,
    token: column("u4", tokens.map(place)), replaced: column("u1", tokens.map(one => one.replaced)), changed: column("u1", tokens.map(one => one.changed)),
    delta_logp: column("f4", tokens.map(one => one.delta_logp)), delta_logp_written: column("f4", tokens.map(one => one.delta_logp_written)),
    proposed: column("u4", tokens.map(one => place({id: one.proposed_id, text: one.proposed}))), ...lists(tokens, place),
  }));
  return {...data, problems: [{id: "playground", gold: state.gold || null, prompt: state.problem, answers}]};
}
function inert(data) { return JSON.stringify(data).replace(/[<>&\u2028\u2029]/g, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0")); }
function show(data) {
  const made = at("viewer").content.cloneNode(true);
  made.querySelector("script").textContent = inert(data);
  at("answers").replaceChildren(made);
  dispatchEvent(new Event("viewers"));
  const root = at("answers").querySelector(".tv"), grid = root.querySelector(".tv-answers");
  for (const [place, live] of asked.all.entries()) if (live.failed) grid.insertBefore(live.root, grid.querySelectorAll(".tv-answer")[place] ?? null);
  root.addEventListener("selected", () => price(root.viewer.current));
  root.querySelector(".tv-facts").after(at("replay"));
  for (const [name, chosen] of Object.entries({one: answer => [answer.here], all: answer => [...answer.tokens.keys()]})) {
    at(name).addEventListener("click", () => credit(root.viewer.current, chosen(root.viewer.current)));
  }
  price(root.viewer.current);
  return root.viewer;
}

// Credit: the other model's token in one place, then the answer's own rule under the same noise. What becomes of the verdict?
function other(live) { return live.decoding?.primary === "rl" ? {who: "base", rule: "resample,primary=rl,criterion=always"} : {who: "RL", rule: "replace,criterion=always"}; }
function price(answer) {
  const {n, here, touched, data} = answer, {who} = other(asked.lives[answer.place]), known = Boolean(asked.state.gold);
  at("one").textContent = touched ? `Put ${who}’s token at ${here + 1} of ${data.label}: about ${n - here} tokens` : "Choose a token to replace it with the other model’s";
  at("all").textContent = `Put ${who}’s token at each of ${n} places of ${data.label}: up to ${n} continuations, about ${(n * (n + 1) / 2).toLocaleString("en")} tokens`;
  at("one").disabled = !known || !touched; at("all").disabled = !known;
  for (const name of ["one", "all"]) at(name).title = known ? "" : "The right answer is not known: type it above, and ask again.";
}
async function complete(live, rule, begun, limits, signal) {
  const body = {model: `${config.name}:${rule}`, prompt: [...live.prompt, ...begun], begun: begun.length, logprobs: 0, ...drawing({...asked.state, ...limits})};
  return (await (await post("v1/completions", body, signal)).json()).choices[0];
}
async function replayed(live, i, signal) {
  const before = live.tokens.slice(0, i), ids = before.map(one => one.id), {who, rule} = other(live), {max_tokens, gold} = asked.state;
  const drawn = await complete(live, rule, ids, {max_tokens: i + 1}, signal), id = drawn.token_ids[0];
  const row = {at: i, who, own: false, token: piece(shown, {id, text: drawn.logprobs.tokens[0]}), draws: 0, right: 0};
  if (id === live.tokens[i].id) return row;
  const ended = drawn.finish_reason === "stop" || i + 1 >= max_tokens;
  const rest = ended ? "" : (await complete(live, live.rule, [...ids, id], {}, signal)).text;
  return {...row, draws: 1, right: Number(verdict(gold, said(before) + drawn.text + rest) === "correct")};
}
async function credit(answer, places) {
  running?.abort();
  const own = running = new AbortController(), live = asked.lives[answer.place], rows = [];
  const data = shown.problems[0].answers[answer.place], tell = text => { at("status").textContent = text; };
  let failed = "";
  at("stop").disabled = false;
  await Promise.all(places.map(async i => {
    try { rows.push(await replayed(live, i, own.signal)); } catch (error) { failed ||= own.signal.aborted ? "stopped" : error.message; own.abort(); }
    tell(`${rows.length} of ${places.length} replayed`);
  }));
  if (running !== own) return;
  running = null; at("stop").disabled = true;
  const before = Number(data.verdict === "correct"), turned = rows.filter(one => one.draws && one.right !== before).length;
  tell(failed || `${rows.length} replayed, ${rows.filter(one => one.draws).length} with another token; the verdict turns at ${turned}`);
  data.credit = [...(data.credit ?? []).filter(one => !rows.some(row => row.at === one.at)), ...rows];
  shown.metric = "credit";
  const {place, here} = answer;
  show(shown).answers[place].go(here, false);
}

async function ask() {
  running?.abort();
  const own = running = new AbortController(), state = read();
  golds.set(state.problem, state.gold); typed = false;
  history.replaceState(null, "", address(state));
  at("link").href = address(state);
  const lives = state.rules.filter(Boolean).map(rule => new Live(rule, state));
  const frame = document.createElement("div"), grid = document.createElement("div");
  frame.className = "tv"; grid.className = "tv-answers"; frame.append(grid); grid.append(...lives.map(one => one.root));
  at("answers").replaceChildren(frame);
  at("stop").disabled = false; at("save").disabled = true; at("status").textContent = "answering";
  await Promise.all(lives.map(one => one.run(state, own.signal)));
  if (running !== own) return;
  running = null; at("stop").disabled = true;
  const whole = lives.filter(live => live.tokens.length && !live.failed);
  at("status").textContent = own.signal.aborted ? "stopped" : `${whole.length} of ${lives.length} answered`;
  if (!whole.length) return;
  shown = viewed(state, whole); asked = {state, lives: whole, all: lives};
  show(shown);
  at("save").disabled = false;
}
async function save() {
  const page = await (await fetch("viewer.html")).text();
  const text = page.replace(/(<script type="application\/json">)null(<\/script>)/, (_, open, close) => open + inert(shown) + close);
  const made = document.createElement("a");
  made.href = URL.createObjectURL(new Blob([text], {type: "text/html"}));
  made.download = "view.html";
  made.click();
}

write(linked() ?? START);
at("key_of").hidden = !config.guarded;
at("ask").addEventListener("submit", event => { event.preventDefault(); ask(); });
at("stop").addEventListener("click", () => running?.abort());
at("save").addEventListener("click", save);
at("problem").addEventListener("keydown", event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); at("ask").requestSubmit(); } });
// A right answer is that of one problem: with another it goes, unless it was typed for that.
at("gold").addEventListener("input", () => { typed = true; });
at("problem").addEventListener("input", () => { if (!typed) at("gold").value = golds.get(at("problem").value) ?? ""; });
at("slider").addEventListener("input", () => { at("tau").value = at("slider").value; });
at("slider").addEventListener("change", () => { if (shown) ask(); });
at("tau").addEventListener("input", () => { at("slider").value = at("tau").value; });
addEventListener("hashchange", () => { const state = linked(); if (state) { write(state); ask(); } });
if (config.guarded) at("status").textContent = "give the key, then ask"; else ask();
})();
