//! Write leases: who is given one, and how it ends.

use super::*;

const A: ClientId = ClientId(1);
const B: ClientId = ClientId(2);
const DIR: Fid = Fid(7);
const NAMES: Wish = Wish {
    required: Bits::NAMES,
    optional: Bits::NONE,
};

fn locks() -> Locks {
    Locks::new(Limits::default(), BootEpoch(1))
}

fn needs(wants: Vec<dlm::Want>) -> Needs {
    Needs {
        wants,
        notes: Vec::new(),
    }
}

#[test]
fn a_directory_that_nobody_else_uses_gives_a_write_lease() {
    let mut locks = locks();
    assert!(locks.share(None, A, DIR, NAMES).is_some());
    let grant = locks.try_write_lease(None, A, DIR).expect("free");
    assert_eq!((grant.mode, grant.cover.bits()), (Mode::EX, WRITE_LEASE));
    assert!(locks.holds_write_lease(A, DIR) && !locks.holds_write_lease(B, DIR));
    let again = locks.try_write_lease(None, A, DIR).expect("had");
    assert_eq!(
        again.handle, grant.handle,
        "one lock however often it is asked for"
    );
    assert!(locks.try_write_lease(None, B, DIR).is_none());
    assert!(locks.share(None, B, DIR, NAMES).is_none());
}

#[test]
fn any_lock_of_another_client_keeps_the_write_lease_away() {
    for bits in [Bits::NAMES, Bits::LIST, Bits::PERM, Bits::XATTR] {
        let mut locks = locks();
        let wish = Wish {
            required: bits,
            optional: Bits::NONE,
        };
        let held = locks.share(None, B, DIR, wish).expect("free");
        assert!(locks.try_write_lease(None, A, DIR).is_none(), "{bits}");
        locks.cancel(B, vec![held.handle]);
        assert!(locks.try_write_lease(None, A, DIR).is_some(), "{bits}");
    }
}

#[test]
fn an_operation_for_another_client_keeps_the_write_lease_away() {
    let withdraw = dlm::Want::Withdraw {
        resource: resource(DIR),
        bits: Bits::LIST,
        key: 3,
    };
    let enter = dlm::Want::bits(resource(DIR), Mode::CR, Bits::LOOKUP);
    let unrelated = dlm::Want::bits(resource(DIR), Mode::CR, Bits::PERM);
    for want in [withdraw, enter, unrelated] {
        let mut locks = locks();
        locks.begin(OpId(1), B, &needs(vec![want]));
        assert!(locks.try_write_lease(None, A, DIR).is_none(), "{want:?}");
        locks.end(OpId(1));
        assert!(locks.try_write_lease(None, A, DIR).is_some(), "{want:?}");
    }
}

#[test]
fn the_operation_that_asks_is_not_in_its_own_way() {
    let mut locks = locks();
    let withdraw = dlm::Want::Withdraw {
        resource: resource(DIR),
        bits: Bits::LIST,
        key: 3,
    };
    locks.begin(OpId(1), A, &needs(vec![withdraw]));
    assert!(locks.try_write_lease(Some(OpId(1)), A, DIR).is_some());
}

#[test]
fn a_write_lease_ends_by_conversion_cancel_and_eviction() {
    let mut locks = locks();
    let grant = locks.try_write_lease(None, A, DIR).expect("free");
    locks.convert(A, grant.handle, dlm::Keep::Mode(Mode::PR));
    assert!(!locks.holds_write_lease(A, DIR));
    let left = locks
        .lease(A, DIR)
        .expect("what is left is a lease for reading");
    assert_eq!((left.handle, left.mode), (grant.handle, Mode::PR));
    assert!(locks.share(None, B, DIR, NAMES).is_some());

    let other = Fid(8);
    let grant = locks.try_write_lease(None, A, other).expect("free");
    locks.cancel(A, vec![grant.handle]);
    assert!(!locks.holds_write_lease(A, other));

    locks.try_write_lease(None, A, other).expect("free");
    locks.evict(A);
    assert!(!locks.holds_write_lease(A, other));
    assert!(locks.try_write_lease(None, B, other).is_some());
}

#[test]
fn a_contended_directory_gives_no_write_lease() {
    let mut locks = locks();
    locks.share(None, B, DIR, NAMES).expect("free");
    let max = Limits::default().lease_contention.max as u64;
    for op in 0..=max {
        let withdraw = dlm::Want::Withdraw {
            resource: resource(DIR),
            bits: Bits::NAMES,
            key: op,
        };
        locks.begin(OpId(op), A, &needs(vec![withdraw]));
    }
    locks.evict(B);
    (0..=max).for_each(|op| drop(locks.end(OpId(op))));
    assert!(locks.try_write_lease(None, A, DIR).is_none());
    let hold = Limits::default().lease_contention.hold;
    locks.set_now(Tick::default().after(hold));
    assert!(locks.try_write_lease(None, A, DIR).is_some());
}
