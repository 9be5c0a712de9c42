//! What a server answers: the rules by which requests to its targets wait, and what became of them.

use std::sync::Arc;

use base::{TargetKind, TargetName};
use rpc::scheduler::RuleReport;
use rpc::serving::{Recovering, Scheduling};
use rpc::{ClientUuid, window::Report};

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

/// Whom a target waits for after a restart.
const RECOVERY: &str = "recovery_status";
const RECOVERY_HELP: &str = "After a restart: whether clients are waited for, for how long still, \
    who has not come back, and how much was done again. 'end' \
    waits no longer: what those had not on disk is lost.";

/// Ends a client's session by hand.
const EVICT: &str = "evict_client";
const EVICT_HELP: &str = "Set to a client's UUID, as in exports, it evicts the client: its locks and \
    open files here end, and what it had not written is lost. Others go on.";

/// The targets of a process.
#[derive(Clone)]
pub struct ServedTargets {
    /// The file system's name.
    pub fsname: String,
    /// Those that have rules.
    pub targets: Vec<(TargetName, Arc<dyn Scheduling>)>,
    /// Those that wait for their clients after a restart.
    pub recovering: Vec<(TargetName, Arc<dyn Recovering>)>,
}

impl ServedTargets {
    /// All tunables.
    pub fn params(&self) -> Vec<ParamValue> {
        let all = self.targets.iter().flat_map(|(name, scheduling)| {
            let (report, clients) = (scheduling.report(), scheduling.clients());
            let rules = report.iter().map(|report| report.rule.clone()).collect();
            let stats = report.iter().map(counted).collect();
            let clients = clients
                .into_iter()
                .map(|(client, peer)| format!("{client} {} {}", peer.uuid, peer.address));
            [
                self.param(*name, RULES, rules, RULES_HELP),
                self.param(*name, STATS, stats, STATS_HELP),
                self.param(*name, CLIENTS, clients.collect(), CLIENTS_HELP),
            ]
        });
        let recovering = self.recovering.iter().flat_map(|(name, recovering)| {
            let lines = recovering.report().lines();
            [
                self.param(*name, RECOVERY, lines, RECOVERY_HELP),
                self.param(*name, EVICT, Vec::new(), EVICT_HELP),
            ]
        });
        all.chain(recovering).collect()
    }

    fn param(&self, target: TargetName, name: &str, lines: Vec<String>, help: &str) -> ParamValue {
        ParamValue {
            name: self.name_of(target, name),
            value: Setting::Text(lines.join("\n")),
            default: Setting::Text(String::new()),
            help: help.to_owned(),
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
        for (target, recovering) in &self.recovering {
            if self.name_of(*target, RECOVERY) == name {
                return match command {
                    "end" => {
                        recovering.end();
                        Ok(())
                    }
                    _ => Err(format!("{name}: the only thing to be set is 'end'")),
                };
            }
            if self.name_of(*target, EVICT) == name {
                return evict(&**recovering, command).map_err(|why| format!("{name}: {why}"));
            }
        }
        self.set_rule(name, command)
    }

    /// How things stand with each target.
    pub fn status(&self) -> ServerStatus {
        let targets = self.recovering.iter().map(|(name, recovering)| {
            let scheduling = self.targets.iter().find(|(known, _)| known == name);
            let here = scheduling.map(|(_, scheduling)| scheduling.clients());
            let here: Vec<(ClientUuid, String)> = here
                .into_iter()
                .flatten()
                .map(|(_, peer)| (peer.uuid, peer.address.clone()))
                .collect();
            target_status(name.to_string(), recovering.report(), &here)
        });
        ServerStatus {
            fsname: self.fsname.clone(),
            pid: std::process::id(),
            targets: targets.collect(),
        }
    }

    fn set_rule(&self, name: &str, command: &str) -> Result<(), String> {
        let mut targets = self.targets.iter();
        let found = targets.find(|(target, _)| self.name_of(*target, RULES) == name);
        let (_, scheduling) = found.ok_or_else(|| format!("{name} can only be read"))?;
        let done = scheduling.command(command);
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

impl Answering for ServedTargets {
    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => Answer::Serving(self.status()),
            Question::ListParams => Answer::Params(self.params()),
            Question::SetRule { name, command } => match self.set(&name, &command) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Failed(reason),
            },
            _ => Answer::Failed("a server answers for its parameters only; ask a mount".to_owned()),
        }
    }
}
