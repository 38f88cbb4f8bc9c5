//! Bytes of a session file: plain, or concatenated Zstandard frames.

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
    pub fn encode(self, lines: impl Into<Vec<u8>>) -> std::io::Result<Vec<u8>> {
        let lines = lines.into();
        match self {
            Self::Plain => Ok(lines),
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), zstd::DEFAULT_COMPRESSION_LEVEL)?;
                encoder.include_checksum(true)?;
                std::io::Write::write_all(&mut encoder, &lines)?;
                encoder.finish()
            }
        }
    }
}

/// Takes what a compressed file decodes to, from front to back.
pub(super) trait Lines {
    /// What ends it early.
    type Error;
    /// The next bytes of lines.
    fn lines(&mut self, bytes: &[u8]) -> Result<(), Self::Error>;
    /// Bytes are missing here, with what is wrong; nothing readable follows when they are the `last`.
    fn broken(&mut self, message: String, last: bool);
}

/// Where a compressed file can be continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// Length of the file in bytes up to the last block that ends a line, or up to the end of the last whole frame.
    pub length: usize,
    /// Length of the decoded lines up to there.
    pub decoded: u64,
    /// True when a frame is unfinished there; [`CLOSING`] ends it.
    pub open: bool,
}

/// The magic number that a frame begins with (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The other magic numbers, of frames that hold no content, without their last four bits (RFC 8878, section 3.1.2).
const SKIPPABLE: u32 = 0x184D_2A50;

/// An empty raw block with the mark of the last one (RFC 8878, section 3.1.1.2): it ends a frame without checksum,
/// whatever wrote the blocks before it.
pub(super) const CLOSING: [u8; 3] = [1, 0, 0];

/// The largest block (RFC 8878, section 3.1.1.2.4).
const MAX_BLOCK: usize = 128 * 1024;

/// Decodes frame by frame, in memory that does not grow with what they hold. A damaged frame gives what its undamaged
/// blocks hold; the frames around it are not touched. A last frame that ends with a whole block and a whole line is
/// unfinished, which is no damage: its writer lives, or was killed between two batches.
///
/// Returns where the file can be continued; `None` when its end is damaged in a way that a writer which died does not
/// explain.
pub(super) fn decode<L: Lines>(bytes: &[u8], out: &mut L) -> Result<Option<Tail>, L::Error> {
    let mut out = Measured { out, length: 0, ended: true };
    let mut tail = Some(Tail { length: 0, decoded: 0, open: false });
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let before = out.length;
        let walk = walk(rest, &mut out)?;
        if walk.whole {
            at += walk.good;
            tail = Some(Tail { length: at, decoded: out.length, open: false });
            continue;
        }
        let length = zstd::zstd_safe::find_frame_compressed_size(rest).ok().filter(|length| *length <= rest.len());
        let next = length.unwrap_or_else(|| next_frame(rest, walk.good));
        let last = at + next == bytes.len();
        tail = match length {
            // Nothing is cut from a whole frame; what follows it can be read.
            Some(_) => Some(Tail { length: at + next, decoded: out.length, open: false }),
            None if last => walk.tail(at, before),
            None => None,
        };
        let clean = walk.good == rest.len() && walk.line_end.is_some_and(|(end, _)| end == walk.good);
        if clean && tail.is_some() {
            break;
        }
        let reason = walk.failure.unwrap_or_else(|| "it is cut off".to_owned());
        out.out.broken(format!("the Zstandard frame at byte {at} is damaged ({reason})"), last);
        if !last && !out.ended {
            // Frames begin at a line; a line that the damage cut must not swallow the next one.
            out.lines(b"\n")?;
        }
        at += next;
    }
    Ok(tail)
}

/// Knows how much was decoded, and whether that ends a line.
struct Measured<'a, L> {
    out: &'a mut L,
    length: u64,
    ended: bool,
}

impl<L: Lines> Measured<'_, L> {
    fn lines(&mut self, bytes: &[u8]) -> Result<(), L::Error> {
        let Some(last) = bytes.last() else { return Ok(()) };
        self.ended = *last == b'\n';
        self.length += bytes.len() as u64;
        self.out.lines(bytes)
    }
}

/// How far the blocks of a frame go.
#[derive(Debug, Default)]
struct Walk {
    /// True for a frame that is there to its end, without damage.
    whole: bool,
    /// Offset behind the last sound block, or 0; behind the frame when it is whole.
    good: usize,
    /// Offset behind the first block up to which the last whole line is decoded, and the length of all lines there.
    line_end: Option<(usize, u64)>,
    /// What is wrong behind the sound blocks; `None` when the frame is only cut off.
    failure: Option<String>,
    /// Only the frame's own checksum could end it, or it has no room for more.
    sealed: bool,
}

impl Walk {
    fn failed(self, reason: impl ToString) -> Self {
        Self { failure: Some(reason.to_string()), ..self }
    }

    /// Where a last frame that began at `at` can be continued; `before` is the length of the lines in front of it.
    fn tail(&self, at: usize, before: u64) -> Option<Tail> {
        match self.line_end {
            _ if self.failure.is_some() => None,
            None => Some(Tail { length: at, decoded: before, open: false }),
            Some(_) if self.sealed => None,
            Some((length, decoded)) => Some(Tail { length: at + length, decoded, open: true }),
        }
    }
}

/// Decodes the blocks of one frame up to its end, or to the first that is cut off or damaged.
fn walk<L: Lines>(frame: &[u8], out: &mut Measured<'_, L>) -> Result<Walk, L::Error> {
    let mut walk = Walk::default();
    let magic = &frame[..frame.len().min(MAGIC.len())];
    if let Ok(magic) = <[u8; 4]>::try_from(magic)
        && u32::from_le_bytes(magic) & !0xF == SKIPPABLE
    {
        return Ok(skip(frame));
    }
    if !MAGIC.starts_with(magic) {
        return Ok(walk.failed("it is no frame"));
    }
    let Some(descriptor) = frame.get(MAGIC.len()).copied() else { return Ok(walk) };
    let single = descriptor & 0x20 != 0;
    let checksum = if descriptor & 4 == 0 { 0 } else { 4 };
    let size_of_length = match descriptor >> 6 {
        0 => usize::from(single),
        power => 1 << power,
    };
    // A frame that names its length cannot be ended before it.
    walk.sealed = checksum > 0 || size_of_length > 0;
    let mut at = MAGIC.len() + 1 + usize::from(!single) + [0, 1, 2, 4][usize::from(descriptor & 3)] + size_of_length;
    let mut decoder = match zstd::stream::raw::Decoder::new() {
        Ok(decoder) => decoder,
        Err(error) => return Ok(walk.failed(error)),
    };
    let mut fed = 0;
    while let Some(header) = frame.get(at..at + 3) {
        let header = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let size = usize::try_from(header >> 3).unwrap_or(usize::MAX);
        let body = if header >> 1 & 3 == 1 { 1 } else { size };
        if header >> 1 & 3 == 3 || size > MAX_BLOCK {
            return Ok(walk.failed("a block of it has no sound header"));
        }
        let end = at + 3 + body;
        if end > frame.len() {
            return Ok(walk);
        }
        let before = out.length;
        if let Err(error) = feed(&mut decoder, &frame[fed..end], out)? {
            return Ok(walk.failed(error));
        }
        (at, fed, walk.good) = (end, end, end);
        if out.length > before && out.ended {
            walk.line_end = Some((end, out.length));
        }
        if header & 1 == 1 {
            let Some(checksum) = frame.get(end..end + checksum) else { return Ok(walk) };
            if let Err(error) = feed(&mut decoder, checksum, out)? {
                return Ok(walk.failed(error));
            }
            return Ok(Walk { whole: true, good: end + checksum.len(), ..walk });
        }
    }
    Ok(walk)
}

/// A frame that holds no content.
fn skip(frame: &[u8]) -> Walk {
    let length = frame.get(4..8).and_then(|length| <[u8; 4]>::try_from(length).ok()).map(u32::from_le_bytes);
    let end = length.and_then(|length| usize::try_from(length).ok()?.checked_add(8));
    match end.filter(|end| *end <= frame.len()) {
        Some(end) => Walk { whole: true, good: end, ..Walk::default() },
        None => Walk::default(),
    }
}

/// Decodes the next bytes of a frame. What a damaged block gives before its damage shows is not used.
fn feed<L: Lines>(
    decoder: &mut zstd::stream::raw::Decoder<'_>,
    bytes: &[u8],
    out: &mut Measured<'_, L>,
) -> Result<std::io::Result<()>, L::Error> {
    use zstd::stream::raw::{InBuffer, Operation, OutBuffer};
    let mut block = Vec::new();
    let mut piece = [0; 16 * 1024];
    let mut from = InBuffer::around(bytes);
    loop {
        let mut to = OutBuffer::around(&mut piece[..]);
        if let Err(error) = decoder.run(&mut from, &mut to) {
            return Ok(Err(error));
        }
        let full = to.pos() == to.capacity();
        block.extend_from_slice(to.as_slice());
        if from.pos() == bytes.len() && !full {
            out.lines(&block)?;
            return Ok(Ok(()));
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
    frame: Option<Frame>,
}

struct Frame {
    effort: Effort,
    encoder: zstd::stream::raw::Encoder<'static>,
}

/// How hard a frame is compressed, which is settled when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effort {
    /// The smallest bytes for the few lines of a window; some 3 MiB of memory and 0.2 µs for each byte.
    Dense,
    /// 20 times as quick, for batches where that would be felt.
    Quick,
}

impl Effort {
    /// Lines that a dense frame takes in one batch, in bytes; they take it less than 10 ms.
    const MOST: usize = 32 << 10;

    const fn of(lines: &[u8]) -> Self {
        if lines.len() <= Self::MOST { Self::Dense } else { Self::Quick }
    }

    fn encoder(self) -> std::io::Result<zstd::stream::raw::Encoder<'static>> {
        use zstd::zstd_safe::{CParameter, Strategy};
        let mut encoder = zstd::stream::raw::Encoder::new(zstd::DEFAULT_COMPRESSION_LEVEL)?;
        if self == Self::Dense {
            // Level 16 with tables of 2.5 MiB in place of 24 MiB.
            for parameter in [
                CParameter::WindowLog(21),
                CParameter::ChainLog(18),
                CParameter::HashLog(17),
                CParameter::SearchLog(5),
                CParameter::MinMatch(4),
                CParameter::TargetLength(48),
                CParameter::Strategy(Strategy::ZSTD_btopt),
            ] {
                encoder.set_parameter(parameter)?;
            }
        }
        Ok(encoder)
    }
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
        let effort = Effort::of(&lines);
        let mut packed = Vec::with_capacity(lines.len() / 4 + 64);
        if self.frame.as_ref().is_some_and(|frame| frame.effort != effort) {
            packed.extend_from_slice(self.close());
        }
        let mut encoder = match self.frame.take() {
            Some(frame) => frame.encoder,
            None => effort.encoder()?,
        };
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
            self.frame = Some(Frame { effort, encoder });
        }
        Ok(packed)
    }

    /// What ends the file: nothing, or the end of the frame that is being written.
    pub fn close(&mut self) -> &'static [u8] {
        if self.frame.take().is_some() { &CLOSING } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str) -> Vec<u8> {
        zstd::encode_all(text.as_bytes(), 3).unwrap()
    }

    #[derive(Debug, Default)]
    struct Decoded {
        lines: Vec<u8>,
        breaks: Vec<bool>,
    }

    impl Lines for Decoded {
        type Error = std::convert::Infallible;
        fn lines(&mut self, bytes: &[u8]) -> Result<(), Self::Error> {
            self.lines.extend_from_slice(bytes);
            Ok(())
        }
        fn broken(&mut self, _: String, last: bool) {
            self.breaks.push(last);
        }
    }

    fn decoded(bytes: &[u8]) -> (Vec<u8>, Vec<bool>, Option<Tail>) {
        let mut decoded = Decoded::default();
        let Ok(tail) = decode(bytes, &mut decoded);
        (decoded.lines, decoded.breaks, tail)
    }

    #[test]
    fn small_and_large_batches_take_frames_of_their_own_kind_and_all_of_them_are_read_at_once() {
        let small = "a line of a stream\n".repeat(20);
        let large = (0..9_000).map(|n| format!("line {n}\n")).collect::<String>();
        let mut packer = Packer::new(Form::Zstd);
        let (mut file, mut written, mut frames) = (Vec::new(), String::new(), 0);
        for batch in [&small, &small, &large, &large, &small, &large] {
            assert!(small.len() <= Effort::MOST && large.len() > Effort::MOST);
            let packed = packer.pack(batch.clone().into_bytes(), BatchEnd::Flush).unwrap();
            frames += packed.windows(MAGIC.len()).filter(|window| *window == MAGIC).count();
            file.extend(packed);
            written.push_str(batch);
            let (lines, breaks, tail) = decoded(&file);
            assert_eq!((lines.len(), breaks.len()), (written.len(), 0));
            assert_eq!(tail, Some(Tail { length: file.len(), decoded: written.len() as u64, open: true }));
        }
        file.extend_from_slice(packer.close());
        assert_eq!(frames, 4);
        assert_eq!(zstd::decode_all(&file[..]).unwrap(), written.into_bytes(), "for any reader");
    }

    #[test]
    fn a_damaged_frame_loses_only_itself() {
        let (a, b, c) = (frame("one\n"), frame("two\n"), frame("three\n"));
        let whole = [a.clone(), b.clone(), c.clone()].concat();
        let (lines, breaks, tail) = decoded(&whole);
        assert_eq!((lines.as_slice(), breaks.len()), (&b"one\ntwo\nthree\n"[..], 0));
        assert_eq!(tail, Some(Tail { length: whole.len(), decoded: 14, open: false }));
        for cut in a.len() + b.len() + 1..whole.len() {
            let (lines, breaks, _) = decoded(&whole[..cut]);
            assert!(lines.starts_with(b"one\ntwo\n"), "{cut}");
            assert_eq!(breaks, [true], "{cut}");
        }
        let garbage = [a, b"garbage".to_vec(), c].concat();
        let (lines, breaks, _) = decoded(&garbage);
        assert_eq!((lines.as_slice(), breaks.as_slice()), (&b"one\nthree\n"[..], &[false][..]));
    }

    #[test]
    fn frames_as_other_writers_make_them_are_read() {
        let with = |text: &str, set: &dyn Fn(&mut zstd::Encoder<'static, Vec<u8>>)| {
            let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
            set(&mut encoder);
            std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
            encoder.finish().unwrap()
        };
        let long = "0123456789abcdef\n".repeat(60_000);
        let checked = with(&long, &|encoder| encoder.include_checksum(true).unwrap());
        let sized = with("sized\n", &|encoder| encoder.set_pledged_src_size(Some(6)).unwrap());
        let skippable = [&[0x5A, 0x2A, 0x4D, 0x18, 3, 0, 0, 0][..], b"\nxy"].concat();
        let whole = [skippable.clone(), checked.clone(), sized, skippable].concat();
        let (lines, breaks, tail) = decoded(&whole);
        assert_eq!((lines.len(), breaks.len()), (long.len() + 6, 0));
        assert_eq!(tail.map(|tail| (tail.length, tail.open)), Some((whole.len(), false)));
        // A checksum that is not that of the content is damage, and the content is there all the same.
        let mut wrong = checked;
        *wrong.last_mut().unwrap() ^= 1;
        let (lines, breaks, _) = decoded(&wrong);
        assert_eq!((lines.len(), breaks.as_slice()), (long.len(), &[true][..]));
    }
}
