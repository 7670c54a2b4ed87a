"use strict";
// Adds to the page what needs somebody who points: the verdict at a moment, zoom, and keys. All
// lanes are there without it; their places are shares of the canvas, which this makes wider.
(() => {
  const element = (id) => document.getElementById(id);
  const report = JSON.parse(element("data").textContent);
  const end = Math.max(report.endMS, 0.001);
  const began = report.origin.began ? Date.parse(report.origin.began) : NaN;
  const [plot, canvas, axis, cursor] = ["plot", "canvas", "axis", "cursor"].map(element);
  const [slider, shown, selection, panel] = ["time", "window", "selection", "moment"].map(element);
  const rows = [...document.querySelectorAll("#log tbody tr")];
  // No more than drawing is exact for, and nobody looks at less than a millisecond.
  const mostZoom = Math.max(1, Math.min(5000, end / 2));
  let zoom = 1;
  let now = 0;
  let current = -1;

  const within = (value, least, most) => Math.min(Math.max(value, least), most);
  const timeAt = (x) => {
    const box = axis.getBoundingClientRect();
    return within(((x - box.left) / box.width) * end, 0, end);
  };

  // The times at the left and the right edge of what is to be seen.
  const edges = () => {
    const box = plot.getBoundingClientRect();
    const gutter = canvas.querySelector(".name").getBoundingClientRect().width;
    return [timeAt(box.left + gutter + 1), timeAt(box.right - 1)];
  };

  const seconds = (millis, digits = 3) => `+${(millis / 1000).toFixed(digits)} s`;

  const add = (parent, name, text, className) => {
    const child = document.createElement(name);
    if (text !== undefined) child.textContent = text;
    if (className) child.className = className;
    parent.append(child);
    return child;
  };

  const drawScale = (from, to) => {
    const wanted = (to - from) / Math.max(2, Math.floor(plot.clientWidth / 110));
    let step = 10 ** Math.floor(Math.log10(wanted));
    step *= [1, 2, 5, 10].find((it) => it * step >= wanted);
    const digits = within(3 - Math.floor(Math.log10(step)), 0, 6);
    const ticks = [];
    for (let number = Math.ceil(from / step - 1e-9); number * step <= to; number += 1) {
      const tick = document.createElement("span");
      tick.style.left = `${((number * step) / end) * 100}%`;
      tick.textContent = `${((number * step) / 1000).toFixed(digits)} s`;
      ticks.push(tick);
    }
    axis.replaceChildren(...ticks);
  };

  const update = () => {
    const [from, to] = edges();
    drawScale(from, to);
    slider.min = from;
    slider.max = to;
    slider.value = now;
    const text = zoom === 1 ? "all of it" : `${seconds(from)} to ${seconds(to)}`;
    if (shown.textContent !== text) shown.textContent = text;
    element("out").disabled = zoom === 1;
    element("in").disabled = zoom >= mostZoom;
  };

  // Zooms so that a time stays where it is, or comes to that place.
  const zoomTo = (wanted, time, x) => {
    const box = axis.getBoundingClientRect();
    const place = x ?? box.left + (time / end) * box.width;
    zoom = within(wanted, 1, mostZoom);
    canvas.style.setProperty("--zoom", zoom);
    const after = axis.getBoundingClientRect();
    plot.scrollLeft += after.left + (time / end) * after.width - place;
    update();
  };

  const zoomBy = (factor) => {
    const [from, to] = edges();
    const isSeen = from <= now && now <= to;
    zoomTo(zoom * factor, isSeen ? now : (from + to) / 2);
  };

  const showBetween = (from, to) => {
    const box = plot.getBoundingClientRect();
    const [left, right] = edges();
    const room = (right - left) * zoom;
    const gutter = canvas.querySelector(".name").getBoundingClientRect().width;
    zoomTo(room / Math.max(to - from, 0.001), from, box.left + gutter + 1);
  };

  const holds = (spans, time) => {
    const found = spans.find((it) => it.fromMS <= time && time < it.toMS);
    return found ?? (time >= end ? spans.findLast((it) => it.toMS >= end) : undefined);
  };

  const judged = (what, judgement) => {
    if (!judgement) return [`${what}: nothing is shown here`, "quiet"];
    if (!judgement.fault) return [`${what} find a server.`, "good"];
    const { cause, advice, verdict, expected } = judgement.fault;
    const [from, to] = [judgement.fromMS, judgement.toMS].map((it) => seconds(it));
    const text = `${what} fail, from ${from} to ${to}: ${cause} (${verdict}).`;
    return expected ? [text, ""] : [`${text} What to do: ${advice}.`, "bad"];
  };

  const ofServer = (lane, item) => {
    const span = holds(lane.spans, now);
    add(item, "strong", lane.address);
    const state = span ? span.state : "not there";
    add(item, "span", ` ${state}${span?.error ? `: ${span.error}` : ""}`, span?.error && "bad");
    const check = lane.checks.findLast((it) => it.atMS <= now);
    const trip = lane.roundTrips.findLast((it) => it.atMS <= now);
    let text = "";
    if (trip && span && !span.error) text += `; round trip ${trip.tookMS.toFixed(2)} ms`;
    if (check) {
      const result = check.failure ? `failed: ${check.failure}` : "went well";
      text += `; last check ${seconds(check.atMS)}, line ${check.line}, ${result}`;
    }
    add(item, "span", text, "quiet");
  };

  // Says what was known at the moment, and what operations would have met.
  const tell = () => {
    const clock = Number.isNaN(began) ? "" : `, ${new Date(began + now).toISOString()}`;
    panel.replaceChildren();
    add(panel, "h3", `At ${seconds(now)}${clock}`);
    const [writes, mood] = judged("Writes", holds(report.writes, now));
    add(panel, "p", writes, mood);
    const [reads, other] = judged("Reads of any server", holds(report.reads, now));
    add(panel, "p", reads, other);
    const list = add(panel, "ul");
    for (const lane of report.lanes) ofServer(lane, add(list, "li"));
    slider.setAttribute("aria-valuetext", `${seconds(now)}: ${writes} ${reads}`);
  };

  const moveTo = (time) => {
    now = within(time, 0, end);
    cursor.hidden = false;
    cursor.style.left = `${(now / end) * 100}%`;
    slider.value = now;
    tell();
  };

  // Scrolls so that the moment is to be seen.
  const reveal = () => {
    const [from, to] = edges();
    if (now < from || now > to) {
      const box = axis.getBoundingClientRect();
      plot.scrollLeft += ((now - (from + to) / 2) / end) * box.width;
    }
    update();
  };

  const select = (index, focus) => {
    if (index < 0 || index >= rows.length) return;
    rows[current]?.classList.remove("current");
    current = index;
    const row = rows[current];
    row.classList.add("current");
    moveTo(Number(row.dataset.at));
    reveal();
    if (focus) {
      row.querySelector("a").focus({ preventScroll: true });
      row.scrollIntoView({ block: "nearest" });
    }
  };

  const selectTarget = () => {
    const target = rows.findIndex((row) => row.id && `#${row.id}` === location.hash);
    if (target >= 0) select(target, true);
  };

  // Dragging marks a time, and zooms there.
  let drag;
  plot.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    // A click on the scroll bar is none on the lanes.
    if (event.clientY > plot.getBoundingClientRect().top + plot.clientHeight) return;
    drag = { x: event.clientX, moved: false };
  });
  plot.addEventListener("dragstart", (event) => event.preventDefault());
  plot.addEventListener("pointermove", (event) => {
    if (drag && Math.abs(event.clientX - drag.x) > 4) {
      if (!drag.moved) plot.setPointerCapture(event.pointerId);
      drag.moved = true;
      const [from, to] = [drag.x, event.clientX].map(timeAt).sort((a, b) => a - b);
      selection.hidden = false;
      selection.style.left = `${(from / end) * 100}%`;
      selection.style.width = `${((to - from) / end) * 100}%`;
      return;
    }
    moveTo(timeAt(event.clientX));
  });
  plot.addEventListener("pointerup", (event) => {
    if (drag?.moved) {
      const [from, to] = [drag.x, event.clientX].map(timeAt).sort((a, b) => a - b);
      showBetween(from, to);
      moveTo((from + to) / 2);
    }
  });
  plot.addEventListener("click", (event) => {
    if (drag?.moved) event.preventDefault();
    drag = undefined;
  }, true);
  for (const name of ["pointerup", "pointercancel"]) {
    plot.addEventListener(name, () => {
      selection.hidden = true;
      if (!drag?.moved) drag = undefined;
    });
  }
  plot.addEventListener("wheel", (event) => {
    const isMeant = event.ctrlKey || event.metaKey || document.activeElement === plot;
    if (!isMeant || event.shiftKey || event.deltaY === 0) return;
    event.preventDefault();
    zoomTo(zoom * 1.002 ** -within(event.deltaY, -400, 400), timeAt(event.clientX), event.clientX);
  }, { passive: false });
  plot.addEventListener("scroll", update);
  window.addEventListener("resize", update);

  slider.addEventListener("input", () => moveTo(Number(slider.value)));
  element("in").addEventListener("click", () => zoomBy(2));
  element("out").addEventListener("click", () => zoomBy(0.5));
  element("all").addEventListener("click", () => zoomTo(1, now));

  const step = (share) => {
    const [from, to] = edges();
    moveTo(now + (to - from) * share);
    reveal();
  };
  const onPlot = {
    ArrowLeft: () => step(-0.01),
    ArrowRight: () => step(0.01),
    PageUp: () => step(-0.5),
    PageDown: () => step(0.5),
    Home: () => { moveTo(0); reveal(); },
    End: () => { moveTo(end); reveal(); },
  };
  // Goes to the event behind the moment, or before it, unless one is chosen that is there.
  const neighbour = (way) => {
    const isAtIt = current >= 0 && Number(rows[current].dataset.at) === now;
    if (isAtIt) return current + way;
    const at = (row) => Number(row.dataset.at);
    return way > 0
      ? rows.findIndex((row) => at(row) > now || (now === 0 && current < 0))
      : rows.findLastIndex((row) => at(row) < now);
  };
  const anywhere = {
    "+": () => zoomBy(2),
    "=": () => zoomBy(2),
    "-": () => zoomBy(0.5),
    0: () => zoomTo(1, now),
    Escape: () => zoomTo(1, now),
    n: () => select(neighbour(1), true),
    p: () => select(neighbour(-1), true),
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isOnPlot = [plot, slider].includes(document.activeElement);
    const act = (isOnPlot && onPlot[event.key]) || anywhere[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });

  for (const [index, row] of rows.entries()) {
    row.querySelector("a.at").addEventListener("click", (event) => {
      event.preventDefault();
      select(index, false);
      plot.scrollIntoView({ block: "nearest" });
    });
  }
  window.addEventListener("hashchange", selectTarget);

  // On paper there is all of it.
  let before;
  window.addEventListener("beforeprint", () => {
    const closed = [...document.querySelectorAll("details:not([open])")];
    before = { zoom, scroll: plot.scrollLeft, closed };
    closed.forEach((it) => { it.open = true; });
    zoomTo(1, 0);
  });
  window.addEventListener("afterprint", () => {
    if (!before) return;
    before.closed.forEach((it) => { it.open = false; });
    zoomTo(before.zoom, 0);
    plot.scrollLeft = before.scroll;
  });

  document.documentElement.classList.add("js");
  const length = (it) => it.toMS - it.fromMS;
  const outages = report.writes.filter((it) => it.fault && !it.fault.expected);
  const outage = outages.sort((a, b) => length(b) - length(a))[0];
  moveTo(outage ? (outage.fromMS + outage.toMS) / 2 : end);
  update();
  selectTarget();
})();
