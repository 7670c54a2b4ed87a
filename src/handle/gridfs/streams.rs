//! The traits of streams: those of futures, and those of tokio.

use std::io::{Result, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use sdam_host::Runtime;

use super::download::GridFsDownloadStream;
use super::upload::GridFsUploadStream;

impl<R: Runtime> futures_io::AsyncRead for GridFsDownloadStream<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Result<usize>> {
        let stream = self.get_mut();
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let Some(bytes) = ready!(stream.poll_bytes(cx))? else { return Poll::Ready(Ok(0)) };
        let count = bytes.len().min(buffer.len());
        buffer[..count].copy_from_slice(&bytes[..count]);
        stream.consume(count);
        Poll::Ready(Ok(count))
    }
}

impl<R: Runtime> futures_io::AsyncSeek for GridFsDownloadStream<R> {
    fn poll_seek(self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<Result<u64>> {
        Poll::Ready(self.get_mut().seek_to(to))
    }
}

impl<R: Runtime> futures_io::AsyncWrite for GridFsUploadStream<R> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.get_mut().poll_bytes(cx, bytes).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_end(cx).map_err(Into::into)
    }
}

#[cfg(feature = "tokio")]
impl<R: Runtime> tokio::io::AsyncRead for GridFsDownloadStream<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        let stream = self.get_mut();
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Some(bytes) = ready!(stream.poll_bytes(cx))? {
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            stream.consume(count);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "tokio")]
impl<R: Runtime> tokio::io::AsyncSeek for GridFsDownloadStream<R> {
    fn start_seek(self: Pin<&mut Self>, to: SeekFrom) -> Result<()> {
        self.get_mut().seek_to(to).map(drop)
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<u64>> {
        Poll::Ready(Ok(self.position()))
    }
}

#[cfg(feature = "tokio")]
impl<R: Runtime> tokio::io::AsyncWrite for GridFsUploadStream<R> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.get_mut().poll_bytes(cx, bytes).map_err(Into::into)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.get_mut().poll_end(cx).map_err(Into::into)
    }
}
