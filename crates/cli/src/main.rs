//! `glint`: the whole file system in one program.

#![warn(clippy::print_stdout, clippy::print_stderr)]

mod control;
mod daemon;
mod descriptors;
mod directories;
mod foreground;
mod logging;
mod memory;
mod mgs;
mod mounting;
mod output;
mod port_holder;
mod registration;
mod server;
mod supervisor;
mod unopened;
mod unreadable;
mod verbs;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// The allocator reuses buffers of file data that another thread has freed, instead of asking the system for
/// fresh pages (docs/adr/0001-libraries.md).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A POSIX file system for clusters in which metadata travels ahead of the reader.
///
/// Start with `glint up --dir DIR --mount MNT`: it formats DIR if it is empty, serves it and
/// mounts it at MNT, all in one process. `glint down MNT` ends it; nothing is lost.
///
/// What a process has to say beyond its results goes to standard error; GLINT_LOG chooses how much:
/// error, warn, info or debug.
///
/// Exit codes: 0 it worked, 1 it failed, 2 the call was wrong.
#[derive(Parser)]
#[command(name = "glint", version, max_term_width = 100)]
struct Glint {
    #[command(subcommand)]
    verb: verbs::Verb,
}

fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    if let Some(helper) = verbs::Helper::called(called.as_ref()) {
        return helper.run();
    }
    let verb = Glint::parse().verb;
    logging::start(verb.log_level());
    match verb
        .run()
        .and_then(|code| output::all_said().map(|()| code))
    {
        Ok(code) => code,
        Err(reason) => {
            output::complain(reason);
            ExitCode::from(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Glint::command().debug_assert();
    }
}
