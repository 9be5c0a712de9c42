//! The stacks of a simulation's threads. All of them run on the one thread of the machine that has these, and
//! each has random numbers and values of its own (`threads::local!`).

#![allow(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use threads::Locals;

use crate::entropy;

/// As large as the stack of a thread whose calls are those of a real server or client.
const STACK: usize = 1 << 20;

/// What a simulated thread does.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

thread_local! {
    /// Of the fiber that runs on this thread.
    static YIELDER: Cell<*const Yielder<(), ()>> = const { Cell::new(ptr::null()) };
}

/// A simulated thread's stack, and what it has of its own.
struct Fiber {
    stack: Coroutine<(), (), ()>,
    yielder: *const Yielder<(), ()>,
    locals: Locals,
    entropy: Option<u64>,
}

/// All that began and did not end.
#[derive(Default)]
pub(crate) struct Fibers {
    fibers: Vec<Option<Fiber>>,
    free: Vec<DefaultStack>,
}

impl Fibers {
    /// Makes a fiber, whose number is one more than that of the one before.
    pub(crate) fn add(&mut self, body: Body, entropy: u64) -> io::Result<()> {
        let stack = self
            .free
            .pop()
            .map_or_else(|| DefaultStack::new(STACK), Ok)?;
        let stack = Coroutine::with_stack(stack, |yielder: &Yielder<(), ()>, ()| {
            YIELDER.set(yielder);
            body();
        });
        self.fibers.push(Some(Fiber {
            stack,
            yielder: ptr::null(),
            locals: Locals::default(),
            entropy: Some(entropy),
        }));
        Ok(())
    }

    /// Lets `number` run until it waits. True: until its end.
    pub(crate) fn resume(&mut self, number: usize) -> bool {
        let Some(slot) = self.fibers.get_mut(number) else {
            return false;
        };
        let Some(fiber) = slot else { return false };
        fiber.locals.exchange();
        entropy::exchange(&mut fiber.entropy);
        YIELDER.set(fiber.yielder);
        let resumed = fiber.stack.resume(());
        fiber.yielder = YIELDER.replace(ptr::null());
        entropy::exchange(&mut fiber.entropy);
        fiber.locals.exchange();
        let ended = matches!(resumed, CoroutineResult::Return(()));
        if ended && let Some(fiber) = slot.take() {
            self.free.push(fiber.stack.into_stack());
        }
        ended
    }
}

/// Fibers that did not end keep what they hold: nobody is there to whom they could give it back.
impl Drop for Fibers {
    fn drop(&mut self) {
        self.fibers.drain(..).for_each(std::mem::forget);
    }
}

/// Comes back when the fiber that runs here is resumed again.
pub(crate) fn suspend() {
    let yielder = YIELDER.get();
    assert!(!yielder.is_null(), "only a fiber can wait");
    // SAFETY: `resume` set it for the fiber that runs now, on whose stack it lies until the fiber ends.
    unsafe { (*yielder).suspend(()) };
}
