"use strict";
// One inspector per recorded episode. Everything that is drawn follows from one number, the step, set by move().
const SVG = "http://www.w3.org/2000/svg";
const MARKS = { certified: ["#00795a", 8, 24, "certified"], attacked: ["#D55E00", 0, 32, "falsified"], unknown: ["#8a8a8a", 18, 14, "unknown"] };

function make(tag, attributes, parent, text) {
  const svg = ["svg", "rect", "line", "circle", "text", "path"].includes(tag);
  const node = svg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.appendChild(node);
  return node;
}

function show(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return size !== 0 && (size < 0.001 || size >= 10000) ? value.toExponential(2) : value.toFixed(size < 10 ? 4 : 2);
}

function brief(value) { return String(Math.round(value * 10) / 10); }

function sum(rewards, i) { return rewards.slice(0, i + 1).reduce((total, r) => total + r, 0); }

function inspect(root) {
  const data = JSON.parse(document.getElementById(root.dataset.trace).textContent);
  const slider = root.querySelector("input"), now = root.querySelector(".now");
  const views = root.querySelector(".views"), bars = root.querySelector(".bars"), timeline = root.querySelector(".timeline");
  const steps = data.reward.length, calm = data.nominal.reward.length, all = Number(slider.max) + 1;
  const cursor = drawTimeline(), screens = drawStage();

  function named(action) {
    return data.discrete ? data.actions[action] : action.map((v, k) => data.actions[k] + " " + show(v)).join(", ");
  }

  function drawTimeline() {
    const width = 900, svg = make("svg", { viewBox: "0 0 900 48", preserveAspectRatio: "none", style: "height:48px", role: "img", "aria-label": "timeline of verdicts" }, timeline);
    const each = width / all;
    for (let i = 0; i < steps; i++) {
      const [colour, top, height] = MARKS[data.verdicts[i]];
      make("rect", { x: i * each, y: top, width: Math.max(each, 0.8), height: height, fill: colour }, svg);
    }
    make("rect", { x: 0, y: 38, width: calm * each, height: 8, fill: "#0072B2" }, svg);
    const line = make("rect", { x: 0, y: 0, width: 3, height: 48, fill: "#000" }, svg);
    make("p", { class: "caption" }, timeline, "above: under attack, " + steps + " steps; below: clean, " + calm + " steps");
    const legend = make("ul", { class: "legend" }, timeline);
    for (const [key, [colour, , height, word]] of Object.entries(MARKS)) {
      const count = data.verdicts.filter(v => v === key).length;
      const item = make("li", {}, legend);
      make("span", { "aria-hidden": "true", style: "display:inline-block;width:10px;height:" + height / 2 + "px;background:" + colour }, item);
      item.appendChild(document.createTextNode(" " + word + ": " + count));
    }
    svg.addEventListener("click", event => {
      const box = svg.getBoundingClientRect();
      slider.value = Math.floor((event.clientX - box.left) / box.width * all);
      slider.dispatchEvent(new Event("input"));
    });
    return line;
  }

  function drawStage() {
    const stage = root.querySelector(".stage"), films = data.pictures;
    if (films && films.note) make("p", { class: "note" }, stage, films.note);
    if (!films || !films.clean || !films.attacked) return [];
    const over = [["clean", films.clean, data.nominal, calm], ["under " + data.attack, films.attacked, data, steps]];
    return over.map(([name, film, episode, length]) => {
      const figure = make("figure", {}), screen = make("div", { class: "screen" }, figure), image = make("img", { alt: "rendered state, " + name }, screen);
      stage.insertBefore(figure, stage.querySelector(".note"));
      return { name, film, episode, length, image, screen, caption: make("figcaption", {}, figure) };
    });
  }

  function drawScreens(i, verdict) {
    for (const one of screens) {
      let k = 0;  // the last picture that is not ahead of the step
      while (k + 1 < one.film.at.length && one.film.at[k + 1] <= i) k++;
      if (one.image.getAttribute("src") !== one.film.images[k]) one.image.setAttribute("src", one.film.images[k]);
      const alive = i < one.length, state = alive ? "" : one.episode.ended ? ", over after " + one.length + " steps" : ", recorded for " + one.length + " steps";
      one.caption.textContent = one.name + ": return " + brief(sum(one.episode.reward, i)) + state;
    }
    if (screens.length) screens[1].screen.style.borderColor = MARKS[verdict] ? MARKS[verdict][0] : "#1b1b1b";
  }

  function picture(title, source) {
    const figure = make("figure", {}, views);
    if (source) make("img", { src: source, alt: title }, figure);
    make("figcaption", {}, figure, source ? title : title + (data.ended ? ": the episode is over" : ": not recorded"));
  }

  function drawViews(i) {
    views.replaceChildren();
    if (data.picture) {
      if (!screens.length) picture("clean episode", data.nominal.frames[i]);
      picture("under attack: true observation", data.frames[i]);
      picture("perturbed observation", data.shown[i]);
      picture("perturbation, grey = 0, black and white = ±ε", data.amplified[i]);
      return;
    }
    const table = make("table", {}, make("div", { class: "scroll" }, views));
    const head = make("tr", {}, make("thead", {}, table));
    const units = data.units, unit = units ? "" : " (network units)";
    for (const text of ["feature", "true", "seen", "change" + unit, "of ε", "clean episode"]) make("th", text === "of ε" ? { scope: "col", class: "share" } : { scope: "col" }, head, text);
    const body = make("tbody", {}, table), there = data.raw[i], calmly = data.nominal.raw[i];
    data.features.forEach((name, k) => {
      const row = make("tr", {}, body), delta = there ? data.delta[i][k] : null;
      const shift = delta === null ? null : units ? delta * units[k] : delta;
      make("td", {}, row, name);
      make("td", {}, row, there ? show(there[k]) : "–");
      make("td", {}, row, there && units ? show(there[k] + shift) : "–");
      make("td", {}, row, shift === null ? "–" : (shift > 0 ? "+" : "") + show(shift));
      const cell = make("td", { class: "share" }, row), share = delta === null || !data.radius ? 0 : Math.max(-1, Math.min(1, delta / data.radius));
      const meter = make("span", { class: "meter", role: "img", "aria-label": Math.round(share * 100) + " percent of ε" }, cell);
      make("i", { style: "left:" + (share < 0 ? 50 + share * 50 : 50) + "%;width:" + Math.abs(share) * 50 + "%" }, meter);
      make("b", {}, meter);
      make("td", {}, row, calmly ? show(calmly[k]) : "–");
    });
  }

  function drawBars(i) {
    bars.replaceChildren();
    root.querySelector(".bars-title").textContent = data.discrete ? "Bounds on each action's Q-value or logit over the ball" : "Bounds on each axis of the action over the ball";
    if (i >= steps) { make("p", {}, bars, data.ended ? "The attacked episode is over." : "Not recorded."); return; }
    const ends = [...data.lower[i], ...data.upper[i], ...data.scores[i], ...data.moved[i]].filter(v => v !== null);
    const low = Math.min(...ends), high = Math.max(...ends), span = high - low || 1;
    const width = Math.max(280, Math.min(bars.clientWidth || 700, 700));  // one unit is one pixel, so text stays readable
    const x = value => 10 + (value - low) / span * (width - 20);
    const count = data.actions.length, size = { viewBox: "0 0 " + width + " " + count * 48, style: "max-width:" + width + "px" };
    const svg = make("svg", { ...size, role: "img", "aria-label": "bounds of each action" }, bars);
    for (let a = 0; a < count; a++) {
      const y = a * 48 + 32, clean = data.discrete && data.clean_action[i] === a, done = data.discrete && data.action[i] === a;
      const word = data.actions[a] + (clean && done ? " ◆● chosen" : clean ? " ◆ wanted" : done ? " ● done" : "");
      make("text", { x: 4, y: y - 14, "font-weight": done ? "bold" : "normal" }, svg, word);
      if (data.lower[i][a] !== null && data.upper[i][a] !== null) {
        make("rect", { x: x(data.lower[i][a]), y: y - 8, width: Math.max(x(data.upper[i][a]) - x(data.lower[i][a]), 2), height: 16, fill: "#cfe3f1", stroke: "#0072B2" }, svg);
      }
      const c = x(data.scores[i][a]);
      make("path", { d: "M" + c + " " + (y - 7) + "l6 7l-6 7l-6 -7z", fill: "#000" }, svg);
      make("circle", { cx: x(data.moved[i][a]), cy: y, r: 5, fill: "#D55E00", stroke: "#fff" }, svg);
    }
    make("p", { class: "caption" }, bars, "bar: certified bounds over the ball · ◆ true observation · ● perturbed observation");
  }

  function move(i) {
    root.dataset.step = i;
    const alive = i < steps, verdict = alive ? data.verdicts[i] : "over";
    root.dataset.verdict = verdict;
    cursor.setAttribute("x", i * 900 / all);
    let text = "Step " + i + " of " + (all - 1) + ". Return so far: " + brief(sum(data.reward, i)) + " under attack, " + brief(sum(data.nominal.reward, i)) + " clean. ";
    if (!alive) text += "The attacked episode " + (data.ended ? "ended after " : "was recorded for ") + steps + " steps.";
    else if (data.discrete) text += "Wants “" + named(data.clean_action[i]) + "”, does “" + named(data.action[i]) + "”: " + MARKS[verdict][3] + (verdict === "certified" ? ", no perturbation of this size can change it." : verdict === "attacked" ? ", the attack changed it." : ", neither certified nor changed.");
    else text += "Does " + named(data.action[i]) + ": " + MARKS[verdict][3] + (verdict === "certified" ? ", it stays within a tenth of the range." : verdict === "attacked" ? ", moved by more than a tenth of the range." : ".");
    now.textContent = text;
    slider.setAttribute("aria-valuetext", "step " + i + ", " + (alive ? MARKS[verdict][3] : verdict));
    drawScreens(i, verdict);
    drawViews(i);
    drawBars(i);
  }

  function go(i) {
    slider.value = Math.max(0, Math.min(all - 1, i));
    slider.dispatchEvent(new Event("input"));
  }

  slider.addEventListener("input", () => move(Number(slider.value)));
  root.querySelector(".back").addEventListener("click", () => go(Number(slider.value) - 1));
  root.querySelector(".next").addEventListener("click", () => go(Number(slider.value) + 1));
  root.querySelector(".jump").addEventListener("click", event => go(Number(event.target.dataset.step)));
  let timer = null;
  const stride = screens.length && screens[0].film.at.length > 1 ? screens[0].film.at[1] : 1;  // a picture per tick
  const play = root.querySelector(".play");
  play.addEventListener("click", () => {
    if (timer) { clearInterval(timer); timer = null; play.textContent = "play"; return; }
    play.textContent = "stop";
    if (Number(slider.value) >= all - 1) go(0);
    timer = setInterval(() => { Number(slider.value) < all - 1 ? go(Number(slider.value) + stride) : play.click(); }, 80);
  });
  const asked = /step=(\d+)/.exec(location.hash);  // a link to a step: page.html#step=12
  go(asked ? Number(asked[1]) : 0);
  root.goBy = by => go(Number(slider.value) + by);
  for (const kind of ["pointerdown", "focusin"]) root.addEventListener(kind, () => { active = root; });
  window.addEventListener("hashchange", () => { const to = /step=(\d+)/.exec(location.hash); if (to) go(Number(to[1])); });
}

let active = document.querySelector(".inspector");  // the arrow keys are for the one that was used last
document.querySelectorAll(".inspector").forEach(inspect);
document.addEventListener("keydown", event => {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key], typing = event.target.closest && event.target.closest("input, textarea, select, [contenteditable]");
  if (!by || !active || typing || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  active.goBy(by);
});
