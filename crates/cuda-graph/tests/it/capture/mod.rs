//! Recording: what is recorded runs right, whoever recorded it; what goes wrong is explained, and
//! the streams work on.

mod foreign;
mod guards;
mod into;
mod invalidation;
mod joined;
mod random;
mod recording;
pub mod scene;
mod stray;
mod surroundings;
