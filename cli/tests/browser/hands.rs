//! Pointing, dragging, turning the wheel and pressing keys.

use serde_json::Value;

use crate::chromium::{Chromium, Outcome, Tab};
use crate::pages::Page;

const SIZE: (u32, u32) = (1280, 900);

fn check(is_so: bool, what: impl Fn() -> String) -> Outcome<()> {
    if is_so { Ok(()) } else { Err(what().into()) }
}

fn zoom(tab: &mut Tab<'_>) -> Outcome<f64> {
    tab.number(
        "document.getElementById('axis').clientWidth / (document.getElementById('plot').\
         clientWidth - document.querySelector('.name').getBoundingClientRect().width)",
    )
}

/// The moment that the cursor is at, in milliseconds.
fn moment(tab: &mut Tab<'_>) -> Outcome<f64> {
    tab.number(
        "parseFloat(document.getElementById('cursor').style.left) / 100 * \
         JSON.parse(document.getElementById('data').textContent).endMS",
    )
}

/// The middle of the widest element that matches.
fn middle(tab: &mut Tab<'_>, selector: &str) -> Outcome<(f64, f64)> {
    let found = tab.value(&format!(
        "(() => {{ const all = [...document.querySelectorAll('{selector}')]; \
         const boxes = all.map((it) => it.getBoundingClientRect()); \
         const box = boxes.sort((a, b) => b.width - a.width)[0]; \
         return [(box.left + box.right) / 2, (box.top + box.bottom) / 2]; }})()"
    ))?;
    Ok(serde_json::from_value(found)?)
}

fn panel(tab: &mut Tab<'_>) -> Outcome<String> {
    tab.text("document.getElementById('moment').innerText")
}

/// The pointer shows what operations would have met at its moment.
pub(crate) fn the_pointer_shows_the_verdict(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), SIZE)?;
    let during = middle(&mut tab, "#canvas .span.fails")?;
    tab.mouse("mouseMoved", during)?;
    let said = panel(&mut tab)?;
    let is_reported = said.contains("Writes fail, from +") && said.contains("(noPrimary)");
    check(is_reported && said.contains("Reads of any server find a server."), || said.clone())?;
    check(said.contains(" failing: "), || said.clone())?;
    let found = tab.value("JSON.parse(document.getElementById('data').textContent).writes")?;
    let at = moment(&mut tab)?;
    let middle_of = |it: &Value| Some((it["fromMS"].as_f64()? + it["toMS"].as_f64()?) / 2.0);
    let fails =
        found.as_array().into_iter().flatten().filter(|it| it["fault"]["expected"] == false);
    let is_it = fails.filter_map(middle_of).any(|wanted| (at - wanted).abs() < 25.0);
    check(is_it, || format!("{at} is the middle of none of {found}"))?;
    let works = tab.value(
        "(() => { const all = [...document.querySelectorAll('#canvas .span.works')]; \
         const box = all[1].getBoundingClientRect(); return [box.right - 5, box.top + 5]; })()",
    )?;
    tab.mouse("mouseMoved", serde_json::from_value(works)?)?;
    let said = panel(&mut tab)?;
    check(said.contains("Writes find a server."), || said.clone())?;
    let shown = tab.text("document.getElementById('time').getAttribute('aria-valuetext')")?;
    check(shown.contains("Writes find a server."), || shown.clone())
}

/// Everything can be done without a mouse, and the focus is to be seen.
pub(crate) fn keys_move_and_zoom(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), SIZE)?;
    let mut passed = Vec::new();
    for _ in 0..6 {
        tab.press("Tab")?;
        passed.push(tab.text("document.activeElement.id")?);
    }
    let plot = passed.iter().position(|id| id == "plot");
    check(plot.is_some() && passed.iter().any(|id| id == "time"), || format!("{passed:?}"))?;
    tab.value("void document.getElementById('plot').focus()")?;
    let seen = tab.text("getComputedStyle(document.activeElement).outlineStyle")?;
    check(seen == "solid", || format!("the focus is {seen}"))?;
    tab.press("Home")?;
    check(moment(&mut tab)? == 0.0, || "not at the beginning".to_owned())?;
    tab.press("ArrowRight")?;
    let one = moment(&mut tab)?;
    let end = tab.number("JSON.parse(document.getElementById('data').textContent).endMS")?;
    check((one - end / 100.0).abs() < end / 500.0, || format!("{one} of {end}"))?;
    tab.press("ArrowLeft")?;
    let back = moment(&mut tab)?;
    check(back.abs() < end / 500.0, || format!("{back} is not the beginning"))?;
    for key in ["+", "+", "+"] {
        tab.press(key)?;
    }
    let zoomed = zoom(&mut tab)?;
    check((zoomed - 8.0).abs() < 0.05, || format!("{zoomed} is not 8"))?;
    tab.press("End")?;
    let scrolled = tab.number("document.getElementById('plot').scrollLeft")?;
    check(scrolled > 1000.0, || format!("scrolled by {scrolled}"))?;
    let shown = tab.text("document.getElementById('window').textContent")?;
    check(shown.contains(" to +"), || shown.clone())?;
    tab.press("-")?;
    let zoomed = zoom(&mut tab)?;
    check((zoomed - 4.0).abs() < 0.05, || format!("{zoomed} is not 4"))?;
    tab.press("0")?;
    let zoomed = zoom(&mut tab)?;
    check((zoomed - 1.0).abs() < 0.01, || format!("{zoomed} is not 1"))?;
    from_event_to_event(&mut tab)
}

/// `n` and `p` go through the events, and the moment and the focus with them.
fn from_event_to_event(tab: &mut Tab<'_>) -> Outcome<()> {
    tab.press("Home")?;
    let mut times = Vec::new();
    for _ in 0..4 {
        tab.press("n")?;
        let row = tab.value(
            "(() => { const row = document.activeElement.closest('tr'); \
             return [row.rowIndex, Number(row.dataset.at), row.className]; })()",
        )?;
        let at = moment(tab)?;
        let wanted = row[1].as_f64().unwrap_or(f64::NAN);
        check((at - wanted).abs() < 0.01, || format!("{at} is not that of {row}"))?;
        check(row[2].as_str().is_some_and(|it| it.contains("current")), || row.to_string())?;
        times.push(row[0].as_u64());
    }
    let first = times[0].ok_or("no first")?;
    let wanted: Vec<_> = (first..first + 4).map(Some).collect();
    check(times == wanted, || format!("{times:?} is not {wanted:?}"))?;
    tab.press("p")?;
    let row = tab.value("document.activeElement.closest('tr').rowIndex")?;
    check(row.as_u64() == times[2], || format!("{row} is not before {times:?}"))
}

/// The wheel zooms where the pointer is, and dragging to what was marked.
pub(crate) fn the_wheel_and_dragging_zoom(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), SIZE)?;
    let during = middle(&mut tab, "#canvas .span.fails")?;
    tab.mouse("mouseMoved", during)?;
    let before = moment(&mut tab)?;
    tab.wheel(during, -300.0)?;
    tab.wait_for("document.getElementById('canvas').style.getPropertyValue('--zoom') > 1")?;
    tab.mouse("mouseMoved", (during.0, during.1 + 1.0))?;
    let after = moment(&mut tab)?;
    check((before - after).abs() < 15.0, || format!("{before} has become {after}"))?;
    tab.press("0")?;
    let (from, to) = ((during.0 - 60.0, during.1), (during.0 + 60.0, during.1));
    tab.mouse("mouseMoved", from)?;
    let left = moment(&mut tab)?;
    tab.mouse("mouseMoved", to)?;
    let right = moment(&mut tab)?;
    tab.mouse("mouseMoved", from)?;
    tab.mouse("mousePressed", from)?;
    tab.call("Input.dispatchMouseEvent", &drag((from.0 + 40.0, from.1)))?;
    let marked = tab.value("document.getElementById('selection').hidden")?;
    check(marked == false, || "nothing is marked".to_owned())?;
    tab.call("Input.dispatchMouseEvent", &drag(to))?;
    tab.mouse("mouseReleased", to)?;
    let shown = tab.text("document.getElementById('window').textContent")?;
    let edges: Vec<f64> = shown
        .split(" s")
        .filter_map(|it| it.trim_start_matches([' ', 't', 'o', '+']).parse().ok())
        .collect();
    let is_it = |edge: f64, wanted: f64| (edge * 1000.0 - wanted).abs() < 15.0;
    let is_so = edges.len() == 2 && is_it(edges[0], left) && is_it(edges[1], right);
    check(is_so, || format!("{shown} is not {left} to {right}"))?;
    let hash = tab.text("location.hash")?;
    check(hash.is_empty(), || format!("dragging has followed a link to {hash}"))
}

fn drag((x, y): (f64, f64)) -> Value {
    serde_json::json!({ "type": "mouseMoved", "x": x, "y": y, "button": "left", "buttons": 1 })
}

/// Marks lead to the line that describes them.
pub(crate) fn marks_lead_to_lines(browser: &mut Chromium) -> Outcome<()> {
    let page = Page::of_failover()?;
    let mut tab = browser.open(&page.url(), SIZE)?;
    let at = middle(&mut tab, "#canvas a.mark.failed")?;
    // Another one may lie upon it.
    let wanted = tab.text(&format!("document.elementFromPoint({}, {}).hash", at.0, at.1))?;
    tab.mouse("mouseMoved", at)?;
    tab.mouse("mousePressed", at)?;
    tab.mouse("mouseReleased", at)?;
    tab.wait_for(&format!("location.hash === '{wanted}'"))?;
    tab.wait_for("document.querySelector('tr.current')?.id === location.hash.slice(1)")?;
    let line = tab.text("document.querySelector('tr.current details code').textContent")?;
    check(line.contains("serverHeartbeatFailed"), || line.clone())
}
