//! The queues that work waits in and the threads that run it.
