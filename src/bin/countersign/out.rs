//! Everything that is printed: escaped, as a table on a terminal, as tab-separated lines into a pipe, or as JSON.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal as _, Stdout, Write};

use clap::builder::styling::{AnsiColor, Style as Ansi};
use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use countersign::escape::{classify, still_visible, visible};
use serde::Serialize;
use unicode_width::UnicodeWidthChar as _;

use crate::fail::Outcome;

/// How a word is meant.
#[derive(Clone, Copy)]
pub(crate) enum Style {
    Good,
    Attention,
    Bad,
    Label,
}

pub(crate) struct Out {
    stdout: BufWriter<Stdout>,
    json: bool,
    terminal: bool,
    watched: bool,
    colour: bool,
    colour_err: bool,
}

impl Out {
    pub(crate) fn new(json: bool) -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let terminal = io::stdout().is_terminal();
        Self {
            stdout: BufWriter::new(io::stdout()),
            json,
            terminal,
            watched: terminal && io::stderr().is_terminal() && !json,
            colour: wanted && terminal && !json,
            colour_err: wanted && io::stderr().is_terminal(),
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// A person looks on, and nothing that is printed is for a program.
    pub(crate) fn is_watched(&self) -> bool {
        self.watched
    }

    pub(crate) fn flush(&mut self) -> Outcome {
        Ok(self.stdout.flush()?)
    }

    /// This program's own text, or text that is escaped already.
    pub(crate) fn line(&mut self, text: &str) -> Outcome {
        Ok(writeln!(self.stdout, "{text}")?)
    }

    /// Bytes of this program's own making.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Outcome {
        Ok(self.stdout.write_all(bytes)?)
    }

    pub(crate) fn stderr(&mut self, text: &str) -> Outcome {
        let mut stderr = io::stderr().lock();
        Ok(stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush())?)
    }

    /// One JSON document on one line. Hidden characters stand as JSON's own escapes: the values are exact, and no
    /// control byte reaches a terminal.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Outcome {
        let text = serde_json::to_string(value).map_err(io::Error::other)?;
        self.line(&ascii_hidden(&text))
    }

    /// A table on a terminal, else a header and tab-separated lines. Cells are text from anywhere.
    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<Cell>]) -> Outcome {
        if !self.terminal {
            self.line(&header.join("\t"))?;
            for row in rows {
                let cells: Vec<_> = row.iter().map(Cell::shown).collect();
                self.line(&cells.join("\t"))?;
            }
            return Ok(());
        }
        // A token has to be copied in one piece: where it and legible columns have no room, lines take the table's place.
        let of_plans = header[0] == "plan";
        if of_plans && usize::from(width()) < TOKEN_WIDTH + (header.len() - 1) * COLUMN_WIDTH {
            for row in rows {
                self.cells(row)?;
            }
            return Ok(());
        }
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width());
        table.set_header(header);
        for row in rows {
            table.add_row(row.iter().map(Cell::shown).collect::<Vec<_>>());
        }
        if of_plans && let Some(token) = table.column_mut(0) {
            token.set_constraint(ColumnConstraint::ContentWidth);
        }
        self.line(&table.to_string())
    }

    /// One line of a stream.
    pub(crate) fn cells(&mut self, cells: &[Cell]) -> Outcome {
        let cells: Vec<_> = cells.iter().map(Cell::shown).collect();
        self.line(&cells.join(if self.terminal { "  " } else { "\t" }))
    }

    /// Breaks long lines where the terminal would, and indents what follows: no text of an agent can stand at the start of
    /// a line, as a label does.
    pub(crate) fn wrap(&self, text: &str, indent: usize) -> String {
        if self.terminal { wrap(text, indent, usize::from(width())) } else { text.to_owned() }
    }

    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        paint(self.colour, style, text)
    }

    pub(crate) fn paint_err(&self, style: Style, text: &str) -> String {
        paint(self.colour_err, style, text)
    }
}

/// The columns of a terminal that a plan's token takes in a table.
const TOKEN_WIDTH: usize = 52;
/// The least that another column takes and can be read.
const COLUMN_WIDTH: usize = 8;

/// A cell: what it says, escaped once.
#[derive(Clone)]
pub(crate) struct Cell(String);

impl Cell {
    /// Text as it was given.
    pub(crate) fn text(text: &str) -> Self {
        Self(visible(text).into_owned())
    }

    /// Text that was escaped when it was stored.
    pub(crate) fn stored(text: &str) -> Self {
        Self(still_visible(text).into_owned())
    }

    pub(crate) fn maybe(text: Option<&str>) -> Self {
        Self::text(text.unwrap_or(""))
    }

    pub(crate) fn maybe_stored(text: Option<&str>) -> Self {
        Self::stored(text.unwrap_or(""))
    }

    pub(crate) fn number(number: impl ToString) -> Self {
        Self(number.to_string())
    }

    pub(crate) fn shown(&self) -> String {
        self.0.clone()
    }
}

fn paint(on: bool, style: Style, text: &str) -> String {
    if !on {
        return text.to_owned();
    }
    let ansi = match style {
        Style::Good => Ansi::new().fg_color(Some(AnsiColor::Green.into())),
        Style::Attention => Ansi::new().fg_color(Some(AnsiColor::Yellow.into())).bold(),
        Style::Bad => Ansi::new().fg_color(Some(AnsiColor::Red.into())).bold(),
        Style::Label => Ansi::new().bold(),
    };
    format!("{ansi}{text}{ansi:#}")
}

fn wrap(text: &str, indent: usize, width: usize) -> String {
    let room = width.saturating_sub(indent).max(20);
    let mut wrapped = String::with_capacity(text.len() + text.len() / 8);
    let mut used = 0;
    for character in text.chars() {
        if character == '\n' {
            wrapped.push(character);
            // The lines of a pretty payload bring their own indentation.
            used = 0;
            continue;
        }
        let columns = character.width().unwrap_or(0);
        if used + columns > room {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            used = 0;
        }
        wrapped.push(character);
        used += columns;
    }
    wrapped
}

/// The terminal's width; 100 where it does not say.
fn width() -> u16 {
    rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col).filter(|width| *width > 0).unwrap_or(100)
}

/// JSON text whose hidden characters are JSON's own `\u` escapes. They can stand only inside strings: what is between those is ASCII.
fn ascii_hidden(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if classify(character).is_none() {
            shown.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            // Writing into a String does not fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{ascii_hidden, wrap};

    #[test]
    fn wrapped_text_never_stands_at_the_start_of_a_line() {
        let spoof = format!("harmless{}seal             0000", " ".repeat(80 - 17 - 8));
        assert_eq!(wrap(&spoof, 17, 80).lines().nth(1), Some(&*format!("{}seal             0000", " ".repeat(17))));
        assert_eq!(wrap(&"界".repeat(40), 10, 50).lines().count(), 2);
        assert_eq!(wrap("short", 17, 80), "short");
    }

    #[test]
    fn json_keeps_its_values_and_shows_every_hidden_character_as_an_escape() {
        let text = "a\u{202e}b\u{7f}\u{9b}c\u{e0041}\n";
        let shown = ascii_hidden(&serde_json::to_string(text).unwrap());
        assert_eq!(shown, r#""a\u202eb\u007f\u009bc\udb40\udc41\n""#);
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
    }
}
