//! Trees that one client grows: each look shows all that was there before it began, and nothing that never
//! was. What another client has seen outlives the end of its maker.

use std::time::Duration;

use crate::excuses::{Excuse, Excuses};
use crate::garden::{Plant, Sight, Tree};

/// What is wrong with what was seen of the trees.
pub fn check(trees: &[Tree], excuses: &Excuses) -> Vec<String> {
    let mut wrong = Vec::new();
    for tree in trees {
        let believed = |sight: &&Sight| {
            let stale = excuses.stale.iter().chain(&excuses.failures);
            !stale
                .into_iter()
                .any(|excuse| excuse.covers(sight.by, sight.start, sight.end))
        };
        let sights: Vec<&Sight> = tree.sights.iter().filter(believed).collect();
        for sight in &sights {
            wrong.extend(lacking(tree, &sights, sight, excuses));
            wrong.extend(surplus(tree, sight, excuses));
        }
    }
    wrong
}

/// When the tree's owner may first have lost what it did since `from`.
fn first_loss(tree: &Tree, excuses: &Excuses, from: Duration) -> Option<Duration> {
    let of_owner = |excuse: &&Excuse| {
        let concerns = excuse.client.is_none_or(|client| client == tree.owner);
        concerns && excuse.until >= from
    };
    let all = excuses.undone.iter().chain(&excuses.failures);
    all.filter(of_owner).map(|excuse| excuse.from).min()
}

fn lacking(tree: &Tree, sights: &[&Sight], sight: &Sight, excuses: &Excuses) -> Option<String> {
    let is_required = |plant: &Plant| {
        let was_there = plant.made.end.is_some_and(|end| end <= sight.start);
        let stays = plant
            .removed
            .is_none_or(|removed| removed.start >= sight.end);
        let loss = first_loss(tree, excuses, plant.made.start).filter(|loss| *loss <= sight.end);
        let was_shown = |loss: Duration| {
            let mut others = sights.iter().filter(|other| other.by != tree.owner);
            others.any(|other| other.end <= loss && other.names.contains(&plant.name))
        };
        was_there && stays && loss.is_none_or(was_shown)
    };
    let mut required = tree.plants.iter().filter(|plant| is_required(plant));
    let lost = required.find(|plant| !sight.names.contains(&plant.name))?;
    Some(format!(
        "{}: client {} did not see {} from {:?} to {:?}: {:?}",
        tree.name, sight.by, lost.name, sight.start, sight.end, lost.made
    ))
}

fn surplus(tree: &Tree, sight: &Sight, excuses: &Excuses) -> Option<String> {
    let may_be = |name: &u32| {
        let plant = tree.plants.iter().find(|plant| plant.name == *name);
        plant.is_some_and(|plant| {
            let is_gone = plant.removed.is_some_and(|removed| {
                let went = removed.end.is_some_and(|end| end <= sight.start);
                went && first_loss(tree, excuses, removed.start).is_none()
            });
            plant.made.start <= sight.end && !is_gone
        })
    };
    let name = sight.names.iter().find(|name| !may_be(name))?;
    Some(format!(
        "{}: client {} saw {name} from {:?} to {:?}",
        tree.name, sight.by, sight.start, sight.end
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garden::Span;

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn span(start: u64, end: u64) -> Span {
        Span {
            start: secs(start),
            end: Some(secs(end)),
        }
    }

    fn sight(by: u32, start: u64, end: u64, names: &[u32]) -> Sight {
        Sight {
            by,
            start: secs(start),
            end: secs(end),
            names: names.iter().copied().collect(),
        }
    }

    /// Name 1 is made by client 0 from second 1 to 2, and removed from second 10 to 11.
    fn wrong(sights: &[Sight], undone: &[(u64, u64)]) -> usize {
        let plant = Plant {
            name: 1,
            made: span(1, 2),
            removed: Some(span(10, 11)),
        };
        let tree = Tree {
            name: "t".to_owned(),
            owner: 0,
            plants: vec![plant],
            sights: sights.to_vec(),
        };
        let undone = undone.iter().map(|(from, until)| Excuse {
            client: Some(0),
            file: None,
            from: secs(*from),
            until: secs(*until),
        });
        let excuses = Excuses {
            undone: undone.collect(),
            ..Excuses::default()
        };
        check(&[tree], &excuses).len()
    }

    #[test]
    fn what_returned_is_seen_and_what_was_removed_is_not() {
        assert_eq!(wrong(&[sight(1, 2, 3, &[1])], &[]), 0);
        assert_eq!(wrong(&[sight(1, 2, 3, &[])], &[]), 1);
        assert_eq!(wrong(&[sight(1, 1, 3, &[])], &[]), 0, "it had not returned");
        assert_eq!(wrong(&[sight(1, 9, 12, &[])], &[]), 0, "it goes");
        assert_eq!(wrong(&[sight(1, 11, 12, &[1])], &[]), 1);
        assert_eq!(wrong(&[sight(1, 11, 12, &[2])], &[]), 1, "nobody made it");
    }

    #[test]
    fn a_loss_takes_what_nobody_else_has_seen() {
        let lost = sight(1, 6, 7, &[]);
        assert_eq!(wrong(std::slice::from_ref(&lost), &[(4, 5)]), 0);
        let (own, other) = (sight(0, 2, 3, &[1]), sight(2, 2, 3, &[1]));
        assert_eq!(wrong(&[own, lost.clone()], &[(4, 5)]), 0);
        assert_eq!(wrong(&[other, lost], &[(4, 5)]), 1);
    }
}
