//! Bytes of a session file: plain, or concatenated Zstandard frames.

use std::io::Read;
use std::path::Path;

/// How a file stores its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// JSON lines.
    Plain,
    /// Concatenated Zstandard frames of JSON lines.
    Zstd,
}

/// Endings of file names, the preferred one first: a compressed log that was continued has both files, and the plain
/// one holds more.
pub(super) const ENDINGS: [(&str, Form); 3] =
    [(".jsonl", Form::Plain), (".jsonl.zst", Form::Zstd), (".jsonl.zstd", Form::Zstd)];

impl Form {
    /// The form that a file's name stands for; any other name is read as plain.
    pub fn of(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("zst" | "zstd") => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

impl Form {
    /// Lines as the bytes of a file of this form.
    pub fn encode(self, lines: &[u8]) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Plain => Ok(lines.to_vec()),
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                std::io::Write::write_all(&mut encoder, lines)?;
                encoder.finish()
            }
        }
    }
}

/// A place where bytes are missing from the decoded lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Break {
    /// Offset into the decoded bytes; what follows is from behind the damage.
    pub offset: usize,
    /// What is wrong there.
    pub message: String,
    /// True when nothing readable follows.
    pub last: bool,
}

/// The magic number that a frame begins with (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Decodes frame by frame. A damaged frame gives what its undamaged blocks hold; the frames around it are not touched.
pub(super) fn decode(bytes: &[u8]) -> (Vec<u8>, Vec<Break>) {
    let mut decoded = Vec::new();
    let mut breaks = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let length = zstd::zstd_safe::find_frame_compressed_size(rest).ok().filter(|length| *length <= rest.len());
        let frame = &rest[..length.unwrap_or(rest.len())];
        let failure = read_frame(frame, &mut decoded).err();
        if let (Some(length), None) = (length, &failure) {
            rest = &rest[length..];
            continue;
        }
        let next = length.unwrap_or_else(|| next_frame(rest));
        rest = &rest[next..];
        if !rest.is_empty() && decoded.last().is_some_and(|byte| *byte != b'\n') {
            // Frames begin at a line; a line that the damage cut must not swallow the next one.
            decoded.push(b'\n');
        }
        let reason = failure.map_or_else(|| "it is cut off".to_owned(), |error| error.to_string());
        let message = format!("the Zstandard frame at byte {at} is damaged ({reason})");
        breaks.push(Break { offset: decoded.len(), message, last: rest.is_empty() });
    }
    (decoded, breaks)
}

fn read_frame(frame: &[u8], decoded: &mut Vec<u8>) -> std::io::Result<()> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame)?.single_frame();
    // On failure the blocks before it have been appended.
    let mut piece = [0; 16 * 1024];
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(()),
            length => decoded.extend_from_slice(&piece[..length]),
        }
    }
}

/// Distance to the next place that looks like a frame, or to the end.
fn next_frame(bytes: &[u8]) -> usize {
    bytes.windows(MAGIC.len()).skip(1).position(|window| window == MAGIC).map_or(bytes.len(), |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 3).unwrap()
    }

    #[test]
    fn a_damaged_frame_loses_only_itself() {
        let (a, b, c) = (frame("one\n"), frame("two\n"), frame("three\n"));
        let whole = [a.clone(), b.clone(), c.clone()].concat();
        assert_eq!(decode(&whole), (b"one\ntwo\nthree\n".to_vec(), vec![]));
        for cut in a.len() + b.len() + 1..whole.len() {
            let (decoded, breaks) = decode(&whole[..cut]);
            assert!(decoded.starts_with(b"one\ntwo\n"), "{cut}");
            assert_eq!((breaks.len(), breaks[0].last), (1, true), "{cut}");
        }
        let garbage = [a, b"garbage".to_vec(), c].concat();
        let (decoded, breaks) = decode(&garbage);
        assert_eq!((decoded.as_slice(), breaks.len()), (&b"one\nthree\n"[..], 1));
    }
}
