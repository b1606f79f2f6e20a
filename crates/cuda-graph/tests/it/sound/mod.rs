//! Nothing is freed early, kept for ever, lost, or computed wrongly from safe code: a test for each
//! hole that was found, and two that look for more.

mod fixed_stream;
mod foreign;
mod points;
mod retention;
