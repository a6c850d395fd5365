//! A folder of models over HTTP/1.1 and HTTP/2: ranges, digests as entity tags, a manifest, and models encoded on request.
//!
//! Everything a peer can make grow has a limit: connections, headers, streams, the time it may stay silent or read slowly. Names that
//! lead out of the folder, by dots or by links, do not exist. [`Server::start`] returns when the port is open; dropping a [`Server`] or
//! [`Server::shutdown`] ends it.

mod auth;
mod body;
mod catalog;
mod guard;
mod listen;
mod options;
mod range;
mod route;
mod tls;
mod variant;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::manifest::{FileEntry, MANIFEST, Manifest};

pub use options::{EncodeLimits, ServeOptions};

/// The manifest of a folder: what a server of it would offer.
pub fn manifest_of(folder: &Path) -> Result<Manifest> {
    let root = folder.canonicalize().map_err(Error::io(folder))?;
    let files = catalog::Catalog::new(root)
        .list("")
        .ok_or_else(|| Error::InvalidArgument(format!("{} is not a folder", folder.display())))?;
    let files = files.iter().filter(|file| file.name != MANIFEST);
    let entries = files.map(|file| FileEntry::of_file(&file.path, &file.name)).collect::<Result<Vec<_>>>()?;
    Ok(Manifest::new(entries))
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    runtime: Option<Runtime>,
    stop: watch::Sender<bool>,
    ended: Option<tokio::task::JoinHandle<()>>,
    grace: std::time::Duration,
}

impl Server {
    /// Offers a folder at an address such as `127.0.0.1:8080`; port 0 takes a free one.
    pub fn start(folder: &Path, address: &str, options: ServeOptions) -> Result<Server> {
        let folder = folder.canonicalize().map_err(Error::io(folder))?;
        if !folder.is_dir() {
            return Err(Error::InvalidArgument(format!("{} is not a folder", folder.display())));
        }
        let tls =
            options.tls.as_ref().map(|(certificate, key)| tls::acceptor(certificate, key)).transpose()?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::Environment(format!("cannot start threads: {e}")))?;
        let listener = runtime
            .block_on(TcpListener::bind(address))
            .map_err(|e| Error::Environment(format!("cannot listen on {address}: {e}")))?;
        let addr = listener.local_addr().map_err(|e| Error::Environment(e.to_string()))?;
        let (stop, stopped) = watch::channel(false);
        let grace = options.grace;
        let site = Arc::new(route::Site::new(folder, &options)?);
        let ended = runtime.spawn(listen::listen(listener, tls, site, options, stopped));
        Ok(Server { addr, runtime: Some(runtime), stop, ended: Some(ended), grace })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes no more connections and waits for the answers under way, at most as long as the options' grace.
    pub fn shutdown(mut self) {
        let _ = self.stop.send(true);
        if let (Some(runtime), Some(ended)) = (&self.runtime, self.ended.take()) {
            let _ = runtime.block_on(async { tokio::time::timeout(self.grace, ended).await });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(runtime) = self.runtime.take() {
            // An encoding under way cannot be waited for.
            runtime.shutdown_background();
        }
    }
}
