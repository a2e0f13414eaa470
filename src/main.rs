//! Load generator for HTTP and LLM inference endpoints.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod cores;
mod display;
mod doctor;
mod error;
mod expression;
mod files;
mod plan;
mod progress;
mod report;
mod request;
mod session;
mod snapshot;

fn main() {}
