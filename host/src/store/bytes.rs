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
    /// How the name of a new file ends.
    pub const fn ending(self) -> &'static str {
        match self {
            Self::Plain => ".jsonl",
            Self::Zstd => ".jsonl.zst",
        }
    }

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

/// Where a compressed file can be continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Length of the file in bytes up to the last block that ends a line, or up to the end of the last whole frame.
    pub length: usize,
    /// Length of the decoded lines up to there.
    pub decoded: usize,
    /// True when a frame is unfinished there; [`CLOSING`] ends it.
    pub open: bool,
}

/// Decoded lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded {
    pub lines: Vec<u8>,
    pub breaks: Vec<Break>,
    /// `None` when the end is damaged in a way that a writer which died does not explain.
    pub tail: Option<Tail>,
}

/// The magic number that a frame begins with (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// An empty raw block with the mark of the last one (RFC 8878, section 3.1.1.2): it ends a frame without checksum,
/// whatever wrote the blocks before it.
pub(super) const CLOSING: [u8; 3] = [1, 0, 0];

/// The largest block (RFC 8878, section 3.1.1.2.4).
const MAX_BLOCK: usize = 128 * 1024;

/// Decodes frame by frame. A damaged frame gives what its undamaged blocks hold; the frames around it are not touched.
/// A last frame that ends with a whole block and a whole line is unfinished, which is no damage: its writer lives, or
/// was killed between two batches.
pub(super) fn decode(bytes: &[u8]) -> Decoded {
    let mut lines = Vec::new();
    let mut breaks = Vec::new();
    let mut tail = Some(Tail { length: 0, decoded: 0, open: false });
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let before = lines.len();
        let length = zstd::zstd_safe::find_frame_compressed_size(rest).ok().filter(|length| *length <= rest.len());
        if let Some(length) = length
            && read_frame(&rest[..length], &mut lines).is_ok()
        {
            at += length;
            tail = Some(Tail { length: at, decoded: lines.len(), open: false });
            continue;
        }
        lines.truncate(before);
        let walk = walk(&rest[..length.unwrap_or(rest.len())], &mut lines);
        let next = length.unwrap_or_else(|| next_frame(rest, walk.good));
        let last = at + next == bytes.len();
        tail = match length {
            // Nothing is cut from a whole frame; what follows it can be read.
            Some(_) => Some(Tail { length: at + next, decoded: lines.len(), open: false }),
            None if last => walk.tail(at, before),
            None => None,
        };
        let clean = walk.good == rest.len() && walk.line_end.is_some_and(|(end, _)| end == walk.good);
        if clean && tail.is_some() {
            break;
        }
        if !last && lines.last().is_some_and(|byte| *byte != b'\n') {
            // Frames begin at a line; a line that the damage cut must not swallow the next one.
            lines.push(b'\n');
        }
        let reason = walk.failure.unwrap_or_else(|| "it is cut off".to_owned());
        let message = format!("the Zstandard frame at byte {at} is damaged ({reason})");
        breaks.push(Break { offset: lines.len(), message, last });
        at += next;
    }
    Decoded { lines, breaks, tail }
}

fn read_frame(frame: &[u8], decoded: &mut Vec<u8>) -> std::io::Result<()> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(frame)?.single_frame();
    let mut piece = [0; 16 * 1024];
    loop {
        match decoder.read(&mut piece)? {
            0 => return Ok(()),
            length => decoded.extend_from_slice(&piece[..length]),
        }
    }
}

/// How far the blocks of a frame go.
#[derive(Debug, Default)]
struct Walk {
    /// Offset behind the last sound block, or 0.
    good: usize,
    /// Offset behind the first block up to which the last whole line is decoded, and the length of all lines there.
    line_end: Option<(usize, usize)>,
    /// What is wrong behind the sound blocks; `None` when the frame is only cut off.
    failure: Option<String>,
    /// Only the frame's own checksum could end it, or it has no room for more.
    sealed: bool,
}

impl Walk {
    /// Where a last frame that began at `at` can be continued; `before` is the length of the lines in front of it.
    fn tail(&self, at: usize, before: usize) -> Option<Tail> {
        match self.line_end {
            _ if self.failure.is_some() => None,
            None => Some(Tail { length: at, decoded: before, open: false }),
            Some(_) if self.sealed => None,
            Some((length, decoded)) => Some(Tail { length: at + length, decoded, open: true }),
        }
    }
}

/// Decodes the blocks of one frame up to the first that is cut off or damaged.
fn walk(frame: &[u8], lines: &mut Vec<u8>) -> Walk {
    let mut walk = Walk::default();
    if !MAGIC.starts_with(&frame[..frame.len().min(MAGIC.len())]) {
        walk.failure = Some("it is no frame".to_owned());
        return walk;
    }
    let Some(descriptor) = frame.get(MAGIC.len()).copied() else { return walk };
    let single = descriptor & 0x20 != 0;
    let size_of_length = match descriptor >> 6 {
        0 => usize::from(single),
        power => 1 << power,
    };
    // A frame that names its length cannot be ended before it.
    walk.sealed = descriptor & 4 != 0 || size_of_length > 0;
    let mut at = MAGIC.len() + 1 + usize::from(!single) + [0, 1, 2, 4][usize::from(descriptor & 3)] + size_of_length;
    let mut decoder = match zstd::stream::raw::Decoder::new() {
        Ok(decoder) => decoder,
        Err(error) => {
            walk.failure = Some(error.to_string());
            return walk;
        }
    };
    let mut fed = 0;
    while let Some(header) = frame.get(at..at + 3) {
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        let body = if header >> 1 & 3 == 1 { 1 } else { size };
        if header >> 1 & 3 == 3 || size > MAX_BLOCK {
            walk.failure = Some("a block of it has no sound header".to_owned());
            return walk;
        }
        let end = at + 3 + body;
        if end > frame.len() {
            return walk;
        }
        let before = lines.len();
        if let Err(error) = feed(&mut decoder, &frame[fed..end], lines) {
            lines.truncate(before);
            walk.failure = Some(error.to_string());
            return walk;
        }
        (at, fed, walk.good) = (end, end, end);
        if lines.len() > before && lines.last() == Some(&b'\n') {
            walk.line_end = Some((end, lines.len()));
        }
        if header & 1 == 1 {
            return walk;
        }
    }
    walk
}

fn feed(decoder: &mut zstd::stream::raw::Decoder<'_>, bytes: &[u8], lines: &mut Vec<u8>) -> std::io::Result<()> {
    use zstd::stream::raw::{InBuffer, Operation, OutBuffer};
    let mut piece = [0; 16 * 1024];
    let mut from = InBuffer::around(bytes);
    loop {
        let mut to = OutBuffer::around(&mut piece[..]);
        decoder.run(&mut from, &mut to)?;
        let full = to.pos() == to.capacity();
        lines.extend_from_slice(to.as_slice());
        if from.pos() == bytes.len() && !full {
            return Ok(());
        }
    }
}

/// Distance to the next place behind the first `from` bytes that looks like a frame, or to the end.
fn next_frame(bytes: &[u8], from: usize) -> usize {
    let from = from.max(1);
    bytes[from..].windows(MAGIC.len()).position(|window| window == MAGIC).map_or(bytes.len(), |at| from + at)
}

/// Makes the bytes of a file from batches of lines.
pub(super) struct Packer {
    form: Form,
    /// The frame that is being written. It has the memory of its compressor, so it is not kept between turns.
    frame: Option<zstd::stream::raw::Encoder<'static>>,
}

/// What stands behind a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchEnd {
    /// The frame goes on.
    Flush,
    /// The next batch begins a frame.
    Frame,
}

impl Packer {
    pub fn new(form: Form) -> Self {
        Self { form, frame: None }
    }

    /// The bytes of a batch. All of it can be decoded from them and from those before them.
    pub fn pack(&mut self, lines: Vec<u8>, end: BatchEnd) -> std::io::Result<Vec<u8>> {
        use zstd::stream::raw::{InBuffer, Operation, OutBuffer};
        if self.form == Form::Plain {
            return Ok(lines);
        }
        let mut encoder = match self.frame.take() {
            Some(encoder) => encoder,
            None => zstd::stream::raw::Encoder::new(LEVEL)?,
        };
        let mut packed = Vec::with_capacity(lines.len() / 4 + 64);
        let mut piece = [0; 16 * 1024];
        let mut from = InBuffer::around(&lines);
        loop {
            let mut to = OutBuffer::around(&mut piece[..]);
            let left = if from.pos() < lines.len() {
                encoder.run(&mut from, &mut to)?;
                1
            } else if end == BatchEnd::Flush {
                encoder.flush(&mut to)?
            } else {
                encoder.finish(&mut to, true)?
            };
            packed.extend_from_slice(to.as_slice());
            if left == 0 {
                break;
            }
        }
        if end == BatchEnd::Flush {
            self.frame = Some(encoder);
        }
        Ok(packed)
    }

    /// What ends the file: nothing, or the end of the frame that is being written.
    pub fn close(&mut self) -> &'static [u8] {
        if self.frame.take().is_some() { &CLOSING } else { &[] }
    }
}

/// Compression level; higher ones cost more than they save on rows of deltas.
const LEVEL: i32 = 3;

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
        let Decoded { lines, breaks, .. } = decode(&whole);
        assert_eq!((lines.as_slice(), breaks.len()), (&b"one\ntwo\nthree\n"[..], 0));
        for cut in a.len() + b.len() + 1..whole.len() {
            let Decoded { lines: decoded, breaks, .. } = decode(&whole[..cut]);
            assert!(decoded.starts_with(b"one\ntwo\n"), "{cut}");
            assert_eq!((breaks.len(), breaks[0].last), (1, true), "{cut}");
        }
        let garbage = [a, b"garbage".to_vec(), c].concat();
        let Decoded { lines: decoded, breaks, .. } = decode(&garbage);
        assert_eq!((decoded.as_slice(), breaks.len()), (&b"one\nthree\n"[..], 1));
    }
}
