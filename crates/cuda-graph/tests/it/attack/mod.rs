//! Attempts to go wrong from safe code: those that did, and those that came close.

mod callbacks;
mod fills;
mod fills_model;
mod handles;
mod limits;
mod locks;
mod lost;
mod outlines;
mod paths;
mod replay;
mod streams;
mod threads;
mod updates;
