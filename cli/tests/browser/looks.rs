//! The looks of a page: places against the model that it was made from, colours, paper.

use std::path::Path;
use std::{env, fs, process};

use serde_json::{Value, json};

use crate::chromium::{Chromium, Outcome, Tab};
use crate::pages::Page;

/// The size of a usual window, and of a narrow one.
const USUAL: (u32, u32) = (1280, 900);
const NARROW: (u32, u32) = (390, 844);

/// The size of a sheet of A4 at 96 dots an inch, without margins.
const PAPER: (u32, u32) = (718, 1047);

/// The distance by which a place may be off, in pixels: spans are never narrower than two.
const MARGIN: f64 = 2.1;

/// The least contrast of texts (WCAG 2.2, 1.4.3, level AA).
const LEAST_CONTRAST: f64 = 4.5;

/// Returns the report in a page, and where each thing of its rows is: `[left, width]` in pixels.
const PLACES: &str = r#"(() => {
  const report = JSON.parse(document.getElementById("data").textContent);
  const box = document.getElementById("axis").getBoundingClientRect();
  const place = (it) => { const at = it.getBoundingClientRect(); return [at.left, at.width]; };
  const rows = [...document.querySelectorAll(".row:not(.scale)")].map((row) => ({
    name: row.querySelector(".name").textContent.trim(),
    spans: [...row.querySelectorAll(".span")].map(place),
    labels: [...row.querySelectorAll(".span")].map((it) => it.textContent),
    failed: [...row.querySelectorAll(".mark.failed")].map(place),
    clears: [...row.querySelectorAll(".mark.clear")].map(place),
  }));
  return { report, rows, axis: [box.left, box.width] };
})()"#;

/// Returns what is wrong with the structure of a page.
const FAULTS: &str = r##"(() => {
  const faults = [];
  const ids = [...document.querySelectorAll("[id]")].map((it) => it.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => faults.push(`two of ${id}`));
  for (const link of document.querySelectorAll("a[href]")) {
    const to = link.getAttribute("href");
    if (!to.startsWith("#") || !document.getElementById(to.slice(1))) faults.push(`link ${to}`);
  }
  const wide = document.documentElement.scrollWidth - window.innerWidth;
  if (wide > 0) faults.push(`${wide} pixels too wide`);
  for (const it of document.querySelectorAll("button, input")) {
    if (!it.getAttribute("aria-label") && !it.labels?.length && !it.textContent.trim()) {
      faults.push(`no name: ${it.outerHTML}`);
    }
  }
  return faults;
})()"##;

/// Returns the texts with too little contrast to what is behind them, and the contrast.
const CONTRASTS: &str = r#"(least) => {
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const light = ([r, g, b]) => {
    const part = (it) => { const v = it / 255;
      return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (it) => {
    for (let at = it; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return parse(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  for (const it of document.querySelectorAll("h1,h2,h3,p,td,th,b,small,span,li,kbd,code,summary")) {
    const own = [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || !it.checkVisibility()) continue;
    const pair = [parse(getComputedStyle(it).color), behind(it)].map(light).sort((a, b) => b - a);
    const contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < least) found.push(`${it.outerHTML.slice(0, 120)}: ${contrast.toFixed(2)}`);
  }
  return found;
}"#;

/// Says what is not as it should be.
fn check(is_so: bool, what: impl Fn() -> String) -> Outcome<()> {
    if is_so { Ok(()) } else { Err(what().into()) }
}

/// Every page: its lanes lie where its model says, nothing is too wide or leads nowhere, and
/// nothing is requested from anywhere.
pub(crate) fn a_kept_incident(browser: &mut Chromium, source: &Path) -> Outcome<()> {
    let page = Page::of(source)?;
    let mut tab = browser.open(&page.url(), USUAL)?;
    for size in [USUAL, NARROW] {
        tab.resize(size)?;
        lanes_lie_where_the_model_says(&mut tab)?;
        let faults = tab.value(FAULTS)?;
        check(faults == json!([]), || format!("at {size:?}: {faults}"))?;
        let complaints = tab.complaints();
        check(complaints.is_empty(), || complaints.join("\n"))?;
    }
    Ok(())
}

fn lanes_lie_where_the_model_says(tab: &mut Tab<'_>) -> Outcome<()> {
    let found = tab.value(PLACES)?;
    let report = &found["report"];
    let rows = found["rows"].as_array().ok_or("no rows")?;
    let end = report["endMS"].as_f64().ok_or("no end")?;
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let (left, width) = (number(&found["axis"][0]), number(&found["axis"][1]));
    let x = |millis: &Value| left + number(millis) / end * width;
    let spans_are = |places: &Value, spans: &Value| -> Outcome<()> {
        let (places, spans) = (places.as_array().ok_or("no places")?, spans.as_array());
        let spans = spans.ok_or("no spans")?;
        check(places.len() == spans.len(), || format!("{places:?} of {spans:?}"))?;
        for (place, span) in places.iter().zip(spans) {
            let (from, to) = (x(&span["fromMS"]), x(&span["toMS"]));
            let is_there = (number(&place[0]) - from).abs() < MARGIN
                && (number(&place[0]) + number(&place[1]) - to).abs() < MARGIN;
            check(is_there, || format!("{place} is {span}, which is {from} to {to}"))?;
        }
        Ok(())
    };
    let row = |name: &str| {
        let row = rows.iter().position(|row| row["name"].as_str() == Some(name));
        row.ok_or_else(|| format!("no row {name}"))
    };
    if report["primaries"] != json!([]) {
        spans_are(&rows[row("primary")?]["spans"], &report["primaries"])?;
    }
    spans_are(&rows[row("writes")?]["spans"], &report["writes"])?;
    spans_are(&rows[row("reads of any server")?]["spans"], &report["reads"])?;
    let lanes = report["lanes"].as_array().ok_or("no lanes")?;
    check(!lanes.is_empty(), || "there are no servers".to_owned())?;
    for lane in lanes {
        let at = row(lane["address"].as_str().ok_or("no address")?)?;
        spans_are(&rows[at]["spans"], &lane["spans"])?;
        let checks = lane["checks"].as_array().ok_or("no checks")?;
        let failed: Vec<&Value> = checks.iter().filter(|it| !it["failure"].is_null()).collect();
        let clears = lane["clears"].as_array().ok_or("no clears")?.iter().collect();
        for (class, marks) in [("failed", failed), ("clears", clears)] {
            let places = rows[at + 1][class].as_array().ok_or("no marks")?;
            check(places.len() == marks.len(), || format!("{class}: {places:?} of {marks:?}"))?;
            for (place, mark) in places.iter().zip(marks) {
                let middle = number(&place[0]) + number(&place[1]) / 2.0;
                let wanted = x(&mark["atMS"]);
                check((middle - wanted).abs() < MARGIN, || format!("{place} is {mark}"))?;
            }
        }
    }
    Ok(())
}

/// The first screen says in words and shows in lanes who was primary when, and why writes failed
/// between.
pub(crate) fn a_failover_is_seen_at_first_sight(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), USUAL)?;
    let summary = tab.text("document.getElementById('summary').innerText")?;
    for said in ["was primary until +", "For ", " there was none, and writes failed", "is primary"]
    {
        check(summary.contains(said), || format!("{said:?} is not in {summary:?}"))?;
    }
    let found = tab.value(PLACES)?;
    let labels: Vec<&str> = found["rows"][0]["labels"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let is_gap = |labels: &[&str]| matches!(labels, [one, "none", other] if one != other);
    check(labels.windows(3).any(is_gap), || format!("{labels:?}"))?;
    let writes = found["rows"][1]["labels"].to_string();
    check(writes.contains("fail: the replica set has had no primary"), || writes.clone())?;
    let bottom = tab.number("document.getElementById('plot').getBoundingClientRect().bottom")?;
    check(bottom <= f64::from(USUAL.1), || format!("the lanes end at {bottom}"))
}

/// Texts can be read, and states distinguished, by day and by night.
pub(crate) fn it_is_readable_in_light_and_dark(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), USUAL)?;
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        tab.emulate("screen", scheme)?;
        let low = tab.value(&format!("({CONTRASTS})({LEAST_CONTRAST})"))?;
        check(low == json!([]), || format!("{scheme}: {low}"))?;
        let points = middles(&mut tab)?;
        let colors = tab.colors(&points)?;
        for (index, one) in colors.iter().enumerate() {
            let same = colors[index + 1..].iter().position(|other| distance(one, other) < 40);
            check(same.is_none(), || format!("{scheme}: {index} and {same:?} of {colors:?}"))?;
        }
        grounds.push(colors[0]);
    }
    let [light, dark] = grounds[..] else { return Err("two grounds".into()) };
    let is_so = light.iter().all(|it| *it > 230) && dark.iter().all(|it| *it < 50);
    check(is_so, || format!("{light:?} by day, {dark:?} by night"))
}

/// Returns a point of the ground, and one within a span of each of these kinds, beside its label.
fn middles(tab: &mut Tab<'_>) -> Outcome<Vec<(f64, f64)>> {
    let found = tab.value(
        r#"[".span.primary", ".span.none", ".span.works", ".span.secondary"].map((kind) => {
          const all = [...document.querySelectorAll(`#canvas ${kind}`)];
          const boxes = all.map((it) => it.getBoundingClientRect());
          const box = boxes.sort((a, b) => b.width - a.width)[0];
          return [box.right - 12, box.bottom - 3];
        })"#,
    )?;
    let mut points: Vec<(f64, f64)> = serde_json::from_value(found)?;
    points.insert(0, (2.0, 2.0));
    Ok(points)
}

fn distance(one: &[u8; 3], other: &[u8; 3]) -> u32 {
    one.iter().zip(other).map(|(one, other)| u32::from(one.abs_diff(*other))).sum()
}

/// On paper there are no controls, all lines are there, and lanes are not cut.
pub(crate) fn paper_shows_all_of_it(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), USUAL)?;
    for _ in 0..4 {
        tab.press("+")?;
    }
    let printed = tab.call("Page.printToPDF", &json!({ "printBackground": true }))?;
    let length = printed["data"].as_str().unwrap_or_default().len();
    check(length > 20_000, || format!("the file has {length} letters"))?;
    tab.emulate("print", "dark")?;
    tab.value("void window.dispatchEvent(new Event('beforeprint'))")?;
    let seen = tab.value(
        r##"[".controls", ".keys", "#moment", "#cursor"].map((it) =>
          getComputedStyle(document.querySelector(it)).display)"##,
    )?;
    check(seen == json!(["none", "none", "none", "none"]), || seen.to_string())?;
    let hidden = tab.number(
        "[...document.querySelectorAll('#log code')].filter((it) => !it.checkVisibility()).length",
    )?;
    check(hidden == 0.0, || format!("{hidden} lines are not to be seen"))?;
    tab.resize(PAPER)?;
    let wide = tab.number(
        "[...document.querySelectorAll('.wide')].filter((it) => \
         it.scrollWidth > it.clientWidth).length",
    )?;
    check(wide == 0.0, || format!("{wide} tables are wider than the paper"))?;
    lanes_lie_where_the_model_says(&mut tab)?;
    let [ground] = tab.colors(&[(2.0, 2.0)])?[..] else { return Err("one colour".into()) };
    check(ground == [255; 3], || format!("paper is {ground:?}"))?;
    tab.value("void window.dispatchEvent(new Event('afterprint'))")?;
    let zoom = tab.text("document.getElementById('canvas').style.getPropertyValue('--zoom')")?;
    check(zoom == "16", || format!("the zoom is {zoom} again"))
}

/// A browser without scripts shows lanes and tables, and nothing that would not work.
pub(crate) fn without_a_script_it_can_be_read(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.blank(USUAL)?;
    tab.call("Emulation.setScriptExecutionDisabled", &json!({ "value": true }))?;
    tab.go(&page.url())?;
    lanes_lie_where_the_model_says(&mut tab)?;
    let seen = tab.value(
        r##"[".controls", ".keys", "#moment", "#cursor"].map((it) =>
          document.querySelector(it).checkVisibility())"##,
    )?;
    check(seen == json!([false, false, false, false]), || seen.to_string())?;
    let rows = tab.number("document.querySelectorAll('#log tbody tr').length")?;
    check(rows > 5.0, || format!("{rows} events"))
}

/// The texts of servers may look like anything.
pub(crate) fn texts_of_others_are_no_markup(browser: &mut Chromium) -> Outcome<()> {
    let hostile = "</script><script>window.obeyed = 1</script><img src=x onerror=\
                   'window.obeyed = 1'>\u{2028}${1}";
    let lines = [
        json!({ "event": "topologyOpening", "elapsedMs": 0 }),
        json!({ "event": "serverOpening", "elapsedMs": 1, "address": "a:1" }),
        json!({ "event": "serverHeartbeatStarted", "elapsedMs": 2, "address": "a:1",
            "awaited": false }),
        json!({ "event": "serverHeartbeatFailed", "elapsedMs": 3, "address": "a:1",
            "awaited": false, "failure": { "detail": hostile } }),
        json!({ "event": "topologyClosed", "elapsedMs": 9 }),
    ];
    let path = env::temp_dir().join(format!("sdam-hostile-{}.jsonl", process::id()));
    fs::write(&path, lines.map(|line| format!("{line}\n")).concat())?;
    let page = Page::of(&path);
    fs::remove_file(&path)?;
    let page = page?;
    let html = page.html()?;
    check(!html.contains(hostile) && !html.contains("<img"), || html.clone())?;
    let mut tab = browser.open(&page.url(), USUAL)?;
    let found = tab.value(
        "[document.images.length, window.obeyed ?? null, \
        document.scripts.length]",
    )?;
    check(found == json!([0, null, 2]), || found.to_string())?;
    let said = tab.text("document.querySelector('#log').textContent")?;
    check(said.contains("</script><script>window.obeyed"), || said.clone())?;
    let complaints = tab.complaints();
    check(complaints.is_empty(), || complaints.join("\n"))
}
