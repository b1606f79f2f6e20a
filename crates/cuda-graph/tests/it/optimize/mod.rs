//! Graphs made better, and what that rests on.

mod variants;
