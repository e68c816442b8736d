//! Screen of `ringroad top`: a line for each port, and details of the selected port. It fits 80 columns.

use std::collections::VecDeque;

use ratatui::Frame;
use ratatui::crossterm::event::{Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, TableState};

use super::observer::{ObservedInterval, Order, PortRates};
use crate::output::rates::{frame_rate, grouped};

/// Widths of the columns between the port's name and its history.
const RATE_WIDTHS: [u16; 5] = [8, 7, 9, 7, 9];
/// Shortest and longest width of the names, and of the histories, unless the screen is too narrow.
const NAME_WIDTHS: (u16, u16) = (8, 40);
const HISTORY_WIDTHS: (u16, u16) = (8, 120);
/// Maximum number of listed switches with flow tables.
const MOST_FLOW_TABLES: usize = 3;
/// Maximum number of drop causes that are listed for the selected port.
const MOST_CAUSES: usize = 6;

const FOOT: &str = "? help  q quit  ↑↓ select  sort: p port, i in, o out, d drops";
const HELP: [&str; 13] = [
    "↑ ↓ or k j    select a port",
    "p i o d       sort by port, frames in, frames out, drops",
    "?             show or hide this help",
    "q, Esc        quit",
    "",
    "in            frames that the datapath took from the port",
    "out           frames that the datapath put into the port",
    "Gbit/s        L1 bits, as line rate counts: FCS, preamble, gap",
    "drops/s       frames dropped at the port, for any cause",
    "history       frames in and out, an interval in each column;",
    "              the highest is the most of the port's history",
    "",
    "Frames on pipes pass between the programs and are not seen.",
];

/// The shown values, and their layout.
pub(super) struct View {
    interval: ObservedInterval,
    order: Order,
    /// Name of the selected port; `None` selects the first port.
    selected: Option<String>,
    table: TableState,
    help: bool,
}

impl View {
    pub(super) fn new(interval: ObservedInterval, order: Order) -> Self {
        let mut view = Self {
            interval: ObservedInterval::default(),
            order,
            selected: None,
            table: TableState::default(),
            help: false,
        };
        view.show(interval);
        view
    }

    /// Sets the interval to show.
    pub(super) fn show(&mut self, interval: ObservedInterval) {
        self.interval = interval;
        self.sort(self.order);
    }

    fn sort(&mut self, order: Order) {
        self.order = order;
        order.sort(&mut self.interval.ports);
    }

    /// Returns the index of the selected port in the list.
    fn selected_index(&self) -> usize {
        let is_selected = |port: &PortRates| Some(&port.name) == self.selected.as_ref();
        self.interval.ports.iter().position(is_selected).unwrap_or(0)
    }

    fn select(&mut self, selected_index: usize) {
        let ports = &self.interval.ports;
        self.selected =
            ports.get(selected_index.min(ports.len().saturating_sub(1))).map(|port| port.name.clone());
    }

    /// Handles a key. Returns whether the key ends the program. In raw mode Ctrl-C arrives as a key.
    pub(super) fn is_ended_by(&mut self, event: &Event) -> bool {
        let Event::Key(key) = event else { return false };
        if key.kind != KeyEventKind::Press {
            return false;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
            KeyCode::Char('?') => self.help = !self.help,
            KeyCode::Esc | KeyCode::Char('q') if self.help => self.help = false,
            KeyCode::Esc | KeyCode::Char('q') => return true,
            KeyCode::Char('p') => self.sort(Order::Port),
            KeyCode::Char('i') => self.sort(Order::In),
            KeyCode::Char('o') => self.sort(Order::Out),
            KeyCode::Char('d') => self.sort(Order::Drops),
            KeyCode::Down | KeyCode::Char('j') => self.select(self.selected_index() + 1),
            KeyCode::Up | KeyCode::Char('k') => self.select(self.selected_index().saturating_sub(1)),
            _ => {}
        }
        false
    }

    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let selected_index = self.selected_index();
        let selected = self.interval.ports.get(selected_index);
        let about = selected.map_or_else(Vec::new, about);
        let about_lines = u16::try_from(about.len()).unwrap_or(u16::MAX);
        let flow_tables = self.interval.flow_tables.iter().take(MOST_FLOW_TABLES);
        let flow_tables: Vec<_> = flow_tables.map(|rates| Line::raw(rates.words())).collect();
        let [head, tables, body, below, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(flow_tables.len() as u16),
            Constraint::Min(3),
            Constraint::Length(about_lines.saturating_add(1)),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let ports = &self.interval.ports;
        let sum = |rate: fn(&PortRates) -> f64| ports.iter().map(rate).sum::<f64>();
        let title = format!(
            "ringroad top: {}, {:.3} Mpps in, {:.3} Mpps out, {:.0} drops/s",
            if ports.len() == 1 { "1 port".to_owned() } else { format!("{} ports", ports.len()) },
            sum(|port| port.received.rate_fps) / 1e6,
            sum(|port| port.delivered.rate_fps) / 1e6,
            sum(|port| port.drops_fps),
        );
        frame.render_widget(Line::styled(title, Style::new().add_modifier(Modifier::BOLD)), head);
        frame.render_widget(Paragraph::new(flow_tables), tables);
        self.table.select((!ports.is_empty()).then_some(selected_index));
        let table = table(ports, self.order, body.width);
        frame.render_stateful_widget(table, body, &mut self.table);
        let title = selected.map_or("no ports", |port| &port.name);
        let block = Block::new().borders(Borders::TOP).title(format!(" {title} "));
        frame.render_widget(Paragraph::new(about).block(block), below);
        frame.render_widget(Line::raw(FOOT), foot);
        if self.help {
            draw_help(frame);
        }
    }
}

/// Makes the lines of all ports.
fn table(ports: &[PortRates], order: Order, width: u16) -> Table<'static> {
    let longest = ports.iter().map(|port| port.name.chars().count()).max().unwrap_or(0);
    let gaps = u16::try_from(RATE_WIDTHS.len() + 1).unwrap_or(u16::MAX);
    let left = width.saturating_sub(RATE_WIDTHS.iter().sum::<u16>() + gaps);
    let most = left.saturating_sub(HISTORY_WIDTHS.0).clamp(NAME_WIDTHS.0, NAME_WIDTHS.1);
    let name_width = u16::try_from(longest).unwrap_or(u16::MAX).clamp(NAME_WIDTHS.0, most);
    let history_width = left.saturating_sub(name_width).min(HISTORY_WIDTHS.1);
    let mark = |heading: &str, is_order: bool| format!("{heading}{}", if is_order { "▼" } else { "" });
    let headings = [
        mark("port", order == Order::Port),
        mark("Mpps in", order == Order::In),
        "Gbit/s".to_owned(),
        mark("Mpps out", order == Order::Out),
        "Gbit/s".to_owned(),
        mark("drops/s", order == Order::Drops),
        "history".to_owned(),
    ];
    let rows = ports.iter().map(|port| {
        row([
            shortened(&port.name, usize::from(name_width)),
            format!("{:.3}", port.received.rate_fps / 1e6),
            format!("{:.3}", port.received.l1_gbps),
            format!("{:.3}", port.delivered.rate_fps / 1e6),
            format!("{:.3}", port.delivered.l1_gbps),
            format!("{:.0}", port.drops_fps),
            sparkline(&port.history_fps, usize::from(history_width)),
        ])
    });
    let widths = std::iter::once(name_width).chain(RATE_WIDTHS).chain([history_width]);
    Table::new(rows, widths.map(Constraint::Length))
        .header(row(headings).style(Style::new().add_modifier(Modifier::UNDERLINED)))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .column_spacing(1)
}

/// Makes a row: name and history flush left, rates flush right.
fn row(cells: [String; 7]) -> Row<'static> {
    let lines = cells.into_iter().enumerate().map(|(column, text)| {
        let line = Line::raw(text);
        if (1..=RATE_WIDTHS.len()).contains(&column) { line.right_aligned() } else { line }
    });
    Row::new(lines)
}

/// Shortens a name to at most `width` characters.
fn shortened(name: &str, width: usize) -> String {
    if name.chars().count() <= width {
        return name.to_owned();
    }
    name.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Draws the newest rates, one character each: blank for 0, the tallest for the maximum.
fn sparkline(history_fps: &VecDeque<f64>, width: usize) -> String {
    const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = history_fps.iter().copied().fold(0.0, f64::max);
    let newest = history_fps.iter().skip(history_fps.len().saturating_sub(width));
    newest
        .map(|rate_fps| {
            if *rate_fps <= 0.0 {
                return ' ';
            }
            let level = (rate_fps / most * LEVELS.len() as f64).ceil() as usize;
            LEVELS[level.clamp(1, LEVELS.len()) - 1]
        })
        .collect()
}

/// Makes the details that have no room in the list: totals, the history's maximum, drops by cause.
fn about(port: &PortRates) -> Vec<Line<'static>> {
    let queues = if port.queues == 1 { "1 queue".to_owned() } else { format!("{} queues", port.queues) };
    let most_fps = port.history_fps.iter().copied().fold(0.0, f64::max);
    let mut lines = vec![
        Line::raw(format!("{}, {queues}, at most {} in and out", port.kind, frame_rate(most_fps))),
        Line::raw(format!(
            "{} frames in, {} out",
            grouped(port.received_frames_total),
            grouped(port.delivered_frames_total)
        )),
    ];
    let mut causes: Vec<_> = port.drops_total.iter().filter(|(_, frames)| **frames > 0).collect();
    causes.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    if causes.is_empty() {
        lines.push(Line::raw("no drops"));
    }
    for (cause, total) in causes.iter().take(MOST_CAUSES) {
        let now = port.drops.get(*cause).copied().unwrap_or(0);
        let text = format!("dropped {cause:<14} {:>15} in all, {:>11} now", grouped(**total), grouped(now));
        lines.push(Line::raw(text));
    }
    if let Some(more) = causes.len().checked_sub(MOST_CAUSES).filter(|more| *more > 0) {
        lines.push(Line::raw(format!("and {more} causes more: ringroad list")));
    }
    lines
}

fn draw_help(frame: &mut Frame<'_>) {
    let longest = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0);
    let size = |inner: usize| u16::try_from(inner + 2).unwrap_or(u16::MAX);
    let screen = frame.area();
    let (width, height) = (size(longest).min(screen.width), size(HELP.len()).min(screen.height));
    let area = Rect {
        x: screen.x + (screen.width - width) / 2,
        y: screen.y + (screen.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::raw(*line)).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" ringroad top ")), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyEvent;

    use super::*;
    use crate::commands::top::observer::tests::interval;

    fn screen(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| view.draw(frame)).unwrap();
        terminal.backend().to_string()
    }

    fn press(view: &mut View, code: KeyCode) -> bool {
        view.is_ended_by(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
    }

    /// Makes a view of ports `vale0:0`, `vale0:1`, ..., the first with the least drops.
    fn view(ports: u32) -> View {
        let port = |number: u32| {
            let port = interval().ports.remove(0);
            PortRates { name: format!("vale0:{number}"), drops_fps: number.into(), ..port }
        };
        let ports = (0..ports).map(port).collect();
        View::new(ObservedInterval { interval_s: 2.0, ports, ..ObservedInterval::default() }, Order::Port)
    }

    #[test]
    fn a_screen_of_80_columns_has_the_rates_the_history_and_the_drops_by_cause() {
        let screen = screen(&mut View::new(interval(), Order::Port), 80, 24);
        for part in [
            "1 port, 1.000 Mpps in, 0.000 Mpps out, 10 drops/s",
            "vale0: 12 345 flows, 1 of 2 controllers, 7 packet-ins/s",
            "port▼",
            "drops/s",
            "history",
            "vale0:a",
            "0.672",
            "█",
            "2 001 000 frames in, 0 out",
            "dropped no_space",
            "25 in all",
            "20 now",
            "d drops",
        ] {
            assert!(screen.contains(part), "{part} is missing in\n{screen}");
        }
    }

    #[test]
    fn keys_sort_the_ports_and_the_selection_stays_on_its_port() {
        let mut view = view(3);
        press(&mut view, KeyCode::Down);
        assert_eq!((view.selected_index(), view.selected.as_deref()), (1, Some("vale0:1")));
        press(&mut view, KeyCode::Up);
        assert_eq!(view.selected.as_deref(), Some("vale0:0"));
        press(&mut view, KeyCode::Char('d'));
        assert_eq!(view.interval.ports[0].name, "vale0:2");
        assert_eq!((view.selected_index(), view.selected.as_deref()), (2, Some("vale0:0")));
        press(&mut view, KeyCode::Down);
        assert_eq!(view.selected_index(), 2, "there is no port below the last");
        assert!(screen(&mut view, 80, 24).contains("drops/s▼"));
    }

    #[test]
    fn a_selected_port_below_the_screen_is_scrolled_to() {
        let mut view = view(60);
        view.select(59);
        let screen = screen(&mut view, 80, 24);
        // `vale0:9` is the last name in alphabetical order. It is in the list and above the details of the selected
        // port.
        assert_eq!(screen.lines().filter(|line| line.contains("vale0:9 ")).count(), 2, "{screen}");
    }

    #[test]
    fn help_opens_and_closes_and_q_ends_only_without_it() {
        let mut view = view(1);
        press(&mut view, KeyCode::Char('?'));
        assert!(screen(&mut view, 80, 24).contains("show or hide this help"));
        assert!(!press(&mut view, KeyCode::Char('q')));
        assert!(!screen(&mut view, 80, 24).contains("show or hide this help"));
        assert!(press(&mut view, KeyCode::Char('q')));
    }

    #[test]
    fn narrow_screens_and_no_ports_are_drawn() {
        for (width, height) in [(1, 1), (20, 4), (40, 10)] {
            let mut view = view(3);
            press(&mut view, KeyCode::Char('?'));
            screen(&mut view, width, height);
        }
        let mut view = View::new(ObservedInterval::default(), Order::In);
        press(&mut view, KeyCode::Down);
        assert!(screen(&mut view, 80, 24).contains("no ports"));
    }

    #[test]
    fn a_sparkline_shows_the_newest_rates_against_the_most() {
        let history = VecDeque::from([8.0, 0.0, 1.0, 4.0]);
        assert_eq!(sparkline(&history, 10), "█ ▁▄");
        assert_eq!(sparkline(&history, 2), "▁▄");
        assert_eq!(sparkline(&VecDeque::new(), 5), "");
    }

    #[test]
    fn a_long_name_is_cut_where_its_column_ends() {
        assert_eq!(shortened("pcap:/captures/long.pcap", 8), "pcap:/c…");
        assert_eq!(shortened("vale0:a", 8), "vale0:a");
    }
}
