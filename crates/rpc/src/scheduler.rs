//! Which requests run now, and which wait for tokens (docs/adr/0009-weak-servers.md). Pure: frames and time
//! go in, frames whose turn has come go out. Invariant: a bucket lets through at most its burst, its rate
//! times the time, and one frame, but for debts and overdue frames. No frame waits for tokens that are there.

mod bucket;
mod grammar;
mod rule;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use base::limits::{HELD_BYTES_MAX, RULE_CLASSES_MAX, RULES_MAX};
use base::{ClientId, Tick};

use crate::server::PeerInfo;
use bucket::Bucket;
pub use bucket::Limit;
pub use grammar::{Command, RuleError};
pub use rule::{ClientPattern, Each, Nature, Rule, Vocabulary};

/// Requests that share a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Class {
    /// By the number of its rule, never used again.
    rule: u64,
    client: Option<ClientId>,
    uid: Option<u32>,
}

/// Of each request of a frame the bucket it is paid from; of a frame that no rule is about nothing.
pub type Classes = Vec<Option<Class>>;

/// A frame that comes.
#[derive(Debug)]
pub struct Offer<'o, F> {
    /// Whose.
    pub client: ClientId,
    /// Who that is.
    pub peer: &'o PeerInfo,
    /// Its requests.
    pub natures: &'o [Nature],
    /// What it takes while it waits.
    pub bytes: usize,
    /// Others wait for something of this client: it is not held.
    pub awaited: bool,
    /// The frame.
    pub frame: F,
}

/// A frame whose turn has come.
#[derive(Debug, PartialEq, Eq)]
pub struct Cleared<F> {
    /// The frame.
    pub frame: F,
    /// Whom its answers may be charged to.
    pub classes: Classes,
}

/// A rule, and what became of the requests it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleReport {
    /// The rule, as it would be set again.
    pub rule: String,
    /// Its name.
    pub name: String,
    /// Requests since it started.
    pub requests: u64,
    /// Of these had to wait.
    pub held: u64,
    /// Of these wait now.
    pub waiting: u64,
    /// Of these went without tokens, for they had waited for too long.
    pub overdue: u64,
    /// Tokens taken before they were there: by what is not held, and by long answers.
    pub owed: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    requests: u64,
    held: u64,
    waiting: u64,
    overdue: u64,
    owed: u64,
}

#[derive(Debug)]
struct Active {
    number: u64,
    rule: Rule,
    counts: Counts,
}

/// A frame that waits, or is about to.
#[derive(Debug)]
struct Held<F> {
    number: u64,
    client: ClientId,
    bytes: usize,
    /// When it goes in any case; none: it has not waited yet.
    until: Option<Tick>,
    classes: Classes,
    /// Requests up to here are paid.
    paid: usize,
    /// What it waits for pays those up to here, at this many tokens.
    run: (usize, u64),
    frame: F,
}

/// A bucket, and who waits for it.
#[derive(Debug)]
struct Queue<F> {
    bucket: Bucket,
    waiting: VecDeque<Held<F>>,
    /// When the first of them can pay.
    due: Option<Tick>,
}

/// The scheduler of one target.
#[derive(Debug)]
pub struct Scheduler<F> {
    /// In the order they are looked at.
    rules: Vec<Active>,
    rules_made: u64,
    queues: BTreeMap<Class, Queue<F>>,
    due: BTreeSet<(Tick, Class)>,
    /// Frames by when they go in any case, and where each waits.
    overdue: BTreeMap<(Tick, u64), Class>,
    frames_made: u64,
    held_bytes: usize,
    held: HashMap<ClientId, usize>,
    hold_max: Duration,
}

impl<F> Scheduler<F> {
    /// No rules; a frame waits for at most `hold_max`.
    pub fn new(hold_max: Duration) -> Scheduler<F> {
        Scheduler {
            rules: Vec::new(),
            rules_made: 0,
            queues: BTreeMap::new(),
            due: BTreeSet::new(),
            overdue: BTreeMap::new(),
            frames_made: 0,
            held_bytes: 0,
            held: HashMap::new(),
            hold_max,
        }
    }

    /// Without rules every frame goes at once: no need to ask.
    pub fn has_rules(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The client has frames that wait.
    pub fn holds_of(&self, client: ClientId) -> bool {
        self.held.contains_key(&client)
    }

    /// When [`Scheduler::poll`] will next have something to do.
    pub fn next_due(&self) -> Option<Tick> {
        let due = self.due.first().map(|(at, _)| *at);
        let overdue = self.overdue.first_key_value().map(|((at, _), _)| *at);
        due.into_iter().chain(overdue).min()
    }

    /// Each rule, in the order they are looked at.
    pub fn report(&self) -> Vec<RuleReport> {
        let reports = self.rules.iter().map(|active| RuleReport {
            rule: active.rule.to_string(),
            name: active.rule.name.clone(),
            requests: active.counts.requests,
            held: active.counts.held,
            waiting: active.counts.waiting,
            overdue: active.counts.overdue,
            owed: active.counts.owed,
        });
        reports.collect()
    }

    /// A frame comes: it goes at once, or is kept.
    pub fn offer(&mut self, now: Tick, offer: Offer<'_, F>) -> Option<Cleared<F>> {
        let mut classes: Classes = Vec::new();
        for (place, nature) in offer.natures.iter().enumerate() {
            if let Some(class) = self.classify(now, offer.client, offer.peer, nature) {
                classes.resize(place, None);
                classes.push(Some(class));
            }
        }
        let mut held = Held {
            number: self.frames_made,
            client: offer.client,
            bytes: offer.bytes,
            until: None,
            classes,
            paid: 0,
            run: (0, 0),
            frame: offer.frame,
        };
        self.frames_made += 1;
        let urgent = offer.natures.iter().any(|nature| nature.urgent);
        let full = self.held_bytes.saturating_add(held.bytes) > HELD_BYTES_MAX;
        if urgent || offer.awaited {
            self.owe_the_rest(now, &mut held);
        } else if full && !held.classes.is_empty() {
            tracing::debug!(client = %held.client, "too much waits already: a frame goes at once");
            self.owe_the_rest(now, &mut held);
        }
        self.advance(now, held)
    }

    /// The frames whose turn has come by now, in the order of their turns.
    pub fn poll(&mut self, now: Tick, out: &mut Vec<Cleared<F>>) {
        loop {
            if let Some((at, class)) = self.due.first().copied()
                && at <= now
            {
                self.serve(now, class, out);
            } else if let Some(((until, number), class)) = self.overdue.first_key_value()
                && *until <= now
            {
                let (number, class) = (*number, *class);
                self.give_up(now, class, number, out);
            } else {
                return;
            }
        }
    }

    /// A frame has waited for too long.
    fn give_up(&mut self, now: Tick, class: Class, number: u64, out: &mut Vec<Cleared<F>>) {
        for mut held in self.take_out(now, class, |held| held.number == number) {
            self.count_overdue(&held);
            held.paid = held.classes.len();
            out.extend(self.advance(now, held));
        }
    }

    /// Others wait for something of this client: what it has waiting goes, and owes its tokens.
    pub fn release(&mut self, now: Tick, client: ClientId, out: &mut Vec<Cleared<F>>) {
        for mut held in self.take_all(now, client) {
            self.owe_the_rest(now, &mut held);
            out.extend(self.advance(now, held));
        }
    }

    /// The client is gone: the frames that it had waiting.
    pub fn forget(&mut self, now: Tick, client: ClientId) -> Vec<F> {
        let taken = self.take_all(now, client);
        taken.into_iter().map(|held| held.frame).collect()
    }

    /// An answer cost more than its request has paid.
    pub fn owe(&mut self, now: Tick, class: Class, tokens: u64) {
        let Some(active) = self.rules.iter_mut().find(|rule| rule.number == class.rule) else {
            return;
        };
        active.counts.owed += tokens;
        let queue = self.queue(now, class);
        queue.bucket.owe(tokens);
        self.set_due(class);
    }

    /// Carries out what was read as a command. What no rule holds any more goes.
    pub fn command(
        &mut self,
        now: Tick,
        command: Command,
        out: &mut Vec<Cleared<F>>,
    ) -> Result<(), RuleError> {
        match command {
            Command::Start(rule) => self.start(rule),
            Command::Change { name, rate, burst } => self.change(now, &name, rate, burst),
            Command::Stop { name } => self.stop(now, &name, out),
        }
    }

    fn start(&mut self, rule: Rule) -> Result<(), RuleError> {
        let name = &rule.name;
        if self.find(name).is_ok() {
            let what = format!("there is a rule {name} already; change it, or stop it first");
            return Err(RuleError::new(what));
        }
        if self.rules.len() >= RULES_MAX {
            let what = format!("there are {RULES_MAX} rules already; stop one first");
            return Err(RuleError::new(what));
        }
        self.rules_made += 1;
        let active = Active {
            number: self.rules_made,
            rule,
            counts: Counts::default(),
        };
        self.rules.insert(0, active);
        Ok(())
    }

    fn change(
        &mut self,
        now: Tick,
        name: &str,
        rate: Option<u32>,
        burst: Option<u32>,
    ) -> Result<(), RuleError> {
        let active = self.find(name)?;
        let active = &mut self.rules[active];
        let limit = &mut active.rule.limit;
        limit.rate = rate.unwrap_or(limit.rate);
        limit.burst = burst.unwrap_or(limit.burst);
        let (limit, number) = (*limit, active.number);
        for class in self.classes_of(number) {
            let queue = self.queue(now, class);
            queue.bucket.change(limit);
            if queue.waiting.is_empty() {
                queue.bucket.level_off();
            }
            self.set_due(class);
        }
        Ok(())
    }

    fn stop(&mut self, now: Tick, name: &str, out: &mut Vec<Cleared<F>>) -> Result<(), RuleError> {
        let place = self.find(name)?;
        let number = self.rules[place].number;
        let mut freed = Vec::new();
        for class in self.classes_of(number) {
            freed.extend(self.take_out(now, class, |_| true));
            self.queues.remove(&class);
        }
        self.rules.remove(place);
        freed.sort_by_key(|held| held.number);
        for held in freed {
            out.extend(self.advance(now, held));
        }
        Ok(())
    }

    fn find(&self, name: &str) -> Result<usize, RuleError> {
        let place = self
            .rules
            .iter()
            .position(|active| active.rule.name == name);
        place.ok_or_else(|| {
            let names: Vec<&str> = self.rules.iter().map(|a| a.rule.name.as_str()).collect();
            RuleError::new(match names.is_empty() {
                true => format!("there is no rule {name}; there are none"),
                false => format!("there is no rule {name}; there are {}", names.join(", ")),
            })
        })
    }

    fn classes_of(&self, number: u64) -> Vec<Class> {
        let all = self.queues.keys().copied();
        all.filter(|class| class.rule == number).collect()
    }

    /// The bucket that a request is paid from; none: it costs nothing.
    fn classify(
        &mut self,
        now: Tick,
        client: ClientId,
        peer: &PeerInfo,
        nature: &Nature,
    ) -> Option<Class> {
        if nature.urgent {
            return None;
        }
        let mut rules = self.rules.iter_mut();
        let active = rules.find(|active| active.rule.fits(client, peer, nature))?;
        active.counts.requests += 1;
        let (rule, each) = (active.number, active.rule.each);
        let class = Class {
            rule,
            client: (each == Each::Client).then_some(client),
            uid: nature.uid.filter(|_| each == Each::Uid),
        };
        Some(match self.has_room_for(now, class) {
            true => class,
            false => Class {
                client: None,
                uid: None,
                ..class
            },
        })
    }

    /// One bucket more may be kept. Full ones are forgotten for it; beyond, the rule's newcomers
    /// share one.
    fn has_room_for(&mut self, now: Tick, class: Class) -> bool {
        if self.queues.len() < RULE_CLASSES_MAX || self.queues.contains_key(&class) {
            return true;
        }
        self.queues.retain(|_, queue| {
            queue.bucket.fill(now);
            !queue.waiting.is_empty() || !queue.bucket.is_full()
        });
        self.queues.len() < RULE_CLASSES_MAX
    }

    /// The queue of `class`, with the tokens that it holds now. Its rule is there.
    fn queue(&mut self, now: Tick, class: Class) -> &mut Queue<F> {
        let rules = &self.rules;
        let queue = self.queues.entry(class).or_insert_with(|| {
            let mut rules = rules.iter();
            let active = rules.find(|active| active.number == class.rule);
            let active = active.expect("who asks has found the rule");
            Queue {
                bucket: Bucket::full(active.rule.limit, now),
                waiting: VecDeque::new(),
                due: None,
            }
        });
        queue.bucket.fill(now);
        if queue.waiting.is_empty() {
            queue.bucket.level_off();
        }
        queue
    }

    /// Pays for as much of a frame as can be paid now; what is not all paid waits.
    fn advance(&mut self, now: Tick, mut held: Held<F>) -> Option<Cleared<F>> {
        while let Some((class, run)) = self.next_run(&held) {
            held.run = run;
            let queue = self.queue(now, class);
            if !queue.waiting.is_empty() || !queue.bucket.take(run.1) {
                self.hold(now, class, held);
                return None;
            }
            held.paid = run.0;
        }
        Some(Cleared {
            frame: held.frame,
            classes: held.classes,
        })
    }

    /// The next requests of a frame that are paid from one bucket: up to where, and how many. Those
    /// that cost nothing, or whose rule was stopped, are among them.
    fn next_run(&self, held: &Held<F>) -> Option<(Class, (usize, u64))> {
        let mut found: Option<(Class, (usize, u64))> = None;
        for (place, class) in held.classes.iter().enumerate().skip(held.paid) {
            let Some(class) = class.filter(|class| self.is_active(*class)) else {
                continue;
            };
            match &mut found {
                None => found = Some((class, (place + 1, 1))),
                Some((known, (end, tokens))) if *known == class => {
                    (*end, *tokens) = (place + 1, *tokens + 1);
                }
                Some(_) => break,
            }
        }
        found
    }

    fn is_active(&self, class: Class) -> bool {
        self.rules.iter().any(|active| active.number == class.rule)
    }

    fn hold(&mut self, now: Tick, class: Class, mut held: Held<F>) {
        let until = *held.until.get_or_insert(now.after(self.hold_max));
        self.overdue.insert((until, held.number), class);
        self.held_bytes += held.bytes;
        *self.held.entry(held.client).or_default() += 1;
        if let Some(counts) = self.counts(class) {
            counts.held += held.run.1;
            counts.waiting += held.run.1;
        }
        if let Some(queue) = self.queues.get_mut(&class) {
            queue.waiting.push_back(held);
        }
        self.set_due(class);
    }

    /// A frame has left the queue of `class`.
    fn unhold(&mut self, class: Class, held: &Held<F>) {
        if let Some(until) = held.until {
            self.overdue.remove(&(until, held.number));
        }
        self.held_bytes -= held.bytes;
        if let Some(count) = self.held.get_mut(&held.client) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&held.client);
            }
        }
        if let Some(counts) = self.counts(class) {
            counts.waiting -= held.run.1;
        }
    }

    fn counts(&mut self, class: Class) -> Option<&mut Counts> {
        let mut rules = self.rules.iter_mut();
        let active = rules.find(|active| active.number == class.rule)?;
        Some(&mut active.counts)
    }

    fn count_overdue(&mut self, held: &Held<F>) {
        for class in held.classes[held.paid..].iter().flatten() {
            if let Some(counts) = self.counts(*class) {
                counts.overdue += 1;
            }
        }
    }

    /// Lets go whom the bucket of `class` can pay now.
    fn serve(&mut self, now: Tick, class: Class, out: &mut Vec<Cleared<F>>) {
        while let Some(queue) = self.queues.get_mut(&class) {
            queue.bucket.fill(now);
            let Some(first) = queue.waiting.front() else {
                queue.bucket.level_off();
                break;
            };
            if !queue.bucket.take(first.run.1) {
                break;
            }
            let Some(mut held) = queue.waiting.pop_front() else {
                break;
            };
            self.unhold(class, &held);
            held.paid = held.run.0;
            out.extend(self.advance(now, held));
        }
        self.set_due(class);
    }

    /// The request that is first in the queue of `class` is looked at when its tokens will be
    /// there.
    fn set_due(&mut self, class: Class) {
        let Some(queue) = self.queues.get_mut(&class) else {
            return;
        };
        let first = queue.waiting.front();
        let due = first.map(|held| queue.bucket.due(held.run.1));
        if due == queue.due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut queue.due, due) {
            self.due.remove(&(before, class));
        }
        if let Some(due) = due {
            self.due.insert((due, class));
        }
    }

    /// Takes frames out of the queue of `class`.
    fn take_out(
        &mut self,
        now: Tick,
        class: Class,
        which: impl Fn(&Held<F>) -> bool,
    ) -> VecDeque<Held<F>> {
        let Some(queue) = self.queues.get_mut(&class) else {
            return VecDeque::new();
        };
        queue.bucket.fill(now);
        let waiting = std::mem::take(&mut queue.waiting);
        let (taken, left): (VecDeque<_>, VecDeque<_>) = waiting.into_iter().partition(which);
        if left.is_empty() {
            queue.bucket.level_off();
        }
        queue.waiting = left;
        for held in &taken {
            self.unhold(class, held);
        }
        self.set_due(class);
        taken
    }

    /// All that the client has waiting, in the order it came.
    fn take_all(&mut self, now: Tick, client: ClientId) -> Vec<Held<F>> {
        if !self.holds_of(client) {
            return Vec::new();
        }
        let classes: Vec<Class> = self.queues.keys().copied().collect();
        let mut taken = Vec::new();
        for class in classes {
            taken.extend(self.take_out(now, class, |held| held.client == client));
        }
        taken.sort_by_key(|held| held.number);
        taken
    }

    /// A frame does not wait for what is not paid of it.
    fn owe_the_rest(&mut self, now: Tick, held: &mut Held<F>) {
        let unpaid: Vec<Class> = held.classes[held.paid.min(held.classes.len())..]
            .iter()
            .flatten()
            .copied()
            .collect();
        for class in unpaid {
            self.owe(now, class, 1);
        }
        held.paid = held.classes.len();
    }
}

/// Understands a command about the rules of a target.
pub fn parse(text: &str, vocabulary: &Vocabulary) -> Result<Command, RuleError> {
    grammar::parse(text, vocabulary)
}
