//! Pictures of graphs.

mod driver_dot;

pub use driver_dot::DriverDot;
