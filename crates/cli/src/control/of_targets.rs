//! What a server answers: the rules by which requests to its targets wait, and what became of them.

use std::sync::Arc;

use base::{TargetKind, TargetName};
use rpc::scheduler::RuleReport;
use rpc::serving::{Recovering, Scheduling};

use super::{Answer, Answering, ParamValue, Question, Setting};

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
        let recovering = self.recovering.iter().map(|(name, recovering)| {
            self.param(*name, RECOVERY, recovering.report(), RECOVERY_HELP)
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
        let mut recovering = self.recovering.iter();
        match recovering.find(|(target, _)| self.name_of(*target, RECOVERY) == name) {
            Some((_, recovering)) if command == "end" => {
                recovering.end();
                Ok(())
            }
            Some(_) => Err(format!("{name}: the only thing to be set is 'end'")),
            None => self.set_rule(name, command),
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
            Question::ListParams => Answer::Params(self.params()),
            Question::SetRule { name, command } => match self.set(&name, &command) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Failed(reason),
            },
            _ => Answer::Failed("a server answers for its parameters only; ask a mount".to_owned()),
        }
    }
}
