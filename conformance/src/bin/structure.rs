//! Prints the structure of a workspace: crates, folders, the arrows between them, and lines.
//!
//! `structure [FOLDER]`; without a folder, that of this workspace.

use std::path::Path;
use std::process::ExitCode;

use sdam_conformance::structure::Structure;

fn main() -> ExitCode {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let folder = std::env::args().nth(1).unwrap_or_else(|| own.to_owned());
    match Structure::read(Path::new(&folder)) {
        Ok(structure) => {
            print!("{structure}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
