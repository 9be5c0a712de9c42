//! Commands, and what is said against those that are none.

use super::*;

const MDT: Vocabulary = Vocabulary {
    operations: &["getattr", "lookup", "create"],
    uids: true,
};
const OST: Vocabulary = Vocabulary {
    operations: &["ost_read"],
    uids: false,
};

fn rule(text: &str) -> String {
    match parse(text, &MDT) {
        Ok(Command::Start(rule)) => rule.to_string(),
        other => panic!("{text}: {other:?}"),
    }
}

fn refused(text: &str) -> String {
    parse(text, &MDT).expect_err(text).to_string()
}

#[test]
fn a_rule_is_told_as_it_would_be_set() {
    let golden = [
        ("start slow rate=1000", "start slow rate=1000 burst=3"),
        (
            "start slow opcode={getattr,lookup} rate=1000",
            "start slow opcode={getattr,lookup} rate=1000 burst=3",
        ),
        (
            "  start  x_1  uid={ 500 , 501 }&opcode=create&rate=7&burst=1 ",
            "start x_1 opcode={create} uid={500,501} rate=7 burst=1",
        ),
        (
            "start c each=client client={0x1f,10.0.0.7,10.0.0.8:988,3FA2} rate=1",
            "start c client={0x1f,10.0.0.7,10.0.0.8:988,3fa2} each=client rate=1 burst=3",
        ),
        (
            "start u each=uid rate=1000000 burst=1000000",
            "start u each=uid rate=1000000 burst=1000000",
        ),
    ];
    for (text, told) in golden {
        assert_eq!(rule(text), told);
        assert_eq!(rule(told), told, "and means the same then");
    }
}

#[test]
fn rules_are_changed_and_stopped() {
    let change = Command::Change {
        name: "slow".to_owned(),
        rate: Some(5),
        burst: None,
    };
    assert_eq!(parse("change slow rate=5", &MDT), Ok(change));
    let stop = Command::Stop {
        name: "slow".to_owned(),
    };
    assert_eq!(parse("stop slow", &MDT), Ok(stop));
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_how_to_mend_it() {
    let golden = [
        (
            "",
            "character 1: a rule is missing; as in: start slow opcode={getattr,lookup} rate=1000",
        ),
        (
            "begin slow",
            "character 1: \"begin\" is none of start, change, stop; as in: start slow \
             opcode={getattr,lookup} rate=1000",
        ),
        (
            "start",
            "character 6: the rule's name is missing; as in: start slow opcode={getattr,lookup} \
             rate=1000",
        ),
        (
            "start far-too-slow rate=1",
            "character 7: \"far-too-slow\" is no name of a rule: 1 to 15 letters, digits and '_'",
        ),
        (
            "start slow opcode={getattr, lokup} rate=1",
            "character 29: no operation here is called \"lokup\"; there are getattr, lookup, create",
        ),
        (
            "start slow opcode={getattr,,create} rate=1",
            "character 28: a value is missing here; as in opcode={a,b}",
        ),
        (
            "start slow opcode={getattr rate=1",
            "character 19: this brace is never closed; add a '}'",
        ),
        (
            "start slow opcode=getattr} rate=1",
            "character 26: this '}' has no partner; as in opcode={a,b}",
        ),
        (
            "start slow opcode=getattr",
            "character 26: rate= is missing, requests a second; as in: start slow \
             opcode={getattr,lookup} rate=1000",
        ),
        (
            "start slow rate=0",
            "character 17: \"0\" is not a number from 1 to 1000000",
        ),
        (
            "start slow rate=1 rate=2",
            "character 19: rate= a second time",
        ),
        (
            "start slow speed=9",
            "character 12: \"speed=9\" is none of opcode=, client=, uid=, each=, rate=, burst=",
        ),
        (
            "start slow rate",
            "character 12: \"rate\" is none of opcode=, client=, uid=, each=, rate=, burst=",
        ),
        (
            "start slow uid=root rate=1",
            "character 16: \"root\" is not the number of a user",
        ),
        (
            "start slow client={0xz} rate=1",
            "character 20: neither an address, nor digits of a UUID, nor a number as 0x7",
        ),
        (
            "start slow each=job rate=1",
            "character 17: \"job\" is neither client nor uid",
        ),
        (
            "change slow",
            "character 12: nothing to change; as in: change slow rate=1000",
        ),
        (
            "change slow opcode=getattr rate=1",
            "character 13: change sets rate= and burst= only",
        ),
        (
            "stop slow rate=1",
            "character 11: stop takes a name and nothing else",
        ),
    ];
    for (text, said) in golden {
        assert_eq!(refused(text), said, "{text:?}");
    }
    let long = format!("start slow{} rate=1", " ".repeat(5000));
    assert!(refused(&long).starts_with("longer than 4095 characters"));
    let uid = parse("start slow uid=5 rate=1", &OST).expect_err("no uids there");
    let said = "character 16: requests to this target do not name a user; use client= instead";
    assert_eq!(uid.to_string(), said);
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_command_or_refused(text in "\\PC{0,60}", rest in "[a-z{},=& 0-9]{0,80}") {
        let _ = parse(&text, &MDT);
        let _ = parse(&format!("start {rest}"), &MDT);
        let _ = parse(&format!("start slow {rest} rate=1{text}"), &MDT);
    }
}
