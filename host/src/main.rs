//! The binary `dsh`.

use std::process::ExitCode;

fn main() -> ExitCode {
    dsh_host::cli::main()
}
