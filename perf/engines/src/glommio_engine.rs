//! glommio: one task a connection on one executor. The launcher has pinned the thread.

use crate::client::{Exchange, Job, Step, Tally};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use glommio::net::TcpStream;
use glommio::{LocalExecutorBuilder, Placement};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;

pub fn run(job: &Job) -> io::Result<Tally> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .ring_depth(1024)
        .io_memory(1 << 20)
        .make()
        .map_err(|error| io::Error::other(error.to_string()))?;
    executor.run(async {
        let mut streams = Vec::with_capacity(job.connections);
        for _ in 0..job.connections {
            let stream = TcpStream::connect(job.endpoint()).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let request: Rc<[u8]> = job.request().into();
        let tally = Rc::new(RefCell::new(Tally::new(job)));
        let mut tasks = Vec::with_capacity(streams.len());
        for stream in streams {
            let (request, tally) = (request.clone(), tally.clone());
            let task = glommio::spawn_local(async move {
                if exchange_all(stream, &request, &tally).await.is_err() {
                    tally.borrow_mut().fault("socket failed");
                }
            });
            tasks.push(task.detach());
        }
        for task in tasks {
            task.await;
        }
        Ok(Rc::into_inner(tally).expect("every task has ended").into_inner())
    })
}

async fn exchange_all(
    mut stream: TcpStream,
    request: &[u8],
    tally: &RefCell<Tally>,
) -> io::Result<()> {
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
