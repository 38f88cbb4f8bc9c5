//! Ratios within one run.
//!
//! On a machine that others use, a figure from one minute says little about a figure from the next. So the sides of a
//! comparison take turns (A, B, A, B, …), each turn gives one ratio, and the median of the ratios is reported with its
//! quartiles. Criterion and its kin time one side after the other and compare with a stored run, which is why this is
//! written here.
//!
//! Time is the processor time of the process, all threads together: neighbours steal the clock on the wall, but hardly
//! this one. It does not count waiting for the disk.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Least time of one turn of one side; shorter work is repeated.
const TURN: Duration = Duration::from_millis(20);

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub enum Effort {
    /// Each side once, to see that it still works. No time is taken.
    Check,
    /// This many turns of each side.
    Rounds(usize),
}

/// One way to do the work.
pub struct Side<'a> {
    /// What it is called in the table.
    pub name: &'static str,
    /// Does the work once and returns what came out of it, in a form that can be compared.
    pub work: Box<dyn FnMut() -> u64 + 'a>,
    /// What must come out.
    pub result: u64,
}

impl<'a> Side<'a> {
    /// A side whose work must give `result`.
    pub fn new(name: &'static str, result: u64, work: impl FnMut() -> u64 + 'a) -> Self {
        Self { name, work: Box::new(work), result }
    }

    /// # Panics
    ///
    /// When something else than the expected result comes out.
    fn run(&mut self) {
        let result = (self.work)();
        assert_eq!(result, self.result, "{}: the work gave another result", self.name);
    }

    fn time(&mut self, repeats: u32) -> f64 {
        let begun = processor_time();
        for _ in 0..repeats {
            self.run();
        }
        (processor_time() - begun).as_secs_f64() / f64::from(repeats)
    }

    fn repeats(&mut self) -> u32 {
        let once = self.time(1).max(1e-7);
        (TURN.as_secs_f64() / once).ceil().clamp(1.0, 1e6) as u32
    }
}

/// What absolute figures are given in.
#[derive(Debug, Clone, Copy)]
pub enum Unit {
    /// Nanoseconds for each of this many things.
    NanosecondsPer(u64, &'static str),
    /// Millions of things a second, of this many things.
    MillionsPerSecond(u64, &'static str),
    /// Megabytes (10^6) a second, of this many bytes.
    MegabytesPerSecond(u64),
}

impl Unit {
    fn of(self, seconds: f64) -> f64 {
        match self {
            Self::NanosecondsPer(count, _) => seconds * 1e9 / count as f64,
            Self::MillionsPerSecond(count, _) => count as f64 / seconds / 1e6,
            Self::MegabytesPerSecond(bytes) => bytes as f64 / seconds / 1e6,
        }
    }

    /// Its name in the table.
    pub fn name(self) -> String {
        match self {
            Self::NanosecondsPer(_, thing) => format!("ns/{thing}"),
            Self::MillionsPerSecond(_, things) => format!("M {things}/s"),
            Self::MegabytesPerSecond(_) => "MB/s".to_owned(),
        }
    }
}

/// A comparison: the first side against each of the others.
pub struct Comparison<'a> {
    /// What is compared.
    pub name: String,
    /// Ours first.
    pub sides: Vec<Side<'a>>,
    /// Of the absolute figures.
    pub unit: Unit,
    /// What is aimed at, in words.
    pub aim: &'static str,
}

/// What came out of a comparison.
#[derive(Debug, serde::Serialize)]
pub struct Measured {
    /// What was compared.
    pub name: String,
    /// Of the absolute figures.
    pub unit: String,
    /// What is aimed at.
    pub aim: &'static str,
    /// The sides, ours first.
    pub sides: Vec<MeasuredSide>,
}

/// One side of it.
#[derive(Debug, serde::Serialize)]
pub struct MeasuredSide {
    /// Its name.
    pub name: &'static str,
    /// The median of its turns.
    pub absolute: f64,
    /// Time of our side by the time of this one; absent for our own.
    pub ratio: Option<Quartiles>,
}

/// Quartiles of what was measured.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub struct Quartiles {
    /// A quarter of the turns gave less.
    pub lower: f64,
    /// Half.
    pub median: f64,
    /// Three quarters.
    pub upper: f64,
}

impl Quartiles {
    fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |share: f64| values[((values.len() - 1) as f64 * share).round() as usize];
        Self { lower: at(0.25), median: at(0.5), upper: at(0.75) }
    }
}

impl Comparison<'_> {
    /// Measures, or only checks: then there are no figures.
    ///
    /// # Panics
    ///
    /// When a side gives another result than it must.
    pub fn measure(mut self, effort: Effort) -> Option<Measured> {
        self.sides.iter_mut().for_each(Side::run);
        let Effort::Rounds(rounds) = effort else { return None };
        let repeats: Vec<u32> = self.sides.iter_mut().map(Side::repeats).collect();
        let mut times: Vec<Vec<f64>> = vec![Vec::new(); self.sides.len()];
        for _ in 0..rounds.max(1) {
            for ((side, repeats), times) in self.sides.iter_mut().zip(&repeats).zip(&mut times) {
                times.push(side.time(*repeats));
            }
        }
        let ours = times[0].clone();
        let unit = self.unit;
        let sides = self.sides.iter().zip(times).enumerate().map(|(place, (side, times))| MeasuredSide {
            name: side.name,
            ratio: (place > 0).then(|| Quartiles::of(ours.iter().zip(&times).map(|(a, b)| a / b).collect())),
            absolute: unit.of(Quartiles::of(times).median),
        });
        Some(Measured { name: self.name.clone(), unit: unit.name(), aim: self.aim, sides: sides.collect() })
    }
}

/// Time that the processors spent on this process, user and system.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}
