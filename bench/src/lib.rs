//! Stub.
use loadgen_shards::reactor::*;
pub struct EndpointConfig { pub cores: Vec<usize>, pub address: std::net::SocketAddr, pub body_bytes: usize, pub delay_ns: u64, pub spin: bool, pub engine: EngineChoice, pub connections: u32 }
pub struct Endpoint;
impl Endpoint { pub fn start(_: &EndpointConfig) -> Result<Endpoint, String> { Err("stub".into()) }
pub fn address(&self) -> std::net::SocketAddr { unimplemented!() } pub fn engine(&self) -> EngineReport { unimplemented!() } pub fn requests(&self) -> u64 {0} pub fn stop(self) {} }
