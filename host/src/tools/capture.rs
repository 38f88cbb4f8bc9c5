//! Keeps the beginning and the end of a long output.

/// Bytes that are kept of the beginning.
const HEAD: usize = 8 * 1024;
/// Bytes that are kept of the end.
const TAIL: usize = 24 * 1024;

/// Collects output of any length in bounded memory.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: u64,
}

impl Capture {
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = HEAD - self.head.len();
        if room > 0 {
            let (head, rest) = bytes.split_at(room.min(bytes.len()));
            self.head.extend_from_slice(head);
            bytes = rest;
        }
        self.tail.extend_from_slice(bytes);
        // Shrinking only at twice the size keeps the cost of a byte constant.
        if self.tail.len() > 2 * TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }

    /// The output as text: invalid UTF-8 reads as U+FFFD, NUL bytes are left out, a gap is named with its size.
    pub(super) fn into_text(mut self) -> String {
        if self.tail.len() > TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
        let kept = (self.head.len() + self.tail.len()) as u64;
        let mut text = if kept == self.total {
            self.head.extend_from_slice(&self.tail);
            String::from_utf8_lossy(&self.head).into_owned()
        } else {
            format!(
                "{}\n[… {} bytes of output left out …]\n{}",
                String::from_utf8_lossy(&self.head),
                self.total - kept,
                String::from_utf8_lossy(&self.tail)
            )
        };
        text.retain(|c| c != '\0');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_output_is_kept_whole() {
        let mut capture = Capture::default();
        capture.push(b"a\0b\xff");
        assert_eq!(capture.into_text(), "ab\u{fffd}");
    }

    #[test]
    fn long_output_keeps_both_ends_and_names_the_gap() {
        let mut capture = Capture::default();
        capture.push(b"begin");
        for _ in 0..1000 {
            capture.push(&[b'x'; 777]);
        }
        capture.push(b"end");
        let total = 5 + 777_000 + 3;
        let text = capture.into_text();
        assert!(text.starts_with("begin") && text.ends_with("end"));
        assert!(text.contains(&format!("[… {} bytes of output left out …]", total - HEAD - TAIL)), "{}", text.len());
    }
}
