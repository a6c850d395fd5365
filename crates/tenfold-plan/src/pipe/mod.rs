//! A real connection to hold forecasts against: a sender that encodes, a receiver that decodes, and between them the
//! network, or on one machine a link of a stated bandwidth.
//!
//! | file | holds |
//! |---|---|
//! | `frame` | what goes over the connection |
//! | `send` | the sending end: encoders and one writer |
//! | `lanes` | the same with some chunks raw while others are encoded |
//! | `receive` | the receiving end: one reader and decoders; and a server for others |
//! | `shaper` | a relay that lets so many bytes a second through |
//!
//! This measures; it does not store anything at the other end. For that there are the commands that ship models.

mod frame;
mod lanes;
mod receive;
mod send;
mod shaper;

use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use tenfold::engine::SharedEngine;
use tenfold::{EncodeOptions, Tensor};

use crate::error::{Error, Result};

pub use receive::{Received, listen};
pub use send::Sent;
pub use tenfold_link::pipeline::Rates as LaneRates;

/// Longest that either end waits for the other.
const PATIENCE: Duration = Duration::from_secs(120);

/// What goes through a connection.
#[derive(Clone)]
pub struct Cargo<'a> {
    /// Pieces of tensors, over and over.
    pub chunks: &'a [Tensor],
    /// How many are sent.
    pub count: usize,
    /// How they are coded; raw if there is none.
    pub coding: Option<Coding>,
}

/// How chunks are coded.
#[derive(Clone)]
pub struct Coding {
    /// What encodes and decodes.
    pub engine: SharedEngine,
    /// The goal and the effort.
    pub options: EncodeOptions,
    /// Chunks that are coded at the same time.
    pub workers: usize,
    /// What is known of both lanes, if some chunks are to go raw while others are coded; measurements on the way follow it. Bytes a second
    /// of all workers together. None codes all of them.
    pub lanes: Option<LaneRates>,
}

/// Sends through a link on this machine, of so many bytes a second or as fast as it goes; both ends share the cores.
pub fn run_here(cargo: &Cargo<'_>, bytes_per_second: Option<f64>) -> Result<Sent> {
    let (to_relay, from_sender) = pair()?;
    let (to_receiver, from_relay) = pair()?;
    let coding = cargo.coding.clone();
    thread::scope(|scope| {
        let relay = scope.spawn(move || shaper::relay(from_sender, to_receiver, bytes_per_second));
        let receiver = scope.spawn(move || {
            let engine = coding.as_ref().map(|c| c.engine.clone()).unwrap_or_default();
            receive::serve(from_relay, &engine, coding.map_or(1, |c| c.workers))
        });
        let sent = send::send(to_relay, cargo);
        let received = join(receiver.join());
        let relayed = join(relay.join());
        // The sender sees a broken connection where the other end fails; the cause says more.
        match (sent, received, relayed) {
            (Ok(sent), Ok(_), Ok(())) => Ok(sent),
            (_, Err(error @ (Error::Codec(_) | Error::Protocol(_))), _) => Err(error),
            (Err(error), _, _) | (_, Err(error), _) | (_, _, Err(error)) => Err(error),
        }
    })
}

/// Sends to a machine where [`listen`] waits.
pub fn run_to(address: &str, cargo: &Cargo<'_>) -> Result<Sent> {
    send::send(connect(address)?, cargo)
}

/// Seconds of a round trip to such a machine: the least of several.
pub fn round_trip(address: &str) -> Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..5 {
        let nothing = Cargo { chunks: &[], count: 0, coding: None };
        let stream = connect(address)?;
        least = least.min(send::send(stream, &nothing)?.seconds);
    }
    Ok(least)
}

fn connect(address: &str) -> Result<TcpStream> {
    let what = || format!("connecting to {address}");
    let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(Error::io(what()))?.collect();
    let mut last = None;
    for address in found {
        match TcpStream::connect_timeout(&address, Duration::from_secs(10)) {
            Ok(stream) => return prepare(stream),
            Err(error) => last = Some(error),
        }
    }
    let none = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    Err(Error::Io { what: what(), source: last.unwrap_or_else(none) })
}

fn prepare(stream: TcpStream) -> Result<TcpStream> {
    let error = || Error::io("a connection");
    stream.set_nodelay(true).map_err(error())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(error())?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(error())?;
    Ok(stream)
}

/// Two ends of a connection of this machine with itself.
fn pair() -> Result<(TcpStream, TcpStream)> {
    let error = || Error::io("a connection of this machine with itself");
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(error())?;
    let address = listener.local_addr().map_err(error())?;
    let near = TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(error())?;
    let own = near.local_addr().map_err(error())?;
    loop {
        let (far, from) = listener.accept().map_err(error())?;
        // Anyone on this machine may have connected in between.
        if from == own {
            return Ok((prepare(near)?, prepare(far)?));
        }
    }
}

/// The result of a thread; a panic goes on.
fn join<T>(done: thread::Result<T>) -> T {
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
