//! monoio on io_uring with SINGLE_ISSUER and DEFER_TASKRUN, its cheapest set-up here (the default
//! set-up costs more a request): one task a connection.

use crate::client::{Exchange, Job, Step, Tally};
use monoio::io::{AsyncReadRent, AsyncWriteRentExt};
use monoio::net::TcpStream;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

pub fn run(job: &Job) -> io::Result<Tally> {
    let mut setup = io_uring_monoio::IoUring::builder();
    setup.setup_single_issuer().setup_defer_taskrun();
    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new()
        .with_entries(1024)
        .uring_builder(setup)
        .build()?;
    let streams = job.connect()?;
    let request: &'static [u8] = job.request().leak();
    let tally = Rc::new(RefCell::new(Tally::new(job)));
    let shared = tally.clone();
    runtime.block_on(async move {
        let mut tasks = Vec::with_capacity(streams.len());
        for stream in streams {
            let tally = shared.clone();
            tasks.push(monoio::spawn(async move {
                if exchange_all(stream, request, &tally).await.is_err() {
                    tally.borrow_mut().fault("socket failed");
                }
            }));
        }
        for task in tasks {
            task.await;
        }
    });
    drop(runtime);
    Ok(Rc::into_inner(tally).expect("every task has ended").into_inner())
}

async fn exchange_all(
    stream: std::net::TcpStream,
    request: &'static [u8],
    tally: &RefCell<Tally>,
) -> io::Result<()> {
    let mut stream = TcpStream::from_std(stream)?;
    let mut input: Vec<u8> = Vec::with_capacity(4096);
    let mut exchange = Exchange::new(&tally.borrow());
    let mut step = Step::Send;
    while step != Step::Stop {
        if step == Step::Send {
            stream.write_all(request).await.0?;
        }
        let (count, buffer) = stream.read(input).await;
        input = buffer;
        step = exchange.received(&input[..count?], &mut tally.borrow_mut());
    }
    Ok(())
}
