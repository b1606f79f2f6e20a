//! Functions: attributes, parameters, names.

use std::ptr::null_mut;

use crate::conformance::api::*;
use crate::conformance::case::{Case, Line, case};
use crate::conformance::fixture::*;

/// Writes the attributes down that do not depend on how a compiler allots registers.
unsafe fn attributes(line: &mut Line, function: Handle) {
    for number in [0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15] {
        let mut value = -7;
        line.gives(
            number,
            cuFuncGetAttribute(&mut value, number, function),
            value,
        );
    }
}

const CLUSTERS: &str = ".version 7.8\n.target sm_90\n.address_size 64\n\
    .visible .entry pair() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }\n\
    .visible .entry any() .explicitcluster { ret; }\n";

pub const CASES: &[Case] = &[
    case!("function/attributes/empty", |line| {
        context();
        attributes(line, function(c"empty"));
    }),
    case!("function/attributes/static_shared", |line| {
        context();
        attributes(line, function(c"static_shared"));
    }),
    case!("function/attributes/dynamic_shared", |line| {
        context();
        attributes(line, function(c"shared_at"));
    }),
    case!("function/attributes/bounds", |line| {
        context();
        let (module, mut value) = (module(), 0);
        line.gives(
            "at_most_128",
            cuFuncGetAttribute(&mut value, 0, function_of(module, c"at_most_128")),
            value,
        );
        line.gives(
            "exactly_64",
            cuFuncGetAttribute(&mut value, 0, function_of(module, c"exactly_64")),
            value,
        );
        line.gives(
            "registers",
            cuFuncGetAttribute(&mut value, 4, function_of(module, c"empty")),
            value > 0,
        );
        line.gives(
            "frame",
            cuFuncGetAttribute(&mut value, 3, function_of(module, c"empty")),
            value,
        );
    }),
    case!("function/attributes/clusters", |line| {
        context();
        let module = module_of(CLUSTERS);
        for name in [c"pair", c"any"] {
            for number in 10..=15 {
                let mut value = -7;
                let answer = cuFuncGetAttribute(&mut value, number, function_of(module, name));
                line.gives(
                    format!("{}_{number}", name.to_string_lossy()),
                    answer,
                    value,
                );
            }
        }
    }),
    case!("function/attributes/wrong", |line| {
        context();
        let (function, mut value) = (function(c"empty"), -7);
        line.says_as("end", cuFuncGetAttribute(&mut value, 16, function));
        line.says_as("unknown", cuFuncGetAttribute(&mut value, 99, function));
        line.says_as("null_out", cuFuncGetAttribute(null_mut(), 0, function));
        line.says_as("null_function", cuFuncGetAttribute(&mut value, 0, 0));
        line.value("untouched", value == -7);
    }),
    case!("function/set/shared", |line| {
        context();
        let mut value = 0;
        for name in [c"shared_at", c"static_shared"] {
            let function = function(name);
            for size in [
                0,
                1000,
                49152,
                49153,
                65536,
                231_424,
                232_448,
                232_449,
                1 << 20,
                -1,
                i32::MIN,
            ] {
                line.says_as(
                    format!("{}_{size}", name.to_string_lossy()),
                    cuFuncSetAttribute(function, 8, size),
                );
                line.gives("read", cuFuncGetAttribute(&mut value, 8, function), value);
            }
        }
    }),
    case!("function/set/carveout", |line| {
        context();
        let (function, mut value) = (function(c"empty"), 0);
        for percent in [-1, 0, 50, 100, 101, -2] {
            line.says_as(percent, cuFuncSetAttribute(function, 9, percent));
            line.gives("read", cuFuncGetAttribute(&mut value, 9, function), value);
        }
    }),
    case!("function/set/clusters", |line| {
        context();
        let (function, mut value) = (function(c"empty"), 0);
        for (number, asked) in [
            (10, 1),
            (11, 2),
            (11, 0),
            (12, 2),
            (13, 1),
            (11, -1),
            (14, 1),
            (14, 2),
            (15, 0),
            (15, 1),
            (15, 2),
            (15, 9),
        ] {
            line.says_as(
                format!("{number}_{asked}"),
                cuFuncSetAttribute(function, number, asked),
            );
            line.gives(
                "read",
                cuFuncGetAttribute(&mut value, number, function),
                value,
            );
        }
    }),
    case!("function/set/wrong", |line| {
        context();
        let function = function(c"empty");
        for number in 0..8 {
            line.says_as(number, cuFuncSetAttribute(function, number, 1));
        }
        line.says_as("unknown", cuFuncSetAttribute(function, 99, 1));
        line.says_as("null_function", cuFuncSetAttribute(0, 8, 1));
    }),
    case!("function/cache_config", |line| {
        context();
        let function = function(c"empty");
        for config in 0..5 {
            line.says_as(config, cuFuncSetCacheConfig(function, config));
        }
        line.says_as("null_function", cuFuncSetCacheConfig(0, 1));
        line.says_as("banks", cuFuncSetSharedMemConfig(function, 1));
        line.says_as("banks_unknown", cuFuncSetSharedMemConfig(function, 9));
    }),
    case!("function/name", |line| {
        context();
        let (module, mut name) = (module(), std::ptr::null());
        line.gives(
            "name",
            cuFuncGetName(&mut name, function_of(module, c"many")),
            text(name),
        );
        line.says_as(
            "null_out",
            cuFuncGetName(null_mut(), function_of(module, c"many")),
        );
        line.says_as("null_function", cuFuncGetName(&mut name, 0));
        line.says_as("null_both", cuFuncGetName(null_mut(), 0));
    }),
    case!("function/parameters", |line| {
        context();
        let (function, mut offset, mut size) = (function(c"many"), 77, 77);
        for index in 0..7 {
            line.gives(
                index,
                cuFuncGetParamInfo(function, index, &mut offset, &mut size),
                format!("{offset}+{size}"),
            );
        }
        line.says_as(
            "null_size",
            cuFuncGetParamInfo(function, 0, &mut offset, null_mut()),
        );
        line.says_as(
            "null_offset",
            cuFuncGetParamInfo(function, 0, null_mut(), &mut size),
        );
        line.says_as(
            "null_function",
            cuFuncGetParamInfo(0, 0, &mut offset, &mut size),
        );
        line.says_as(
            "far",
            cuFuncGetParamInfo(function, usize::MAX, &mut offset, &mut size),
        );
        line.says_as(
            "of_none",
            cuFuncGetParamInfo(self::function(c"empty"), 0, &mut offset, &mut size),
        );
    }),
    case!("function/module", |line| {
        context();
        let (module, mut of) = (module(), 0);
        line.gives(
            "module",
            cuFuncGetModule(&mut of, function_of(module, c"empty")),
            of == module,
        );
        line.says_as(
            "null_out",
            cuFuncGetModule(null_mut(), function_of(module, c"empty")),
        );
        line.says_as("null_function", cuFuncGetModule(&mut of, 0));
    }),
    case!("function/loaded", |line| {
        context();
        let (function, mut state) = (function(c"empty"), 77);
        line.says_as("is_loaded", cuFuncIsLoaded(&mut state, function));
        line.says(cuFuncLoad(function));
        line.gives("after", cuFuncIsLoaded(&mut state, function), state);
        line.says_as("null_out", cuFuncIsLoaded(null_mut(), function));
        line.says_as("null_function", cuFuncIsLoaded(&mut state, 0));
        line.says_as("load_null", cuFuncLoad(0));
    }),
];
