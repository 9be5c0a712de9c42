//! `glint param`

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::control::{Answer, ParamValue, Question, ask, mount_points};
use crate::output::{say, say_json};

/// Tunables of mounts, by Lustre's names where it has them.
#[derive(Args)]
pub struct Param {
    #[command(subcommand)]
    what: What,
    /// The mount to ask; all mounts of this machine if not given.
    #[arg(long, global = true)]
    mount: Option<PathBuf>,
    /// As JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// All tunables with what they do.
    List,
    /// The values of those that match, as in 'llite.*.statahead_max'.
    Get {
        /// The pattern; * stands for anything.
        pattern: String,
    },
    /// Sets one: 'llite.*.statahead_max=0'.
    Set {
        /// PATTERN=VALUE
        #[arg(value_parser = parse_assignment)]
        assignment: Assignment,
    },
}

impl Param {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let points = match &self.mount {
            Some(point) => vec![point.clone()],
            None => mount_points()?,
        };
        if points.is_empty() {
            return Err("there is no Glint mount on this machine".to_owned());
        }
        for point in points {
            match &self.what {
                What::List => self.show(&point, "*", true)?,
                What::Get { pattern } => self.show(&point, pattern, false)?,
                What::Set { assignment } => set(&point, assignment)?,
            }
        }
        Ok(())
    }

    fn show(&self, point: &Path, pattern: &str, help: bool) -> Result<(), String> {
        let matching = matching(point, pattern)?;
        if self.json {
            return say_json(&matching);
        }
        for param in matching {
            say(format!("{}={}", param.name, param.value));
            if help {
                say(format!("    {} (default {})", param.help, param.default));
            }
        }
        Ok(())
    }
}

fn matching(point: &Path, pattern: &str) -> Result<Vec<ParamValue>, String> {
    let Answer::Params(all) = ask(point, &Question::ListParams)? else {
        return Err("the mount answered something else".to_owned());
    };
    let found: Vec<_> = all.into_iter().filter(|p| fits(pattern, &p.name)).collect();
    match found.is_empty() {
        true => Err(format!(
            "no parameter matches {pattern}; 'glint param list' shows all"
        )),
        false => Ok(found),
    }
}

/// What to set.
#[derive(Debug, Clone)]
struct Assignment {
    pattern: String,
    value: u64,
}

fn parse_assignment(text: &str) -> Result<Assignment, String> {
    let (pattern, value) = text.split_once('=').ok_or("expected PATTERN=VALUE")?;
    let number = value.parse();
    let value = number.map_err(|_| format!("{value:?} is not a number"))?;
    let pattern = pattern.to_owned();
    Ok(Assignment { pattern, value })
}

fn set(point: &Path, assignment: &Assignment) -> Result<(), String> {
    let (pattern, value) = (&assignment.pattern, assignment.value);
    for param in matching(point, pattern)? {
        let name = param.name.rsplit('.').next().unwrap_or_default().to_owned();
        ask(point, &Question::SetParam { name, value })?;
        say(format!("{}={value}", param.name));
    }
    Ok(())
}

/// Shell-like match with `*` only.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => {
            let Some(tail) = name.strip_prefix(head) else {
                return false;
            };
            (0..=tail.len()).any(|cut| tail.is_char_boundary(cut) && fits(rest, &tail[cut..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_match_as_a_shell_would() {
        assert!(fits("llite.*.statahead_max", "llite.glint.statahead_max"));
        assert!(fits("*", "anything") && fits("*max", "statahead_max"));
        assert!(!fits("llite.*.batch", "llite.glint.batch_max"));
    }
}
