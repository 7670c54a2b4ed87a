//! The proof that a server has read compressed messages: its own numbers.

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_host::{Runtime, Topology};

/// Asks a server how many bytes of compressed messages it has read.
pub(super) async fn bytes_read<R: Runtime>(
    client: &Topology<R>,
    compressor: &str,
) -> Result<i64, String> {
    let command = RawDocumentBuf::try_from(&doc! { "serverStatus": 1 });
    let command = command.map_err(|error| error.to_string())?;
    let reply = client.run_command("admin", &command).await.map_err(|error| error.to_string())?;
    let status = Document::try_from(&**reply.document()).map_err(|error| error.to_string())?;
    bytes_in(&status, compressor).ok_or_else(|| format!("it shows nothing of {compressor}"))
}

fn bytes_in(status: &Document, compressor: &str) -> Option<i64> {
    let compression = status.get_document("network").ok()?.get_document("compression").ok()?;
    let decompressor = compression.get_document(compressor).ok()?.get_document("decompressor");
    match decompressor.ok()?.get("bytesIn")? {
        Bson::Int64(bytes) => Some(*bytes),
        Bson::Int32(bytes) => Some((*bytes).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::bytes_in;

    #[test]
    fn the_bytes_that_a_server_has_read_stand_with_its_decompressor() {
        let of = |bytes_in| doc! { "decompressor": { "bytesIn": bytes_in, "bytesOut": 9_i64 } };
        let compression = doc! { "zstd": of(7_i64), "zlib": of(0_i64) };
        let status = doc! { "network": { "bytesIn": 8_i64, "compression": compression } };
        assert_eq!(bytes_in(&status, "zstd"), Some(7));
        assert_eq!(bytes_in(&status, "zlib"), Some(0));
        assert_eq!(bytes_in(&status, "snappy"), None);
    }
}
