//! `loadgen-endpoint`: the embedded endpoint as a process of its own, until it is killed. For
//! studies that must not depend on the load generator; people type `loadgen-uring serve`.

#[cfg(target_os = "linux")]
fn main() {
    let endpoint = config(std::env::args().skip(1))
        .and_then(|config| loadgen_bench::Endpoint::start(&config))
        .unwrap_or_else(|reason| {
            eprintln!("{reason}\n{USAGE}");
            std::process::exit(2)
        });
    println!("listening on {}, {}", endpoint.address(), endpoint.engine().name);
    loop {
        std::thread::park();
    }
}

#[cfg(target_os = "linux")]
fn config(
    mut arguments: impl Iterator<Item = String>,
) -> Result<loadgen_bench::EndpointConfig, String> {
    let mut config = loadgen_bench::EndpointConfig::default();
    while let Some(flag) = arguments.next() {
        match flag.as_str() {
            "--spin" => {
                config.spin = true;
                continue;
            }
            "--inference" => {
                config.inference.get_or_insert_default();
                continue;
            }
            "--crlf" => {
                config.inference.get_or_insert_default().crlf = true;
                continue;
            }
            _ => {}
        }
        let value = arguments.next().ok_or_else(|| format!("{flag} needs a value"))?;
        let wrong = || format!("{flag} cannot be {value:?}");
        match flag.as_str() {
            "--listen" => config.address = value.parse().map_err(|_| wrong())?,
            "--body-bytes" => config.body_bytes = value.parse().map_err(|_| wrong())?,
            "--delay-ns" => config.delay_ns = value.parse().map_err(|_| wrong())?,
            "--cores" => {
                let cores: Result<_, _> = value.split(',').map(str::parse).collect();
                config.cores = cores.map_err(|_| wrong())?;
            }
            "--seed" => {
                let seed = value.parse().map_err(|_| wrong())?;
                config.inference.get_or_insert_default().seed = seed;
            }
            _ => match config.inference.get_or_insert_default().set(&flag, &value) {
                Some(set) => set.map_err(|form| format!("{}: it is {form}", wrong()))?,
                None => return Err(format!("unknown flag {flag}")),
            },
        }
    }
    Ok(config)
}

#[cfg(target_os = "linux")]
const USAGE: &str = "usage: loadgen-endpoint [--listen ADDRESS:PORT] [--body-bytes N] \
                     [--delay-ns N] [--cores 0,1] [--spin] [--inference] and the flags of \
                     docs/ENDPOINT.md";

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("loadgen-endpoint runs on Linux only");
    std::process::exit(3);
}
