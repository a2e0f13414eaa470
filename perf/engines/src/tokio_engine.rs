//! tokio, current_thread: one task a connection.

use crate::client::{Exchange, Job, Step, Tally};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

pub fn run(job: &Job) -> io::Result<Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let streams = job.connect()?;
    let request: Rc<[u8]> = job.request().into();
    let tally = Rc::new(RefCell::new(Tally::new(job)));
    let tasks = LocalSet::new();
    for stream in streams {
        let (request, tally) = (request.clone(), tally.clone());
        tasks.spawn_local(async move {
            if exchange_all(stream, &request, &tally).await.is_err() {
                tally.borrow_mut().fault("socket failed");
            }
        });
    }
    runtime.block_on(tasks);
    Ok(Rc::into_inner(tally).expect("every task has ended").into_inner())
}

async fn exchange_all(
    stream: std::net::TcpStream,
    request: &[u8],
    tally: &RefCell<Tally>,
) -> io::Result<()> {
    let mut stream = TcpStream::from_std(stream)?;
    let mut input = vec![0; 4096];
    let mut exchange = Exchange::new(&tally.borrow());
    let mut step = Step::Send;
    while step != Step::Stop {
        if step == Step::Send {
            stream.write_all(request).await?;
        }
        let count = stream.read(&mut input).await?;
        step = exchange.received(&input[..count], &mut tally.borrow_mut());
    }
    Ok(())
}
