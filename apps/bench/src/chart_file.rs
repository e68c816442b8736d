//! A file of charts: a grid of charts of one size.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;

/// Error of writing the file.
#[derive(Debug, thiserror::Error)]
#[error("drawing {path}: {reason}")]
pub struct ChartError {
    path: String,
    /// Text of the error.
    reason: String,
}

/// Area of one chart.
pub(crate) type ChartArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Error of drawing one chart.
pub(crate) type ChartFault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

/// Draws each of `charts` by `draw` as SVG into the file `path`, at most `columns` side by side. `size` is that of one
/// chart, pixels.
///
/// # Errors
/// [`ChartError`]: the file cannot be written.
pub(crate) fn draw_grid<'a, T>(
    path: &'a Path,
    size: (u32, u32),
    columns: usize,
    charts: &[T],
    draw: impl Fn(&T, &ChartArea<'a>) -> Result<(), ChartFault<'a>>,
) -> Result<(), ChartError> {
    let failed =
        |error: ChartFault<'_>| ChartError { path: path.display().to_string(), reason: error.to_string() };
    let rows = charts.len().div_ceil(columns).max(1);
    let columns = charts.len().clamp(1, columns);
    let root = SVGBackend::new(path, (size.0 * columns as u32, size.1 * rows as u32)).into_drawing_area();
    root.fill(&WHITE).map_err(failed)?;
    for (area, chart) in root.split_evenly((rows, columns)).iter().zip(charts) {
        draw(chart, area).map_err(failed)?;
    }
    root.present().map_err(failed)
}
