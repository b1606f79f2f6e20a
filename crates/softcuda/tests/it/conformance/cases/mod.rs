//! The cases, a file per topic.

mod capture_begin;
mod capture_events;
mod capture_fork;
mod capture_info;
mod capture_legacy;
mod capture_nodes;
mod capture_record;
mod capture_setting;
mod capture_unsafe;
mod conditional_afterwards;
mod conditional_body;
mod conditional_grown;
mod conditional_node;
mod conditional_place;
mod conditional_run;
mod conditional_spoilt;
mod conditional_update;
mod conditional_within;
mod context;
mod copy;
mod device;
mod entry_point;
mod error;
mod event;
mod fault;
mod fill;
mod function;
mod graph_any;
mod graph_attribute;
mod graph_batch;
mod graph_clone;
mod graph_copy;
mod graph_create;
mod graph_edges;
mod graph_exec;
mod graph_exec_copy;
mod graph_exec_node;
mod graph_exec_object;
mod graph_exec_params;
mod graph_failed;
mod graph_fill;
mod graph_host_event;
mod graph_kernel;
mod graph_legacy;
mod graph_memory;
mod graph_memory_exec;
mod graph_move;
mod graph_node;
mod graph_pool;
mod graph_run;
mod graph_update;
mod graph_update_params;
mod graph_user_object;
mod init;
mod interprocess;
mod jit;
mod launch;
mod library;
mod link;
mod managed;
mod memory;
mod module;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod pool_place;
mod primary;
mod spaces;
mod stream;
mod stream_order;
mod tensor_map;
mod virtual_memory;

use super::case::Case;
use super::random;
pub(crate) use interprocess::ROLES;

/// Every case of the suite.
pub fn all() -> Vec<&'static Case> {
    let topics = [
        capture_begin::CASES,
        capture_events::CASES,
        capture_fork::CASES,
        capture_info::CASES,
        capture_legacy::CASES,
        capture_nodes::CASES,
        capture_record::CASES,
        capture_unsafe::CASES,
        conditional_afterwards::CASES,
        conditional_body::CASES,
        conditional_grown::CASES,
        conditional_node::CASES,
        conditional_place::CASES,
        conditional_run::CASES,
        conditional_spoilt::CASES,
        conditional_update::CASES,
        conditional_within::CASES,
        context::CASES,
        copy::CASES,
        device::CASES,
        entry_point::CASES,
        error::CASES,
        event::CASES,
        fault::CASES,
        fill::CASES,
        function::CASES,
        graph_any::CASES,
        graph_attribute::CASES,
        graph_batch::CASES,
        graph_clone::CASES,
        graph_copy::CASES,
        graph_create::CASES,
        graph_edges::CASES,
        graph_exec::CASES,
        graph_exec_copy::CASES,
        graph_exec_node::CASES,
        graph_exec_object::CASES,
        graph_exec_params::CASES,
        graph_failed::CASES,
        graph_fill::CASES,
        graph_host_event::CASES,
        graph_kernel::CASES,
        graph_legacy::CASES,
        graph_memory::CASES,
        graph_memory_exec::CASES,
        graph_move::CASES,
        graph_move::PLACED,
        graph_node::CASES,
        graph_pool::CASES,
        graph_update::CASES,
        graph_update_params::CASES,
        graph_user_object::CASES,
        init::CASES,
        interprocess::CASES,
        jit::CASES,
        launch::CASES,
        library::CASES,
        link::CASES,
        managed::CASES,
        memory::CASES,
        module::CASES,
        occupancy::CASES,
        pointer::CASES,
        pool::CASES,
        pool_place::CASES,
        primary::CASES,
        spaces::CASES,
        stream::CASES,
        stream_order::CASES,
        tensor_map::CASES,
        virtual_memory::CASES,
    ];
    let topics = topics
        .into_iter()
        .chain(peer::CASES)
        .chain([random::programs()]);
    topics.flatten().collect()
}
