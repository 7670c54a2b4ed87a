//! smol and async-std.

use std::future::Future;
use std::net::SocketAddr;

use sdam::async_std::{
    AsyncIo, AsyncStd as AsyncStdExecutor, Client, Executor, Smol as SmolExecutor,
};
use sdam::config::Options;
use sdam::host::ClientError;
use sdam_conformance::adapter::{Adapter, Subject};

/// smol's global executor.
pub(crate) struct Smol;

/// async-std's executor.
pub(crate) struct AsyncStd;

fn client(options: Options, executor: impl Executor) -> Result<Subject<AsyncIo>, ClientError> {
    let (client, events) = Client::with_events(options, executor)?;
    Ok(((*client).clone(), events))
}

async fn connect(
    options: Options,
    name_servers: Vec<SocketAddr>,
    executor: impl Executor,
) -> Result<Subject<AsyncIo>, ClientError> {
    let builder = Client::builder(options, executor).name_servers(name_servers);
    let (client, events) = builder.connect_with_events().await?;
    Ok(((*client).clone(), events))
}

impl Adapter for Smol {
    type Runtime = AsyncIo;

    fn name(&self) -> &str {
        "smol"
    }

    fn client(&self, options: Options) -> Result<Subject<AsyncIo>, ClientError> {
        client(options, SmolExecutor)
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<AsyncIo>, ClientError> {
        connect(options, name_servers, SmolExecutor).await
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        smol::block_on(future)
    }
}

impl Adapter for AsyncStd {
    type Runtime = AsyncIo;

    fn name(&self) -> &str {
        "async-std"
    }

    fn client(&self, options: Options) -> Result<Subject<AsyncIo>, ClientError> {
        client(options, AsyncStdExecutor)
    }

    async fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> Result<Subject<AsyncIo>, ClientError> {
        connect(options, name_servers, AsyncStdExecutor).await
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        async_std::task::block_on(future)
    }
}
