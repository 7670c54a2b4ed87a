//! `sdam completions` and `sdam man`: scripts for shells, pages for man, made from the arguments.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::{Cli, output};

/// Examples and exit codes.
const MORE_OF_COMPLETIONS: &str = "\
Examples:
  sdam completions bash > ~/.local/share/bash-completion/completions/sdam
  sdam completions zsh > ~/.zfunc/_sdam
  sdam completions fish > ~/.config/fish/completions/sdam.fish

Exit codes:
  0  the script is printed
  1  it cannot be printed
  2  the arguments are invalid";

/// Examples and exit codes.
const MORE_OF_MAN: &str = "\
Examples:
  sdam man | man -l -
  sdam man watch | man -l -
  sdam man --out ~/.local/share/man/man1

Exit codes:
  0  the pages are written
  1  they cannot be written
  2  the arguments are invalid";

/// The end of each page.
const SOURCE: &str = concat!("sdam ", env!("CARGO_PKG_VERSION"));

/// Prints a script that completes the arguments of sdam in a shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE_OF_COMPLETIONS)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// Prints a page for man, or writes those of all commands.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE_OF_MAN)]
pub(crate) struct ManArgs {
    /// The command whose page to print; without it, that of sdam itself
    command: Option<String>,
    /// Write the pages of all commands to this folder, which must exist
    #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
    out: Option<PathBuf>,
}

/// The reason why nothing was printed or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManualError {
    /// There is no such command.
    #[error("there is no command {command:?}; there are {all}")]
    NoCommand {
        /// The name that was given.
        command: String,
        /// All commands.
        all: String,
    },
    /// It cannot be printed.
    #[error("cannot write: {0}")]
    Print(io::Error),
    /// A page cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl ManualError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::NoCommand { .. } => 2,
            Self::Print(_) | Self::Write { .. } => 1,
        }
    }
}

/// Prints the script for a shell.
pub(crate) fn complete(args: &CompletionsArgs) -> Result<(), ManualError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sdam", &mut script);
    print(&script)
}

/// Prints one page, or writes all.
pub(crate) fn write(args: &ManArgs) -> Result<(), ManualError> {
    let mut sdam = Cli::command().disable_help_subcommand(true);
    // Gives each command its whole name.
    sdam.build();
    if let Some(folder) = &args.out {
        let mut all = std::iter::once(&sdam).chain(sdam.get_subcommands());
        return all.try_for_each(|command| write_page(folder, command));
    }
    let command = match &args.command {
        None => &sdam,
        Some(name) => {
            let found = sdam.get_subcommands().find(|command| command.get_name() == name);
            found.ok_or_else(|| {
                let all: Vec<&str> = sdam.get_subcommands().map(Command::get_name).collect();
                ManualError::NoCommand { command: name.clone(), all: all.join(", ") }
            })?
        }
    };
    print(&page(command).map_err(ManualError::Print)?)
}

fn print(text: &[u8]) -> Result<(), ManualError> {
    let mut out = io::stdout();
    let written = out.write_all(text).and_then(|()| out.flush());
    output::unless_gone(written).map_err(ManualError::Print)
}

fn write_page(folder: &Path, command: &Command) -> Result<(), ManualError> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let path = folder.join(format!("{name}.1"));
    let written = page(command).and_then(|page| std::fs::write(&path, page));
    written.map_err(|error| ManualError::Write { path, error })
}

/// Writes a page: what clap knows, and then examples and exit codes as they stand in `--help`.
fn page(command: &Command) -> io::Result<Vec<u8>> {
    let (mut page, man) = (Vec::new(), Man::new(command.clone()).manual("sdam").source(SOURCE));
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let mut sections = Roff::new();
    for section in more.split("\n\n") {
        let (heading, lines) = section.split_once('\n').unwrap_or((section, ""));
        if heading.is_empty() {
            continue;
        }
        sections.control("SH", [heading.trim_end_matches(':').to_uppercase().as_str()]);
        // Lines as they are, not filled.
        sections.control("nf", []);
        for line in lines.lines() {
            sections.text([roman(line)]);
        }
        sections.control("fi", []);
    }
    sections.to_writer(&mut page)?;
    Ok(page)
}
