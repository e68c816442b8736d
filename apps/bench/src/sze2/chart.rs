//! Charts of the tables, one for each mode, burst and number of queues: bars by frame size, as in the documents that
//! described the driver.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::Driver;
use super::plan::{ForwardMode, Sze2Point};
use super::report::{Sze2Report, Sze2Row};

/// Size of one chart, pixels.
const CHART: (u32, u32) = (760, 340);
/// Number of charts side by side.
const COLUMNS: usize = 2;
/// Colours of the drivers, in their order; the two variants of a driver have similar colours.
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x1f, 0x5f, 0x8b),
    RGBColor(0x7f, 0xb2, 0xd1),
    RGBColor(0x8a, 0x5a, 0x1f),
    RGBColor(0xd6, 0xb0, 0x7a),
];

/// Error of making the chart.
#[derive(Debug, thiserror::Error)]
#[error("drawing {path}: {reason}")]
pub struct ChartError {
    path: String,
    /// Text of the error.
    reason: String,
}

/// Draws the report as SVG into the file `path`.
///
/// # Errors
/// [`ChartError`]: the file cannot be written.
pub fn draw(report: &Sze2Report, path: &Path) -> Result<(), ChartError> {
    let failed = |reason: String| ChartError { path: path.display().to_string(), reason };
    let groups = groups(&report.rows);
    let rows = groups.len().div_ceil(COLUMNS).max(1);
    let columns = groups.len().clamp(1, COLUMNS);
    let size = (CHART.0 * columns as u32, CHART.1 * rows as u32);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE).map_err(|error| failed(error.to_string()))?;
    for (area, group) in root.split_evenly((rows, columns)).iter().zip(&groups) {
        draw_group(area, group).map_err(|error| failed(error.to_string()))?;
    }
    root.present().map_err(|error| failed(error.to_string()))
}

/// Groups rows that differ only in the frame size.
fn groups(rows: &[Sze2Row]) -> Vec<Vec<&Sze2Row>> {
    let mut groups: Vec<Vec<&Sze2Row>> = Vec::new();
    let kind = |row: &Sze2Row| (row.point.mode, row.point.burst_frames, row.point.queues);
    for row in rows {
        match groups.iter_mut().find(|group| group.first().is_some_and(|first| kind(first) == kind(row))) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

type Failed<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn draw_group<'a>(area: &DrawingArea<SVGBackend<'a>, Shift>, group: &[&Sze2Row]) -> Result<(), Failed<'a>> {
    let Some(Sze2Point { mode, burst_frames, queues, .. }) = group.first().map(|row| row.point) else {
        return Ok(());
    };
    let cycles =
        |row: &Sze2Row, driver: usize| row.drivers.get(driver)?.cycles_per_frame.map(|cycles| cycles.median);
    let all = group.iter().flat_map(|row| {
        let published = row.drivers.iter().filter_map(|driver| driver.published_cycles);
        (0..Driver::ALL.len()).filter_map(|driver| cycles(row, driver)).chain(published)
    });
    let most = all.fold(1.0, f64::max) * 1.1;
    let mut chart = ChartBuilder::on(area)
        .caption(title(mode, burst_frames, queues), ("sans-serif", 16))
        .margin(8)
        .x_label_area_size(30)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..group.len() as f64, 0.0..most)?;
    let size_at = |column: &f64| {
        // Labels are in the middle of each group of bars.
        let row = (column.fract() == 0.5).then(|| group.get(*column as usize)).flatten();
        row.map_or_else(String::new, |row| row.point.frame_bytes.to_string())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * group.len() + 1)
        .x_label_formatter(&size_at)
        .x_desc("frame size, bytes with FCS")
        .y_desc("cycles for a frame")
        .y_label_formatter(&|cycles| format!("{cycles:.0}"))
        .draw()?;
    let width = 0.8 / Driver::ALL.len() as f64;
    for (number, (driver, colour)) in Driver::ALL.iter().zip(COLOURS).enumerate() {
        let bars = group.iter().enumerate().filter_map(|(column, row)| {
            let left = column as f64 + 0.1 + number as f64 * width;
            Some(Rectangle::new([(left, 0.0), (left + width * 0.92, cycles(row, number)?)], colour.filled()))
        });
        chart
            .draw_series(bars)?
            .label(driver.name())
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
    }
    let published = group.iter().enumerate().flat_map(|(column, row)| {
        let marks = row.drivers.iter().enumerate();
        marks.filter_map(move |(number, driver)| {
            let left = column as f64 + 0.1 + number as f64 * width;
            let cycles = driver.published_cycles?;
            Some(PathElement::new([(left, cycles), (left + width * 0.92, cycles)], BLACK.stroke_width(2)))
        })
    });
    chart
        .draw_series(published)?
        .label("published, of the card")
        .legend(|(x, y)| PathElement::new([(x, y), (x + 12, y)], BLACK.stroke_width(2)));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK.mix(0.3))
        .draw()
}

fn title(mode: ForwardMode, burst_frames: u32, queues: u16) -> String {
    format!("{}, burst {burst_frames}, {queues} queue(s)", mode.name())
}
