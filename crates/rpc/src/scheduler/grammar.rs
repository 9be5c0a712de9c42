//! Rules of the scheduler as text: commands that start, change and stop them.

use std::fmt;
use std::ops::RangeInclusive;

use super::bucket::Limit;
use super::rule::{ClientPattern, Each, Rule, Vocabulary};

/// Characters in a command. Beyond: refused.
const COMMAND_CHARS_MAX: usize = 4095;
/// Characters in a rule's name. Beyond: refused.
const NAME_CHARS_MAX: usize = 15;
/// What `rate` and `burst` may be.
const NUMBERS: RangeInclusive<u32> = 1..=1_000_000;
/// Tokens kept where the rule does not say.
const BURST: u32 = 3;

/// A change of the rules, written as
///
/// ```text
/// start NAME [opcode={NAME,…}] [client={CLIENT,…}] [uid={UID,…}] [each=client|uid] rate=N [burst=N]
/// change NAME [rate=N] [burst=N]
/// stop NAME
/// ```
/// Fields are separated by blanks or `&`; braces around a single value may be left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// One rule more.
    Start(Rule),
    /// Another limit.
    Change {
        /// Of which rule.
        name: String,
        /// Tokens a second; none: as before.
        rate: Option<u32>,
        /// Tokens kept; none: as before.
        burst: Option<u32>,
    },
    /// One rule less.
    Stop {
        /// Which.
        name: String,
    },
}

/// A command that is not carried out: what is wrong with it, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleError {
    /// The first character that is wrong, from 1 on; none where that is not the trouble.
    pub column: Option<usize>,
    /// What is wrong, and how to mend it.
    pub what: String,
}

impl RuleError {
    pub(super) fn new(what: impl Into<String>) -> RuleError {
        RuleError {
            column: None,
            what: what.into(),
        }
    }

    fn at(column: usize, what: impl Into<String>) -> RuleError {
        RuleError {
            column: Some(column),
            what: what.into(),
        }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(column) = self.column {
            write!(f, "character {column}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl std::error::Error for RuleError {}

/// A part of the command, and the place of its first character.
#[derive(Debug, Clone, Copy)]
struct Word<'t> {
    column: usize,
    text: &'t str,
}

/// Understands `text`.
pub(super) fn parse(text: &str, vocabulary: &Vocabulary) -> Result<Command, RuleError> {
    let mut words = words(text)?.into_iter();
    let example = example(vocabulary);
    let verb = words.next();
    let verb =
        verb.ok_or_else(|| RuleError::at(1, format!("a rule is missing; as in: {example}")))?;
    if !["start", "change", "stop"].contains(&verb.text) {
        let what = format!(
            "{:?} is none of start, change, stop; as in: {example}",
            verb.text
        );
        return Err(RuleError::at(verb.column, what));
    }
    let end = text.chars().count() + 1;
    let name = words.next().ok_or_else(|| {
        let what = format!("the rule's name is missing; as in: {example}");
        RuleError::at(end, what)
    })?;
    let name = (name.column, rule_name(name)?);
    let fields = Fields::read(words, vocabulary)?;
    match verb.text {
        "start" => fields.start(name.1, end, &example),
        "change" => fields.change(name, end),
        _ => fields.stop(name),
    }
}

fn example(vocabulary: &Vocabulary) -> String {
    let some = &vocabulary.operations[..vocabulary.operations.len().min(2)];
    format!("start slow opcode={{{}}} rate=1000", some.join(","))
}

/// Splits at blanks and `&`, but not between braces.
fn words(text: &str) -> Result<Vec<Word<'_>>, RuleError> {
    if text.chars().count() > COMMAND_CHARS_MAX {
        let what = format!("longer than {COMMAND_CHARS_MAX} characters; make it several rules");
        return Err(RuleError::new(what));
    }
    let (mut words, mut began, mut brace) = (Vec::new(), None, None);
    for (column, (offset, c)) in (1..).zip(text.char_indices()) {
        match (c, brace) {
            ('{', None) => brace = Some(column),
            ('{', Some(_)) | ('}', None) => {
                let what = format!("this {c:?} has no partner; as in opcode={{a,b}}");
                return Err(RuleError::at(column, what));
            }
            ('}', Some(_)) => brace = None,
            _ => {}
        }
        let separates = brace.is_none() && (c.is_whitespace() || c == '&');
        match (separates, began) {
            (false, None) => began = Some((column, offset)),
            (true, Some((column, from))) => {
                let text = &text[from..offset];
                words.push(Word { column, text });
                began = None;
            }
            _ => {}
        }
    }
    if let Some(column) = brace {
        return Err(RuleError::at(
            column,
            "this brace is never closed; add a '}'",
        ));
    }
    if let Some((column, from)) = began {
        let text = &text[from..];
        words.push(Word { column, text });
    }
    Ok(words)
}

fn rule_name(word: Word<'_>) -> Result<String, RuleError> {
    let fits = word.text.len() <= NAME_CHARS_MAX;
    let plain = word
        .text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_');
    match fits && plain {
        true => Ok(word.text.to_owned()),
        false => Err(RuleError::at(
            word.column,
            format!(
                "{:?} is no name of a rule: 1 to {NAME_CHARS_MAX} letters, digits and '_'",
                word.text
            ),
        )),
    }
}

/// What was said after the name.
#[derive(Default)]
struct Fields {
    /// Those given, each with its place.
    given: Vec<(&'static str, usize)>,
    operations: Vec<&'static str>,
    clients: Vec<ClientPattern>,
    uids: Vec<u32>,
    each: Option<Each>,
    rate: Option<u32>,
    burst: Option<u32>,
}

/// Every field there is.
const FIELDS: [&str; 6] = ["opcode", "client", "uid", "each", "rate", "burst"];

impl Fields {
    fn read<'t>(
        words: impl Iterator<Item = Word<'t>>,
        vocabulary: &Vocabulary,
    ) -> Result<Fields, RuleError> {
        let mut fields = Fields::default();
        for word in words {
            let (name, _) = word.text.split_once('=').unwrap_or((word.text, ""));
            let known = FIELDS.into_iter().find(|field| *field == name);
            let field = known.filter(|_| word.text.len() > name.len());
            let field = field.ok_or_else(|| {
                let what = format!("{:?} is none of {}=", word.text, FIELDS.join("=, "));
                RuleError::at(word.column, what)
            })?;
            if fields.given.iter().any(|(given, _)| *given == field) {
                return Err(RuleError::at(
                    word.column,
                    format!("{field}= a second time"),
                ));
            }
            fields.given.push((field, word.column));
            let value = Word {
                column: word.column + field.len() + 1,
                text: &word.text[field.len() + 1..],
            };
            fields.take(field, value, vocabulary)?;
        }
        Ok(fields)
    }

    fn take(
        &mut self,
        field: &str,
        value: Word<'_>,
        vocabulary: &Vocabulary,
    ) -> Result<(), RuleError> {
        match field {
            "opcode" => {
                for word in values(value)? {
                    self.operations.push(operation(word, vocabulary)?);
                }
            }
            "client" => {
                for word in values(value)? {
                    let what = "neither an address, nor digits of a UUID, nor a number as 0x7";
                    let pattern = ClientPattern::parse(word.text);
                    self.clients
                        .push(pattern.ok_or_else(|| RuleError::at(word.column, what))?);
                }
            }
            "uid" => {
                knows_uids(value, vocabulary)?;
                for word in values(value)? {
                    let uid = word.text.parse();
                    let what = format!("{:?} is not the number of a user", word.text);
                    self.uids
                        .push(uid.map_err(|_| RuleError::at(word.column, what))?);
                }
            }
            "each" => self.each = Some(each(value, vocabulary)?),
            "rate" => self.rate = Some(number(value)?),
            _ => self.burst = Some(number(value)?),
        }
        Ok(())
    }

    fn start(self, name: String, end: usize, example: &str) -> Result<Command, RuleError> {
        let rate = self.rate.ok_or_else(|| {
            let what = format!("rate= is missing, requests a second; as in: {example}");
            RuleError::at(end, what)
        })?;
        let burst = self.burst.unwrap_or(BURST);
        Ok(Command::Start(Rule {
            name,
            operations: self.operations,
            clients: self.clients,
            uids: self.uids,
            each: self.each.unwrap_or(Each::Rule),
            limit: Limit { rate, burst },
        }))
    }

    fn change(self, (_, name): (usize, String), end: usize) -> Result<Command, RuleError> {
        self.only(&["rate", "burst"], "change sets rate= and burst= only")?;
        let (rate, burst) = (self.rate, self.burst);
        if rate.is_none() && burst.is_none() {
            let what = format!("nothing to change; as in: change {name} rate=1000");
            return Err(RuleError::at(end, what));
        }
        Ok(Command::Change { name, rate, burst })
    }

    fn stop(self, (_, name): (usize, String)) -> Result<Command, RuleError> {
        self.only(&[], "stop takes a name and nothing else")?;
        Ok(Command::Stop { name })
    }

    fn only(&self, allowed: &[&str], what: &str) -> Result<(), RuleError> {
        let mut given = self.given.iter();
        match given.find(|(field, _)| !allowed.contains(field)) {
            Some((_, column)) => Err(RuleError::at(*column, what)),
            None => Ok(()),
        }
    }
}

/// The values between braces, or the one without.
fn values(word: Word<'_>) -> Result<Vec<Word<'_>>, RuleError> {
    let inner = word.text.strip_prefix('{');
    let inside = inner.and_then(|rest| rest.strip_suffix('}'));
    let (mut column, list) = match inside {
        Some(inside) => (word.column + 1, inside),
        None => (word.column, word.text),
    };
    let mut found = Vec::new();
    for part in list.split(',') {
        let blanks = part.chars().take_while(|c| c.is_whitespace()).count();
        let text = part.trim();
        if text.is_empty() {
            let what = "a value is missing here; as in opcode={a,b}";
            return Err(RuleError::at(column, what));
        }
        found.push(Word {
            column: column + blanks,
            text,
        });
        column += part.chars().count() + 1;
    }
    Ok(found)
}

fn operation(word: Word<'_>, vocabulary: &Vocabulary) -> Result<&'static str, RuleError> {
    let known = vocabulary.operations.iter();
    let found = known.copied().find(|name| *name == word.text);
    found.ok_or_else(|| {
        let all = vocabulary.operations.join(", ");
        let what = format!(
            "no operation here is called {:?}; there are {all}",
            word.text
        );
        RuleError::at(word.column, what)
    })
}

fn knows_uids(value: Word<'_>, vocabulary: &Vocabulary) -> Result<(), RuleError> {
    let what = "requests to this target do not name a user; use client= instead";
    match vocabulary.uids {
        true => Ok(()),
        false => Err(RuleError::at(value.column, what)),
    }
}

fn each(value: Word<'_>, vocabulary: &Vocabulary) -> Result<Each, RuleError> {
    match value.text {
        "client" => Ok(Each::Client),
        "uid" => knows_uids(value, vocabulary).map(|()| Each::Uid),
        other => {
            let what = format!("{other:?} is neither client nor uid");
            Err(RuleError::at(value.column, what))
        }
    }
}

fn number(value: Word<'_>) -> Result<u32, RuleError> {
    let number = value.text.parse().ok();
    number.filter(|n| NUMBERS.contains(n)).ok_or_else(|| {
        let (low, high) = (NUMBERS.start(), NUMBERS.end());
        let what = format!("{:?} is not a number from {low} to {high}", value.text);
        RuleError::at(value.column, what)
    })
}

#[cfg(test)]
#[path = "grammar_tests.rs"]
mod tests;
