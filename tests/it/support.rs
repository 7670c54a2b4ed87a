//! The common parts of the tests of examples.

use std::path::PathBuf;

/// Returns where an example is built.
///
/// Cargo builds the examples for its tests; if only one test is asked for, they must be there.
pub(crate) fn example_path(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this test has a path");
    let folder = test.ancestors().nth(2).expect("it is in the folder deps");
    folder.join("examples").join(name).with_extension(std::env::consts::EXE_EXTENSION)
}
