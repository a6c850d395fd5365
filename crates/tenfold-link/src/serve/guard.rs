//! A connection that must make progress: one that neither reads nor writes for too long is closed, and so is one whose peer takes
//! its answer in drops.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream with a clock.
pub(super) struct Guard<S> {
    inner: S,
    idle: Duration,
    least: u64,
    /// When the present period ends.
    clock: Pin<Box<Sleep>>,
    /// Bytes moved since it began.
    moved: u64,
    /// Whether the peer owes us something: bytes of an answer that it has not taken.
    is_writing: bool,
}

impl<S> Guard<S> {
    /// Watches a stream. In each period of `idle` something must move; while an answer is under way, `rate` bytes a second.
    pub fn new(inner: S, idle: Duration, rate: u64) -> Guard<S> {
        let least = (rate as f64 * idle.as_secs_f64()) as u64;
        Guard { inner, idle, least, clock: Box::pin(sleep(idle)), moved: 0, is_writing: false }
    }

    /// Looks at the clock. Called where the stream has to wait.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.clock.as_mut().poll(context).is_ready() {
            let need = if self.is_writing { self.least.max(1) } else { 1 };
            if self.moved < need {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.moved = 0;
            self.clock.as_mut().reset(Instant::now() + self.idle);
        }
        Ok(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            Poll::Ready(done) => {
                this.moved += (buffer.filled().len() - before) as u64;
                Poll::Ready(done)
            }
            Poll::Pending => match this.check(context) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match Pin::new(&mut this.inner).poll_write(context, bytes) {
            Poll::Ready(done) => {
                this.moved += done.as_ref().map_or(0, |&n| n as u64);
                this.is_writing = false;
                Poll::Ready(done)
            }
            Poll::Pending => {
                this.is_writing = true;
                match this.check(context) {
                    Ok(()) => Poll::Pending,
                    Err(error) => Poll::Ready(Err(error)),
                }
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}
