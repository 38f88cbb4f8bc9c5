//! Unified differences of texts, for a person who has to decide which side is right.

use std::fmt::Write;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line<'a> {
    Both(&'a str),
    Expected(&'a str),
    Found(&'a str),
}

/// What differs, line by line: `-` is expected and missing, `+` was found and is not expected. Empty when nothing is.
#[must_use]
pub fn difference(expected: &str, found: &str) -> String {
    let lines = align(&expected.lines().collect::<Vec<_>>(), &found.lines().collect::<Vec<_>>());
    let changed: Vec<usize> = (0..lines.len()).filter(|at| !matches!(lines[*at], Line::Both(_))).collect();
    let mut text = String::new();
    let mut shown = 0;
    for (at, line) in lines.iter().enumerate() {
        let near = changed.partition_point(|change| change + CONTEXT < at);
        if changed.get(near).is_none_or(|change| *change > at + CONTEXT) {
            continue;
        }
        if at > shown {
            text.push_str("  ⋮\n");
        }
        shown = at + 1;
        let (mark, line) = match line {
            Line::Both(line) => (' ', line),
            Line::Expected(line) => ('-', line),
            Line::Found(line) => ('+', line),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {line}");
    }
    text
}

/// The shortest way from one to the other, by the longest common subsequence.
fn align<'a>(expected: &[&'a str], found: &[&'a str]) -> Vec<Line<'a>> {
    let (rows, columns) = (expected.len(), found.len());
    // Length of the longest common subsequence of what is left from each place.
    let mut common = vec![vec![0_usize; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = match expected[row] == found[column] {
                true => common[row + 1][column + 1] + 1,
                false => common[row + 1][column].max(common[row][column + 1]),
            };
        }
    }
    let (mut row, mut column) = (0, 0);
    let mut lines = Vec::new();
    while row < rows || column < columns {
        if row < rows && column < columns && expected[row] == found[column] {
            lines.push(Line::Both(expected[row]));
            (row, column) = (row + 1, column + 1);
        } else if row < rows && (column == columns || common[row + 1][column] >= common[row][column + 1]) {
            lines.push(Line::Expected(expected[row]));
            row += 1;
        } else {
            lines.push(Line::Found(found[column]));
            column += 1;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown_with_what_stands_around_it() {
        let lines: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        let expected = lines.join("\n");
        assert_eq!(difference(&expected, &expected), "");
        let found = expected.replace("\n9\n", "\nnine\n").replace("\n18", "");
        assert_eq!(
            difference(&expected, &found),
            "  ⋮\n  6\n  7\n  8\n- 9\n+ nine\n  10\n  11\n  12\n  ⋮\n  15\n  16\n  17\n- 18\n  19\n"
        );
        assert_eq!(difference("", "a"), "+ a\n");
        assert_eq!(difference("a", ""), "- a\n");
    }
}
