//! `glint param`

use std::borrow::Cow;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::control::{Answer, Endpoint, ParamValue, Question, Setting, ask_all};
use crate::output::{complain, say, say_json, shown};

/// What stands below the options.
const EXAMPLES: &str = "\
A server can be made slower, until it ends: 'mdt.*.nrs_tbf_rule' and 'ost.*.nrs_tbf_rule' are the
rules by which requests wait. For example

  glint param set 'mdt.*.nrs_tbf_rule=start slow opcode={getattr,lookup} rate=1000'
  glint param set 'mdt.*.nrs_tbf_rule=change slow rate=100'
  glint param get 'mdt.*.nrs_tbf_*'
  glint param set 'mdt.*.nrs_tbf_rule=stop slow'";

/// Tunables of mounts and servers, by Lustre's names where it has them.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Param {
    #[command(subcommand)]
    what: What,
    /// The mount to ask. A mount of `glint up` answers for its targets, too. Without --mount and --dir all
    /// mounts of this machine and all servers of this user are asked.
    #[arg(long, global = true)]
    mount: Option<PathBuf>,
    /// Ask the server of this directory.
    #[arg(long, global = true, conflicts_with = "mount")]
    dir: Option<PathBuf>,
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

/// A tunable, and whose it is.
type Found<'e> = (&'e Endpoint, ParamValue);

impl Param {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        let endpoints = match (&self.mount, &self.dir) {
            (Some(point), _) => vec![Endpoint::of_mount(point)?],
            (None, Some(dir)) => vec![Endpoint::of_dir(dir)?],
            (None, None) => self.all()?,
        };
        if endpoints.is_empty() {
            return Err("there is no Glint mount and no server on this machine".to_owned());
        }
        match &self.what {
            What::List => self.show(matching(&endpoints, "*")?, true),
            What::Get { pattern } => self.show(matching(&endpoints, pattern)?, false),
            What::Set { assignment } => set(&endpoints, assignment),
        }
    }

    /// Those of others are looked at, and left as they are.
    fn all(&self) -> Result<Vec<Endpoint>, String> {
        let mut all = Endpoint::all()?;
        if matches!(self.what, What::Set { .. }) {
            let are_any = !all.is_empty();
            all.retain(|endpoint| !endpoint.is_of_others());
            if are_any && all.is_empty() {
                return Err(
                    "the Glint mounts and servers on this machine belong to other users: \
                            only these and root may set their parameters"
                        .to_owned(),
                );
            }
        }
        Ok(all)
    }

    fn show(&self, found: Vec<Found<'_>>, help: bool) -> Result<(), String> {
        if self.json {
            let params = found.iter().map(|(endpoint, param)| Named {
                at: endpoint.at.to_string_lossy(),
                param,
            });
            return say_json(&params.collect::<Vec<_>>());
        }
        for (endpoint, param) in &found {
            let same = found.iter().filter(|(_, other)| other.name == param.name);
            say_value(param, (same.count() > 1).then_some(*endpoint));
            if help {
                say(match &param.default {
                    Setting::Number(default) => format!("    {} (default {default})", param.help),
                    Setting::Text(_) => format!("    {}", param.help),
                });
            }
        }
        Ok(())
    }
}

/// With whose it is.
#[derive(Serialize)]
struct Named<'f> {
    at: Cow<'f, str>,
    #[serde(flatten)]
    param: &'f ParamValue,
}

/// Of several lines each with the name: what is found is also told by `grep`. As there, it is said `of`
/// what it is where there are several of that name.
fn say_value(param: &ParamValue, of: Option<&Endpoint>) {
    let value = param.value.to_string();
    let of = of.map_or(String::new(), |of| {
        format!("{}: ", shown(&of.at.to_string_lossy()))
    });
    if value.is_empty() {
        say(format!("{of}{}=", param.name));
    }
    for line in value.lines() {
        say(format!("{of}{}={line}", param.name));
    }
}

fn matching<'e>(endpoints: &'e [Endpoint], pattern: &str) -> Result<Vec<Found<'e>>, String> {
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for (endpoint, answer) in endpoints
        .iter()
        .zip(ask_all(endpoints, &Question::ListParams))
    {
        let all = match answer {
            Ok(Answer::Params(all)) => all,
            Ok(_) => {
                silent.push(format!("{} answered something else", endpoint.name));
                continue;
            }
            // Nobody asked for what is none of this user's.
            Err(_) if endpoint.is_of_others() && endpoints.len() > 1 => continue,
            Err(reason) => {
                silent.push(reason);
                continue;
            }
        };
        let ours = all.into_iter().filter(|param| fits(pattern, &param.name));
        found.extend(ours.map(|param| (endpoint, param)));
    }
    if found.is_empty() && !silent.is_empty() {
        return Err(silent.join("; "));
    }
    // The others answer for themselves.
    for reason in silent {
        complain(reason);
    }
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
    value: String,
}

fn parse_assignment(text: &str) -> Result<Assignment, String> {
    let (pattern, value) = text.split_once('=').ok_or("expected PATTERN=VALUE")?;
    if pattern.starts_with("llite.") {
        number(value)?;
    }
    Ok(Assignment {
        pattern: pattern.to_owned(),
        value: value.to_owned(),
    })
}

fn number(value: &str) -> Result<u64, String> {
    let number = value.parse();
    number.map_err(|_| format!("{value:?} is not a number"))
}

fn set(endpoints: &[Endpoint], assignment: &Assignment) -> Result<(), String> {
    let value = &assignment.value;
    let found = matching(endpoints, &assignment.pattern)?;
    for (endpoint, param) in &found {
        let ParamValue {
            name, value: now, ..
        } = param;
        let question = match now {
            Setting::Number(_) => Question::SetParam {
                name: match name.starts_with("llite.") {
                    true => name.rsplit('.').next().unwrap_or_default().to_owned(),
                    false => name.clone(),
                },
                value: number(value)?,
            },
            Setting::Text(_) => Question::SetRule {
                name: name.clone(),
                command: value.clone(),
            },
        };
        endpoint.ask(&question)?;
        let same = found.iter().filter(|(_, other)| other.name == *name);
        let of = (same.count() > 1).then_some(*endpoint);
        let set = ParamValue {
            value: Setting::Text(value.clone()),
            ..param.clone()
        };
        say_value(&set, of);
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
        assert!(fits("mdt.*.nrs_tbf_*", "mdt.glint-MDT0.nrs_tbf_rule"));
        assert!(fits("*", "anything") && fits("*max", "statahead_max"));
        assert!(!fits("llite.*.batch", "llite.glint.batch_max"));
    }
}
