//! What commands print.

use std::io::{self, Write};

use unicode_width::UnicodeWidthStr;

use super::CommandError;

/// Writes a text to stdout. A reader that has gone away (`dsh models | head`) is no failure.
pub(super) fn print(text: &str) -> Result<(), CommandError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(CommandError::failed_text(format!("stdout cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes a value to stdout as indented JSON.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), CommandError> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| CommandError::failed_text(format!("the answer cannot be written as JSON: {error}")))?;
    print(&(text + "\n"))
}

/// A table without lines, for a terminal or for `grep`. Cells have one line each.
pub(super) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(columns(cell));
        }
    }
    let mut text = String::with_capacity(rows.len() * (widths.iter().sum::<usize>() + 2 * N));
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - columns(cell) + 2));
        }
        // An empty last cell leaves no blanks behind.
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// How many columns of a terminal a text takes.
fn columns(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.width() }
}

/// Text without the control characters that could steer a terminal; line ends and tabs stay.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Text on one line, without control characters.
pub(super) fn plain(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    if text.bytes().all(is_plain) && !text.contains("  ") && text.trim_matches(' ').len() == text.len() {
        return text.to_owned();
    }
    shown(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Text on one line of at most `width` characters.
pub(super) fn clip(text: &str, width: usize) -> String {
    let text = plain(text);
    match text.char_indices().nth(width) {
        Some((end, _)) => format!("{} …", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_on_a_terminal() {
        let rows = [["漢字", "1", ""], ["b", "22", "x y"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(["A", "NO", "T"], rows), "A     NO  T\n漢字  1\nb     22  x y\n");
    }

    #[test]
    fn a_text_on_one_line_has_neither_blanks_around_it_nor_two_in_a_row() {
        for text in ["a  b", " a b", "a b ", "a\tb", "a\n b", "a b", "a \x1bb"] {
            assert_eq!(plain(text), "a b", "{text:?}");
        }
        assert_eq!(plain(""), "");
    }

    #[test]
    fn what_a_model_says_cannot_steer_the_terminal() {
        assert_eq!(shown("a\x1b[31m\tb\nc\u{7}"), "a[31m\tb\nc");
        assert_eq!(clip("one\n two\x1b three", 7), "one two …");
    }
}
