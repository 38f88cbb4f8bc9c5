//! Measures the whole path: `dsh run` against `curl` reading the same stream, start, and memory.
//!
//! ```text
//! cargo run --release -p dsh-tests --example whole_path -- [ROUNDS [DELTAS]]
//! ```
//!
//! A server of our own sends answers that were rendered beforehand, one HTTP chunk for each delta of five characters,
//! and writes them faster than any client here takes them; the first figure says how fast that is. Everything that is
//! compared runs in turn, round after round, so that what else the machine does meets all of it alike. The figures
//! are medians; in brackets stands the best. Processor time is that of the process alone, so other work does not
//! lengthen it; it is the mean of all rounds, since the system counts it in hundredths of a second.
//!
//! `dsh` is the built binary with the default composition, an overlay for the endpoint, and a home folder of its own.
//! Before anything is timed, one session shows that all deltas were printed, and that all of them are in the log.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dsh_tests::{Composition, built};

/// A delta as most providers send it.
const DELTA: &str = "abcd ";
/// How long a process is left alone before its memory at rest is read.
const REST: Duration = Duration::from_millis(300);

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|argument| argument.parse()).collect::<Result<_, _>>()?;
    let (rounds, deltas) = (numbers.first().copied().unwrap_or(11).max(1), numbers.get(1).copied().unwrap_or(100_000));
    let dsh = &built().dsh;
    let address = serve(deltas)?;
    let bench = Bench::new(address)?;
    bench.check(deltas)?;

    let curl = has_curl();
    if !curl {
        eprintln!("skipped: curl is not installed, so nothing is compared with it");
    }
    let (mut bare, mut by_curl, mut by_dsh, mut ratio) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut floor, mut short, mut initialize) = (Vec::new(), Vec::new(), Vec::new());
    let mut cpu = Cpu::default();
    for _ in 0..rounds {
        bare.push(read_bare(address)?);
        if curl {
            by_curl.push(cpu.of(0, || timed(&mut bench.curl()))?);
        }
        by_dsh.push(cpu.of(1, || timed(&mut bench.run("long")))?);
        if let (Some(dsh), Some(curl)) = (by_dsh.last(), by_curl.last()) {
            ratio.push(dsh / curl);
        }
        floor.push(timed(Command::new(dsh).arg("--version").stdout(Stdio::null()))?);
        short.push(cpu.of(2, || timed(&mut bench.run("short")))?);
        initialize.push(bench.acp()?.0);
    }
    let peaks = (0..3).map(|_| peak(bench.run("long").spawn()?)).collect::<Result<Vec<_>, _>>()?;
    let short_peaks = (0..3).map(|_| peak(bench.run("short").spawn()?)).collect::<Result<Vec<_>, _>>()?;
    let idle = (0..3).map(|_| Ok(bench.acp()?.1)).collect::<Result<Vec<_>, Box<dyn Error>>>()?;

    println!("{deltas} deltas of {} characters, {rounds} rounds", DELTA.len());
    println!("{:40} {}", "a bare socket reads the stream in", Figure(&bare, "ms"));
    if curl {
        println!("{:40} {}", "curl -sN -o /dev/null", Figure(&by_curl, "ms"));
    }
    println!("{:40} {}", "dsh run, the same stream", Figure(&by_dsh, "ms"));
    if curl {
        println!("{:40} {}   aim 1.4", "dsh run / curl, within a round", Figure(&ratio, "×"));
    }
    let rates: Vec<f64> = by_dsh.iter().map(|ms| deltas as f64 / ms).collect();
    println!("{:40} {} thousand a second, start included", "deltas", Figure(&rates, "").median());
    let [of_curl, of_dsh, of_short] = cpu.spent.map(|ticks| ticks as f64 * MILLISECONDS_PER_TICK / rounds as f64);
    println!("{:40} {of_curl:.0}, {of_dsh:.0}, {of_short:.0} ms", "processor time of curl, long, short");
    println!("{:40} {}   aim 25", "dsh run, peak memory", Figure(&peaks, "MB"));
    println!("{:40} {}   aim 15", "dsh run, a short answer", Figure(&short, "ms"));
    println!("{:40} {}", "dsh run, a short answer, peak memory", Figure(&short_peaks, "MB"));
    println!("{:40} {}", "dsh --version", Figure(&floor, "ms"));
    println!("{:40} {}   aim 10", "dsh acp, until initialize is answered", Figure(&initialize, "ms"));
    println!("{:40} {}   aim 15.7 (15 MiB)", "dsh acp, memory at rest", Figure(&idle, "MB"));
    Ok(())
}

/// Linux tells processes the time in hundredths of a second, whatever it counts in.
const MILLISECONDS_PER_TICK: f64 = 10.0;

/// Processor time of processes that have ended, in ticks, by what they were run for.
#[derive(Default)]
struct Cpu {
    spent: [u64; 3],
}

impl Cpu {
    /// Adds what the processes that `run` waits for have spent.
    fn of<T>(&mut self, place: usize, run: impl FnOnce() -> Result<T, Box<dyn Error>>) -> Result<T, Box<dyn Error>> {
        let before = Self::of_children()?;
        let result = run()?;
        self.spent[place] += Self::of_children()? - before;
        Ok(result)
    }

    /// User and system time of all children that were waited for: fields 16 and 17 of `/proc/self/stat`.
    fn of_children() -> Result<u64, Box<dyn Error>> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        let behind_name = stat.rsplit(')').next().ok_or("no process name in /proc/self/stat")?;
        let fields: Vec<&str> = behind_name.split_whitespace().skip(13).take(2).collect();
        fields.iter().map(|field| field.parse::<u64>().map_err(Box::from)).sum()
    }
}

/// Samples of one quantity.
struct Figure<'a>(&'a [f64], &'static str);

impl Figure<'_> {
    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    fn median(&self) -> String {
        let sorted = self.sorted();
        format!("{:.2}", sorted[sorted.len() / 2])
    }
}

impl std::fmt::Display for Figure<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:>8} {:2} (best {:.2})", self.median(), self.1, self.sorted()[0])
    }
}

/// What is run, and where.
struct Bench {
    composition: Composition,
    address: SocketAddr,
}

impl Bench {
    fn new(address: SocketAddr) -> Result<Self, Box<dyn Error>> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../loader.toml");
        let composition = Composition::new(&std::fs::read_to_string(manifest)?);
        let mut overlay = "version = 1\n[[adapter]]\nid = \"pi-ai\"\n".to_owned();
        for name in ["long", "short"] {
            write!(
                overlay,
                "[adapter.config.providers.{name}]\napi = \"openai-completions\"\n\
                 base_url = \"http://{address}/{name}\"\nmodels = [{{ id = \"m\" }}]\n"
            )?;
        }
        composition.file("overlay.toml", &overlay);
        Ok(Self { composition, address })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.composition.command(&["--overlay", "overlay.toml"]);
        command.args(args);
        command
    }

    /// `dsh run` with a model of this provider.
    fn run(&self, provider: &str) -> Command {
        let mut command = self.command(&["run", "-m", &format!("{provider}/m"), "Say something."]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn curl(&self) -> Command {
        let mut command = Command::new("curl");
        command.args(["-sN", "--noproxy", "*", "-o", "/dev/null", &format!("http://{}/long", self.address)]);
        command
    }

    /// Shows that what is timed below is the whole of it.
    fn check(&self, deltas: usize) -> Result<(), Box<dyn Error>> {
        let printed = self.run("long").stdout(Stdio::piped()).output()?;
        let whole = DELTA.repeat(deltas);
        if String::from_utf8_lossy(&printed.stdout).trim_end() != whole.trim_end() {
            let stderr = String::from_utf8_lossy(&printed.stderr);
            return Err(format!("dsh printed {} bytes, and said: {stderr}", printed.stdout.len()).into());
        }
        let listed: serde_json::Value =
            serde_json::from_slice(&self.command(&["sessions", "list", "--json"]).output()?.stdout)?;
        let id = listed[0]["id"].as_str().ok_or("there is no session")?;
        let events = self.command(&["sessions", "show", "--events", "--json", id]).output()?.stdout;
        let logged = String::from_utf8(events)?.lines().filter(|line| line.contains("\"text-delta\"")).count();
        if logged != deltas {
            return Err(format!("{logged} of {deltas} deltas are in the log").into());
        }
        Ok(())
    }

    /// Starts `dsh acp`: milliseconds until `initialize` is answered, and megabytes that it then holds at rest.
    fn acp(&self) -> Result<(f64, f64), Box<dyn Error>> {
        let begun = Instant::now();
        let mut child = self.command(&["acp"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().ok_or("no stdin")?;
        let mut stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        writeln!(
            stdin,
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"protocolVersion":1,"clientCapabilities":{{}}}}}}"#
        )?;
        let mut line = String::new();
        stdout.read_line(&mut line)?;
        let took = milliseconds(begun.elapsed());
        if !line.contains("\"result\"") {
            return Err(format!("initialize was answered with {line:?}").into());
        }
        std::thread::sleep(REST);
        let rest = memory(child.id(), "VmRSS:").ok_or("the agent has ended")?;
        drop(stdin);
        child.wait()?;
        Ok((took, rest))
    }
}

fn has_curl() -> bool {
    Command::new("curl")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Runs a command to its end.
fn timed(command: &mut Command) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    let status = command.status()?;
    let took = milliseconds(begun.elapsed());
    if status.success() { Ok(took) } else { Err(format!("{command:?}: {status}").into()) }
}

/// The most memory that a process has held at once, in megabytes. It is asked for all the time: what the system
/// reports of a process that has ended includes the process that started it.
fn peak(mut child: Child) -> Result<f64, Box<dyn Error>> {
    let mut peak = 0.0;
    while child.try_wait()?.is_none() {
        peak = memory(child.id(), "VmHWM:").unwrap_or(peak);
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(peak)
}

/// A line of `/proc/PID/status` in megabytes; `None` once the process has ended.
fn memory(pid: u32, name: &str) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0 / 1e6)
}

/// Reads the long answer without looking at it.
fn read_bare(address: SocketAddr) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")?;
    let mut buffer = vec![0; 128 << 10];
    while stream.read(&mut buffer)? > 0 {}
    Ok(milliseconds(begun.elapsed()))
}

/// Serves `/long…` and `/short…` until the process ends. A connection serves one request.
fn serve(deltas: usize) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let answers = Arc::new([("/short", answer(3)?), ("/long", answer(deltas)?)]);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answers = Arc::clone(&answers);
            std::thread::spawn(move || {
                // A client that leaves early shows it in its own result.
                let _ = respond(stream, &*answers);
            });
        }
    });
    Ok(address)
}

fn respond(stream: TcpStream, answers: &[(&str, Vec<u8>)]) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(&stream);
    let (mut path, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if path.is_empty() {
            path = line.split(' ').nth(1).unwrap_or_default().to_owned();
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let answer = answers.iter().find(|(prefix, _)| path.starts_with(prefix));
    let refusal: &[u8] = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
    (&stream).write_all(answer.map_or(refusal, |(_, answer)| answer))
}

/// An answer in the completions wire, each event in an HTTP chunk of its own.
fn answer(deltas: usize) -> Result<Vec<u8>, std::fmt::Error> {
    let mut out =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
            .to_owned();
    let mut send = |data: &str| write!(out, "{:x}\r\ndata: {data}\n\n\r\n", data.len() + "data: \n\n".len());
    let event = |choice: &str| {
        format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{choice}]}}"#
        )
    };
    let delta = event(&format!(r#"{{"index":0,"delta":{{"content":"{DELTA}"}},"finish_reason":null}}"#));
    send(&event(r#"{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}"#))?;
    for _ in 0..deltas {
        send(&delta)?;
    }
    send(&event(r#"{"index":0,"delta":{},"finish_reason":"stop"}"#))?;
    send("[DONE]")?;
    out.push_str("0\r\n\r\n");
    Ok(out.into_bytes())
}
