//! What is asked for ahead of who asks for numbered names.

use super::*;

const DIR: Fid = Fid(1 << 24);
const NOW: Tick = Tick(0);
const WINDOW: (u32, u32) = (8, 64);

fn name(text: &str) -> Name {
    Name::try_from(text).expect("valid")
}

/// Asks for all names in order; those that are guessed exist if `exists`. The names that were at
/// hand when asked for, and the guesses.
fn walk(names: &[String], exists: impl Fn(&str) -> bool) -> (usize, Vec<Vec<String>>) {
    let (mut all, mut at_hand) = (SequencePatterns::default(), Vec::<Name>::new());
    let (mut hits, mut guesses) = (0, Vec::new());
    for text in names {
        let asked = name(text);
        let hit = at_hand.contains(&asked);
        hits += usize::from(hit);
        let foresight = all.asked_for(DIR, &asked, hit, WINDOW, NOW);
        assert_eq!(foresight.hit, hit);
        if let Some(guess) = foresight.guess {
            assert_eq!(guess.is_needed, !hit);
            if !hit {
                assert_eq!(guess.names[0], asked, "what is needed comes first");
            }
            guesses.push(guess.names.iter().map(Name::to_string).collect());
            let found = guess.names.iter().filter(|name| exists(&name.to_string()));
            let found = found.count();
            at_hand.extend_from_slice(&guess.names);
            all.came(&guess, found);
        }
    }
    (hits, guesses)
}

fn numbered(numbers: impl Iterator<Item = u64>, width: usize) -> Vec<String> {
    numbers.map(|n| format!("file{n:0width$}.dat")).collect()
}

#[test]
fn numbers_that_go_up_are_fetched_ahead_in_windows_that_double() {
    for (step, width) in [(1, 1), (1, 5), (16, 1), (10, 4)] {
        let names = numbered((1..=1000).map(|n| n * step), width);
        let (hits, guesses) = walk(&names, |_| true);
        assert!(hits > 990, "{hits} with steps of {step}");
        let sizes: Vec<usize> = guesses.iter().map(Vec::len).collect();
        assert_eq!(sizes[..4], [8, 16, 32, 64]);
        assert_eq!(sizes.iter().max(), Some(&64));
    }
}

#[test]
fn what_is_guessed_is_written_as_the_others_are() {
    let (_, guesses) = walk(&numbered(7..12, 3), |_| true);
    assert_eq!(guesses[0][..2], ["file010.dat", "file011.dat"]);
    let (_, guesses) = walk(&numbered(7..12, 1), |_| true);
    assert_eq!(guesses[0][..2], ["file10.dat", "file11.dat"]);
    let (_, guesses) = walk(&numbered(97..103, 2), |_| true);
    assert_eq!(guesses[0][..2], ["file100.dat", "file101.dat"]);
}

#[test]
fn names_in_no_order_or_without_numbers_are_not_guessed() {
    let jumps = [5, 900, 17, 400, 3, 800, 250, 9, 600, 30].into_iter();
    assert!(walk(&numbered(jumps, 1), |_| true).1.is_empty());
    let down = (1..50).rev();
    assert!(walk(&numbered(down, 1), |_| true).1.is_empty());
    let words = ["a", "b", "c", "d", "e", "f"].map(str::to_owned);
    assert!(walk(&words, |_| true).1.is_empty());
    let other_stems: Vec<String> = (0..20).map(|n| format!("{n}x{}", n * n)).collect();
    assert!(walk(&other_stems, |_| true).1.is_empty());
}

#[test]
fn a_sequence_of_what_does_not_exist_ends_for_good() {
    let (hits, guesses) = walk(&numbered(1..500, 1), |_| false);
    let asked: usize = guesses.iter().map(Vec::len).sum();
    assert_eq!(guesses.len(), usize::from(WRONG_MAX));
    assert!(asked <= 3 * 16 && hits <= asked, "{asked}");
}

#[test]
fn several_in_one_directory_do_not_disturb_each_other() {
    let both = (0..400).flat_map(|n| [n, 5000 + 3 * n]);
    let (hits, guesses) = walk(&numbered(both, 1), |_| true);
    assert!(hits > 770, "{hits}");
    assert!(guesses.len() < 40);
}

#[test]
fn who_asks_for_what_is_on_its_way_waits() {
    let mut all = SequencePatterns::default();
    let ask = |all: &mut SequencePatterns, n: u64| {
        all.asked_for(DIR, &name(&format!("f{n}")), false, WINDOW, NOW)
            .guess
    };
    assert!((1..4).all(|n| ask(&mut all, n).is_none()));
    let guess = ask(&mut all, 4).expect("the fourth in a row");
    assert!(all.wait_for(DIR, &name("f6")).is_some());
    assert!(all.wait_for(DIR, &name("f99")).is_none());
    assert!(!all.came(&guess, 8));
    assert!(all.wait_for(DIR, &name("f6")).is_none());
}

#[test]
fn a_sequence_is_forgotten_after_a_while_and_numbers_do_not_overflow() {
    let mut all = SequencePatterns::default();
    for n in 0..3 {
        all.asked_for(DIR, &name(&format!("f{n}")), false, WINDOW, NOW);
    }
    let later = NOW.after(IDLE);
    let asked = all.asked_for(DIR, &name("f3"), false, WINDOW, later);
    assert_eq!(asked, Foresight::default());
    let long = "9".repeat(18);
    for n in 0..10 {
        let name = name(&format!("{}{n}", &long[1..]));
        all.asked_for(DIR, &name, false, WINDOW, NOW);
    }
}
