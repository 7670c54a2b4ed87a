//! The programs of drivers in other languages, in the folder `foreign`.

use std::path::{Path, PathBuf};
use std::process::Command;

use sdam_bench::{Failure, build_for_libmongoc, output};

use crate::Arguments;

/// A driver of another language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    Pymongo,
    Node,
    Libmongoc,
}

impl Foreign {
    /// Returns the command that starts its program, which is built first if it has to be.
    pub(crate) fn command(self, arguments: &Arguments, folder: &Path) -> Result<Words, Failure> {
        match self {
            Self::Pymongo => Ok(Words::interpreted(&arguments.pymongo, "python.py")),
            Self::Node => Ok(Words::interpreted(&arguments.node, "node.mjs")),
            Self::Libmongoc => {
                let program = folder.join("libmongoc");
                build_for_libmongoc(&arguments.cc, &source("libmongoc.c"), &program)?;
                Ok(Words(vec![program.display().to_string()]))
            }
        }
    }
}

/// The words of a command.
#[derive(Clone, Debug)]
pub(crate) struct Words(Vec<String>);

impl Words {
    /// Names a program of that folder, and its interpreter.
    fn interpreted(interpreter: &str, name: &str) -> Self {
        let mut words: Vec<_> = interpreter.split_whitespace().map(str::to_owned).collect();
        words.push(source(name).display().to_string());
        Self(words)
    }

    /// Returns the process.
    pub(crate) fn process(&self) -> Result<Command, Failure> {
        let (program, arguments) = self.0.split_first().ok_or("a command has no words")?;
        let mut process = Command::new(program);
        process.args(arguments);
        Ok(process)
    }

    /// Asks the program for the version of its driver, which fails if that is not there.
    pub(crate) fn version(&self) -> Result<String, Failure> {
        Ok(output(self.process()?.arg("--version"))?.trim().to_owned())
    }
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/driver_bench/foreign").join(name)
}
