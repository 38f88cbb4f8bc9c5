//! What commands print.

use std::io::{self, Write};

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

/// A table without lines, for a terminal or for `grep`.
pub(super) fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    text.lines().map(|line| format!("{}\n", line.trim())).collect()
}

/// Text without the control characters that could steer a terminal; line ends and tabs stay.
pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// Text on one line, without control characters.
pub(super) fn plain(text: &str) -> String {
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
    fn what_a_model_says_cannot_steer_the_terminal() {
        assert_eq!(shown("a\x1b[31m\tb\nc\u{7}"), "a[31m\tb\nc");
        assert_eq!(clip("one\n two\x1b three", 7), "one two …");
    }
}
