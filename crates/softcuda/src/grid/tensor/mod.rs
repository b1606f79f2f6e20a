//! Tensor maps, and copies of boxes of tensors by them.

mod boxes;
mod copy;
pub(crate) mod map;

pub(crate) use copy::{FUNCTIONS, TENSOR_COPY, TENSOR_REPLACE, how};
