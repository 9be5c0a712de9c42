//! Values of which each thread has its own: the machine's threads, and those of a simulation, which may all
//! run on one of the machine's.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use crate::simulation::{IS_SIMULATED, SIMULATION, Simulation, is_simulated, key};

/// As `std::thread::LocalKey`; made by [`local!`](crate::local!).
pub struct LocalKey<T: 'static> {
    real: &'static thread::LocalKey<T>,
    first: fn() -> T,
}

/// Declares values of which each thread has its own, as `std::thread_local!` with constant first values.
#[macro_export]
macro_rules! local {
    ($($(#[$attribute:meta])* static $name:ident: $type:ty = const $first:block;)+) => {$(
        $(#[$attribute])*
        static $name: $crate::local::LocalKey<$type> = {
            ::std::thread_local!(static REAL: $type = const $first);
            $crate::local::LocalKey::new(&REAL, || $first)
        };
    )+};
}

thread_local! {
    static VALUES: RefCell<Values> = const { RefCell::new(Vec::new()) };
}

/// The values of a simulated thread, by the addresses of their keys. There are a handful.
type Values = Vec<(usize, Rc<dyn Any>)>;

/// What a simulated thread has of its own, while another one runs.
#[derive(Default)]
pub struct Locals {
    is_simulated: bool,
    simulation: Option<Arc<dyn Simulation>>,
    values: Values,
}

impl Locals {
    /// Takes the place of what the thread of the machine has, which takes the place of this.
    pub fn exchange(&mut self) {
        self.is_simulated = IS_SIMULATED.replace(self.is_simulated);
        SIMULATION.with_borrow_mut(|theirs| std::mem::swap(theirs, &mut self.simulation));
        VALUES.with_borrow_mut(|theirs| std::mem::swap(theirs, &mut self.values));
    }
}

impl<T: 'static> LocalKey<T> {
    #[doc(hidden)]
    pub const fn new(real: &'static thread::LocalKey<T>, first: fn() -> T) -> LocalKey<T> {
        LocalKey { real, first }
    }

    /// Calls `look` with this thread's value.
    #[inline]
    pub fn with<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
        match is_simulated() {
            true => look(&self.simulated()),
            false => self.real.with(look),
        }
    }

    #[cold]
    fn simulated(&'static self) -> Rc<T> {
        let value = VALUES.with_borrow_mut(|values| {
            let known = values.iter().find(|(of, _)| *of == key(self));
            let known = known.map(|(_, value)| value.clone());
            known.unwrap_or_else(|| {
                let value: Rc<dyn Any> = Rc::new((self.first)());
                values.push((key(self), value.clone()));
                value
            })
        });
        value.downcast().expect("a key has one type")
    }
}

impl<T: 'static> LocalKey<Cell<T>> {
    /// A copy of this thread's value.
    #[inline]
    pub fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    /// Sets this thread's value.
    #[inline]
    pub fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    /// Sets this thread's value, and gives the one before.
    #[inline]
    pub fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }
}

impl<T: 'static> LocalKey<RefCell<T>> {
    /// Calls `look` with this thread's value.
    #[inline]
    pub fn with_borrow<R>(&'static self, look: impl FnOnce(&T) -> R) -> R {
        self.with(|cell| look(&cell.borrow()))
    }

    /// Calls `change` with this thread's value.
    #[inline]
    pub fn with_borrow_mut<R>(&'static self, change: impl FnOnce(&mut T) -> R) -> R {
        self.with(|cell| change(&mut cell.borrow_mut()))
    }

    /// Sets this thread's value.
    #[inline]
    pub fn set(&'static self, value: T) {
        drop(self.with(|cell| cell.replace(value)));
    }
}
