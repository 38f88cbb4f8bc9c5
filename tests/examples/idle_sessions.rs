//! Measures what an open session takes in memory while nobody uses it.
//!
//! ```text
//! cargo run --release -p dsh-tests --example idle_sessions -- [SESSIONS]
//! ```
//!
//! `dsh acp` opens some sessions, then this many more, and is left alone for a while each time. The figure is what its
//! own, changed memory has grown by between the two, for each session. The sessions have no messages.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use dsh_tests::{AcpClient, Composition};
use serde_json::json;

/// How long the agent is left alone before its memory is read. A writer's thread goes after a second.
const REST: Duration = Duration::from_secs(3);
/// Sessions that are opened first, so that what all share is there.
const FIRST: u32 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let sessions: u32 = std::env::args().nth(1).map_or(Ok(500), |count| count.parse())?;
    let composition = Composition::new("version = 1\n");
    let mut client = AcpClient::start(composition.command(&["acp"]))?;
    client.call("initialize", &json!({ "protocolVersion": 1, "clientCapabilities": {} }))?;
    let mut memory = |count| {
        for _ in 0..count {
            client.call("session/new", &json!({ "cwd": composition.home(), "mcpServers": [] }))?;
        }
        std::thread::sleep(REST);
        own_memory(client.process())
    };
    let before = memory(FIRST)?;
    let after = memory(sessions)?;
    let each = after.saturating_sub(before) as f64 / f64::from(sessions);
    println!("{sessions} more sessions beside {FIRST}: {each:.1} KiB each   aim 20");
    client.close()?;
    Ok(())
}

/// Changed memory that a process shares with no other, in KiB.
fn own_memory(pid: u32) -> Result<u64, Box<dyn Error>> {
    let text = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).ok_or("no line of private memory")?;
    Ok(line.trim().trim_end_matches("kB").trim().parse()?)
}
