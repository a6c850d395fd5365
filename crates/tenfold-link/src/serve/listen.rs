//! Connections: how many, how long, and what protocol.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use super::ServeOptions;
use super::guard::Guard;
use super::route::Site;

/// Longest header of a request, all lines together.
const MAX_HEADER: usize = 16 << 10;

/// Most lines of it.
const MAX_LINES: usize = 64;

/// Requests at once on a connection of HTTP/2.
const STREAMS: u32 = 32;

/// Takes connections until it is told to stop, then waits for those under way.
pub(super) async fn listen(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    site: Arc<Site>,
    options: ServeOptions,
    mut stop: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(options.connections.max(1)));
    let graceful = GracefulShutdown::new();
    let options = Arc::new(options);
    loop {
        // Without room, connections wait in the system's queue.
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            _ = stop.changed() => break,
        };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // Out of file handles, or the peer has gone already: neither ends a server.
                Err(_) => {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            },
            _ = stop.changed() => break,
        };
        let (site, tls, options, watcher) = (site.clone(), tls.clone(), options.clone(), graceful.watcher());
        tokio::spawn(async move {
            connection(stream, tls, site, &options, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    site: Arc<Site>,
    options: &ServeOptions,
    watcher: Watcher,
) {
    let _ = stream.set_nodelay(true);
    let stream = Guard::new(stream, options.idle, options.least_rate);
    match tls {
        None => talk(stream, site, options, watcher).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(options.header_time, tls.accept(stream)).await {
                talk(stream, site, options, watcher).await;
            }
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    site: Arc<Site>,
    options: &ServeOptions,
    watcher: Watcher,
) {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_time)
        .max_buf_size(MAX_HEADER)
        .max_headers(MAX_LINES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(MAX_HEADER as u32)
        .max_send_buf_size(256 << 10);
    let service = service_fn(move |request: Request<Incoming>| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(&request.into_parts().0).await) }
    });
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    // A peer that breaks off, or breaks the protocol, is no concern of anybody else.
    let _ = watcher.watch(connection).await;
}
