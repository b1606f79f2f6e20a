//! Names and texts of errors.

use std::ptr::{null, null_mut};

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::codes::CODES;
use crate::conformance::fixture::text;

/// Writes down name and text of every known code in a range.
unsafe fn known(line: &mut Line, from: u32, to: u32) {
    for &(code, _) in CODES.iter().filter(|(code, _)| (from..to).contains(code)) {
        let (mut name, mut description) = (null(), null());
        line.gives(code, cuGetErrorName(code, &mut name), text(name));
        line.gives(
            "text",
            cuGetErrorString(code, &mut description),
            text(description),
        );
    }
}

pub const CASES: &[Case] = &[
    case!("error/known/to_100", |line| {
        known(line, 0, 100);
    }),
    case!("error/known/to_300", |line| {
        known(line, 100, 300);
    }),
    case!("error/known/to_700", |line| {
        known(line, 300, 700);
    }),
    case!("error/known/to_800", |line| {
        known(line, 700, 800);
    }),
    case!("error/known/to_1000", |line| {
        known(line, 800, 1000);
    }),
    case!("error/unknown", |line| {
        for code in [9, 12345, u32::MAX] {
            let mut name = c"untouched".as_ptr();
            line.says_as(format!("name_{code}"), cuGetErrorName(code, &mut name));
            line.value("gives", text(name));
            name = c"untouched".as_ptr();
            line.says_as(format!("text_{code}"), cuGetErrorString(code, &mut name));
            line.value("gives", text(name));
        }
        line.says_as("name_null", cuGetErrorName(1, null_mut()));
        line.says_as("text_null", cuGetErrorString(1, null_mut()));
        line.says_as("unknown_null", cuGetErrorName(12345, null_mut()));
    }),
];
