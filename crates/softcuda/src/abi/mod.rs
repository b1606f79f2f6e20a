//! The exported driver functions: decode, call, encode, nothing else.
