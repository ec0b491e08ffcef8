"use strict";
(() => {
const LEVELS = 7, SHOWN = 400, TEXT = 200000;
const ARRAYS = {u1: Uint8Array, u4: Uint32Array, i2: Int16Array, f4: Float32Array};
const p = logp => Math.exp(logp), nats = value => `${fixed(value)} nats`;
// `level` maps a value to [0, 1], or to [-1, 1] where the scale diverges; `ticks` are the legend's two ends.
const METRICS = {
  delta_logp: {label: "Δ log p", level: x => Math.sign(x) * Math.sqrt(Math.abs(x) / 2), diverging: true, ticks: ["Δ log p: RL made it less likely (−2 nats)", "more likely (+2)"]},
  entropy_base: {label: "entropy of base", level: x => Math.sqrt(x / 3), ticks: ["0", "3 nats"]},
  entropy_rl: {label: "entropy of RL", level: x => Math.sqrt(x / 3), ticks: ["0", "3 nats"]},
  kl: {label: "KL, mean of both", level: x => Math.sqrt(x / 2), ticks: ["0", "2 nats"]},
  kl_rl_base: {label: "KL(RL ‖ base)", level: x => Math.sqrt(x / 2), ticks: ["0", "2 nats"]},
  kl_base_rl: {label: "KL(base ‖ RL)", level: x => Math.sqrt(x / 2), ticks: ["0", "2 nats"]},
  logp_base: {label: "p of base", level: x => -x / 7, ticks: ["1", "0.001"]},
  logp_rl: {label: "p of RL", level: x => -x / 7, ticks: ["1", "0.001"]},
  rank_base: {label: "rank by base", level: x => Math.log2(1 + x) / 7, ticks: ["first", "128th"]},
  rank_rl: {label: "rank by RL", level: x => Math.log2(1 + x) / 7, ticks: ["first", "128th"]},
  credit: {label: "verdict with another token", level: x => x, diverging: true, ticks: ["right → wrong", "wrong → right"]},
};
// Where a token changed, these are known of the dropped token; the others belong to the position, or to the written one.
const OF_PROPOSED = ["delta_logp", "logp_base", "logp_rl", "rank_base", "rank_rl"];
const CRITERIA = ["delta_logp", "entropy_base", "entropy_rl", "kl", "kl_rl_base", "kl_base_rl"];
const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

function fixed(value, digits = 3) {
  if (!Number.isFinite(value)) return "unknown";
  return (Object.is(Math.round(value * 10 ** digits), -0) ? 0 : value).toFixed(digits).replace("-", "−");
}
function probability(value) {
  if (!Number.isFinite(value)) return "unknown";
  return value > 0 && value < 0.0005 ? value.toExponential(1).replace("-", "−") : value.toFixed(3);
}
function percent(part, whole) { return whole ? `${(100 * part / whole).toFixed(2)} %` : "0 %"; }
function count(n) { return n.toLocaleString("en"); }

// What cannot be seen, or reorders what can, is written out; a mark that would sit on its neighbour gets its own base.
function visible(text, keep = "") {
  const shown = text.replace(HIDDEN, c => {
    if (keep.includes(c)) return c;
    const code = c.codePointAt(0);
    if (c === "\n") return "⏎";
    if (c === "\t") return "⇥";
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
  return shown === "" || /^\p{M}/u.test(shown) ? "◌" + shown : shown;
}
function cut(text, most) { return text.length > most ? `${text.slice(0, most)}… (${count(text.length)} characters)` : text; }

function element(tag, properties = {}, children = []) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made) made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A rule is one long word: it may break after its commas.
function breakable(text) { return text.split(/(?<=,)/).flatMap((part, i) => i ? [element("wbr"), part] : [part]); }

function column(text) {
  const raw = atob(text.slice(3)), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return new ARRAYS[text.slice(0, 2)](bytes.buffer);
}

// The texts of tokens with what laying them out needs, worked out when first asked for.
class Pieces {
  constructor(texts, ids) {
    this.texts = texts; this.ids = ids; this.shown = []; this.width = []; this.ends = [];
    this.pen = document.createElement("canvas").getContext("2d");
  }
  use(font) { this.pen.font = font; this.letter = this.pen.measureText("M").width; this.width = []; }
  prepare(piece) {
    const text = this.texts[piece];
    this.shown[piece] = visible(text.length > SHOWN ? text.slice(0, SHOWN) + "…" : text);
    this.ends[piece] = text.includes("\n") ? (text.indexOf("\n") !== text.lastIndexOf("\n") ? 2 : 1) : 0;
  }
  measure(piece) {
    if (this.shown[piece] === undefined) this.prepare(piece);
    const shown = this.shown[piece];
    this.width[piece] = /^[ -~]*$/.test(shown) ? shown.length * this.letter : Math.ceil(this.pen.measureText(shown).width);
  }
  named(piece) { return visible(cut(this.texts[piece], 200)); }
}

class Answer {
  constructor(data, viewer, place) {
    this.data = data; this.viewer = viewer; this.place = place; this.columns = new Map(); this.lines = new Map();
    this.tokens = this.get("token"); this.n = this.tokens.length; this.here = 0; this.starts = [0]; this.marks = 0;
    this.build();
  }
  get(name) {
    if (!this.columns.has(name)) this.columns.set(name, this.data[name] === undefined ? null : name === "credit" ? this.credit() : column(this.data[name]));
    return this.columns.get(name);
  }
  // How many of a token's replays changed the verdict to right, less those to wrong, as a share; NaN where none was made.
  credit() {
    const found = new Float32Array(this.n).fill(NaN), draws = new Uint32Array(this.n), before = this.right();
    for (const one of this.data.credit) {
      if (one.own) continue;
      draws[one.at] += one.draws;
      found[one.at] = (found[one.at] || 0) + one.right - one.draws * before;
    }
    return found.map((sum, i) => sum / Math.max(1, draws[i]));
  }
  right() { return Number(this.data.verdict === "correct"); }

  build() {
    const {data} = this;
    this.strip = element("canvas", {className: "tv-strip", ariaHidden: "true", title: "the whole response; click to go there"});
    this.space = element("div", {className: "tv-space", role: "presentation"});
    this.scroll = element("div", {className: "tv-scroll", role: "listbox", ariaLabel: `${visible(data.label)}: ${count(this.n)} ${data.words ? "words" : "tokens"}`}, [this.space]);
    this.flow = element("div", {className: "tv-flow"});
    this.marked = element("p");
    const text = element("details", {className: "tv-text"}, [element("summary", {textContent: "Plain text"})]);
    text.addEventListener("toggle", () => {
      if (text.open && text.children.length === 1) text.append(element("pre", {tabIndex: 0, textContent: visible(cut(this.text(), TEXT), "\n\t")}));
    });
    const finish = {stop: "", length: ", cut at the limit"}[data.finish] ?? "";
    const facts = element("p", {}, [`${count(data.generated)} tokens${finish}; `, this.verdict()]);
    const replaced = data.gate || data.n_replaced ? `${count(data.n_replaced)} flagged (${percent(data.n_replaced, data.generated)}), ${count(data.n_changed)} changed` : "nothing flagged";
    this.root = element("section", {className: "tv-answer", ariaLabel: visible(data.label)}, [
      element("h3", {}, breakable(visible(data.label))), facts, element("p", {textContent: replaced}), this.marked, this.strip, this.scroll, this.flow, text,
    ]);
    this.scroll.addEventListener("scroll", () => this.soon());
    this.scroll.addEventListener("pointerover", event => this.at(event, i => this.viewer.show(this, i)));
    this.scroll.addEventListener("pointerleave", () => this.viewer.back());
    this.scroll.addEventListener("focusin", event => this.at(event, i => this.viewer.select(this, i)));
    this.scroll.addEventListener("keydown", event => this.key(event));
    this.strip.addEventListener("click", event => this.go(Math.min(this.n - 1, Math.floor(this.n * event.offsetX / this.strip.clientWidth))));
    new ResizeObserver(() => this.soon(true)).observe(this.scroll);
  }
  verdict() {
    const kind = this.data.verdict, gold = this.data.verdict === null ? "not graded" : kind.replaceAll("_", " ");
    return element("span", {className: kind === "correct" ? "tv-right" : kind === "wrong" ? "tv-wrong" : "", textContent: gold});
  }
  at(event, act) { const token = event.target.closest?.(".t, .x"); if (token) act(Number(token.dataset.i)); }
  text() { const {texts} = this.viewer.pieces; return Array.from(this.tokens, piece => texts[piece]).join(""); }

  // Lines are broken here, not by the browser: their number is known, and only those in sight exist.
  lay() {
    const {pieces} = this.viewer, wide = this.scroll.clientWidth, width = wide - 8, {tokens, n} = this;
    const starts = [0];
    let used = 0, last = -1, sinceLast = 0;
    for (let i = 0; i < n; i++) {
      const piece = tokens[i];
      if (pieces.width[piece] === undefined) pieces.measure(piece);
      const own = Math.min(pieces.width[piece] + this.before(i), width), first = starts[starts.length - 1];
      if (i > first && (pieces.texts[piece].startsWith(" ") || this.data.words)) { last = i; sinceLast = 0; }
      if (used + own > width && i > first) {
        if (last > first) { starts.push(last); used = sinceLast; } else { starts.push(i); used = 0; }
        last = -1;
      }
      used += own; sinceLast += own;
      const ends = pieces.ends[piece];
      if (ends && i + 1 < n) {
        if (ends === 2) starts.push(i + 1);
        starts.push(i + 1); used = 0; last = -1;
      }
    }
    this.starts = starts; this.wide = wide;
    this.height = parseFloat(getComputedStyle(this.scroll).lineHeight);
    this.space.style.height = `${starts.length * this.height}px`;
    this.scroll.classList.toggle("tv-short", starts.length < 8);
    this.space.replaceChildren(); this.lines.clear();
  }
  // The width of the dropped token that stands before a changed one.
  before(i) {
    if (!this.is("changed", i)) return 0;
    const {pieces} = this.viewer, piece = this.get("proposed")[i];
    if (pieces.width[piece] === undefined) pieces.measure(piece);
    return pieces.width[piece] + 3; // its margin
  }
  lineOf(i) {
    let low = 0, high = this.starts.length - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (this.starts[middle] <= i) low = middle; else high = middle - 1; }
    return low;
  }
  soon(resized = false) {
    this.again ||= resized;
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      if (this.again && this.scroll.clientWidth && this.scroll.clientWidth !== this.wide) { this.lay(); this.paint(); }
      this.again = false;
      this.draw();
    });
  }
  draw() {
    const over = 6, top = this.scroll.scrollTop, {height, lines} = this;
    if (!height) return;
    const from = Math.max(0, Math.floor(top / height) - over), here = this.lineOf(this.here);
    const to = Math.min(this.starts.length - 1, Math.ceil((top + this.scroll.clientHeight) / height) + over);
    for (const [number, line] of lines) {
      if ((number < from || number > to) && number !== here) { line.remove(); lines.delete(number); }
    }
    for (let number = from; number <= to; number++) if (!lines.has(number)) this.line(number);
    if (!lines.has(here)) this.line(here);
  }
  line(number) {
    const line = element("div", {className: "tv-line", role: "presentation"}), end = this.starts[number + 1] ?? this.n;
    line.style.top = `${number * this.height}px`;
    for (let i = this.starts[number]; i < end; i++) line.append(...this.token(i));
    let next = number + 1; // kept in reading order
    while (next < this.starts.length && next < number + 80 && !this.lines.has(next)) next++;
    this.space.insertBefore(line, this.lines.get(next) ?? null);
    this.lines.set(number, line);
  }
  span(kind, i, piece) {
    const {pieces} = this.viewer, made = document.createElement(kind);
    if (pieces.shown[piece] === undefined) pieces.prepare(piece);
    made.textContent = pieces.shown[piece];
    made.dataset.i = i;
    return made;
  }
  // The elements of a token: the written one, and if it changed the dropped one before it.
  token(i) {
    const made = this.span("span", i, this.tokens[i]);
    made.className = this.look(i);
    made.setAttribute("role", "option");
    made.setAttribute("aria-posinset", i + 1);
    made.setAttribute("aria-setsize", this.n);
    made.setAttribute("aria-selected", i === this.here);
    made.tabIndex = i === this.here ? 0 : -1;
    if (!this.is("changed", i)) return [made];
    const dropped = this.span("del", i, this.get("proposed")[i]);
    dropped.className = this.dropped(i);
    dropped.setAttribute("role", "presentation");
    return [dropped, made];
  }
  // The level of a token's colour: of the written one, or, where it changed, of the dropped one.
  level(i, dropped = false) {
    const {metric} = this.viewer, changed = this.is("changed", i), own = OF_PROPOSED.includes(metric);
    if (dropped && !own || changed && !dropped && own && metric !== "delta_logp") return 0;
    const values = this.get(changed && !dropped && own ? "delta_logp_written" : metric);
    if (values === null) return 0;
    const level = Math.round(METRICS[this.viewer.metric].level(values[i]) * LEVELS);
    return Number.isFinite(level) ? Math.max(-LEVELS, Math.min(LEVELS, level)) : 0;
  }
  tint(level) {
    if (!level) return "";
    return METRICS[this.viewer.metric].diverging ? (level > 0 ? ` u${level}` : ` d${-level}`) : level > 0 ? ` s${level}` : "";
  }
  dropped(i) { return `x${this.tint(this.level(i, true))}${this.fires(i) ? " m" : ""}`; }
  look(i) {
    const level = this.level(i), piece = this.tokens[i];
    let name = "t" + this.tint(level);
    if (!level && this.viewer.metric === "credit" && this.is("replayed", i)) name += " q";
    if (this.is("replaced", i)) name += this.is("changed", i) ? " r c" : " r";
    if (this.fires(i) && !this.is("changed", i)) name += " m";
    if (this.viewer.pieces.width[piece] > this.wide - 8) name += " long";
    if (i === this.here && this.touched && this.viewer.current === this) name += " here";
    return name;
  }
  is(kind, i) {
    if (kind === "marked") return this.fires(i);
    return kind === "replayed" ? Number.isFinite(this.get("credit")?.[i]) : Boolean(this.get(kind)?.[i]);
  }
  fires(i) {
    const {criterion, tau} = this.viewer, values = this.get(criterion);
    return values !== null && (criterion === "delta_logp" ? values[i] < tau : values[i] > tau);
  }
  // Everything that depends on the metric, the threshold or the place: classes of what is in sight, counts, the strip.
  paint() {
    for (const line of this.lines.values()) {
      for (const token of line.children) {
        const i = Number(token.dataset.i), look = token.localName === "del" ? this.dropped(i) : this.look(i);
        if (token.className !== look) token.className = look;
      }
    }
    this.map();
  }
  tally() {
    const {criterion, tau} = this.viewer, values = this.get(criterion);
    if (values === null) { this.marked.textContent = "this fact is not recorded here"; this.marks = null; return; }
    let marks = 0;
    if (criterion === "delta_logp") { for (let i = 0; i < this.n; i++) if (values[i] < tau) marks++; }
    else for (let i = 0; i < this.n; i++) if (values[i] > tau) marks++;
    this.marks = marks;
    this.marked.textContent = `τ marks ${count(marks)} (${percent(marks, this.n)})`;
  }
  map() {
    const {strip, n} = this, pen = strip.getContext("2d"), style = getComputedStyle(this.viewer.root), ratio = devicePixelRatio || 1;
    const width = strip.width = Math.max(1, Math.round(strip.clientWidth * ratio)), height = strip.height = Math.round(14 * ratio);
    const colour = name => style.getPropertyValue(name).trim(), {diverging} = METRICS[this.viewer.metric];
    const [up, down, ink, mark] = [this.viewer.colour(diverging ? "--tv-up" : "--tv-seq"), this.viewer.colour("--tv-down"), colour("--ink"), this.viewer.colour("--tv-mark")];
    for (let x = 0; x < width; x++) {
      let most = 0, replaced = 0, fires = 0;
      const from = Math.floor(x * n / width), to = Math.max(from + 1, Math.floor((x + 1) * n / width));
      for (let i = from; i < to && i < n; i++) {
        for (const level of [this.level(i), this.is("changed", i) ? this.level(i, true) : 0]) if (Math.abs(level) > Math.abs(most)) most = level;
        replaced += this.is("replaced", i); fires += this.fires(i);
      }
      const bar = (paint, alpha, y, tall) => { pen.globalAlpha = alpha; pen.fillStyle = paint; pen.fillRect(x, y * ratio, 1, tall * ratio); };
      if (most) bar(most > 0 ? up : down, .15 + .75 * Math.abs(most) / LEVELS, 4, 6);
      if (replaced) bar(ink, Math.sqrt(replaced / (to - from)), 0, 4);
      if (fires) bar(mark, Math.sqrt(fires / (to - from)), 10, 4);
    }
  }

  go(i, focus = true) {
    if (!this.n) return;
    const line = this.lineOf(i), {height} = this, top = line * height, {scrollTop, clientHeight} = this.scroll;
    if (top < scrollTop + height || top + 2 * height > scrollTop + clientHeight) this.scroll.scrollTop = top - clientHeight / 2;
    this.viewer.select(this, i);
    const token = this.written(i);
    if (focus) token.focus({preventScroll: true});
    this.reveal(token);
  }
  // Scroll the page until the panel does not cover a token, or, below it on a narrow screen, is in sight with it.
  reveal(token) {
    const {height, viewer} = this, {top, bottom} = token.getBoundingClientRect(), panel = viewer.details.getBoundingClientRect();
    const beyond = viewer.narrow.matches ? Math.min(panel.bottom - innerHeight, top - height) : bottom + height - panel.top;
    if (top < height) scrollBy(0, top - 4 * height); else if (beyond > 0) scrollBy(0, beyond);
  }
  written(i) { return this.lines.get(this.lineOf(i))?.querySelector(`.t[data-i="${i}"]`); }
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const line = this.lineOf(this.here), page = Math.max(1, Math.floor(this.scroll.clientHeight / this.height) - 1);
    const to = {
      ArrowLeft: () => this.here - 1, ArrowRight: () => this.here + 1, Home: () => 0, End: () => this.n - 1,
      ArrowUp: () => this.beside(line, -1), ArrowDown: () => this.beside(line, 1),
      PageUp: () => this.beside(line, -page), PageDown: () => this.beside(line, page),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.go(Math.max(0, Math.min(this.n - 1, to())));
  }
  // The token some lines away at the same height of the line; empty lines are passed over.
  beside(line, by) {
    const {width} = this.viewer.pieces, step = Math.sign(by);
    let to = Math.max(0, Math.min(this.starts.length - 1, line + by)), x = width[this.tokens[this.here]] / 2;
    while (to + step >= 0 && to + step < this.starts.length && this.starts[to] === (this.starts[to + 1] ?? this.n)) to += step;
    for (let i = this.starts[line]; i < this.here; i++) x += width[this.tokens[i]];
    const end = Math.max(this.starts[to], (this.starts[to + 1] ?? this.n) - 1);
    let i = this.starts[to];
    for (let right = width[this.tokens[i]]; i < end && right < x; right += width[this.tokens[i]]) i++;
    return i;
  }
  step(kind, by) { return this.seek(kind, this.touched || by < 0 ? this.here + by : this.here, by); }
  seek(kind, from, by) {
    for (let i = from; i >= 0 && i < this.n; i += by) if (this.is(kind, i)) return i;
    return -1;
  }
  find(wanted) {
    if (!this.whole) {
      this.whole = this.text(); this.offsets = new Uint32Array(this.n + 1);
      for (let i = 0; i < this.n; i++) this.offsets[i + 1] = this.offsets[i] + this.viewer.pieces.texts[this.tokens[i]].length;
    }
    let found = this.whole.indexOf(wanted, this.touched ? this.offsets[this.here + 1] : 0);
    if (found < 0) found = this.whole.indexOf(wanted);
    if (found < 0) return -1;
    let low = 0, high = this.n - 1;
    while (low < high) { const middle = (low + high + 1) >> 1; if (this.offsets[middle] <= found) low = middle; else high = middle - 1; }
    return low;
  }
  print() { this.flow.replaceChildren(...Array.from(this.tokens, (_, i) => this.token(i)).flat()); for (const one of this.flow.children) one.removeAttribute("tabindex"); }
}

class Viewer {
  constructor(root) {
    this.root = root; root.viewer = this; this.narrow = matchMedia("(max-width: 34rem)");
    this.data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    if (!this.data) return; // a page that is to be filled
    this.pieces = new Pieces(this.data.pieces, this.data.ids);
    this.controls = Object.fromEntries([...root.querySelectorAll("[data-set]")].map(one => [one.dataset.set, one]));
    this.legend = root.querySelector(".tv-legend"); this.details = root.querySelector(".tv-details");
    this.say = root.querySelector(".tv-say"); this.facts = root.querySelector(".tv-facts");
    this.metric = this.data.metric ?? "delta_logp"; this.criterion = "delta_logp"; this.tau = Math.fround(-.1); this.kind = "replaced";
    const {problem} = this.controls;
    problem.append(...this.data.problems.map((one, i) => element("option", {value: i, textContent: visible(one.id)})));
    problem.closest("label").hidden = this.data.problems.length < 2;
    this.listen();
    for (const part of root.querySelectorAll(".tv-bar, .tv-legend, .tv-details")) part.hidden = false;
    this.open(0);
  }

  open(number) {
    const {gold, prompt, answers} = this.data.problems[number], question = this.root.querySelector(".tv-question");
    question.hidden = prompt === null && gold === null;
    question.open = false;
    question.firstElementChild.textContent = gold === null ? "The prompt" : `The prompt; right answer: ${visible(cut(gold, 80))}`;
    question.lastElementChild.textContent = prompt === null ? "not known" : visible(cut(prompt, TEXT), "\n\t");
    this.answers = answers.map((data, i) => new Answer(data, this, i));
    this.current = this.answers[0];
    this.root.querySelector(".tv-answers").replaceChildren(...this.answers.map(answer => answer.root));
    const scroll = this.answers[0].scroll, style = getComputedStyle(scroll);
    this.pieces.use(`${style.fontSize} ${style.fontFamily}`);
    this.choices();
    for (const answer of this.answers) answer.lay();
    this.update();
    for (const answer of this.answers) answer.draw();
    this.facts.replaceChildren();
    this.begin();
    this.details.classList.toggle("full", this.answers.some(answer => answer.data.top));
  }
  // The panel begins with the first token that changed, without choosing it. If there is none, it shows a hint.
  begin() {
    for (const kind of ["changed", "replaced"]) for (const answer of this.answers) {
      const i = answer.seek(kind, 0, 1);
      if (i >= 0) { this.show(answer, i); return; }
    }
    this.seat(this.current);
    this.tell("Point at a token, or step to one: its numbers appear here.");
  }
  // On a narrow screen the panel covers nothing: it stands below the answer that it is about, which stays in its place.
  seat(answer) {
    const {details} = this, before = this.narrow.matches ? answer.root : this.root.querySelector(".tv-answers");
    this.seated = answer;
    if (details.previousElementSibling === before) return;
    const {top} = answer.root.getBoundingClientRect();
    before.after(details);
    scrollBy(0, answer.root.getBoundingClientRect().top - top);
  }
  // What can be chosen is what some answer has; a threshold starts as that of the first gated decoding.
  choices() {
    const has = name => this.answers.some(answer => answer.data[name] !== undefined), {metric, criterion, kind} = this.controls;
    const options = names => names.map(name => element("option", {value: name, textContent: METRICS[name].label}));
    metric.replaceChildren(...options(Object.keys(METRICS).filter(has))); criterion.replaceChildren(...options(CRITERIA.filter(has)));
    const some = metric.options.length > 0;
    for (const one of Object.values(this.controls)) if (one !== this.controls.problem && one !== this.controls.find) one.disabled = !some;
    for (const one of this.root.querySelectorAll("[data-do]")) one.disabled = !some;
    if (!some) return;
    if (!has(this.metric)) this.metric = metric.options[0].value;
    if (!this.chosen) {
      const gate = this.answers.map(answer => answer.data.gate).find(one => one && has(one.criterion) && CRITERIA.includes(one.criterion));
      this.criterion = gate?.criterion ?? criterion.options[0].value;
      this.threshold(gate?.tau ?? this.usual());
      this.kind = this.answers.some(answer => answer.data.n_replaced) ? "replaced" : "marked";
    } else if (!has(this.criterion)) this.criterion = criterion.options[0].value;
    kind.querySelector("[value='replayed']").hidden = !has("credit");
    metric.value = this.metric; criterion.value = this.criterion; kind.value = this.kind;
  }
  // A threshold to begin with: τ −0.1, or where one token in twenty is marked.
  usual() {
    if (this.criterion === "delta_logp") return -.1;
    const all = this.answers.flatMap(answer => Array.from(answer.get(this.criterion) ?? [])).sort((a, b) => a - b);
    return Math.round(100 * (all[Math.floor(.95 * all.length)] ?? 0)) / 100;
  }
  threshold(tau) {
    const {slider, tau: number} = this.controls, below = this.criterion === "delta_logp";
    this.tau = Math.fround(tau); // as the engine compares: in float32
    slider.min = below ? Math.min(-1.5, tau) : 0; slider.max = below ? Math.max(0, tau) : Math.max(this.criterion.startsWith("kl") ? 1.5 : 3, tau); slider.step = "any";
    slider.value = tau; number.value = tau;
    this.root.querySelector("[data-out='side']").textContent = below ? "<" : ">";
  }
  update() {
    for (const answer of this.answers) { answer.tally(); answer.paint(); }
    const known = this.answers.filter(answer => answer.marks !== null), sum = (list, f) => list.reduce((total, one) => total + f(one), 0);
    this.controls.slider.setAttribute("aria-valuetext", `${fixed(this.tau)}: ${count(sum(known, one => one.marks))} of ${count(sum(known, one => one.n))} tokens marked`);
    this.explain();
  }
  explain() {
    const {label, diverging, ticks} = METRICS[this.metric], names = [];
    if (diverging) for (let i = LEVELS; i > 0; i--) names.push(`d${i}`);
    names.push("");
    for (let i = 1; i <= LEVELS; i++) names.push(diverging ? `u${i}` : `s${i}`);
    const key = (look, text) => element("span", {}, [element("span", {className: `t ${look}`, textContent: "token"}), ` ${text}`]);
    const some = this.controls.metric.options.length > 0, parts = [];
    if (some) parts.push(element("span", {className: "tv-scale", title: label}, [ticks[0], element("span", {ariaHidden: "true"}, names.map(name => element("i", {className: name}))), ticks[1]]), element("span", {}, [element("del", {className: "x d5", textContent: "token"}), " dropped, in the colour of its own Δ log p"]), key("r c u3", "written in its place, in the colour of its own"), key("r", "flagged, the same token again"), key("m", "τ would flag it"));
    if (this.metric === "credit") parts.push(key("q", "replayed, the verdict stays"), "stronger: in more of its replays; no colour: not replayed");
    if (!some) parts.push("Only the text of these responses is recorded: no tokens, no numbers.");
    this.legend.replaceChildren(...parts);
  }
  colour(name) { // canvas needs the value that light-dark() comes to
    this.probe ??= this.root.appendChild(element("span", {hidden: true}));
    this.probe.style.color = `var(${name})`;
    return getComputedStyle(this.probe).color;
  }

  listen() {
    const {problem, metric, criterion, slider, tau, kind, find} = this.controls;
    problem.addEventListener("change", () => this.open(Number(problem.value)));
    metric.addEventListener("change", () => { this.metric = metric.value; this.update(); });
    criterion.addEventListener("change", () => { this.criterion = criterion.value; this.chosen = true; this.threshold(this.usual()); this.update(); });
    slider.addEventListener("input", () => { const value = Math.round(1000 * slider.value) / 1000; this.tau = Math.fround(value); tau.value = value; this.chosen = true; this.update(); });
    tau.addEventListener("input", () => { if (tau.value !== "" && Number.isFinite(tau.valueAsNumber)) { this.tau = Math.fround(tau.valueAsNumber); slider.value = tau.valueAsNumber; this.chosen = true; this.update(); } });
    kind.addEventListener("change", () => { this.kind = kind.value; });
    find.addEventListener("keydown", event => {
      if (event.key !== "Enter" || !find.value) return;
      const i = this.current.find(find.value);
      if (i >= 0) this.current.go(i, false); else this.tell(`“${visible(cut(find.value, 40))}” is not in ${visible(this.current.data.label)}.`);
    });
    for (const one of this.root.querySelectorAll("[data-do]")) one.addEventListener("click", () => this.move(one.dataset.do === "next" ? 1 : -1, false));
    this.root.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
      if (event.key === "n" || event.key === "p") { event.preventDefault(); this.move(event.key === "n" ? 1 : -1, event.target.classList.contains("t")); }
    });
    const repaint = () => { for (const answer of this.answers) answer.map(); };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    this.narrow.addEventListener("change", () => this.seat(this.seated));
    new MutationObserver(repaint).observe(document.documentElement, {attributeFilter: ["data-theme"]});
    addEventListener("beforeprint", () => { for (const answer of this.answers) answer.print(); });
    addEventListener("afterprint", () => { for (const answer of this.answers) answer.flow.replaceChildren(); });
  }
  // On through this response, then through those after (before) it.
  move(by, focus) {
    const what = {replaced: "flagged token", changed: "changed token", marked: "token marked by τ", replayed: "replayed token"}[this.kind];
    for (let place = this.current.place; place >= 0 && place < this.answers.length; place += by) {
      const answer = this.answers[place], i = answer === this.current ? answer.step(this.kind, by) : answer.seek(this.kind, by > 0 ? 0 : answer.n - 1, by);
      if (i >= 0) { answer.go(i, focus); return; }
    }
    this.tell(`No ${by > 0 ? "further" : "earlier"} ${what} in these responses.`);
  }
  tell(text) { this.say.textContent = text; this.shown = ""; }
  select(answer, i) {
    const before = this.current, old = before.here;
    this.current = answer; answer.here = i; answer.touched = true;
    answer.draw();
    if (before !== answer) this.mark(before, old);
    else this.mark(answer, old);
    this.mark(answer, i);
    this.show(answer, i);
    if (this.narrow.matches) answer.reveal(answer.written(i));
    this.root.dispatchEvent(new Event("selected"));
  }
  mark(answer, i) {
    const token = answer.written(i);
    if (!token) return;
    token.className = answer.look(i);
    token.tabIndex = i === answer.here ? 0 : -1;
    token.setAttribute("aria-selected", i === answer.here);
  }
  back() { if (this.current.touched) this.show(this.current, this.current.here); }

  show(answer, i) {
    const {pieces} = this, {data} = answer, piece = answer.tokens[i], emitted = pieces.named(piece);
    const value = name => answer.get(name)?.[i] ?? NaN, has = name => data[name] !== undefined, q = text => element("q", {textContent: text});
    if (this.shown === `${answer.place} ${i}`) return;
    this.shown = `${answer.place} ${i}`;
    this.seat(answer);
    const proposed = has("proposed") ? value("proposed") : null, who = data.primary === "rl" ? "RL" : "base", changed = answer.is("changed", i);
    const known = proposed !== null && pieces.ids[proposed] >= 0;
    const parts = [`${data.words ? "Part" : "Token"} ${count(i + 1)} of ${count(answer.n)}, ${visible(data.label)}: `];
    if (changed) parts.push(`${who} proposed `, known ? q(pieces.named(proposed)) : "another token, which this record does not name", "; it was dropped, and ", q(emitted), " was written");
    else parts.push(q(emitted), answer.is("replaced", i) ? " was flagged, and the same token was written" : "");
    if (pieces.texts[piece] === "") parts.push(" (part of a character, or of no text)");
    this.say.replaceChildren(...parts);
    const row = (name, ...cells) => element("tr", {}, [element("th", {scope: "row", textContent: name}), ...cells.map(cell => element("td", {textContent: cell}))]);
    const tables = [];
    if (has("delta_logp")) tables.push(this.both(answer, i, known));
    if (has("entropy_base")) {
      const head = ["at this position", "base", "RL"].map((text, at) => element("th", {scope: "col", textContent: text, className: at ? "" : "words"}));
      const rows = [row("entropy, nats", fixed(value("entropy_base")), fixed(value("entropy_rl"))), row("KL to the other, nats", fixed(value("kl_base_rl")), fixed(value("kl_rl_base"))), row(`rank of the ${changed ? "dropped" : "written"} token`, count(1 + value("rank_base")), count(1 + value("rank_rl")))];
      tables.push(element("table", {}, [element("thead", {}, [element("tr", {}, head)]), element("tbody", {}, rows)]));
    }
    for (const [model, name] of data.top ? [["base", "base"], ["rl", "RL"]] : []) tables.push(this.list(answer, i, model, name, proposed, piece));
    if (answer.is("replayed", i)) tables[this.metric === "credit" ? "unshift" : "push"](this.replays(answer, i));
    if (!tables.length) tables.push(element("p", {textContent: data.words ? "Without a tokenizer only the text is known." : "No numbers are recorded for this token."}));
    this.facts.replaceChildren(...tables);
  }
  // The dropped and the written token, each with its own numbers: Δ log p, and what a trace has of it.
  both(answer, i, known) {
    const {pieces} = this, {top} = answer.data, value = name => answer.get(name)?.[i] ?? NaN, traced = answer.data.logp_base !== undefined;
    const changed = answer.is("changed", i), piece = answer.tokens[i], proposed = value("proposed");
    const listed = of => ["base", "rl"].map(model => { // of a token that is among a model's most likely ones
      for (let j = i * top; j < (i + 1) * top; j++) if (pieces.ids[answer.get(`top_${model}`)[j]] === pieces.ids[of]) return probability(p(answer.get(`top_${model}_logp`)[j] / 1000));
      return "–";
    });
    const head = ["", "Δ log p", ...(traced || top ? ["p of base", "p of RL"] : [])].map(text => element("th", {scope: "col", textContent: text}));
    const line = (what, token, cells) => element("tr", {}, [element("th", {scope: "row"}, [what, token]), ...cells.map(cell => element("td", {textContent: cell}))]);
    const own = traced ? [probability(p(value("logp_base"))), probability(p(value("logp_rl")))] : top ? listed(proposed) : [];
    const rows = [line(changed ? "dropped " : "", changed ? (known ? element("q", {textContent: pieces.named(proposed)}) : "unknown") : element("q", {textContent: pieces.named(piece)}), [nats(value("delta_logp")), ...own])];
    if (changed) rows.push(line("written ", element("q", {textContent: pieces.named(piece)}), [nats(value("delta_logp_written")), ...(top ? listed(piece) : traced ? ["–", "–"] : [])]));
    return element("table", {}, [element("thead", {}, [element("tr", {}, head)]), element("tbody", {}, rows)]);
  }
  replays(answer, i) {
    const rows = answer.data.credit.filter(one => one.at === i).map(one => element("tr", {}, [
      element("td", {className: "words", textContent: one.who}), element("td", {className: "words"}, [element("q", {textContent: this.pieces.named(one.token)})]),
      element("td", {className: "words", textContent: one.draws ? `right in ${one.right} of ${one.draws}` : "the same token"}),
    ]));
    return element("table", {}, [element("caption", {textContent: `Another token here (now ${answer.right() ? "right" : "wrong"})`}), element("tbody", {}, rows)]);
  }
  list(answer, i, model, name, proposed, piece) {
    const {top} = answer.data, tokens = answer.get(`top_${model}`), logp = answer.get(`top_${model}_logp`), {ids} = this.pieces, rows = [];
    for (let j = i * top; j < (i + 1) * top; j++) {
      const chance = p(logp[j] / 1000), id = ids[tokens[j]], notes = [];
      if (answer.is("changed", i) && id === ids[proposed]) notes.push("dropped");
      if (id === ids[piece]) notes.push("written");
      rows.push(element("tr", {}, [
        element("td", {className: "words"}, [element("q", {textContent: this.pieces.named(tokens[j])})]), element("td", {textContent: probability(chance)}),
        element("td", {}, [element("meter", {max: 1, value: chance, ariaHidden: "true"})]), element("td", {className: "words"}, [element("em", {textContent: notes.join(", ")})]),
      ]));
    }
    return element("table", {}, [element("caption", {textContent: `Most likely tokens of ${name}`}), element("tbody", {}, rows)]);
  }
}

const start = () => { for (const root of document.querySelectorAll(".tv[data-viewer]:not([data-ready])")) { root.dataset.ready = ""; new Viewer(root); } };
if (document.readyState === "loading") addEventListener("DOMContentLoaded", start); else start();
addEventListener("viewers", start); // of a page that has put one in since
const theme = document.body.classList.contains("tv-page") ? document.getElementById("theme") : null;
if (theme) {
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const page = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
    page.dataset.theme = (page.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
  });
}
})();
