//! Charts of the tables, as in the documents that described the driver: for each mode the cycles of one queue, for each
//! burst the rates of all layouts beside line rate, and the data rates. Many sizes are lines instead of bars.

use std::path::Path;

use plotters::prelude::*;

use super::Driver;
use super::plan::{ForwardMode, QueueLayout};
use super::report::{DriverAtPoint, Sze2Report, Sze2Row};
use crate::chart_file::{ChartArea, ChartError, ChartFault, draw_grid};

/// Size of one chart, pixels.
const CHART: (u32, u32) = (960, 380);
/// Greatest number of sizes with bars.
const MOST_BARS: usize = 16;
/// Number of charts side by side.
const COLUMNS: usize = 3;
/// Colour of line rate.
const LINE_RATE: RGBColor = RGBColor(0xb0, 0xb0, 0xb0);

/// A chart of bars, by frame size.
struct BarChart {
    title: String,
    unit: &'static str,
    /// Frame sizes, bytes.
    sizes: Vec<u32>,
    series: Vec<BarSeries>,
}

/// Bars of one colour.
struct BarSeries {
    name: String,
    colour: RGBColor,
    /// Value at each size, and the published value.
    values: Vec<(Option<f64>, Option<f64>)>,
}

/// Draws the report as SVG into the file `path`.
///
/// # Errors
/// [`ChartError`]: the file cannot be written.
pub fn draw(report: &Sze2Report, path: &Path) -> Result<(), ChartError> {
    let draw = if report.plan.sizes_bytes.len() > MOST_BARS { BarChart::draw_lines } else { BarChart::draw };
    draw_grid(path, CHART, COLUMNS, &charts(report), draw)
}

fn charts(report: &Sze2Report) -> Vec<BarChart> {
    let plan = &report.plan;
    let of_one = |row: &Sze2Row| row.point.layout == QueueLayout::one_thread(1);
    let one_queue_a_core = |row: &Sze2Row| row.point.layout.threads_per_core == 1;
    let mut charts = Vec::new();
    for &mode in &plan.modes {
        let chart = |what: &str, unit| BarChart {
            title: format!("{}: {what}", mode.name()),
            unit,
            sizes: plan.sizes_bytes.clone(),
            series: Vec::new(),
        };
        let mut cycles = chart("cycles for a frame, one queue", "cycles in the driver's calls");
        cycles.add(report, mode, None, of_one, |_, driver| {
            (driver.cycles_per_frame.map(|cycles| cycles.median), driver.published_cycles)
        });
        charts.push(cycles);
        for &burst in &plan.bursts_frames {
            let mut rates = chart(&format!("rates, burst {burst}"), "Mpps");
            let line_rates = plan.sizes_bytes.iter().map(|&size| {
                let row = report.rows.iter().find(|row| row.point.frame_bytes == size);
                (row.map(|row| row.line_rate_fps / 1e6), None)
            });
            let values = line_rates.collect();
            rates.series.push(BarSeries { name: "100G".to_owned(), colour: LINE_RATE, values });
            rates.add(
                report,
                mode,
                Some(burst),
                |_| true,
                |row, driver| {
                    let published =
                        driver.published_line_percent.map(|percent| percent / 100.0 * row.line_rate_fps);
                    (rate(driver).map(|fps| fps / 1e6), published.map(|fps| fps / 1e6))
                },
            );
            charts.push(rates);
        }
        let mut data = chart("data rates, one queue a core", "Gbit/s with preamble and gap");
        data.add(report, mode, None, one_queue_a_core, |row, driver| {
            (rate(driver).map(|fps| fps * row.point.line_bits() / 1e9), None)
        });
        charts.push(data);
    }
    charts
}

/// Rate of a driver: measured, or projected where the machine has too few processors.
fn rate(driver: &DriverAtPoint) -> Option<f64> {
    if driver.is_projected {
        return driver.projected_frames_per_s;
    }
    driver.frames_per_s.map(|fps| fps.median)
}

impl BarChart {
    /// Adds a series for each driver, burst and layout of `mode` in the rows that are `wanted`.
    fn add(
        &mut self,
        report: &Sze2Report,
        mode: ForwardMode,
        burst: Option<u32>,
        wanted: impl Fn(&Sze2Row) -> bool,
        value: impl Fn(&Sze2Row, &DriverAtPoint) -> (Option<f64>, Option<f64>),
    ) {
        let plan = &report.plan;
        let rows = report.rows.iter().filter(|row| {
            row.point.mode == mode && burst.is_none_or(|burst| row.point.burst_frames == burst) && wanted(row)
        });
        let rows: Vec<_> = rows.collect();
        let mut kinds: Vec<_> = rows
            .iter()
            .flat_map(|row| {
                row.drivers.iter().map(|driver| (driver, row.point.burst_frames, row.point.layout))
            })
            .map(|(driver, burst, layout)| (driver.driver, burst, layout))
            .collect();
        let mut seen = Vec::new();
        kinds.retain(|kind| {
            let is_new = !seen.contains(kind);
            seen.push(*kind);
            is_new
        });
        kinds.sort_by_key(|(driver, ..)| Driver::ALL.iter().position(|other| other == driver));
        let count = kinds.len();
        for (number, (driver, burst_frames, layout)) in kinds.into_iter().enumerate() {
            let values = self.sizes.iter().map(|&size| {
                let row = rows.iter().find(|row| {
                    let point = row.point;
                    (point.frame_bytes, point.burst_frames, point.layout) == (size, burst_frames, layout)
                });
                let found =
                    row.and_then(|row| Some((row, row.drivers.iter().find(|entry| entry.driver == driver)?)));
                found.map_or((None, None), |(row, entry)| value(row, entry))
            });
            let values: Vec<_> = values.collect();
            let mut name = driver.name().to_owned();
            if burst.is_none() && plan.bursts_frames.len() > 1 {
                name += &format!(", burst {burst_frames}");
            }
            if plan.layouts.len() > 1 {
                name += &format!(", {}", layout.name());
            }
            self.series.push(BarSeries { name, colour: colour(number, count), values });
        }
    }

    /// Greatest value of the axis.
    fn most(&self) -> f64 {
        let all = self.series.iter().flat_map(|series| &series.values);
        all.flat_map(|(value, published)| [*value, *published]).flatten().fold(1.0, f64::max) * 1.1
    }

    /// Draws a line for each series. A size without a value has no point.
    fn draw_lines<'a>(&self, area: &ChartArea<'a>) -> Result<(), ChartFault<'a>> {
        let (least, most) =
            self.sizes.iter().fold((u32::MAX, 1), |(least, most), &size| (least.min(size), most.max(size)));
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(least..most, 0.0..self.most())?;
        chart
            .configure_mesh()
            .x_desc("frame size, bytes with FCS")
            .y_desc(self.unit)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        for BarSeries { name, colour, values } in &self.series {
            let colour = *colour;
            let points =
                self.sizes.iter().zip(values).filter_map(|(&size, (value, _))| Some((size, (*value)?)));
            let line = PathElement::new(points.collect::<Vec<_>>(), colour.stroke_width(2));
            chart
                .draw_series([line])?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 12, y)], colour.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .border_style(BLACK.mix(0.3))
            .draw()
    }

    fn draw<'a>(&self, area: &ChartArea<'a>) -> Result<(), ChartFault<'a>> {
        let most = self.most();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(30)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..self.sizes.len() as f64, 0.0..most)?;
        let size_at = |column: &f64| {
            // Labels are in the middle of each group of bars.
            let size = (column.fract() == 0.5).then(|| self.sizes.get(*column as usize)).flatten();
            size.map_or_else(String::new, u32::to_string)
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_labels(2 * self.sizes.len() + 1)
            .x_label_formatter(&size_at)
            .x_desc("frame size, bytes with FCS")
            .y_desc(self.unit)
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        let width = 0.8 / self.series.len().max(1) as f64;
        let edges = |column: usize, number: usize| {
            let left = column as f64 + 0.1 + number as f64 * width;
            (left, left + width * 0.92)
        };
        for (number, BarSeries { name, colour, values }) in self.series.iter().enumerate() {
            let colour = *colour;
            let bars = values.iter().enumerate().filter_map(|(column, (value, _))| {
                let (left, right) = edges(column, number);
                Some(Rectangle::new([(left, 0.0), (right, (*value)?)], colour.filled()))
            });
            chart
                .draw_series(bars)?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], colour.filled()));
        }
        let series = self.series.iter().enumerate();
        let published = series.flat_map(|(number, series)| {
            series.values.iter().enumerate().filter_map(move |(column, (_, published))| {
                let (left, right) = edges(column, number);
                let published = (*published)?;
                Some(PathElement::new([(left, published), (right, published)], BLACK.stroke_width(2)))
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
}

/// Colour number `number` of `count`: as far apart as possible, every other one lighter.
fn colour(number: usize, count: usize) -> RGBColor {
    let lightness = if number.is_multiple_of(2) { 0.35 } else { 0.65 };
    let (red, green, blue) = HSLColor(number as f64 / count.max(1) as f64, 0.55, lightness).rgb();
    RGBColor(red, green, blue)
}
