//! The integration tests of the PTX front end, one module per promise.

mod corpus;
