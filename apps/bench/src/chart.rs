//! Charts of a report: the rate of each contestant by frame size, by burst or by the number of cores. A chart for each
//! path and each value of the other two.

use std::path::Path;

use plotters::prelude::*;

use crate::chart_file::{ChartArea, ChartError, ChartFault, draw_grid};
use crate::plan::FramePath;
use crate::report::{BenchReport, PointReport};

/// Size of one chart, pixels.
const CHART: (u32, u32) = (760, 340);
/// Number of charts side by side.
const COLUMNS: usize = 2;
/// Colours of the contestants; further ones begin again.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x1f, 0x5f, 0x8b),
    RGBColor(0xc0, 0x39, 0x2b),
    RGBColor(0x2e, 0x8b, 0x57),
    RGBColor(0x8a, 0x5a, 0x1f),
    RGBColor(0x7d, 0x3c, 0x98),
    RGBColor(0x5f, 0x6a, 0x6a),
];

/// Property in which the points of a chart differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Axis {
    Size,
    Burst,
    Cores,
}

impl Axis {
    fn title(self) -> &'static str {
        match self {
            Self::Size => "frame size, bytes with FCS",
            Self::Burst => "burst, frames",
            Self::Cores => "cores",
        }
    }

    fn value(self, report: &PointReport) -> usize {
        match self {
            Self::Size => report.point.frame_bytes as usize,
            Self::Burst => report.point.burst_frames as usize,
            Self::Cores => report.point.path.cores(),
        }
    }
}

/// Points of one chart.
struct Group<'a> {
    title: String,
    axis: Axis,
    points: Vec<&'a PointReport>,
}

/// Draws the report as SVG into the file `path`.
///
/// # Errors
/// [`ChartError`]: the file cannot be written.
pub fn draw(report: &BenchReport, path: &Path) -> Result<(), ChartError> {
    draw_grid(path, CHART, COLUMNS, &groups(&report.points), |group, area| draw_group(area, group))
}

/// Groups the points of a path that have one size or one burst. The axis is the other property, of which the path has
/// more values; where cores are compared, it is their number.
fn groups(points: &[PointReport]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for report in points {
        let point = report.point;
        let of_path = || points.iter().filter(|other| other.point.path == point.path);
        let sizes = of_path().filter(|other| other.point.burst_frames == point.burst_frames).count();
        let bursts = of_path().filter(|other| other.point.frame_bytes == point.frame_bytes).count();
        let (axis, title) = match point.path {
            FramePath::Cores(_) => {
                (Axis::Cores, format!("cores, {} B, burst {}", point.frame_bytes, point.burst_frames))
            }
            path if sizes > bursts => (Axis::Size, format!("{path}, burst {}", point.burst_frames)),
            path => (Axis::Burst, format!("{path}, {} B", point.frame_bytes)),
        };
        match groups.iter_mut().find(|group| group.title == title) {
            Some(group) => group.points.push(report),
            None => groups.push(Group { title, axis, points: vec![report] }),
        }
    }
    for group in &mut groups {
        group.points.sort_by_key(|report| group.axis.value(report));
    }
    groups
}

fn draw_group<'a>(area: &ChartArea<'a>, group: &Group<'_>) -> Result<(), ChartFault<'a>> {
    let Group { title, axis, points } = group;
    let rates = |report: &PointReport, contestant: &str| {
        let absolute = report.absolutes.iter().find(|absolute| absolute.contestant == contestant)?;
        absolute.frames_per_second.map(|rate| [rate.min, rate.median, rate.max].map(|fps| fps / 1e6))
    };
    let mut contestants: Vec<&str> = Vec::new();
    for absolute in points.iter().flat_map(|report| &report.absolutes) {
        if !contestants.contains(&absolute.contestant.as_str()) {
            contestants.push(&absolute.contestant);
        }
    }
    let all =
        points.iter().flat_map(|report| report.absolutes.iter().filter_map(|all| all.frames_per_second));
    let most = all.map(|rate| rate.max / 1e6).fold(0.001, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..points.len() as f64, 0.0..most)?;
    let label = |column: &f64| {
        // A label is in the middle of the column of its point.
        let report = (column.fract() == 0.5).then(|| points.get(*column as usize)).flatten();
        report.map_or_else(String::new, |report| axis.value(report).to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * points.len() + 1)
        .x_label_formatter(&label)
        .x_desc(axis.title())
        .y_desc("Mpps, median and range")
        .draw()?;
    for (&contestant, colour) in contestants.iter().zip(COLOURS.into_iter().cycle()) {
        let at = |column: usize| column as f64 + 0.5;
        let measured: Vec<_> = points
            .iter()
            .enumerate()
            .filter_map(|(column, report)| Some((at(column), rates(report, contestant)?)))
            .collect();
        let medians = measured.iter().map(|(x, [_, median, _])| (*x, *median));
        chart
            .draw_series([PathElement::new(medians.clone().collect::<Vec<_>>(), colour.stroke_width(2))])?
            .label(contestant)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
        chart.draw_series(medians.map(|median| Circle::new(median, 3, colour.filled())))?;
        let ranges = measured.iter().map(|(x, [min, _, max])| [(*x, *min), (*x, *max)]);
        chart.draw_series(ranges.map(|range| PathElement::new(range, colour.stroke_width(1))))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}
