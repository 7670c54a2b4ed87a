//! The processes of this machine that connections belong to.

use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Returns the process of each connection of this machine, by its address here, as far as the user
/// may know it.
#[cfg(target_os = "linux")]
pub(super) fn processes() -> BTreeMap<SocketAddr, i32> {
    use procfs::net::{TcpState, tcp, tcp6};
    use procfs::process::{FDTarget, all_processes};

    let sockets = [tcp(), tcp6()].into_iter().flatten().flatten();
    let open = sockets.filter(|it| it.state == TcpState::Established);
    let inodes: BTreeMap<u64, SocketAddr> =
        open.map(|it| (it.inode, canonical(it.local_address))).collect();
    let mut found = BTreeMap::new();
    for process in all_processes().into_iter().flatten().flatten() {
        for file in process.fd().into_iter().flatten().flatten() {
            if let FDTarget::Socket(inode) = file.target
                && let Some(address) = inodes.get(&inode)
            {
                found.insert(*address, process.pid());
            }
        }
    }
    found
}

/// Returns nothing: only Linux says which process has a socket.
#[cfg(not(target_os = "linux"))]
pub(super) fn processes() -> BTreeMap<SocketAddr, i32> {
    BTreeMap::new()
}

/// Writes an address in one way only.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}
