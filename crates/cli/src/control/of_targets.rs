//! What a server answers for its targets. The rules by which requests wait and what became of them,
//! whom it waits for after a restart, how it commits.

use std::sync::Arc;
use std::time::Duration;

use base::{TargetKind, TargetName};
use rpc::scheduler::RuleReport;
use rpc::serving::{Recovering, Scheduling};
use rpc::{ClientUuid, window::Report};
use storage::extents::ExtentObjects;
use storage::pace::{self, Pace, Taken};

use super::of_extents;
use super::{Answer, Answering, ParamValue, Question, ServerStatus, Setting, TargetStatus};

/// The rules of a target.
const RULES: &str = "nrs_tbf_rule";
const RULES_HELP: &str = "Rules by which requests wait, the newest is looked at first: 'start NAME \
    [opcode={NAME,...}] [client={ADDRESS|UUID|NUMBER,...}] [uid={UID,...}] [each=client|uid] \
    rate=N [burst=N]', 'change NAME rate=N', 'stop NAME'. rate: requests a second; \
    burst: how many may go at once after a pause (3).";
/// What became of requests.
const STATS: &str = "nrs_tbf_stats";
const STATS_HELP: &str = "Of each rule: requests it was about, of these held, waiting now, overdue \
    (gone without a token, having waited for too long), and tokens owed. Can only be read.";
/// The clients that rules may name.
const CLIENTS: &str = "exports";
const CLIENTS_HELP: &str = "The clients: number, UUID, address. Can only be read.";

/// What making changes durable took.
const COMMITS: &str = "commit_stats";
const COMMITS_HELP: &str = "Commits so far, their bytes, and how many milliseconds half of them and \
    99% of them took at most (to a factor of two), and the longest. Can only be read.";

/// A tunable that is a number.
struct Number {
    name: &'static str,
    help: &'static str,
    bound: pace::Bound,
    get: fn(&Pace) -> u64,
    set: fn(&Pace, u64) -> Result<(), pace::OutOfBounds>,
}

const COMMIT_MS: Number = Number {
    name: "commit_ms",
    help: "Milliseconds that a change waits at most to be made durable together with others where \
        nobody waits for it. Clients keep it for so long. 1 to 60000.",
    bound: pace::COMMIT_MS,
    get: |pace| pace.interval().as_millis() as u64,
    set: Pace::set_ms,
};
const COMMIT_BYTES: Number = Number {
    name: "commit_bytes",
    help: "Bytes that wait so at most; of records 32 MiB at most. From 4096.",
    bound: pace::COMMIT_BYTES,
    get: Pace::bytes,
    set: Pace::set_bytes,
};

/// Whom a target waits for after a restart.
const RECOVERY: &str = "recovery_status";
const RECOVERY_HELP: &str = "After a restart: whether clients are waited for, for how long still, \
    who has not come back, and how much was done again. 'end' \
    waits no longer: what those had not on disk is lost.";

/// What requests were answered that may be sent again.
const REPLIES: &str = "stored_replies";
const REPLIES_HELP: &str = "Answers kept in memory so that a request that is sent again is answered \
    and not done again, and their bytes: of each client 64 at most, each of 5 MiB at most; of all \
    clients of a server 256 MiB at most, or a 64th of its memory. Can only be read.";

/// Ends a client's session by hand.
const EVICT: &str = "evict_client";
const EVICT_HELP: &str = "Set to a client's UUID, as in exports, it evicts the client: its locks and \
    open files here end, and what it had not written is lost. Others go on.";

/// The targets of a process.
#[derive(Clone)]
pub struct ServedTargets {
    /// The file system's name.
    pub fsname: String,
    /// Those that can be controlled.
    pub targets: Vec<Controls>,
}

/// What can be asked of a target and set while it is served.
#[derive(Clone)]
pub struct Controls {
    /// Which one.
    pub name: TargetName,
    /// The rules by which its requests wait.
    pub scheduling: Arc<dyn Scheduling>,
    /// Whom it waits for after a restart.
    pub recovering: Arc<dyn Recovering>,
    /// How it commits.
    pub pace: Arc<Pace>,
    /// The bytes of its objects, where these are extents.
    pub extents: Option<Arc<ExtentObjects>>,
}

impl ServedTargets {
    /// All tunables.
    pub fn params(&self) -> Vec<ParamValue> {
        self.targets
            .iter()
            .flat_map(|of| self.params_of(of))
            .collect()
    }

    fn params_of(&self, of: &Controls) -> Vec<ParamValue> {
        let (report, clients) = (of.scheduling.report(), of.scheduling.clients());
        let rules = report.iter().map(|report| report.rule.clone()).collect();
        let stats = report.iter().map(counted).collect();
        let clients = clients
            .into_iter()
            .map(|(client, peer)| format!("{client} {} {}", peer.uuid, peer.address));
        let (answers, bytes) = of.recovering.kept();
        let kept = vec![format!("answers={answers} bytes={bytes}")];
        let text = |name, lines, help| self.text(of.name, name, lines, help);
        let number = |which: &Number| self.number(of, which);
        let mut params = vec![
            text(RULES, rules, RULES_HELP),
            text(STATS, stats, STATS_HELP),
            text(CLIENTS, clients.collect(), CLIENTS_HELP),
            text(RECOVERY, of.recovering.report().lines(), RECOVERY_HELP),
            text(REPLIES, kept, REPLIES_HELP),
            text(EVICT, Vec::new(), EVICT_HELP),
            text(COMMITS, vec![committed(&of.pace.taken())], COMMITS_HELP),
            number(&COMMIT_MS),
            number(&COMMIT_BYTES),
        ];
        if let Some(store) = &of.extents {
            params.extend(self.params_of_extents(of.name, store));
        }
        params
    }

    fn params_of_extents(&self, target: TargetName, store: &ExtentObjects) -> [ParamValue; 4] {
        let text = |name, lines, help| self.text(target, name, lines, help);
        [
            text(
                of_extents::GROUPS,
                of_extents::groups(store),
                of_extents::GROUPS_HELP,
            ),
            text(
                of_extents::STATS,
                of_extents::stats(store),
                of_extents::STATS_HELP,
            ),
            ParamValue {
                name: self.name_of(target, of_extents::LAST_GROUP),
                value: Setting::Number(store.last_group().into()),
                default: Setting::Number(0),
                help: of_extents::LAST_GROUP_HELP.to_owned(),
            },
            ParamValue {
                name: self.name_of(target, of_extents::TABLE),
                value: Setting::Text(store.prealloc_table().to_string()),
                default: Setting::Text(of_extents::usual_table()),
                help: of_extents::TABLE_HELP.to_owned(),
            },
        ]
    }

    fn text(&self, target: TargetName, name: &str, lines: Vec<String>, help: &str) -> ParamValue {
        ParamValue {
            name: self.name_of(target, name),
            value: Setting::Text(lines.join("\n")),
            default: Setting::Text(String::new()),
            help: help.to_owned(),
        }
    }

    fn number(&self, of: &Controls, number: &Number) -> ParamValue {
        ParamValue {
            name: self.name_of(of.name, number.name),
            value: Setting::Number((number.get)(&of.pace)),
            default: Setting::Number(number.bound.usual),
            help: number.help.to_owned(),
        }
    }

    /// As in `mdt.glint-MDT0.nrs_tbf_rule`.
    fn name_of(&self, target: TargetName, name: &str) -> String {
        let kind = match target.kind {
            TargetKind::Mgs => "mgs",
            TargetKind::Mdt => "mdt",
            TargetKind::Ost => "ost",
        };
        format!("{kind}.{}-{target}.{name}", self.fsname)
    }

    fn set(&self, name: &str, command: &str) -> Result<(), String> {
        for of in &self.targets {
            if self.name_of(of.name, RECOVERY) == name {
                return match command {
                    "end" => {
                        of.recovering.end();
                        Ok(())
                    }
                    _ => Err(format!("{name}: the only thing to be set is 'end'")),
                };
            }
            if self.name_of(of.name, EVICT) == name {
                return evict(&*of.recovering, command).map_err(|why| format!("{name}: {why}"));
            }
            let is_table = self.name_of(of.name, of_extents::TABLE) == name;
            if let Some(store) = of.extents.as_ref().filter(|_| is_table) {
                let set = of_extents::set_table(store, command);
                return set.map_err(|why| format!("{name}: {why}"));
            }
        }
        self.set_rule(name, command)
    }

    /// How things stand with each target.
    pub fn status(&self) -> ServerStatus {
        let targets = self.targets.iter().map(|of| {
            let here = of.scheduling.clients().into_iter();
            let here: Vec<(ClientUuid, String)> = here
                .map(|(_, peer)| (peer.uuid, peer.address.clone()))
                .collect();
            let stopped = of.recovering.stopped();
            let status = target_status(of.name.to_string(), of.recovering.report(), &here);
            TargetStatus { stopped, ..status }
        });
        ServerStatus {
            fsname: self.fsname.clone(),
            pid: std::process::id(),
            targets: targets.collect(),
        }
    }

    fn set_number(&self, name: &str, value: u64) -> Result<(), String> {
        for of in &self.targets {
            let is_group = self.name_of(of.name, of_extents::LAST_GROUP) == name;
            if let Some(store) = of.extents.as_ref().filter(|_| is_group) {
                let set = of_extents::set_last_group(store, value);
                return set.map_err(|why| format!("{name}: {why}"));
            }
        }
        let all = self
            .targets
            .iter()
            .flat_map(|of| [(of, &COMMIT_MS), (of, &COMMIT_BYTES)]);
        let mut found = all.filter(|(of, number)| self.name_of(of.name, number.name) == name);
        let (of, number) = found
            .next()
            .ok_or_else(|| format!("{name}: there is no such number"))?;
        (number.set)(&of.pace, value).map_err(|bounds| format!("{name}: {value} is not {bounds}"))
    }

    fn set_rule(&self, name: &str, command: &str) -> Result<(), String> {
        let mut targets = self.targets.iter();
        let found = targets.find(|of| self.name_of(of.name, RULES) == name);
        let of = found.ok_or_else(|| format!("{name} can only be read"))?;
        let done = of.scheduling.command(command);
        done.map_err(|error| format!("{name}: {error}"))
    }
}

fn evict(recovering: &dyn Recovering, uuid: &str) -> Result<(), String> {
    let parsed = u128::from_str_radix(uuid, 16)
        .ok()
        .filter(|_| uuid.len() == 32);
    let parsed = parsed.ok_or("expected a client's UUID, 32 hexadecimal digits")?;
    match recovering.evict(ClientUuid(parsed.to_be_bytes())) {
        true => Ok(()),
        false => Err(format!(
            "no client {uuid} is here; exports lists those that are"
        )),
    }
}

/// Clients are named by UUID, and by address where they are here.
fn target_status(target: String, report: Report, here: &[(ClientUuid, String)]) -> TargetStatus {
    let named = |clients: Vec<ClientUuid>| -> Vec<String> {
        let name = |uuid: ClientUuid| match here.iter().find(|(known, _)| *known == uuid) {
            Some((_, address)) => format!("{uuid} ({address})"),
            None => uuid.to_string(),
        };
        clients.into_iter().map(name).collect()
    };
    TargetStatus {
        target,
        recovering: report.left.is_some(),
        seconds_left: report.left.map(|left| left.as_secs()),
        clients: here.len(),
        back: named(report.back),
        awaited: named(report.awaited),
        given_up: named(report.given_up),
        replayed: report.replayed,
        stopped: None,
    }
}

fn counted(report: &RuleReport) -> String {
    let RuleReport {
        name,
        requests,
        held,
        waiting,
        overdue,
        owed,
        ..
    } = report;
    format!(
        "{name} requests={requests} held={held} waiting={waiting} overdue={overdue} owed={owed}"
    )
}

fn committed(taken: &Taken) -> String {
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let Taken {
        commits,
        bytes,
        longest,
        ..
    } = taken;
    let (half, most) = (ms(taken.percentile(50)), ms(taken.percentile(99)));
    let longest = ms(*longest);
    format!("commits={commits} bytes={bytes} ms_p50={half} ms_p99={most} ms_max={longest}")
}

fn done(result: Result<(), String>) -> Answer {
    result.map_or_else(Answer::Failed, |()| Answer::Done)
}

impl Answering for ServedTargets {
    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => Answer::Serving(self.status()),
            Question::ListParams => Answer::Params(self.params()),
            Question::SetRule { name, command } => done(self.set(&name, &command)),
            Question::SetParam { name, value } => done(self.set_number(&name, value)),
            _ => Answer::Failed("a server answers for its parameters only; ask a mount".to_owned()),
        }
    }
}
