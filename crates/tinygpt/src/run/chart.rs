//! `loss.svg`: the losses of a run over its steps, one picture that shows in any browser, light or
//! dark as the reader's system is.
//!
//! **Coordinates are finite**: losses that are not are left out. **The file stays small** however
//! long the run: a line has at most two points for each of `COLUMNS` columns.

use super::metrics::Record;
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
// The plot's edges inside the picture.
const LEFT: f64 = 56.0;
const RIGHT: f64 = WIDTH - 28.0;
const TOP: f64 = 84.0;
const BOTTOM: f64 = HEIGHT - 50.0;
/// How finely a line is drawn: about every second pixel.
const COLUMNS: usize = 330;
/// Up to as many points each gets a dot. Of more steps the running mean is drawn, before the steps
/// themselves in a lighter tone.
const FEW: usize = 40;

const STYLE: &str = "
  text { font: 12px system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif }
  path { fill: none; stroke-linejoin: round; stroke-linecap: round }
  .page { fill: #ffffff } .title { fill: #1f2328; font-size: 17px; font-weight: 600 }
  .label { fill: #1f2328; stroke: #ffffff }
  .label { stroke-width: 4px; stroke-linejoin: round; paint-order: stroke }
  .muted { fill: #656d76 } .grid { stroke: #eaecef } .axis { stroke: #afb8c1 }
  .raw { stroke: #bcd8f5 } .train { stroke: #2f7fd1; stroke-width: 2 } .train-dot { fill: #2f7fd1 }
  .val { stroke: #d9590b; stroke-width: 2 } .val-dot { fill: #d9590b }
  .ring { fill: #ffffff; stroke: #d9590b; stroke-width: 2.5 } .lead { stroke: #8c959f }
  .chance { stroke: #8c959f; stroke-dasharray: 1 6; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .title { fill: #e6edf3 } .label { fill: #e6edf3; stroke: #0d1117 }
    .muted { fill: #9198a1 } .grid { stroke: #21262d } .axis { stroke: #4b535d }
    .raw { stroke: #1f4470 } .train { stroke: #58a6ff } .train-dot { fill: #58a6ff }
    .val { stroke: #ff9e5e } .val-dot { fill: #ff9e5e }
    .ring { fill: #0d1117; stroke: #ff9e5e } .lead { stroke: #6e7681 }
    .chance { stroke: #6e7681 }
  }
";

/// (step, loss), both finite.
type Point = (f64, f64);

/// Draws the records of a run whose vocabulary has `vocab_size` tokens.
pub fn loss_svg(title: &str, records: &[Record], vocab_size: usize) -> String {
    let (train, val) = curves(records);
    let chance = (vocab_size.max(1) as f64).ln();
    let mean = if train.len() > FEW { running_mean(&train) } else { train.clone() };
    let plot = Plot::around(&train, &mean, &val, chance);
    let mut svg = frame(&plot, title);
    if chance <= plot.high {
        let y = plot.y(chance);
        svg += &format!("<path class=\"chance\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\n");
    }
    if train.len() > FEW {
        svg += &format!("<path class=\"raw\" d=\"{}\"/>\n", plot.path(&extremes(&train)));
    }
    svg += &curve(&plot, "train", &mean);
    svg += &curve(&plot, "val", &extremes(&val));
    svg += &best_label(&plot, &val);
    svg += &chance_label(&plot, chance);
    svg += &legend(train.len(), val.len());
    svg + "</svg>\n"
}

/// The two curves. Without step records, the training curve is that of the evaluations.
fn curves(records: &[Record]) -> (Vec<Point>, Vec<Point>) {
    let (mut steps, mut means, mut val) = (Vec::new(), Vec::new(), Vec::new());
    for record in records {
        match record {
            Record::Step(report) => steps.push((report.iter as f64, report.loss as f64)),
            Record::Evaluation(e) => {
                means.push((e.iter as f64, e.train_loss as f64));
                val.extend(e.val_loss.map(|loss| (e.iter as f64, loss as f64)));
            }
        }
    }
    let mut train = if steps.is_empty() { means } else { steps };
    for curve in [&mut train, &mut val] {
        // No cross-entropy is negative; a file that somebody edited may say so.
        curve.retain(|point| point.1.is_finite() && point.1 >= 0.0);
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    (train, val)
}

/// Which steps and losses the plot spans, and the distance of its grid lines.
struct Plot {
    steps: f64,
    step_grid: f64,
    low: f64,
    high: f64,
    loss_grid: f64,
}

impl Plot {
    fn around(train: &[Point], mean: &[Point], val: &[Point], chance: f64) -> Self {
        let lines = || mean.iter().chain(val);
        let steps = lines().map(|point| point.0).fold(1.0, f64::max);
        // Of single steps only the bulk counts: one that shoots up must not flatten the rest. It is
        // drawn at the edge.
        let mut single: Vec<_> = train.iter().map(|point| point.1).collect();
        single.sort_by(f64::total_cmp);
        let outliers = single.len() / 200;
        let bulk = &single[outliers..single.len() - outliers];
        let losses = || lines().map(|point| &point.1).chain(bulk).copied();
        let lowest = losses().fold(f64::INFINITY, f64::min);
        let highest = losses().fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if lowest > highest {
            (0.0, chance)
        } else {
            let high = if lowest < chance { highest.min(1.5 * chance) } else { highest };
            // Chance far above the losses (of a fine-tuned model) stays outside.
            (lowest.min(chance), if chance < 2.0 * high { high.max(chance) } else { high })
        };
        let pad = (0.05 * (high - low)).max(0.1);
        let (low, high) = ((low - pad).max(0.0), high + pad);
        let (step_grid, loss_grid) = (round_distance(steps, 8.0), round_distance(high - low, 7.0));
        Plot { steps, step_grid: step_grid.max(1.0), low, high, loss_grid }
    }

    fn x(&self, step: f64) -> f64 {
        LEFT + (RIGHT - LEFT) * step / self.steps
    }

    fn y(&self, loss: f64) -> f64 {
        let share = (loss.clamp(self.low, self.high) - self.low) / (self.high - self.low);
        BOTTOM - (BOTTOM - TOP) * share
    }

    /// The line through the points, as an SVG path.
    fn path(&self, points: &[Point]) -> String {
        let mut path = String::new();
        for (i, &(step, loss)) in points.iter().enumerate() {
            let command = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(step), self.y(loss));
        }
        path
    }
}

/// 1, 2 or 5 times a power of ten, so that `span` has about `parts` of it.
fn round_distance(span: f64, parts: f64) -> f64 {
    let rough = span / parts;
    let power = 10f64.powf(rough.log10().floor());
    power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough).unwrap_or(10.0)
}

/// What stands around the curves: page, title, legend, grid, axes.
fn frame(plot: &Plot, title: &str) -> String {
    let title = escaped(title);
    let mut svg = format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" role="img"
  width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}">
<title>{title}: loss over steps</title>
<style>{STYLE}</style>
<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>
"#
    );
    svg += &text("title", (20.0, 32.0), "start", &title);
    svg += &text("muted", (20.0, 52.0), "start", "loss in nats per token");
    svg += &text("muted", (RIGHT, HEIGHT - 12.0), "end", "steps");
    let decimals = (-plot.loss_grid.log10().floor()).max(0.0) as usize;
    let grid = |loss: f64| loss / plot.loss_grid;
    for i in grid(plot.low).ceil() as u64..=grid(plot.high).floor() as u64 {
        let loss = i as f64 * plot.loss_grid;
        let y = plot.y(loss);
        svg += &format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>\n");
        svg += &text("muted", (LEFT - 10.0, y + 4.0), "end", &format!("{loss:.decimals$}"));
    }
    svg += &format!("<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>\n");
    for i in 0..=(plot.steps / plot.step_grid).floor() as u64 {
        let step = i as f64 * plot.step_grid;
        svg += &text("muted", (plot.x(step), BOTTOM + 20.0), "middle", &thousands(step));
    }
    svg
}

/// `words` that start, end or have their middle at x, standing on the line y.
fn text(class: &str, (x, y): (f64, f64), anchor: &str, words: &str) -> String {
    let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"");
    format!("<text class=\"{class}\" {place}>{words}</text>\n")
}

/// A line, with a dot at each point if there are few.
fn curve(plot: &Plot, class: &str, points: &[Point]) -> String {
    let mut svg = format!("<path class=\"{class}\" d=\"{}\"/>\n", plot.path(points));
    for &(step, loss) in points.iter().filter(|_| points.len() <= FEW) {
        let (x, y) = (plot.x(step), plot.y(loss));
        svg += &format!("<circle class=\"{class}-dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"/>\n");
    }
    svg
}

/// Marks the best validation loss.
fn best_label(plot: &Plot, val: &[Point]) -> String {
    let Some(&(step, loss)) = val.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
        return String::new();
    };
    let (x, y) = (plot.x(step), plot.y(loss));
    let label = format!("best validation {loss:.4} at step {}", thousands(step));
    let width = 6.5 * label.len() as f64;
    let (anchor, from) = match (x - LEFT) / (RIGHT - LEFT) {
        left if left < 0.25 => ("start", x),
        right if right > 0.75 => ("end", x - width),
        _ => ("middle", x - width / 2.0),
    };
    // Above what the curve reaches over the label's width, or below if that is outside.
    let beside = |point: &&Point| (from..from + width).contains(&plot.x(point.0));
    let top = val.iter().filter(beside).map(|point| plot.y(point.1)).fold(y, f64::min);
    let (near, far, line) = match top - 44.0 {
        above if above > TOP => (y - 8.0, above + 10.0, above + 4.0),
        _ => (y + 8.0, y + 26.0, y + 40.0),
    };
    format!("<path class=\"lead\" d=\"M{x:.1} {near:.1}V{far:.1}\"/>\n")
        + &format!("<circle class=\"ring\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\"/>\n")
        + &text("label", (x, line), anchor, &label)
}

/// Names the loss of a model that finds every token equally likely.
fn chance_label(plot: &Plot, chance: f64) -> String {
    let y = plot.y(chance) - 7.0;
    let above = if chance > plot.high { " (above)" } else { "" };
    text("muted label", (RIGHT, y), "end", &format!("chance: ln V = {chance:.2}{above}"))
}

fn legend(train: usize, val: usize) -> String {
    // Widths are a little more than any of the fonts needs; what is left over stands behind a
    // label, not between it and its line.
    let train: &[_] = match train {
        0 => &[],
        1..=FEW => &[("train", "train", 32.0)],
        _ => &[("train", "train (running mean)", 134.0), ("raw", "each step", 60.0)],
    };
    let val = (val > 0).then_some(("val", "validation", 64.0));
    let (mut svg, mut x) = (String::new(), RIGHT);
    for (class, label, width) in val.iter().chain(train) {
        x -= width;
        svg += &format!("<path class=\"{class}\" d=\"M{} 48h18\"/>\n", x - 22.0);
        svg += &text("muted", (x, 52.0), "start", label);
        x -= 46.0;
    }
    svg
}

/// The lowest and highest point of each column, in order: the same picture with few points.
fn extremes(points: &[Point]) -> Vec<Point> {
    if points.len() <= 2 * COLUMNS {
        return points.to_vec();
    }
    let columns = points.chunks(points.len().div_ceil(COLUMNS));
    columns
        .flat_map(|column| {
            let by_loss = |a: &&Point, b: &&Point| a.1.total_cmp(&b.1);
            let low = *column.iter().min_by(by_loss).expect("chunks are not empty");
            let high = *column.iter().max_by(by_loss).expect("chunks are not empty");
            if low.0 <= high.0 { [low, high] } else { [high, low] }
        })
        .collect()
}

/// The running mean at some points. Its window is a fiftieth of the run; towards the start it
/// narrows, so that it does not blur the first fall.
fn running_mean(points: &[Point]) -> Vec<Point> {
    let mut sums = vec![0.0];
    sums.extend(points.iter().scan(0.0, |sum, point| {
        *sum += point.1;
        Some(*sum)
    }));
    let (n, most) = (points.len(), points.len().div_ceil(100));
    let shown = (0..n).step_by(n.div_ceil(COLUMNS)).chain([n - 1]);
    let mean = |i: usize| {
        let (from, to) = (i - most.min(i), (i + most.min(i) + 1).min(n));
        (points[i].0, (sums[to] - sums[from]) / (to - from) as f64)
    };
    shown.map(mean).collect()
}

/// A count as people write it: 10,745,088.
pub fn thousands(n: impl ToString) -> String {
    let digits = n.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Text for an SVG: at most 48 characters, no markup, nothing XML forbids.
fn escaped(text: &str) -> String {
    let mut shown: String = text.chars().filter(|c| !c.is_control()).take(49).collect();
    if shown.chars().count() > 48 {
        shown.pop();
        shown.push('…');
    }
    shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::{Evaluation, StepReport};
    use proptest::{num, option, prelude::*};

    fn step(iter: u64, loss: f32) -> Record {
        let (lr, grad_norm, tokens) = (1e-3, 1.0, 0);
        let (step_ms, tokens_per_s, elapsed_s) = (1.0, 1.0, 1.0);
        let report =
            StepReport { iter, loss, lr, grad_norm, step_ms, tokens_per_s, elapsed_s, tokens };
        Record::Step(report)
    }

    fn evaluation(iter: u64, train_loss: f32, val_loss: Option<f32>) -> Record {
        let (val_bits_per_byte, best) = (None, false);
        Record::Evaluation(Evaluation { iter, train_loss, val_loss, val_bits_per_byte, best })
    }

    /// A step, its loss, and perhaps its validation loss.
    fn rows() -> impl Strategy<Value = Vec<(u64, f32, Option<f32>)>> {
        prop::collection::vec((any::<u64>(), num::f32::ANY, option::of(num::f32::ANY)), 0..60)
    }

    #[test]
    fn counts_have_commas() {
        let shown = [0, 999, 1000, 10_745_088].map(thousands);
        assert_eq!(shown, ["0", "999", "1,000", "10,745,088"]);
    }

    fn numbers_are_finite(svg: &str) {
        let numbers = svg.to_lowercase();
        assert!(!numbers.contains("nan") && !numbers.contains("inf"), "{svg}");
    }

    #[test]
    fn the_best_validation_loss_and_chance_are_named() {
        let losses = [(0, 4.2), (250, 2.0), (500, 1.4697), (750, 1.6)];
        let records: Vec<_> =
            losses.iter().map(|&(iter, loss)| evaluation(iter, loss, Some(loss))).collect();
        let svg = loss_svg("a <b> & c\n", &records, 65);
        assert!(svg.contains("best validation 1.4697 at step 500"), "{svg}");
        assert!(svg.contains("chance: ln V = 4.17<"), "{svg}");
        assert!(svg.contains(">a &lt;b&gt; &amp; c<"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark") && !svg.contains("script"), "{svg}");
    }

    #[test]
    fn a_run_of_any_length_makes_a_picture_of_finite_numbers_and_small_size() {
        for n in [0, 1, 2, 39, 40, 41, 100_000] {
            let records: Vec<_> = (0..n).map(|i| step(i, 4.0 / (1.0 + i as f32))).collect();
            let svg = loss_svg("steps", &records, 65);
            numbers_are_finite(&svg);
            assert!(svg.len() < 30_000, "{n} steps make {} bytes", svg.len());
            assert!(!svg.contains("validation"), "{svg}");
            assert_eq!(svg.contains(">each step<"), n > 40, "a line that is drawn is named");
        }
        let one = loss_svg("one", &[evaluation(0, 4.2, Some(4.2))], 65);
        assert!(one.contains("best validation 4.2000 at step 0"), "{one}");
    }

    #[test]
    fn a_step_far_above_the_rest_does_not_flatten_the_picture() {
        let records: Vec<_> =
            (0..1000).map(|i| step(i, if i == 500 { 1e6 } else { 2.0 })).collect();
        let (train, _) = curves(&records);
        let plot = Plot::around(&train, &running_mean(&train), &[], 65f64.ln());
        assert!(plot.high < 7.0, "{}", plot.high);
    }

    #[test]
    fn the_running_mean_starts_at_the_first_step_and_keeps_a_constant() {
        let points: Vec<Point> =
            (0..1000).map(|i| (i as f64, if i == 0 { 4.0 } else { 2.0 })).collect();
        let mean = running_mean(&points);
        assert_eq!((mean[0], mean[mean.len() - 1]), ((0.0, 4.0), (999.0, 2.0)));
    }

    proptest! {
        #[test]
        fn no_loss_makes_a_coordinate_that_is_not_finite(rows in rows(), v in any::<usize>()) {
            let steps = rows.iter().map(|&(iter, loss, _)| step(iter, loss));
            let evaluations = rows.iter().map(|&(iter, loss, val)| evaluation(iter, loss, val));
            let records: Vec<_> = steps.chain(evaluations).collect();
            numbers_are_finite(&loss_svg("any", &records, v));
        }
    }
}
