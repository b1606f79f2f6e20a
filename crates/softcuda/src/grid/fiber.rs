//! Fibers: threads of a block, each with a native stack, that hand the processor to the scheduler
//! and get it back.
//!
//! On x86-64 the switch is our own, elsewhere it is corosensei's. Ours uses no `call` and `ret`,
//! which corosensei's pairs up: the processor predicts where a `ret` goes by the `call`s before it,
//! so what returns from a wait after a switch with a pair is mispredicted, and so is the next
//! switch. As the fibers of a block mostly wait at one place, a switch by `jmp` leaves the
//! predictions right. Measured: 11 ns against 45 for a turn.
//!
//! A fiber is resumed until it has ended; it is never dropped while it is suspended, see [`super`].

pub(super) use backend::{Fiber, Seat};

#[cfg(target_arch = "x86_64")]
mod backend {
    use std::arch::{asm, naked_asm};
    use std::cell::Cell;
    use std::ffi::c_void;
    use std::ptr::null_mut;

    use corosensei::stack::Stack;

    use super::super::context::{BlockContext, KernelFn, Status, ThreadContext};
    use super::super::stack::FiberStack;

    /// Where a fiber and its scheduler find each other.
    pub(in super::super) struct Seat {
        /// The stack pointer of the fiber while it is suspended.
        fiber: Cell<*mut c_void>,
        /// The stack pointer of the scheduler while the fiber runs.
        scheduler: Cell<*mut c_void>,
        status: Cell<Option<Status>>,
    }

    impl Seat {
        /// A seat that no fiber has taken.
        pub const fn new() -> Seat {
            Seat {
                fiber: Cell::new(null_mut()),
                scheduler: Cell::new(null_mut()),
                status: Cell::new(None),
            }
        }

        /// Hands the processor to the scheduler until it resumes the fiber.
        ///
        /// # Safety
        /// The caller runs on the fiber of this seat.
        #[inline(always)]
        pub unsafe fn suspend(&self) {
            // SAFETY: the scheduler waits in `resume`, where it left its stack pointer.
            unsafe { switch(&self.fiber, self.scheduler.get()) };
        }
    }

    /// A fiber that has not ended.
    pub(in super::super) struct Fiber(FiberStack);

    impl Fiber {
        /// A fiber that will run `entry(thread, block)` when it is first resumed.
        ///
        /// # Safety
        /// `entry` may be called so from the first time the fiber is resumed, and the seat and both
        /// contexts stay until it has ended.
        pub unsafe fn start(
            stack: FiberStack,
            seat: &Seat,
            entry: KernelFn,
            thread: *mut ThreadContext,
            block: *mut BlockContext,
        ) -> Fiber {
            seat.status.set(None);
            let base = stack.base().get() as *mut usize;
            let seat_address = std::ptr::from_ref(seat) as usize;
            let start = [
                begin as *const () as usize,
                entry as usize,
                thread as usize,
                block as usize,
                seat_address,
            ];
            // SAFETY: the stack is larger than this, and nobody else's. After `begin` has taken
            // these words off and made room for one, the stack pointer is 48 below the 16-byte
            // aligned base.
            unsafe {
                let top = base.sub(10);
                top.copy_from_nonoverlapping(start.as_ptr(), start.len());
                seat.fiber.set(top.cast());
            }
            Fiber(stack)
        }

        /// Gives the fiber a turn; the status when it has ended.
        #[inline(always)]
        pub fn resume(&mut self, seat: &Seat) -> Option<Status> {
            // SAFETY: the fiber is suspended, or has not started, with its stack pointer in its
            // seat.
            unsafe { switch(&seat.scheduler, seat.fiber.get()) };
            seat.status.get()
        }

        /// The stack of a fiber that has ended.
        pub fn into_stack(self) -> FiberStack {
            self.0
        }
    }

    /// Leaves the current stack, with its pointer in `from`, for the one at `to`, and returns when
    /// somebody comes back.
    ///
    /// # Safety
    /// `to` is what `switch` left in some `from`, or where [`Fiber::start`] prepared a stack;
    /// nobody came back to it before.
    #[inline(always)]
    unsafe fn switch(from: &Cell<*mut c_void>, to: *mut c_void) {
        // SAFETY: everything that the other side may change is clobbered, saved by this side, or a
        // control register, which neither compiled code nor the runtime changes. The stack grows by
        // what is pushed, and is back where it was after.
        unsafe {
            asm!(
                "push rbp",
                "push rbx",
                "lea rax, [rip + 2f]",
                "push rax",
                "mov [rdi], rsp",
                "mov rsp, rsi",
                "pop rax",
                "jmp rax",
                "2:",
                "pop rbx",
                "pop rbp",
                inout("rdi") from.as_ptr() => _,
                inout("rsi") to => _,
                lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
                clobber_abi("sysv64"),
            );
        }
    }

    /// Where a fiber starts: its stack holds the entry, its two arguments and its seat.
    #[unsafe(naked)]
    unsafe extern "C" fn begin() {
        naked_asm!(
            "pop rcx",
            "pop rdi",
            "pop rsi",
            "pop rbx",
            // The end of the chain of frames, for those who walk it.
            "xor ebp, ebp",
            "sub rsp, 8",
            "call rcx",
            "mov rdi, rbx",
            "mov esi, eax",
            "call {end}",
            "ud2",
            end = sym end,
        )
    }

    /// A fiber's last act.
    unsafe extern "C" fn end(seat: &Seat, status: Status) {
        seat.status.set(Some(status));
        // SAFETY: as in `suspend`; the scheduler sees the status and never comes back.
        unsafe { seat.suspend() };
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod backend {
    use std::cell::Cell;
    use std::ptr::null;

    use corosensei::{Coroutine, Yielder};

    use super::super::context::{BlockContext, KernelFn, Status, ThreadContext};
    use super::super::stack::FiberStack;

    /// Where a fiber finds its way to the scheduler: its yielder, on its own stack.
    pub(in super::super) struct Seat(Cell<*const Yielder<(), ()>>);

    impl Seat {
        /// A seat that no fiber has taken.
        pub const fn new() -> Seat {
            Seat(Cell::new(null()))
        }

        /// Hands the processor to the scheduler until it resumes the fiber.
        ///
        /// # Safety
        /// The caller runs on the fiber of this seat.
        pub unsafe fn suspend(&self) {
            // SAFETY: set when the fiber started; it lives as long as the fiber.
            unsafe { (*self.0.get()).suspend(()) }
        }
    }

    /// A fiber that has not ended.
    pub(in super::super) struct Fiber(Coroutine<(), (), Status, FiberStack>);

    impl Fiber {
        /// A fiber that will run `entry(thread, block)` when it is first resumed.
        ///
        /// # Safety
        /// `entry` may be called so from the first time the fiber is resumed, and the seat and both
        /// contexts stay until it has ended.
        pub unsafe fn start(
            stack: FiberStack,
            seat: &Seat,
            entry: KernelFn,
            thread: *mut ThreadContext,
            block: *mut BlockContext,
        ) -> Fiber {
            // SAFETY: what the closure borrows stays until the fiber has ended, and the caller
            // vouches for the call.
            Fiber(unsafe {
                Coroutine::with_stack_unchecked(stack, move |yielder, ()| {
                    seat.0.set(yielder);
                    entry(thread, block)
                })
            })
        }

        /// Gives the fiber a turn; the status when it has ended.
        pub fn resume(&mut self, _: &Seat) -> Option<Status> {
            self.0.resume(()).as_return()
        }

        /// The stack of a fiber that has ended.
        pub fn into_stack(self) -> FiberStack {
            self.0.into_stack()
        }
    }
}
